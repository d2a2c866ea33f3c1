//! Records of the revive topic: checkpoints of what was popped, and acknowledgements, as Apache's broker writes them.
//!
//! Both are JSON messages that wait in the timers: a checkpoint until a second before its messages become visible again,
//! an acknowledgement until that time. The revive topic therefore has them in the order in which they fall due.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;

use crate::dataplane::delivery::timers::schedule;
use crate::dataplane::state::rejection::{ErrorReply, unavailable};
use crate::message::properties::{self, name};
use crate::message::record::RecordFields;
use crate::message::{MessageType, tag};
use crate::store::{ConsumeQueue, KeyHashes, Put, Store};

/// Tags of the records.
pub(super) const CHECKPOINT: &[u8] = b"ck";
pub(super) const ACK: &[u8] = b"ack";
pub(super) const BATCH_ACK: &[u8] = b"bAck";
/// Lead time of a checkpoint in the revive topic before its messages become visible again.
const AHEAD_MS: i64 = 1_000;
/// Messages of one checkpoint: as many as one answer has.
pub(in crate::dataplane) const MESSAGES_MAX: usize = 32;

/// Bytes of a body without names and lists, of a number in a list of differences, and of one in a list of offsets.
const BODY_BYTES: usize = 192;
const LISTED_BYTES: usize = 3;
const OFFSET_BYTES: usize = 12;
/// Bytes of the properties without the key.
const PROPERTIES_BYTES: usize = 160;

/// The key of a checkpoint: the read that it records.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::dataplane) struct CheckpointKey {
    pub(in crate::dataplane) topic: String,
    pub(in crate::dataplane) group: String,
    pub(in crate::dataplane) queue_id: u32,
    pub(in crate::dataplane) start: i64,
    pub(in crate::dataplane) pop_ms: i64,
    pub(in crate::dataplane) broker: String,
}

impl CheckpointKey {
    /// Bytes of its names.
    const fn bytes(&self) -> usize {
        self.topic.len() + self.group.len() + self.broker.len()
    }
}

/// Messages that one read has handed out, and until when they are hidden.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::dataplane) struct Checkpoint {
    pub(in crate::dataplane) key: CheckpointKey,
    pub(in crate::dataplane) invisible_ms: i64,
    /// Their offsets in the queue, ascending.
    pub(in crate::dataplane) offsets: Vec<u64>,
    /// Whether the next delivery keeps the number of deliveries.
    pub(in crate::dataplane) is_suspended: bool,
}

/// Messages that need no further delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::dataplane) struct Acks {
    pub(in crate::dataplane) key: CheckpointKey,
    pub(in crate::dataplane) due_ms: i64,
    pub(in crate::dataplane) offsets: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ReviveRecord {
    Checkpoint(Checkpoint),
    Acks(CheckpointKey, Vec<u64>),
}

impl Checkpoint {
    pub(in crate::dataplane) fn due_ms(&self) -> i64 {
        self.key.pop_ms.saturating_add(self.invisible_ms)
    }

    fn body(&self) -> String {
        let CheckpointKey { topic, group, queue_id, start, pop_ms, broker } = &self.key;
        let mut body =
            String::with_capacity(self.key.bytes() + BODY_BYTES + self.offsets.len() * LISTED_BYTES);
        body.push_str("{\"bm\":0,\"bn\":");
        push_json(&mut body, broker);
        body.push_str(",\"c\":");
        push_json(&mut body, group);
        body.push_str(",\"d\":[");
        push_list(&mut body, self.offsets.iter().map(|offset| (*offset as i64).saturating_sub(*start)));
        let (due_ms, invisible_ms, count) = (self.due_ms(), self.invisible_ms, self.offsets.len());
        // Writing to a string cannot fail.
        let _ = write!(
            body,
            "],\"it\":{invisible_ms},\"n\":{count},\"pt\":{pop_ms},\"q\":{queue_id},\"reviveTime\":{due_ms},\"ro\":0,\
             \"so\":{start},\"sp\":{},\"t\":",
            self.is_suspended
        );
        push_json(&mut body, topic);
        body.push('}');
        body
    }
}

impl Acks {
    fn body(&self) -> String {
        let CheckpointKey { topic, group, queue_id, start, pop_ms, broker } = &self.key;
        let mut body =
            String::with_capacity(self.key.bytes() + BODY_BYTES + self.offsets.len() * OFFSET_BYTES);
        match self.offsets.as_slice() {
            [offset] => {
                body.push_str("{\"ao\":");
                push_list(&mut body, [*offset]);
            }
            offsets => {
                body.push_str("{\"ao\":-1,\"aol\":[");
                push_list(&mut body, offsets.iter().copied());
                body.push(']');
            }
        }
        body.push_str(",\"bn\":");
        push_json(&mut body, broker);
        body.push_str(",\"c\":");
        push_json(&mut body, group);
        // Writing to a string cannot fail.
        let _ = write!(body, ",\"pt\":{pop_ms},\"q\":{queue_id},\"so\":{start},\"t\":");
        push_json(&mut body, topic);
        body.push('}');
        body
    }
}

/// Adds a text in quotes.
fn push_json(out: &mut String, text: &str) {
    if text.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
        // Writing to a string cannot fail.
        let _ = write!(out, "{}", Value::from(text));
        return;
    }
    out.push('"');
    out.push_str(text);
    out.push('"');
}

/// Adds numbers with commas between them.
pub(in crate::dataplane) fn push_list<N: itoa::Integer>(
    out: &mut String,
    numbers: impl IntoIterator<Item = N>,
) {
    let mut digits = itoa::Buffer::new();
    for (index, number) in numbers.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(digits.format(number));
    }
}

/// A record laid out for the log, by itself.
pub(in crate::dataplane) struct StagedRecord {
    queue: Arc<ConsumeQueue>,
    properties: Vec<u8>,
    body: String,
    /// Whether it waits in the timers first.
    pub(in crate::dataplane) is_timed: bool,
}

/// The destination and time of records.
pub(in crate::dataplane) struct Stage<'a> {
    pub(in crate::dataplane) store: &'a Store,
    pub(in crate::dataplane) revive_topic: &'a str,
    pub(in crate::dataplane) store_host: SocketAddr,
    /// The client that popped, for the administration: Apache's broker records itself.
    pub(in crate::dataplane) client: SocketAddr,
    pub(in crate::dataplane) now_ms: i64,
}

impl Stage<'_> {
    /// Lays out a checkpoint.
    ///
    /// # Errors
    /// 13 for a time beyond what timers take, and what the store says.
    pub(in crate::dataplane) fn checkpoint(
        &self,
        checkpoint: &Checkpoint,
        revive_queue: u32,
    ) -> Result<StagedRecord, ErrorReply> {
        let CheckpointKey { topic, group, queue_id, start, pop_ms, broker } = &checkpoint.key;
        let key = format!("{topic}@{queue_id}@{start}@{group}@{pop_ms}@{broker}@ck");
        let due_ms = checkpoint.due_ms().saturating_sub(AHEAD_MS);
        self.record(CHECKPOINT, &key, due_ms, revive_queue, checkpoint.body())
    }

    /// Lays out acknowledgements.
    ///
    /// # Errors
    /// As `checkpoint`.
    pub(in crate::dataplane) fn acks(
        &self,
        acks: &Acks,
        revive_queue: u32,
    ) -> Result<StagedRecord, ErrorReply> {
        let CheckpointKey { topic, group, queue_id, pop_ms, broker, .. } = &acks.key;
        let (tag, offset) = match acks.offsets.as_slice() {
            [offset] => (ACK, *offset as i64),
            _ => (BATCH_ACK, -1),
        };
        let key = format!("{topic}@{queue_id}@{offset}@{group}@{pop_ms}@{broker}@ack");
        self.record(tag, &key, acks.due_ms, revive_queue, acks.body())
    }

    fn record(
        &self,
        tag: &[u8],
        key: &str,
        due_ms: i64,
        revive_queue: u32,
        body: String,
    ) -> Result<StagedRecord, ErrorReply> {
        let mut asked = Vec::with_capacity(key.len() + PROPERTIES_BYTES);
        properties::Writer::new(&mut asked)
            .append(name::TAGS, tag)
            .append(name::UNIQ_KEY, key.as_bytes())
            .append(name::TIMER_DELIVER_MS, due_ms.to_string().as_bytes());
        let timing = schedule::timing(self.store, self.now_ms, &asked, self.revive_topic, revive_queue)?;
        let Some(timing) = timing else {
            let queue = self.store.queue_or_create(self.revive_topic, revive_queue).map_err(unavailable)?;
            return Ok(StagedRecord { queue, properties: asked, body, is_timed: false });
        };
        let added = timing.properties();
        let mut properties = Vec::with_capacity(asked.len() + PROPERTIES_BYTES);
        let is_kept = |found: &[u8]| added.iter().all(|(name, _)| *name != found);
        let mut writer = properties::Writer::copy_if(&mut properties, &asked, is_kept);
        for (name, value) in &added {
            writer.append(name, value);
        }
        Ok(StagedRecord { queue: Arc::clone(&timing.queue), properties, body, is_timed: true })
    }

    /// The record as the log takes it.
    pub(in crate::dataplane) fn put<'r>(&self, record: &'r StagedRecord) -> Put<'r> {
        let key = record.queue.key();
        let fields = RecordFields {
            queue_id: key.queue_id,
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: self.now_ms,
            born_host: self.client,
            store_host: self.store_host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: record.body.as_bytes(),
            body_crc: RecordFields::body_crc(record.body.as_bytes()),
            topic: key.topic.as_bytes(),
            properties: &record.properties,
        };
        let (tags_code, keys) =
            (tag::tags_code(&record.properties), KeyHashes::of(key.topic.as_bytes(), &record.properties));
        let put = Put::new(Arc::clone(&record.queue), fields, tags_code, keys);
        Put { message_type: MessageType::Delay, ..put }
    }
}

/// Reads a record of the revive topic; `None` for one that is not well-formed.
pub(super) fn parse(properties: &[u8], body: &[u8], own_name: &str) -> Option<ReviveRecord> {
    let tag = properties::get(properties, name::TAGS)?;
    let body: Value = serde_json::from_slice(body).ok()?;
    let number = |names: [&str; 2]| names.iter().find_map(|name| body.get(name)?.as_i64());
    let text = |names: [&str; 2]| names.iter().find_map(|name| body.get(name)?.as_str());
    let list = |names: [&str; 2]| -> Option<Vec<i64>> {
        let values = names.iter().find_map(|name| body.get(name)?.as_array())?;
        values.iter().take(MESSAGES_MAX + 1).map(Value::as_i64).collect()
    };
    let key = CheckpointKey {
        topic: text(["t", "topic"])?.to_owned(),
        group: text(["c", "consumerGroup"])?.to_owned(),
        queue_id: u32::try_from(number(["q", "queueId"])?).ok()?,
        start: number(["so", "startOffset"])?,
        pop_ms: number(["pt", "popTime"])?,
        broker: text(["bn", "brokerName"]).unwrap_or(own_name).to_owned(),
    };
    let offset = |offset: i64| u64::try_from(offset).ok();
    if tag == CHECKPOINT {
        let count = usize::try_from(number(["n", "num"])?).ok().filter(|count| *count <= MESSAGES_MAX)?;
        let differences = list(["d", "queueOffsetDiff"]).filter(|differences| !differences.is_empty());
        let differences = differences.unwrap_or_else(|| (0..count as i64).collect());
        let offsets = differences.iter().take(count);
        let offsets: Option<Vec<u64>> =
            offsets.map(|difference| offset(key.start.checked_add(*difference)?)).collect();
        return Some(ReviveRecord::Checkpoint(Checkpoint {
            invisible_ms: number(["it", "invisibleTime"])?,
            offsets: offsets?,
            is_suspended: body.get("sp").and_then(Value::as_bool).unwrap_or(false),
            key,
        }));
    }
    let offsets = match tag {
        ACK => vec![offset(number(["ao", "ackOffset"])?)?],
        BATCH_ACK => list(["aol", "ackOffsetList"])?.into_iter().filter_map(offset).collect(),
        _ => return None,
    };
    Some(ReviveRecord::Acks(key, offsets))
}

/// Reads a record of the revive topic, with these properties and this body; a checkpoint that is written again is the same.
#[cfg(feature = "fuzzing")]
pub(crate) fn reads_back(properties: &[u8], body: &[u8]) -> bool {
    let Some(record) = parse(properties, body, "own") else { return false };
    if let ReviveRecord::Checkpoint(checkpoint) = &record {
        assert!(checkpoint.offsets.len() <= MESSAGES_MAX);
        let again = parse(properties, checkpoint.body().as_bytes(), "own");
        assert!(checkpoint.offsets.is_empty() || again.as_ref() == Some(&record));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> CheckpointKey {
        CheckpointKey {
            topic: "T".into(),
            group: "g".into(),
            queue_id: 0,
            start: 0,
            pop_ms: 1_795_849_633_290,
            broker: "broker-p".into(),
        }
    }

    fn read(tag: &[u8], body: &str) -> Option<ReviveRecord> {
        let mut properties = Vec::new();
        properties::Writer::new(&mut properties).append(name::TAGS, tag);
        parse(&properties, body.as_bytes(), "own")
    }

    #[test]
    fn records_have_the_bytes_of_the_original() {
        let checkpoint =
            Checkpoint { key: key(), invisible_ms: 12_000, offsets: vec![0, 1, 2], is_suspended: false };
        assert_eq!(
            checkpoint.body(),
            r#"{"bm":0,"bn":"broker-p","c":"g","d":[0,1,2],"it":12000,"n":3,"pt":1795849633290,"q":0,"reviveTime":1795849645290,"ro":0,"so":0,"sp":false,"t":"T"}"#
        );
        let acks = Acks { key: key(), due_ms: 0, offsets: vec![0] };
        assert_eq!(
            acks.body(),
            r#"{"ao":0,"bn":"broker-p","c":"g","pt":1795849633290,"q":0,"so":0,"t":"T"}"#
        );
        assert_eq!(read(CHECKPOINT, &checkpoint.body()), Some(ReviveRecord::Checkpoint(checkpoint)));
        assert_eq!(read(ACK, &acks.body()), Some(ReviveRecord::Acks(key(), vec![0])));
        let acks = Acks { offsets: vec![3, 4], ..acks };
        assert_eq!(read(BATCH_ACK, &acks.body()), Some(ReviveRecord::Acks(key(), vec![3, 4])));
    }

    #[test]
    fn other_orders_long_names_and_missing_members_are_read() {
        let long =
            r#"{"startOffset":7,"consumerGroup":"g","topic":"T","queueId":1,"popTime":5,"ackOffset":8}"#;
        let key = CheckpointKey { queue_id: 1, start: 7, pop_ms: 5, broker: "own".into(), ..key() };
        assert_eq!(read(ACK, long), Some(ReviveRecord::Acks(key, vec![8])));
        let consecutive = r#"{"so":7,"c":"g","t":"T","q":1,"pt":5,"n":2,"it":10}"#;
        let Some(ReviveRecord::Checkpoint(checkpoint)) = read(CHECKPOINT, consecutive) else {
            panic!("a checkpoint")
        };
        assert_eq!(checkpoint.offsets, [7, 8]);
    }

    #[test]
    fn what_is_not_well_formed_is_skipped() {
        for body in
            ["", "3-17", "[]", "{}", r#"{"t":"T"}"#, r#"{"so":7,"c":"g","t":"T","q":1,"pt":5,"n":99,"it":1}"#]
        {
            assert_eq!((read(CHECKPOINT, body), read(ACK, body)), (None, None), "{body}");
        }
        assert_eq!(read(b"other", r#"{"so":7,"c":"g","t":"T","q":1,"pt":5,"ao":9}"#), None);
    }
}
