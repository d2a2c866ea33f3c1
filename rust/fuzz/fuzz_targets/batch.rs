//! Fuzz target: splits a batch body, and rebuilds it if it is valid to its end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::message::batch::{BATCH_COUNT_MAX, inner_messages};

fuzz_target!(|bytes: &[u8]| {
    let Ok(messages) = inner_messages(bytes).collect::<Result<Vec<_>, _>>() else { return };
    assert!(messages.len() <= BATCH_COUNT_MAX);
    let mut out = Vec::new();
    messages.iter().for_each(|message| message.encode(&mut out));
    assert_eq!(out.len(), bytes.len());
    assert_eq!(inner_messages(&out).collect::<Result<Vec<_>, _>>(), Ok(messages));
});
