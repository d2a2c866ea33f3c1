//! Fuzz target: the fields of hot requests round-trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::fuzzing::{pull_header, send_back_header, send_header};
use rmqpy::remoting::frame::Encoding;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, content)) = bytes.split_first() else { return };
    let encoding = if kind & 1 == 0 { Encoding::Json } else { Encoding::Binary };
    match kind >> 1 & 3 {
        0 | 1 => send_header(encoding, content),
        2 => pull_header(encoding, content),
        _ => send_back_header(encoding, content),
    };
});
