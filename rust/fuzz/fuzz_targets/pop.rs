//! Fuzz target: handles of popped messages, batches of acknowledgements and records of the revive topic are read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::fuzzing::{pop_headers, pop_texts};
use rmqpy::remoting::frame::Encoding;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, content)) = bytes.split_first() else { return };
    let properties: &[u8] = match kind % 4 {
        0 => b"TAGS\x01ck\x02",
        1 => b"TAGS\x01ack\x02",
        2 => b"TAGS\x01bAck\x02",
        _ => return drop(pop_headers(Encoding::Json, content)),
    };
    pop_texts(properties, content);
});
