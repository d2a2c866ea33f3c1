//! Fuzz target: a subscription matches each of its own tags, by code and by text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::message::tag::{TagCodes, TagFilter, java_hash};

fuzz_target!(|expression: &str| {
    let filter = TagFilter::parse(expression);
    let codes = TagCodes::parse(expression);
    if let TagFilter::Tags(tags) = &filter {
        assert!(!tags.is_empty());
        for tag in tags {
            let code = i64::from(java_hash(tag.as_bytes()));
            assert!(codes.as_ref().map_or(true, |codes| codes.matches(code)));
            assert!(filter.matches_tag(Some(tag.as_bytes())));
        }
    }
    let _ = filter.matches_tag(None);
});
