//! Message attributes: what the broker must know of a message's properties, and the properties as they are stored.
//!
//! The block is walked once: what is asked for is noted on the way, what a client may not set is left out, what the
//! broker adds stands behind. Nothing becomes a map.
//!
//! Threads: the I/O thread of the connection, in the session's arena.

use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use super::metadata::Identity;
use super::rejection::{ErrorReply, not_served};
use crate::clock::SharedClock;
use crate::message::MessageType;
use crate::message::id::UniqueIds;
use crate::message::properties::{self, PROPERTIES_BYTES_MAX, name};
use crate::message::tag;
use crate::message::topic::HALF_TOPIC;
use crate::remoting::codes::response;
use crate::store::KeyHashes;

/// What the broker must know of a message's properties, and where they stand in the arena.
#[derive(Debug, Default, Clone)]
pub(super) struct MessageAttributes {
    pub(super) properties: Range<usize>,
    pub(super) unique_key: Range<usize>,
    pub(super) tags_code: i64,
    pub(super) keys: KeyHashes,
    pub(super) is_waiting_for_store: bool,
    /// The delay level it asks for; 0 for none.
    pub(super) delay_level: u32,
    /// Whether it names a time; a delay level wins over that.
    pub(super) is_timed: bool,
    /// It is to be delivered when its transaction is committed.
    pub(super) is_prepared: bool,
    /// Whether messages with the same key are kept in order.
    has_sharding_key: bool,
}

impl MessageAttributes {
    /// Copies `original` behind the arena's end, with what the broker adds to each message.
    pub(super) fn rewrite(
        broker: &AddedProperties,
        arena: &mut Vec<u8>,
        topic: &str,
        original: &str,
    ) -> Result<Self, ErrorReply> {
        let mut attributes = Self { is_waiting_for_store: true, ..Self::default() };
        let start = arena.len();
        let mut writer = properties::Writer::new(arena);
        for (name, value) in properties::entries(original.as_bytes()) {
            if ADDED_BY_BROKER.contains(&name) {
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
        arena.extend_from_slice(&broker.block);
        attributes.close(arena, start)
    }

    /// Copies the properties of a batch member as they are, after a look at their text.
    pub(super) fn read(arena: &mut Vec<u8>, topic: &str, original: &[u8]) -> Result<Self, ErrorReply> {
        let mut attributes = Self { is_waiting_for_store: true, ..Self::default() };
        let start = arena.len();
        arena.extend_from_slice(original);
        for (name, value) in properties::entries(original) {
            // The place of a member's key is not needed: the answer names the batch's.
            attributes.note(topic, name, value, value.len() + 1)?;
        }
        // Nearly all are ASCII, and that is seen much faster.
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
        attributes.close(arena, start)
    }

    /// What it is, in the order in which the original decides.
    pub(super) fn message_type(&self) -> MessageType {
        if self.is_prepared {
            MessageType::Transaction
        } else if self.is_timed || self.delay_level > 0 {
            MessageType::Delay
        } else if self.has_sharding_key {
            MessageType::Fifo
        } else {
            MessageType::Normal
        }
    }

    /// The same message on its way to another topic.
    pub(super) fn moved(
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

    /// The same message as the half of a transaction. What says when it is to be delivered stays, for the commit.
    pub(super) fn half(&self, arena: &mut Vec<u8>, topic: &str, queue_id: &str) -> Result<Self, ErrorReply> {
        let original = arena.get(self.properties.clone()).unwrap_or_default().to_vec();
        let id = arena.get(self.unique_key.clone()).unwrap_or_default().to_vec();
        let added = [
            (name::REAL_TOPIC, topic.as_bytes()),
            (name::REAL_QUEUE_ID, queue_id.as_bytes()),
            (name::TRANSACTION_ID, id.as_slice()),
        ];
        let half = Self::rewritten(arena, HALF_TOPIC, &original, &[], &added)?;
        // Its producer decides as soon as it is answered, so the record has to be visible by then.
        Ok(Self { unique_key: self.unique_key.clone(), is_waiting_for_store: true, ..half })
    }

    /// A copy of a message for another topic: its properties without those that said where it was to go and when,
    /// and with `added` instead of what has the same names.
    pub(super) fn copied(
        arena: &mut Vec<u8>,
        topic: &str,
        original: &[u8],
        added: &[(&[u8], &[u8])],
    ) -> Result<Self, ErrorReply> {
        Self::rewritten(arena, topic, original, &SCHEDULE, added)
    }

    /// A copy without the properties in `dropped`, and with `added`.
    fn rewritten(
        arena: &mut Vec<u8>,
        topic: &str,
        original: &[u8],
        dropped: &[&[u8]],
        added: &[(&[u8], &[u8])],
    ) -> Result<Self, ErrorReply> {
        let start = arena.len();
        let is_kept = |name: &[u8]| !dropped.contains(&name) && added.iter().all(|(other, _)| *other != name);
        let mut writer = properties::Writer::copy_if(arena, original, is_kept);
        for (name, value) in added {
            writer.append(name, value);
        }
        let text = arena.get(start..).unwrap_or_default();
        // Only what came as a header is known to be text: this may be a batch member another broker stored.
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

    /// Takes from one entry, whose separator ends at `end` of the arena, what the broker must know.
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
        // Recovery takes such a record for torn, and would cut the log there: none may be written.
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

/// Properties that a client may not set: the broker writes its own, or none.
const ADDED_BY_BROKER: [&[u8]; 4] = [name::MSG_REGION, name::TRACE_ON, name::CLUSTER, name::POP_CK];

/// Properties that say when a message is to go where.
const SCHEDULE: [&[u8]; 7] = [
    name::DELAY,
    name::REAL_TOPIC,
    name::REAL_QUEUE_ID,
    name::TIMER_DELIVER_MS,
    name::TIMER_DELAY_MS,
    name::TIMER_DELAY_SEC,
    name::TIMER_OUT_MS,
];

/// A delay level as a client wrote it; 0 and below mean none.
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

/// What the broker adds to each message: its region, whether to trace, the cluster, and a unique key where the client
/// gave none.
pub(super) struct AddedProperties {
    block: Vec<u8>,
    ids: UniqueIds,
    clock: SharedClock,
}

impl AddedProperties {
    pub(super) fn new(identity: &Identity, clock: SharedClock) -> Self {
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
        // Keys of two brokers differ by address, process and time of start.
        let salt = foldhash::fast::RandomState::default().hash_one(address) as u32;
        Self { block, ids: UniqueIds::new(address, std::process::id(), salt), clock }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_recovery_would_take_for_torn_is_refused() {
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
}
