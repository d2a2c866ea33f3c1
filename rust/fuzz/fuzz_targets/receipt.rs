//! Fuzz target: a broker's reply to a send is a receipt, or the error names the missing field.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::fuzzing::receipt;
use rmqpy::remoting::frame::Encoding;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, content)) = bytes.split_first() else { return };
    let encoding = if kind & 1 == 0 { Encoding::Json } else { Encoding::Binary };
    receipt(encoding, content, kind & 2 == 0);
});
