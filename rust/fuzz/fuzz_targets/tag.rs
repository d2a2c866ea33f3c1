//! A subscription takes each of its own tags, by code and by text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::message::tag::{TagFilter, java_hash};

fuzz_target!(|expression: &str| {
    let filter = TagFilter::parse(expression);
    if let TagFilter::Tags(tags) = &filter {
        assert!(!tags.is_empty());
        for (hash, tag) in tags {
            assert_eq!(*hash, java_hash(tag.as_bytes()));
            assert!(filter.matches_code(i64::from(*hash)) && filter.matches_tag(Some(tag.as_bytes())));
        }
    }
    let _ = filter.matches_tag(None);
});
