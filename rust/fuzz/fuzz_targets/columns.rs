//! A pulled body becomes rows of every column, as many in each, or says which message cannot be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::fuzzing::columns;

fuzz_target!(|bytes: &[u8]| {
    let Some((bad_text, body)) = bytes.split_first() else { return };
    columns(body, *bad_text);
});
