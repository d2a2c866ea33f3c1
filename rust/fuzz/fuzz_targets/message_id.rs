//! Fuzz target: a valid id text round-trips, except for the case of its digits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::message::id::OffsetMessageId;

fuzz_target!(|text: &str| {
    let Ok(id) = OffsetMessageId::decode(text) else { return };
    let again = id.text();
    // An IPv4 address in 16 bytes is written in 4.
    if again.len() == text.len() {
        assert!(again.eq_ignore_ascii_case(text));
    }
});
