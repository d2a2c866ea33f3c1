//! Lite topics: many small ordered queues under one topic, their parent.
//!
//! The lite topic `x` of the parent `P` is the light queue `%LMQ%$P$x`. Neither name contains a `$`.

use super::tag::java_hash;
use super::topic::LIGHT_PREFIX;

/// Longest name of a lite topic in bytes, as in Apache's proxy.
pub(crate) const NAME_BYTES_MAX: usize = 64;
/// Separates the prefix, the parent and the lite topic in the name of a queue.
const SEPARATOR: char = '$';

/// Returns whether a lite topic may have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_allowed)
}

/// Returns the name of the queue of a lite topic; `None` for a name that none may have.
pub(crate) fn queue_of(parent: &str, lite_topic: &str) -> Option<String> {
    (is_name(lite_topic) && !parent.contains(SEPARATOR))
        .then(|| format!("{LIGHT_PREFIX}{SEPARATOR}{parent}{SEPARATOR}{lite_topic}"))
}

/// Returns the parent and the lite topic of a queue; `None` for the name of another queue.
pub(crate) fn parts_of(queue: &str) -> Option<(&str, &str)> {
    let names = queue.strip_prefix(LIGHT_PREFIX)?.strip_prefix(SEPARATOR)?;
    names.split_once(SEPARATOR).filter(|(parent, lite_topic)| !parent.is_empty() && is_name(lite_topic))
}

/// Returns whether a queue is that of a lite topic.
pub(crate) fn is_queue(name: &str) -> bool {
    parts_of(name).is_some()
}

/// Returns the number of the queue of a lite topic or message group: a jump consistent hash over the writable queues.
pub(crate) fn bucket(name: &str, queues: u32) -> u32 {
    let mut state = i64::from(java_hash(name.as_bytes())).cast_unsigned();
    let (mut candidate, mut next) = (-1_i64, 0_i64);
    while next < i64::from(queues) {
        candidate = next;
        state = state.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let divisor = ((state >> 33) + 1) as f64 / f64::from(1_u32 << 31);
        next = ((candidate + 1) as f64 / divisor) as i64;
    }
    u32::try_from(candidate).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_queue_of_a_lite_topic_has_the_name_that_apache_gives_it() {
        assert_eq!(queue_of("sessions", "s-1").as_deref(), Some("%LMQ%$sessions$s-1"));
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in ["", " ", "a$b", "a/b", "a,b", "ä", &long] {
            assert_eq!(queue_of("sessions", name), None, "{name}");
        }
        assert_eq!(queue_of("a$b", "x"), None);
        for other in ["orders", "%LMQ%room", "%LMQ%$sessions", "%LMQ%$$x", "%LMQ%$sessions$", "%LMQ%$a$b$c"] {
            assert!(!is_queue(other), "{other}");
        }
    }

    #[test]
    fn names_land_where_the_original_puts_them() {
        let rows = [
            ("a", [0, 0, 0, 0]),
            ("FG", [1, 2, 2, 15]),
            ("group1", [1, 3, 3, 3]),
            ("another_group", [1, 1, 6, 6]),
            ("order-1", [0, 3, 3, 3]),
            ("order-2", [0, 2, 2, 11]),
            ("yourMessageGroup", [1, 1, 1, 15]),
            ("订单", [1, 1, 7, 7]),
        ];
        for (group, queues) in rows {
            assert_eq!([2, 4, 8, 16].map(|count| bucket(group, count)), queues, "{group}");
        }
    }

    proptest! {
        #[test]
        fn both_names_are_read_back(parent in "[%A-Za-z0-9_|-]{1,40}", lite_topic in "[A-Za-z0-9_-]{1,64}") {
            let queue = queue_of(&parent, &lite_topic).expect("a name");
            prop_assert_eq!(parts_of(&queue), Some((parent.as_str(), lite_topic.as_str())));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,40}") {
            let _ = (parts_of(&text), queue_of(&text, &text));
        }
    }
}
