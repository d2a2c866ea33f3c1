//! Message fields: everything a user sets except the body, validated before any network call.
//!
//! It defines the rules for names and the order of properties. Invariant: fields that passed `check` can be carried
//! by every RocketMQ broker and read by every client. Any thread.

use crate::message::lite;
use crate::message::properties::{self, ENTRY_SEPARATOR, NAME_VALUE_SEPARATOR, PROPERTIES_BYTES_MAX};
use crate::message::topic::{self, BROKER_TOPICS, GROUP_BYTES_MAX};

/// Property names that RocketMQ's list lacks, though brokers or clients give them a meaning.
const UNLISTED: [&str; 9] = [
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "INNER_BASE",
    "ORIGIN_GROUP",
    "TIMER_DEL_MS",
    "TIMER_ROLL_LABEL",
    "TRANS_OFFSET",
    "__LITE_TOPIC",
    "__SHARDINGKEY",
    "__transactionId__",
];

/// Prefix of the names that clients attach to received messages; they are never stored.
const TRANSIENT_PREFIX: &str = "__RMQ.TRANSIENT.";

/// Maximum delay level of a message. Brokers have 18 levels by default, and use their longest for a higher one.
const DELAY_LEVEL_MAX: i32 = 64;

/// Returns whether RocketMQ reserves this property name.
pub(crate) fn is_reserved(name: &str) -> bool {
    properties::is_reserved(name) || UNLISTED.contains(&name) || name.starts_with(TRANSIENT_PREFIX)
}

/// When a message becomes visible to consumers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Delivery {
    /// At this wall-clock time, in milliseconds since the epoch.
    At(i64),
    /// This many milliseconds after the broker's receipt.
    After(i64),
    /// After the delay that the broker's configuration assigns to this level, counted from 1.
    Level(i32),
}

/// Messages with equal keys go to one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueKey<'a> {
    Sharding(&'a str),
    LiteTopic(&'a str),
}

/// All fields of a message except its body.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MessageFields {
    pub(crate) topic: String,
    /// A word for filters.
    pub(crate) tag: Option<String>,
    /// Words that can be queried to find it.
    pub(crate) keys: Vec<String>,
    /// The user's names and values, in the given order.
    pub(crate) properties: Vec<(String, String)>,
    /// Messages with equal sharding keys go to one queue.
    pub(crate) sharding_key: Option<String>,
    pub(crate) delivery: Option<Delivery>,
    /// The priority, from 0; it chooses the queue.
    pub(crate) priority: Option<i32>,
    /// The lite topic of `topic` that it belongs to.
    pub(crate) lite_topic: Option<String>,
    /// The application's flag, passed through.
    pub(crate) flag: i32,
}

/// Invalid fields. The text describes the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum FieldError {
    /// Empty, too long or with an invalid character.
    #[error(
        "{what} {name:?} is not a valid name: use 1 to {chars_max} of the characters a-z A-Z 0-9 _ - % |"
    )]
    Name { what: &'static str, name: String, chars_max: usize },
    #[error("topic {0:?} is written by brokers only")]
    BrokerTopic(String),
    /// A property name reserved by the protocol.
    #[error(
        "property {0:?} is reserved; use the argument of Message that sets it (tag, keys, sharding_key, deliver_at, ...)"
    )]
    Reserved(String),
    /// On the wire these control characters end names and values.
    #[error("{what} {text:?} is empty, or has a character that the wire format cannot carry")]
    Text { what: &'static str, text: String },
    #[error("key {0:?} has white space inside; give several keys as a list")]
    Key(String),
    #[error("a delay must not be negative, and a delay level is from 1 to {DELAY_LEVEL_MAX}")]
    Delay,
    #[error("a priority must not be negative")]
    Priority,
    #[error("lite topic {0:?} must have 1 to {max} of the characters a-z A-Z 0-9 _ -", max = lite::NAME_BYTES_MAX)]
    LiteTopic(String),
    #[error("properties take {0} bytes, a message can carry {PROPERTIES_BYTES_MAX}")]
    PropertiesTooLong(usize),
}

/// Checks that `name` is a valid topic.
fn check_topic(name: &str) -> Result<(), FieldError> {
    check_name("topic", name, topic::bytes_max(name))
}

/// Checks that `name` is a valid group.
pub(crate) fn check_group(name: &str) -> Result<(), FieldError> {
    check_name("group", name, GROUP_BYTES_MAX)
}

fn check_name(what: &'static str, name: &str, chars_max: usize) -> Result<(), FieldError> {
    if (1..=chars_max).contains(&name.len()) && name.bytes().all(topic::is_name_byte) {
        Ok(())
    } else {
        Err(FieldError::Name { what, name: name.to_owned(), chars_max })
    }
}

/// Checks that a property can carry `text`.
pub(super) fn check_text(what: &'static str, text: &str) -> Result<(), FieldError> {
    if text.trim().is_empty() || text.bytes().any(|c| c == NAME_VALUE_SEPARATOR || c == ENTRY_SEPARATOR) {
        Err(FieldError::Text { what, text: text.to_owned() })
    } else {
        Ok(())
    }
}

impl MessageFields {
    /// Refuses fields that a broker would refuse, or that readers would silently lose.
    pub(crate) fn check(&self) -> Result<(), FieldError> {
        self.check_topic()?;
        self.check_content()
    }

    /// Checks the topic, as a part of `check`.
    pub(crate) fn check_topic(&self) -> Result<(), FieldError> {
        check_topic(&self.topic)?;
        if BROKER_TOPICS.contains(&self.topic.as_str()) {
            return Err(FieldError::BrokerTopic(self.topic.clone()));
        }
        Ok(())
    }

    /// Checks everything else, as a part of `check`.
    pub(crate) fn check_content(&self) -> Result<(), FieldError> {
        if let Some(tag) = &self.tag {
            check_text("tag", tag)?;
            if tag.contains("||") || tag.trim().len() != tag.len() {
                return Err(FieldError::Text { what: "tag", text: tag.clone() });
            }
        }
        for key in &self.keys {
            check_text("key", key)?;
            if key.contains(char::is_whitespace) {
                return Err(FieldError::Key(key.clone()));
            }
        }
        for (name, value) in &self.properties {
            check_text("property name", name)?;
            check_text("property value", value)?;
            if is_reserved(name) {
                return Err(FieldError::Reserved(name.clone()));
            }
        }
        if let Some(key) = &self.sharding_key {
            check_text("sharding key", key)?;
        }
        if matches!(self.delivery, Some(Delivery::At(ms) | Delivery::After(ms)) if ms < 0)
            || matches!(self.delivery, Some(Delivery::Level(level)) if !(1..=DELAY_LEVEL_MAX).contains(&level))
        {
            return Err(FieldError::Delay);
        }
        if self.priority.is_some_and(|priority| priority < 0) {
            return Err(FieldError::Priority);
        }
        if let Some(lite_topic) = self.lite_topic.as_ref().filter(|name| !lite::is_name(name)) {
            return Err(FieldError::LiteTopic(lite_topic.clone()));
        }
        self.check_size()
    }

    /// Returns whether the message has no key, time, priority or lite topic.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self { sharding_key: None, delivery: None, priority: None, lite_topic: None, .. })
    }

    /// Returns what chooses its queue, if not the rotation.
    pub(crate) fn queue_key(&self) -> Option<QueueKey<'_>> {
        let lite_topic = || self.lite_topic.as_deref().map(QueueKey::LiteTopic);
        self.sharding_key.as_deref().map(QueueKey::Sharding).or_else(lite_topic)
    }

    /// Checks the total size of the properties, as a part of `check_content`.
    pub(crate) fn check_size(&self) -> Result<(), FieldError> {
        let bytes = self.properties_bytes();
        if bytes > PROPERTIES_BYTES_MAX - BROKER_PROPERTIES_BYTES {
            return Err(FieldError::PropertiesTooLong(bytes));
        }
        Ok(())
    }

    /// Returns the properties string of this message with the id `unique_id`.
    pub(crate) fn properties_text(&self, unique_id: &str) -> String {
        let mut text = String::with_capacity(96);
        self.each_property(unique_id, |part| text.push_str(part));
        text
    }

    /// Appends the properties string of this message with the id `unique_id`.
    pub(crate) fn put_properties(&self, unique_id: &str, out: &mut Vec<u8>) {
        self.each_property(unique_id, |part| out.extend_from_slice(part.as_bytes()));
    }

    /// Returns the size of the properties string without the id.
    pub(crate) fn properties_bytes(&self) -> usize {
        let mut bytes = 0;
        self.each_property("", |part| bytes += part.len());
        bytes
    }

    /// Passes the properties string to `out`, piece by piece.
    fn each_property(&self, unique_id: &str, mut out: impl FnMut(&str)) {
        let mut put = |name: &str, value: &str| {
            [name, NAME_ENDS, value, ENTRY_ENDS].into_iter().for_each(&mut out);
        };
        for (name, value) in &self.properties {
            put(name, value);
        }
        match self.keys.as_slice() {
            [] => {}
            [key] => put("KEYS", key),
            keys => put("KEYS", &keys.join(" ")),
        }
        if let Some(tag) = &self.tag {
            put("TAGS", tag);
        }
        if let Some(key) = &self.sharding_key {
            put("__SHARDINGKEY", key);
        }
        match self.delivery {
            Some(Delivery::At(ms)) => put("TIMER_DELIVER_MS", itoa::Buffer::new().format(ms)),
            Some(Delivery::After(ms)) => put("TIMER_DELAY_MS", itoa::Buffer::new().format(ms)),
            Some(Delivery::Level(level)) => put("DELAY", itoa::Buffer::new().format(level)),
            None => {}
        }
        if let Some(priority) = self.priority {
            put("_SYS_MSG_PRIORITY_", itoa::Buffer::new().format(priority));
        }
        if let Some(lite_topic) = &self.lite_topic {
            put("__LITE_TOPIC", lite_topic);
        }
        put("WAIT", "true");
        put("UNIQ_KEY", unique_id);
    }
}

/// [`NAME_VALUE_SEPARATOR`] and [`ENTRY_SEPARATOR`] as text.
const NAME_ENDS: &str = "\u{1}";
const ENTRY_ENDS: &str = "\u{2}";

/// Size reserved for properties added later: the id here; region, trace switch and cluster by the broker.
const BROKER_PROPERTIES_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(topic: &str) -> MessageFields {
        MessageFields { topic: topic.to_owned(), ..MessageFields::default() }
    }

    #[test]
    fn properties_are_written_with_both_separators() {
        let message = MessageFields {
            tag: Some("paid".into()),
            keys: vec!["A-1".into(), "A-2".into()],
            properties: vec![("colour".into(), "blå".into())],
            delivery: Some(Delivery::Level(3)),
            ..fields("orders")
        };
        assert_eq!(message.check(), Ok(()));
        let expected = "colour\u{1}blå\u{2}KEYS\u{1}A-1 A-2\u{2}TAGS\u{1}paid\u{2}DELAY\u{1}3\u{2}WAIT\u{1}true\u{2}\
                        UNIQ_KEY\u{1}ID\u{2}";
        assert_eq!(message.properties_text("ID"), expected);
    }

    #[test]
    fn fields_that_brokers_refuse_or_readers_lose_are_refused() {
        let property = |name: &str, value: &str| MessageFields {
            properties: vec![(name.to_owned(), value.to_owned())],
            ..fields("t")
        };
        let refused = [
            fields(""),
            fields("has space"),
            fields(&"t".repeat(128)),
            fields("SCHEDULE_TOPIC_XXXX"),
            MessageFields { tag: Some("a||b".into()), ..fields("t") },
            MessageFields { tag: Some(" ".into()), ..fields("t") },
            MessageFields { keys: vec!["two words".into()], ..fields("t") },
            property("TAGS", "x"),
            property("", "x"),
            property("x", ""),
            property("x", "a\u{1}b"),
            property("x", &"y".repeat(PROPERTIES_BYTES_MAX)),
            MessageFields { delivery: Some(Delivery::Level(0)), ..fields("t") },
            MessageFields { delivery: Some(Delivery::After(-1)), ..fields("t") },
        ];
        for case in refused {
            assert!(case.check().is_err(), "{case:?}");
        }
        assert_eq!(fields(&format!("%RETRY%{}", "g".repeat(120))).check(), Ok(()));
        assert_eq!(fields(&"t".repeat(127)).check(), Ok(()));
    }
}
