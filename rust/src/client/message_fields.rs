//! Message fields: all that a user gives beside the body, checked before any network call, and written as the
//! properties string.
//!
//! Owns the rules of names and the order of properties. Invariant: fields that passed `check` can be carried by
//! every RocketMQ broker and read back by every client. Any thread.

use std::collections::HashSet;
use std::sync::LazyLock;

use crate::message::properties::{ENTRY_SEPARATOR, NAME_VALUE_SEPARATOR, PROPERTIES_BYTES_MAX};
use crate::message::topic::{self, BROKER_TOPICS, GROUP_BYTES_MAX};

/// Property names that carry meaning for brokers and clients: the original refuses them from users as well.
static RESERVED: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    [
        "KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID",
        "ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY",
        "EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME ORIGIN_GROUP",
        "TRAN_PREPARED_QUEUE_OFFSET DUP_INFO INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME",
        "PUSH_REPLY_TIME CLUSTER MSG_TYPE INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_SEC TIMER_DELAY_MS",
        "TIMER_DELIVER_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL TIMER_ROLL_LABEL __SHARDINGKEY _SYS_MSG_PRIORITY_ __BORNHOST BORN_TIMESTAMP __CRC32#",
        "DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID CHECK_IMMUNITY_TIME_IN_SECONDS __transactionId__ __LITE_TOPIC",
        "TIMER_DEL_MS TRANS_OFFSET INNER_BASE",
    ]
    .into_iter()
    .flat_map(str::split_whitespace)
    .collect()
});

/// Beginning of the names that clients attach to what they received: nobody stores them.
const TRANSIENT_PREFIX: &str = "__RMQ.TRANSIENT.";

/// The highest delay level that a message may ask for. Brokers have 18 levels unless configured otherwise, and take a
/// higher one for the longest of theirs.
const DELAY_LEVEL_MAX: i32 = 64;

/// Whether a property of this name is RocketMQ's own, so that no user may set it.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(name) || name.starts_with(TRANSIENT_PREFIX)
}

/// The time at which a message becomes visible to consumers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Delivery {
    /// At this wall-clock time, in milliseconds since the epoch.
    At(i64),
    /// This many milliseconds after the broker got it.
    After(i64),
    /// After the delay the broker's configuration gives this level, counted from 1.
    Level(i32),
}

/// Everything about a message but its body.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MessageFields {
    pub(crate) topic: String,
    /// One word for filters.
    pub(crate) tag: Option<String>,
    /// Words it can be found by.
    pub(crate) keys: Vec<String>,
    /// The user's own names and values, in the order given.
    pub(crate) properties: Vec<(String, String)>,
    /// Messages of equal sharding keys go to one queue.
    pub(crate) sharding_key: Option<String>,
    pub(crate) delivery: Option<Delivery>,
    /// Priority, for topics of that type.
    pub(crate) priority: Option<i32>,
    /// The application's flag, carried untouched.
    pub(crate) flag: i32,
}

/// Fields that cannot make a message. The text says what to do instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum FieldError {
    /// Empty, too long or with a forbidden character.
    #[error(
        "{what} {name:?} is not a valid name: use 1 to {chars_max} of the characters a-z A-Z 0-9 _ - % |"
    )]
    Name { what: &'static str, name: String, chars_max: usize },
    #[error("topic {0:?} is written by brokers only")]
    BrokerTopic(String),
    /// A property name that the protocol uses itself.
    #[error(
        "property {0:?} is reserved; use the argument of Message that sets it (tag, keys, sharding_key, deliver_at, ...)"
    )]
    Reserved(String),
    /// Names and values end at these control characters on the wire.
    #[error("{what} {text:?} is empty, or has a character that the wire format cannot carry")]
    Text { what: &'static str, text: String },
    #[error("key {0:?} has white space inside; give several keys as a list")]
    Key(String),
    #[error("a delay must not be negative, and a delay level is from 1 to {DELAY_LEVEL_MAX}")]
    Delay,
    #[error("a priority must not be negative")]
    Priority,
    #[error("properties take {0} bytes, a message can carry {PROPERTIES_BYTES_MAX}")]
    PropertiesTooLong(usize),
}

/// Whether `name` can be a topic's.
fn check_topic(name: &str) -> Result<(), FieldError> {
    check_name("topic", name, topic::bytes_max(name))
}

/// Whether `name` can be a group's.
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

/// Whether a property can carry `text`.
pub(super) fn check_text(what: &'static str, text: &str) -> Result<(), FieldError> {
    if text.trim().is_empty() || text.bytes().any(|c| c == NAME_VALUE_SEPARATOR || c == ENTRY_SEPARATOR) {
        Err(FieldError::Text { what, text: text.to_owned() })
    } else {
        Ok(())
    }
}

impl MessageFields {
    /// Refuses what a broker would refuse, or what readers would lose without a word.
    pub(crate) fn check(&self) -> Result<(), FieldError> {
        self.check_topic()?;
        self.check_content()
    }

    /// The part of `check` that looks at the topic alone.
    pub(crate) fn check_topic(&self) -> Result<(), FieldError> {
        check_topic(&self.topic)?;
        if BROKER_TOPICS.contains(&self.topic.as_str()) {
            return Err(FieldError::BrokerTopic(self.topic.clone()));
        }
        Ok(())
    }

    /// The part of `check` that looks at everything else.
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
        self.check_size()
    }

    /// The part of `check_content` that looks at the size of all properties together.
    pub(crate) fn check_size(&self) -> Result<(), FieldError> {
        let bytes = self.properties_bytes();
        if bytes > PROPERTIES_BYTES_MAX - BROKER_PROPERTIES_BYTES {
            return Err(FieldError::PropertiesTooLong(bytes));
        }
        Ok(())
    }

    /// The properties string of this message under the id `unique_id`.
    pub(crate) fn properties_text(&self, unique_id: &str) -> String {
        let mut text = String::with_capacity(96);
        self.each_property(unique_id, |part| text.push_str(part));
        text
    }

    /// Appends the properties string of this message under the id `unique_id`.
    pub(crate) fn put_properties(&self, unique_id: &str, out: &mut Vec<u8>) {
        self.each_property(unique_id, |part| out.extend_from_slice(part.as_bytes()));
    }

    /// Size of the properties string, but for the id.
    pub(crate) fn properties_bytes(&self) -> usize {
        let mut bytes = 0;
        self.each_property("", |part| bytes += part.len());
        bytes
    }

    /// The properties string, piece by piece.
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
        put("WAIT", "true");
        put("UNIQ_KEY", unique_id);
    }
}

/// [`NAME_VALUE_SEPARATOR`] and [`ENTRY_SEPARATOR`] as text.
const NAME_ENDS: &str = "\u{1}";
const ENTRY_ENDS: &str = "\u{2}";

/// Room left for what is added on the way: the id here, then region, trace switch and cluster by the broker.
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
    fn what_a_broker_refuses_or_a_reader_loses_is_refused_here() {
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
