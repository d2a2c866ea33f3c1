//! Fuzz target: entries are non-empty and free of separators; copied one by one they read the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::message::properties::{ENTRY_SEPARATOR, NAME_VALUE_SEPARATOR, Writer, entries, get};
use rmqpy::message::tag::tags_code;

fuzz_target!(|bytes: &[u8]| {
    for (name, value) in entries(bytes) {
        assert!(!name.is_empty() && !name.contains(&NAME_VALUE_SEPARATOR) && !name.contains(&ENTRY_SEPARATOR));
        assert!(!value.is_empty() && !value.contains(&ENTRY_SEPARATOR));
        assert!(get(bytes, name).is_some());
    }
    let _ = tags_code(bytes);
    let mut out = Vec::new();
    let size = Writer::copy_if(&mut out, bytes, |_| true).size();
    assert!(size == out.len() && size <= bytes.len() + 1);
    assert!(entries(&out).eq(entries(bytes)));
});
