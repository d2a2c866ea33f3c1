//! Entries are non-empty and free of separators; copied one by one they read the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::message::properties::{ENTRY_SEPARATOR, Writer, entries, get, is_legal};
use rmqpy::message::tag::tags_code;

fuzz_target!(|bytes: &[u8]| {
    for (name, value) in entries(bytes) {
        assert!(is_legal(name) && !value.is_empty() && !value.contains(&ENTRY_SEPARATOR));
        assert!(get(bytes, name).is_some());
    }
    let _ = tags_code(bytes);
    let mut out = Vec::new();
    let size = Writer::copy_if(&mut out, bytes, |_| true).size();
    assert!(size == out.len() && size <= bytes.len() + 1);
    assert!(entries(&out).eq(entries(bytes)));
});
