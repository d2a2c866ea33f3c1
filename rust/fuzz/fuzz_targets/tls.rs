//! Fuzz target: a TLS server connection with any first bytes, and a client's handshake and records with changed
//! bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::fuzzing::{tls_hello, tls_session};

fuzz_target!(|bytes: &[u8]| {
    let [kind, content @ ..] = bytes else { return };
    if kind & 1 == 0 {
        tls_hello(content);
        return;
    }
    let [repeats, edits, read_bytes, content @ ..] = content else { return };
    let (edits, text) = content.split_at((usize::from(*edits % 8) * 3).min(content.len()));
    let edits: Vec<_> =
        edits.chunks_exact(3).map(|edit| (u16::from_be_bytes([edit[0], edit[1]]), edit[2])).collect();
    tls_session(text, usize::from(*repeats), &edits, usize::from(*read_bytes) * 97);
});
