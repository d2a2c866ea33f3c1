//! Multi-dispatch: the light queues of a message, in two of its properties.
//!
//! `INNER_MULTI_DISPATCH` names the queues, and `INNER_MULTI_QUEUE_OFFSET` has the offset of the message in each of them,
//! in the same order. Both are separated by commas. Only brokers write offsets: a record without them is in no light
//! queue.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::error::DispatchError;
use super::properties::{self, name};
use super::topic::{LIGHT_PREFIX, admits_light};
use crate::positions::QueueOffset;

/// Longest name of a light queue, which is the name of a directory.
const NAME_BYTES_MAX: usize = 255;

/// Finds the records with offsets faster than a search by property.
static OFFSETS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(name::LIGHT_OFFSETS));

/// Returns the names of the list in `INNER_MULTI_DISPATCH`.
///
/// # Errors
/// A name is not that of a light queue, or is repeated. Apache's broker dispatches such a message to none of its queues.
pub(crate) fn names(list: &[u8]) -> Result<Vec<&str>, DispatchError> {
    let mut names = Vec::new();
    for part in parts(list) {
        let name = std::str::from_utf8(part).ok().filter(|name| is_light_name(name));
        names.push(name.ok_or(DispatchError::Name)?);
    }
    let mut sorted = names.clone();
    sorted.sort_unstable();
    match sorted.windows(2).any(|pair| matches!(pair, [one, next] if one == next)) {
        true => Err(DispatchError::Repeated),
        false => Ok(names),
    }
}

/// Returns the light queues of a stored record, and its offset in each. Most records are in none, which takes one search.
pub(crate) fn places<'a>(topic: &[u8], properties: &'a [u8]) -> Vec<(&'a str, QueueOffset)> {
    let Some((names, offsets)) = lists(topic, properties) else { return Vec::new() };
    let place = |(name, offset): (&'a [u8], &'a [u8])| {
        let name = std::str::from_utf8(name).ok().filter(|name| is_light_name(name))?;
        Some((name, offset_of(offset)?))
    };
    parts(names).zip(parts(offsets)).filter_map(place).collect()
}

/// Returns the offset of a stored record in a light queue; `None` if it is not in it.
pub(crate) fn place(topic: &[u8], properties: &[u8], queue: &str) -> Option<QueueOffset> {
    let (names, offsets) = lists(topic, properties).filter(|_| is_light_name(queue))?;
    let index = parts(names).position(|name| name == queue.as_bytes())?;
    offset_of(parts(offsets).nth(index)?)
}

/// Returns the lists of names and offsets, which have the same length.
fn lists<'a>(topic: &[u8], properties: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    if OFFSETS.find(properties).is_none() || !admits_light(topic) {
        return None;
    }
    let (names, offsets) =
        (properties::get(properties, name::LIGHT_QUEUES)?, properties::get(properties, name::LIGHT_OFFSETS)?);
    (parts(names).count() == parts(offsets).count()).then_some((names, offsets))
}

fn offset_of(text: &[u8]) -> Option<QueueOffset> {
    let offset: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    u64::try_from(offset).ok().map(QueueOffset)
}

/// Splits a list like Java, which drops empty parts at the end.
fn parts(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = list.iter().rposition(|byte| *byte != b',').map_or(0, |last| last + 1);
    list.get(..end).unwrap_or_default().split(|byte| *byte == b',')
}

fn is_light_name(name: &str) -> bool {
    name.starts_with(LIGHT_PREFIX)
        && name.len() <= NAME_BYTES_MAX
        && !name.bytes().any(|byte| byte == b'/' || byte.is_ascii_control())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored(queues: &str, offsets: &str) -> Vec<u8> {
        format!("KEYS\x01k\x02INNER_MULTI_DISPATCH\x01{queues}\x02INNER_MULTI_QUEUE_OFFSET\x01{offsets}\x02")
            .into_bytes()
    }

    #[test]
    fn a_list_has_names_of_light_queues_each_once() {
        assert_eq!(names(b"%LMQ%a,%LMQ%b"), Ok(vec!["%LMQ%a", "%LMQ%b"]));
        assert_eq!(names(b"%LMQ%a,,"), Ok(vec!["%LMQ%a"]));
        for list in [&b""[..], b",", b",%LMQ%a", b"orders", b"%LMQ%a,orders", b"%LMQ%a/b", b"%LMQ%\xff"] {
            assert_eq!(names(list), Err(DispatchError::Name), "{}", list.escape_ascii());
        }
        let long = format!("%LMQ%{}", "x".repeat(NAME_BYTES_MAX));
        assert_eq!(names(long.as_bytes()), Err(DispatchError::Name));
        assert_eq!(names(b"%LMQ%a,%LMQ%b,%LMQ%a"), Err(DispatchError::Repeated));
    }

    #[test]
    fn a_record_is_in_light_queues_only_with_as_many_offsets_and_never_in_some_topics() {
        let properties = stored("%LMQ%a,%LMQ%b", "7,0");
        let found = places(b"orders", &properties);
        let places_of = |topic: &[u8], queues, offsets| places(topic, &stored(queues, offsets)).len();
        assert_eq!(found, [("%LMQ%a", QueueOffset(7)), ("%LMQ%b", QueueOffset(0))]);
        assert_eq!(places_of(b"orders", "%LMQ%a,%LMQ%b", "7"), 0);
        assert_eq!(places_of(b"orders", "%LMQ%a,%LMQ%b", "-1,x"), 0);
        assert_eq!(places_of(b"orders", "%LMQ%a,orders", "7,3"), 1);
        for topic in ["%RETRY%g", "%DLQ%g", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"] {
            assert_eq!(places_of(topic.as_bytes(), "%LMQ%a", "7"), 0, "{topic}");
        }
        assert_eq!(places(b"orders", b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02"), []);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(properties in prop::collection::vec(any::<u8>(), 0..64), list in "[%LMQa,0-9]{0,24}") {
            let _ = (places(b"orders", &properties), names(&properties));
            let _ = places(b"orders", &stored(&list, &list));
        }

        #[test]
        fn one_place_is_found_as_in_all(offsets in prop::collection::vec(0..i64::MAX as u64, 1..20)) {
            let names: Vec<String> = (0..offsets.len()).map(|index| format!("%LMQ%{index}")).collect();
            let numbers: Vec<String> = offsets.iter().map(u64::to_string).collect();
            let properties = stored(&names.join(","), &numbers.join(","));
            for (name, offset) in places(b"orders", &properties) {
                prop_assert_eq!(place(b"orders", &properties, name), Some(offset));
            }
            prop_assert_eq!(places(b"orders", &properties).len(), offsets.len());
            prop_assert_eq!(place(b"orders", &properties, "%LMQ%"), None);
        }
    }
}
