//! Message attributes: the properties that the broker interprets, and the whole block as it is stored.
//!
//! One pass over the block extracts values, drops properties that clients may not set, and appends those of the
//! broker. It builds no map.
//!
//! Threads: the I/O thread of the connection, in the session's arena.

use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use crate::clock::SharedClock;
use crate::dataplane::state::metadata::Identity;
use crate::dataplane::state::rejection::{ErrorReply, not_served};
use crate::message::MessageType;
use crate::message::id::UniqueIds;
use crate::message::properties::{self, PROPERTIES_BYTES_MAX, name};
use crate::message::tag;
use crate::message::topic::HALF_TOPIC;
use crate::remoting::codes::response;
use crate::store::KeyHashes;

/// Values of a message's properties, and their place in the arena.
#[derive(Debug, Default, Clone)]
pub(in crate::dataplane) struct MessageAttributes {
    pub(in crate::dataplane) properties: Range<usize>,
    pub(in crate::dataplane) unique_key: Range<usize>,
    pub(in crate::dataplane) tags_code: i64,
    pub(in crate::dataplane) keys: KeyHashes,
    pub(super) is_waiting_for_store: bool,
    /// The requested delay level; 0 for none.
    pub(super) delay_level: u32,
    /// Whether the message names a time. A delay level takes precedence.
    pub(in crate::dataplane) is_timed: bool,
    /// Whether the message is the half of a transaction.
    pub(super) is_prepared: bool,
    /// Whether it names light queues.
    pub(super) names_lights: bool,
    /// Whether the client sent offsets in light queues, which only brokers assign.
    has_light_offsets: bool,
    /// Whether the message has a key for ordered delivery.
    has_sharding_key: bool,
    has_priority: bool,
    has_lite_topic: bool,
    /// The requested priority, if there is one. A negative priority chooses no queue.
    priority: i32,
}

impl MessageAttributes {
    /// Appends `original` to the arena with the broker's own properties. Messages of other types lose their priority,
    /// as in Apache's broker. `lites` are the names of light queues that replace those of a client.
    pub(super) fn rewrite(
        broker: &AddedProperties,
        arena: &mut Vec<u8>,
        topic: &str,
        original: &str,
        lites: Option<&str>,
    ) -> Result<Self, ErrorReply> {
        let start = arena.len();
        let attributes = Self::written(broker, arena, topic, original, lites, true)?;
        if !attributes.has_priority
            || attributes.priority < 0
            || attributes.message_type() == MessageType::Priority
        {
            return Ok(attributes);
        }
        arena.truncate(start);
        Self::written(broker, arena, topic, original, lites, false)
    }

    fn written(
        broker: &AddedProperties,
        arena: &mut Vec<u8>,
        topic: &str,
        original: &str,
        lites: Option<&str>,
        keeps_priority: bool,
    ) -> Result<Self, ErrorReply> {
        let mut attributes = Self { is_waiting_for_store: true, ..Self::default() };
        let start = arena.len();
        let mut writer = properties::Writer::new(arena);
        for (name, value) in properties::entries(original.as_bytes()) {
            let is_replaced = (!keeps_priority && name == name::PRIORITY)
                || (lites.is_some() && name == name::LIGHT_QUEUES);
            if is_replaced || ADDED_BY_BROKER.contains(&name) {
                continue;
            }
            writer.append(name, value);
            attributes.note(topic, name, value, start + writer.size())?;
        }
        if attributes.unique_key.is_empty() {
            let key = broker.ids.next(broker.clock.wall_ms());
            writer.append(name::UNIQ_KEY, key.as_bytes());
            attributes.note(topic, name::UNIQ_KEY, key.as_bytes(), start + writer.size())?;
        }
        if let Some(lites) = lites {
            properties::Writer::resume(arena, start).append(name::LIGHT_QUEUES, lites.as_bytes());
            attributes.names_lights = true;
        }
        arena.extend_from_slice(&broker.block);
        attributes.close(arena, start)
    }

    /// Appends the properties of a batch member unchanged, but for offsets in light queues, after checking their text.
    pub(in crate::dataplane) fn read(
        arena: &mut Vec<u8>,
        topic: &str,
        original: &[u8],
    ) -> Result<Self, ErrorReply> {
        let mut attributes = Self { is_waiting_for_store: true, ..Self::default() };
        let start = arena.len();
        arena.extend_from_slice(original);
        for (name, value) in properties::entries(original) {
            // The place of the unique key is unused: the reply has the key of the batch.
            attributes.note(topic, name, value, value.len() + 1)?;
        }
        // Most text is ASCII, which is faster to check.
        if !original.is_ascii() && std::str::from_utf8(original).is_err() {
            return Err(illegal_text());
        }
        if attributes.is_prepared {
            return Err(not_served("transactional messages of a batch"));
        }
        if attributes.is_timed || attributes.delay_level > 0 {
            let remark = "the message is illegal: the messages of a batch cannot be delayed";
            return Err(ErrorReply::new(response::MESSAGE_ILLEGAL, remark));
        }
        // Like Apache's broker, this one dispatches only single messages.
        attributes.names_lights = false;
        if attributes.has_light_offsets {
            arena.truncate(start);
            properties::Writer::copy_if(arena, original, |name| name != name::LIGHT_OFFSETS);
        }
        attributes.close(arena, start)
    }

    /// Returns the type of the message. The precedence of the properties is that of Apache's broker.
    pub(in crate::dataplane) fn message_type(&self) -> MessageType {
        if self.is_prepared {
            MessageType::Transaction
        } else if self.is_timed || self.delay_level > 0 {
            MessageType::Delay
        } else if self.has_sharding_key {
            MessageType::Fifo
        } else if self.has_priority {
            MessageType::Priority
        } else if self.has_lite_topic {
            MessageType::Lite
        } else {
            MessageType::Normal
        }
    }

    /// Returns the queue that the priority chooses out of `write_queues`; `None` leaves the choice to the sender.
    pub(super) fn queue_of_priority(&self, write_queues: u32) -> Option<u32> {
        let priority = u32::try_from(self.priority).ok().filter(|_| self.has_priority)?;
        Some(priority.min(write_queues.checked_sub(1)?))
    }

    /// Returns the same message for another topic.
    pub(in crate::dataplane) fn moved(
        &self,
        arena: &mut Vec<u8>,
        topic: &str,
        added: &[(&[u8], &[u8])],
    ) -> Result<Self, ErrorReply> {
        let original = arena.get(self.properties.clone()).unwrap_or_default().to_vec();
        let moved = Self::copied(arena, topic, &original, added)?;
        let (unique_key, is_waiting_for_store) = (self.unique_key.clone(), self.is_waiting_for_store);
        Ok(Self { unique_key, is_waiting_for_store, ..moved })
    }

    /// Returns the same message as the half of a transaction. Properties for its time of delivery stay for the
    /// commit.
    pub(in crate::dataplane) fn half(
        &self,
        arena: &mut Vec<u8>,
        topic: &str,
        queue_id: &str,
    ) -> Result<Self, ErrorReply> {
        let original = arena.get(self.properties.clone()).unwrap_or_default().to_vec();
        let id = arena.get(self.unique_key.clone()).unwrap_or_default().to_vec();
        let added = [
            (name::REAL_TOPIC, topic.as_bytes()),
            (name::REAL_QUEUE_ID, queue_id.as_bytes()),
            (name::TRANSACTION_ID, id.as_slice()),
        ];
        let half = Self::rewritten(arena, HALF_TOPIC, &original, &[], &added)?;
        // The producer decides as soon as it is answered, so the record must be visible by then.
        Ok(Self { unique_key: self.unique_key.clone(), is_waiting_for_store: true, ..half })
    }

    /// Returns a copy of a message for another topic, without the properties for its destination and time, and with
    /// `added` in place of properties of the same names.
    pub(in crate::dataplane) fn copied(
        arena: &mut Vec<u8>,
        topic: &str,
        original: &[u8],
        added: &[(&[u8], &[u8])],
    ) -> Result<Self, ErrorReply> {
        Self::rewritten(arena, topic, original, &SCHEDULE, added)
    }

    /// Returns a copy without the properties in `dropped`, without offsets in light queues, and with `added`.
    fn rewritten(
        arena: &mut Vec<u8>,
        topic: &str,
        original: &[u8],
        dropped: &[&[u8]],
        added: &[(&[u8], &[u8])],
    ) -> Result<Self, ErrorReply> {
        let start = arena.len();
        let is_kept = |name: &[u8]| !dropped.contains(&name) && added.iter().all(|(other, _)| *other != name);
        let is_kept = |name: &[u8]| is_kept(name) && name != name::LIGHT_OFFSETS;
        let mut writer = properties::Writer::copy_if(arena, original, is_kept);
        for (name, value) in added {
            writer.append(name, value);
        }
        let text = arena.get(start..).unwrap_or_default();
        // Only properties from a header are certainly text; these may be from a batch stored by another broker.
        if std::str::from_utf8(text).is_err() {
            return Err(illegal_text());
        }
        let attributes = Self {
            is_waiting_for_store: true,
            tags_code: tag::tags_code(text),
            keys: KeyHashes::of(topic.as_bytes(), text),
            ..Self::default()
        };
        attributes.close(arena, start)
    }

    /// Extracts the value of a property, whose separator ends at `end` of the arena.
    fn note(&mut self, topic: &str, name: &[u8], value: &[u8], end: usize) -> Result<(), ErrorReply> {
        let topic = topic.as_bytes();
        match name {
            name::TAGS => {
                self.tags_code = i64::from(tag::java_hash(value));
                self.keys.push(tag::tag_key_hash(topic, value));
            }
            name::UNIQ_KEY => {
                self.unique_key = end - 1 - value.len()..end - 1;
                self.keys.push(tag::key_hash(topic, value));
            }
            name::KEYS => {
                let keys = value.split(|byte| *byte == b' ').filter(|key| !key.is_empty());
                keys.for_each(|key| self.keys.push(tag::key_hash(topic, key)));
            }
            name::WAIT => self.is_waiting_for_store = !value.eq_ignore_ascii_case(b"false"),
            name::DELAY => self.delay_level = delay_level(value)?,
            name::TIMER_DELIVER_MS | name::TIMER_DELAY_MS | name::TIMER_DELAY_SEC => self.is_timed = true,
            name::TRANSACTION_PREPARED => self.is_prepared = value.eq_ignore_ascii_case(b"true"),
            name::SHARDING_KEY => self.has_sharding_key = true,
            name::PRIORITY => (self.has_priority, self.priority) = (true, priority(value)),
            name::LITE_TOPIC => self.has_lite_topic = true,
            name::LIGHT_QUEUES => self.names_lights = true,
            name::LIGHT_OFFSETS => self.has_light_offsets = true,
            _ => {}
        }
        Ok(())
    }

    fn close(mut self, arena: &[u8], start: usize) -> Result<Self, ErrorReply> {
        self.properties = start..arena.len();
        if self.properties.len() > PROPERTIES_BYTES_MAX {
            let remark = format!(
                "the message is illegal: its properties take {} bytes as stored, the limit is {PROPERTIES_BYTES_MAX}",
                self.properties.len()
            );
            return Err(ErrorReply::new(response::MESSAGE_ILLEGAL, remark));
        }
        // Recovery would take such a record for a torn write and truncate the log there.
        let text = arena.get(self.properties.clone()).unwrap_or_default();
        if memchr::memchr(0, text).is_some() {
            return Err(illegal_text());
        }
        Ok(self)
    }
}

fn illegal_text() -> ErrorReply {
    ErrorReply::new(
        response::MESSAGE_ILLEGAL,
        "the message is illegal: its properties have to be UTF-8 without NUL",
    )
}

/// Properties that only the broker sets.
const ADDED_BY_BROKER: [&[u8]; 5] =
    [name::MSG_REGION, name::TRACE_ON, name::CLUSTER, name::POP_CK, name::LIGHT_OFFSETS];

/// Properties for the destination and the time of delivery.
const SCHEDULE: [&[u8]; 7] = [
    name::DELAY,
    name::REAL_TOPIC,
    name::REAL_QUEUE_ID,
    name::TIMER_DELIVER_MS,
    name::TIMER_DELAY_MS,
    name::TIMER_DELAY_SEC,
    name::TIMER_OUT_MS,
];

/// Parses a delay level; 0 and below mean none.
fn delay_level(value: &[u8]) -> Result<u32, ErrorReply> {
    let level: Option<i32> = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    let level = level.ok_or_else(|| {
        let text = value.escape_ascii();
        ErrorReply::new(
            response::MESSAGE_ILLEGAL,
            format!("the message is illegal: DELAY {text} is not a number"),
        )
    })?;
    Ok(level.max(0) as u32)
}

/// Parses a priority; text that is not a number chooses no queue.
fn priority(value: &[u8]) -> i32 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(-1)
}

/// The properties that the broker adds: region, trace switch, cluster, and a unique key if the client gave none.
pub(in crate::dataplane) struct AddedProperties {
    block: Vec<u8>,
    ids: UniqueIds,
    clock: SharedClock,
}

impl AddedProperties {
    pub(in crate::dataplane) fn new(identity: &Identity, clock: SharedClock) -> Self {
        let mut block = Vec::new();
        let trace_on: &[u8] = if identity.is_trace_on { b"true" } else { b"false" };
        properties::Writer::new(&mut block)
            .append(name::MSG_REGION, identity.region.as_bytes())
            .append(name::TRACE_ON, trace_on)
            .append(name::CLUSTER, identity.cluster.as_bytes());
        let address = match identity.store_host.ip().to_canonical() {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => Ipv4Addr::LOCALHOST,
        };
        // Unique keys of two brokers differ in address, process and start time.
        let salt = foldhash::fast::RandomState::default().hash_one(address) as u32;
        Self { block, ids: UniqueIds::new(address, std::process::id(), salt), clock }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_copy_that_looks_torn_to_recovery_is_refused() {
        for original in [&b"KEYS\x01\xff\xfe\x02"[..], b"KEYS\x01a\0b\x02"] {
            let refused =
                MessageAttributes::copied(&mut Vec::new(), "t", original, &[]).expect_err("no copy");
            assert_eq!(refused.code, response::MESSAGE_ILLEGAL);
        }
        let mut arena = Vec::new();
        let copied =
            MessageAttributes::copied(&mut arena, "t", "KEYS\u{1}é\u{2}".as_bytes(), &[]).expect("a copy");
        assert_eq!(&arena[copied.properties], "KEYS\u{1}é\u{2}".as_bytes());
    }

    fn added() -> AddedProperties {
        AddedProperties {
            block: b"MSG_REGION\x01r\x02".to_vec(),
            ids: UniqueIds::new(Ipv4Addr::LOCALHOST, 1, 2),
            clock: ManualClock::at(1_700_000_000_000),
        }
    }

    /// Returns the rewritten properties and their attributes.
    fn rewritten(original: &str) -> (Vec<u8>, MessageAttributes) {
        let mut arena = b"of an earlier message".to_vec();
        let attributes =
            MessageAttributes::rewrite(&added(), &mut arena, "t", original, None).expect("a message");
        assert!(arena.starts_with(b"of an earlier message"));
        assert_eq!(attributes.properties.end, arena.len());
        let key = properties::get(&arena[attributes.properties.clone()], name::UNIQ_KEY);
        assert_eq!(key, Some(&arena[attributes.unique_key.clone()]));
        (arena[attributes.properties.clone()].to_vec(), attributes)
    }

    #[test]
    fn offsets_in_light_queues_are_never_taken_from_a_client() {
        let original = "INNER_MULTI_QUEUE_OFFSET\u{1}7\u{2}INNER_MULTI_DISPATCH\u{1}%LMQ%a\u{2}a\u{1}b\u{2}";
        let (stored, attributes) = rewritten(original);
        assert!(attributes.names_lights);
        assert_eq!(properties::get(&stored, name::LIGHT_OFFSETS), None);
        let mut arena = b"of an earlier message".to_vec();
        let member = MessageAttributes::read(&mut arena, "t", original.as_bytes()).expect("a message");
        assert!(!member.names_lights);
        assert_eq!(&arena[member.properties], b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02a\x01b\x02");
        let mut arena = Vec::new();
        let copied = MessageAttributes::copied(&mut arena, "t", original.as_bytes(), &[]).expect("a copy");
        assert_eq!(&arena[copied.properties], b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02a\x01b\x02");
    }

    #[test]
    fn the_queue_of_a_lite_topic_replaces_those_that_the_client_names() {
        let original = "INNER_MULTI_DISPATCH\u{1}%LMQ%a\u{2}__LITE_TOPIC\u{1}x\u{2}";
        let queue = "%LMQ%$t$x";
        let mut arena = b"of an earlier message".to_vec();
        let attributes = MessageAttributes::rewrite(&added(), &mut arena, "t", original, Some(queue));
        let attributes = attributes.expect("a message");
        let stored = &arena[attributes.properties.clone()];
        assert_eq!(properties::get(stored, name::LIGHT_QUEUES), Some(queue.as_bytes()));
        assert_eq!(properties::entries(stored).filter(|(name, _)| *name == name::LIGHT_QUEUES).count(), 1);
        assert!(attributes.names_lights);
        assert_eq!(attributes.message_type(), MessageType::Lite);
    }

    #[test]
    fn a_priority_chooses_the_queue_up_to_the_last_one() {
        for (text, chosen) in [("0", Some(0)), ("5", Some(5)), ("99", Some(7)), ("-1", None), ("high", None)]
        {
            let (stored, attributes) = rewritten(&format!("_SYS_MSG_PRIORITY_\u{1}{text}\u{2}"));
            assert_eq!(attributes.queue_of_priority(8), chosen, "{text}");
            assert_eq!(properties::get(&stored, name::PRIORITY), Some(text.as_bytes()));
            assert_eq!(attributes.message_type(), MessageType::Priority);
            assert_eq!(attributes.queue_of_priority(0), None);
        }
        assert_eq!(rewritten("KEYS\u{1}k\u{2}").1.queue_of_priority(8), None);
    }

    proptest! {
        /// A priority of another type of message is removed, and nothing else is.
        #[test]
        fn only_messages_of_the_type_priority_keep_theirs(
            mut order in Just(vec![0_usize, 1, 2, 3, 4, 5, 6]).prop_shuffle(),
            count in 0_usize..=7,
            priority in prop_oneof![Just("0"), Just("3"), Just("-2"), Just("2147483648"), Just("x")],
        ) {
            let entries = [
                ("_SYS_MSG_PRIORITY_", priority), ("TRAN_MSG", "true"), ("DELAY", "2"), ("TIMER_DELAY_MS", "9"),
                ("__SHARDINGKEY", "s"), ("UNIQ_KEY", "0A"), ("colour", "red"),
            ];
            order.truncate(count);
            let has = |index: usize| order.contains(&index);
            let text: String =
                order.iter().map(|at| format!("{}\u{1}{}\u{2}", entries[*at].0, entries[*at].1)).collect();
            let (stored, attributes) = rewritten(&text);
            let kind = if has(1) {
                MessageType::Transaction
            } else if has(2) || has(3) {
                MessageType::Delay
            } else if has(4) {
                MessageType::Fifo
            } else if has(0) {
                MessageType::Priority
            } else {
                MessageType::Normal
            };
            prop_assert_eq!(attributes.message_type(), kind);
            let is_number = matches!(priority, "0" | "3");
            let is_removed = is_number && kind != MessageType::Priority;
            for (at, (name, value)) in entries.iter().enumerate() {
                let found = properties::get(&stored, name.as_bytes());
                let wanted = (has(at) && !(at == 0 && is_removed)).then_some(value.as_bytes());
                prop_assert!(found == wanted || (at == 5 && !has(5)), "{} of {}", name, text);
            }
            let chosen = (kind == MessageType::Priority && is_number).then(|| priority.parse().unwrap_or(u32::MAX));
            prop_assert_eq!(attributes.queue_of_priority(8), chosen);
        }
    }
}
