//! Fuzz target: signatures of requests, and the texts of policies.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::fuzzing::{policy_texts, signature};
use rmqpy::remoting::frame::Encoding;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, content)) = bytes.split_first() else { return };
    let encoding = if kind & 1 == 0 { Encoding::Json } else { Encoding::Binary };
    if kind & 2 == 0 {
        signature(encoding, content, &bytes[..bytes.len().min(8)]);
    } else if let Ok(text) = std::str::from_utf8(content) {
        policy_texts(text);
    }
});
