//! Fuzz target: a pulled body fills every column equally, or the error names the invalid message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::fuzzing::columns;

fuzz_target!(|bytes: &[u8]| {
    let Some((bad_text, body)) = bytes.split_first() else { return };
    columns(body, *bad_text);
});
