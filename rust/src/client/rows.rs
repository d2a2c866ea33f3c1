//! Rows: groups the rows of an Arrow batch into sends.
//!
//! A row is encoded when its send batch leaves, so memory in flight is bounded by the budget, not by the number of
//! rows. Invariant: every row is in exactly one send batch, and rows of one queue keep their order. Pure; any thread.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use twox_hash::XxHash3_128;

use super::encoded_send::{BatchBuilder, EncodedSend, ProducerContext};
use super::message_fields::{FieldError, MessageFields, check_text};
use super::row_columns::{RowColumns, RowsError};
use crate::message::id::hashed_id;
use crate::message::tag::java_hash;

/// The source of the rows' ids.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Identifies this set of rows: a row sent again under the same seed has the same id.
    pub(crate) seed: Vec<u8>,
    /// Number of the first row, for rows without an identity.
    pub(crate) first: u64,
}

/// The placement of a row with neither queue nor sharding key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placement {
    /// Any queue.
    Turn,
    /// By the hash of its keys.
    Hash,
    /// The row is refused.
    Column,
}

/// The target of a send batch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum QueueChoice {
    Any,
    /// An index into the topic's queues.
    Index(usize),
    /// A queue id, of one broker or of any that has it.
    Queue(Option<String>, i32),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) rows_max: usize,
    /// Maximum size of bodies and properties; a larger row is sent alone.
    pub(crate) bytes_max: usize,
    /// Bodies of at least this size are sent alone: a batch is never compressed.
    pub(crate) alone_from_bytes: Option<usize>,
}

/// Rows that are sent together.
#[derive(Debug)]
pub(crate) struct SendBatch {
    pub(crate) place: QueueChoice,
    rows: Vec<u32>,
    bytes: usize,
    is_alone: bool,
}

impl SendBatch {
    pub(crate) fn count(&self) -> usize {
        self.rows.len()
    }
}

#[derive(Debug)]
pub(crate) struct Rows {
    columns: RowColumns,
    fixed_topic: Option<String>,
    identity: Option<Identity>,
    extra: Vec<(String, String)>,
}

/// Frame, id, and the trace switch of each message in a batch.
const ROW_FIXED_BYTES: usize = 80;

impl Rows {
    /// Creates a view of a batch. `topic` applies to all rows; without it there must be a column. `extra` properties
    /// are added to every message. Fails when a column has the wrong type.
    pub(crate) fn new(
        batch: &RecordBatch,
        topic: Option<String>,
        identity: Option<Identity>,
        extra: Vec<(String, String)>,
    ) -> Result<Self, RowsError> {
        if topic.is_none() && batch.column_by_name("topic").is_none() {
            return Err(RowsError::Missing("topic"));
        }
        Ok(Self { columns: RowColumns::new(batch, topic.is_none())?, fixed_topic: topic, identity, extra })
    }

    pub(crate) fn count(&self) -> usize {
        self.columns.count
    }

    /// Returns the topics of all rows. Fails when a row has none.
    pub(crate) fn topics(&self) -> Result<BTreeSet<&str>, RowsError> {
        (0..self.columns.count).map(|row| self.topic(row)).collect()
    }

    /// Groups the rows of one topic: rows with a queue or key join those of the same queue, others their neighbours.
    /// `queues` is the number of queues of the topic. Fails at the first row without a place.
    pub(crate) fn send_batches(
        &self,
        topic: &str,
        queues: usize,
        placement: Placement,
        limits: Limits,
    ) -> Result<Vec<SendBatch>, RowsError> {
        let mut done = Vec::new();
        let mut open: BTreeMap<QueueChoice, (Vec<u32>, usize)> = BTreeMap::new();
        for row in 0..self.columns.count {
            if self.topic(row)? != topic {
                continue;
            }
            let place = self.place(row, queues, placement)?;
            let bytes = self.bytes(row);
            let is_alone =
                limits.alone_from_bytes.is_some_and(|limit| self.columns.body.value(row).len() >= limit)
                    || self.columns.delivery(row)?.is_some();
            let (rows, size) = open.entry(place.clone()).or_default();
            let is_full = rows.len() >= limits.rows_max || *size + bytes > limits.bytes_max;
            if !rows.is_empty() && (is_alone || is_full) {
                let (rows, bytes) = (std::mem::take(rows), std::mem::take(size));
                done.push(SendBatch { place: place.clone(), rows, bytes, is_alone: false });
            }
            // Longer record batches do not occur.
            let index = u32::try_from(row).map_err(|_| refused(row, "the batch is too long"))?;
            if is_alone {
                done.push(SendBatch { place, rows: vec![index], bytes, is_alone: true });
            } else {
                rows.push(index);
                *size += bytes;
            }
        }
        let rest = open.into_iter().filter(|(_, (rows, _))| !rows.is_empty());
        done.extend(rest.map(|(place, (rows, bytes))| SendBatch { place, rows, bytes, is_alone: false }));
        Ok(done)
    }

    /// Encodes a send batch. Fails at the first row that brokers refuse.
    pub(crate) fn encode(
        &self,
        context: &Arc<ProducerContext>,
        batch: &SendBatch,
        now_ms: u64,
    ) -> Result<EncodedSend, RowsError> {
        let mut fields = MessageFields { properties: self.extra.clone(), ..MessageFields::default() };
        let mut hashed = Vec::new();
        let mut builder = BatchBuilder::with_capacity(batch.rows.len(), batch.bytes);
        for row in batch.rows.iter().map(|row| *row as usize) {
            self.fill(&mut fields, row)?;
            let body = self.columns.body.value(row);
            let id = self.id(context, row, now_ms, &mut hashed);
            if batch.is_alone {
                return Ok(context.message_as(&fields, body, &id, now_ms));
            }
            builder.add(&fields, body, id);
        }
        Ok(context.finish(&fields.topic, builder, now_ms))
    }

    fn topic(&self, row: usize) -> Result<&str, RowsError> {
        match &self.fixed_topic {
            Some(topic) => Ok(topic),
            None => self.columns.topic.get(row).ok_or_else(|| refused(row, "its topic is null")),
        }
    }

    fn place(&self, row: usize, queues: usize, placement: Placement) -> Result<QueueChoice, RowsError> {
        if let Some(queue_id) = self.columns.queue_id.get(row) {
            return Ok(QueueChoice::Queue(self.columns.broker_name.get(row).map(str::to_owned), queue_id));
        }
        let key = self.columns.sharding_key.get(row).map(Cow::Borrowed);
        let key = match placement {
            Placement::Hash => key.or_else(|| self.columns.keys.joined(row)),
            _ => key,
        };
        match (key, placement) {
            (Some(key), _) => {
                let hash = java_hash(key.as_bytes()).unsigned_abs() as usize;
                Ok(QueueChoice::Index(hash.checked_rem(queues).unwrap_or_default()))
            }
            (None, Placement::Turn) => Ok(QueueChoice::Any),
            (None, Placement::Hash) => Err(refused(row, "it has neither shardingKey nor keys")),
            (None, Placement::Column) => Err(refused(row, "its queueId is null")),
        }
    }

    /// Returns the approximate encoded size of a row.
    fn bytes(&self, row: usize) -> usize {
        let extra: usize = self.extra.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        self.columns.bytes(row) + extra + ROW_FIXED_BYTES
    }

    /// Sets all fields of a row except its body. `fields` starts with the properties common to all rows and is reused
    /// from row to row, so unchanged fields are free.
    fn fill(&self, fields: &mut MessageFields, row: usize) -> Result<(), RowsError> {
        if self.columns.body.is_null(row) || self.columns.body.value(row).is_empty() {
            return Err(refused(row, "its body is null or empty, which brokers refuse"));
        }
        let topic = self.topic(row)?;
        let wrong = |error: FieldError| refused(row, &error.to_string());
        // The first row is always checked: `fields` starts with an empty topic.
        if fields.topic.is_empty() || fields.topic != topic {
            topic.clone_into(&mut fields.topic);
            fields.check_topic().map_err(wrong)?;
        }
        fields.tag = self.columns.tags.get(row).map(str::to_owned);
        fields.keys.clear();
        self.columns.keys.fill(&mut fields.keys, row);
        fields.sharding_key = self.columns.sharding_key.get(row).map(str::to_owned);
        fields.delivery = self.columns.delivery(row)?;
        fields.flag = self.columns.flag.get(row).unwrap_or_default();
        if let Some(pairs) = &self.columns.properties {
            fields.properties.clear();
            pairs.fill(&mut fields.properties, row);
            fields.properties.extend(self.extra.iter().cloned());
        }
        if let Some(id) = self.columns.message_id.get(row) {
            check_text("msgId", id).map_err(wrong)?;
        }
        fields.check_content().map_err(wrong)
    }

    /// Returns the id of a row. `hashed` is a reusable buffer.
    fn id(&self, context: &ProducerContext, row: usize, now_ms: u64, hashed: &mut Vec<u8>) -> String {
        if let Some(id) = self.columns.message_id.get(row) {
            return id.to_owned();
        }
        let Some(Identity { seed, first }) = &self.identity else {
            return context.ids.next(now_ms).as_str().to_owned();
        };
        hashed.clear();
        hashed.extend_from_slice(seed);
        match self.columns.identity.get(row) {
            Some(identity) => hashed.extend_from_slice(identity.as_bytes()),
            None => hashed.extend_from_slice(&(first + row as u64).to_be_bytes()),
        }
        hashed_id(XxHash3_128::oneshot(hashed)).as_str().to_owned()
    }
}

fn refused(row: usize, reason: &str) -> RowsError {
    RowsError::Row { row, reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use arrow_array::{BinaryArray, StringArray};

    use super::super::encoded_send::tests::context;
    use super::*;
    use crate::message::batch::inner_messages;
    use crate::message::properties;

    const LIMITS: Limits = Limits { rows_max: 100, bytes_max: 1 << 20, alone_from_bytes: None };

    fn rows(bodies: &[&str], keys: &[Option<&str>]) -> Rows {
        let bodies = BinaryArray::from_iter_values(bodies);
        let keys = StringArray::from(keys.to_vec());
        let columns: [(&str, arrow_array::ArrayRef); 2] =
            [("body", Arc::new(bodies)), ("shardingKey", Arc::new(keys))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let identity = Some(Identity { seed: b"query|7|".to_vec(), first: 10 });
        Rows::new(&batch, Some("orders".into()), identity, vec![("source".into(), "table".into())]).unwrap()
    }

    #[test]
    fn every_row_is_in_one_batch_and_those_of_a_queue_are_in_order() {
        let bodies: Vec<String> = (0..50).map(|number| number.to_string()).collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        let keys: Vec<Option<&str>> =
            (0..50).map(|number| [None, Some("a"), Some("b")][number % 3]).collect();
        let limits = Limits { rows_max: 7, ..LIMITS };
        let send_batches = rows(&bodies, &keys).send_batches("orders", 4, Placement::Turn, limits).unwrap();
        let mut seen: BTreeMap<QueueChoice, Vec<u32>> = BTreeMap::new();
        for batch in &send_batches {
            assert!((1..=7).contains(&batch.count()));
            seen.entry(batch.place.clone()).or_default().extend(&batch.rows);
        }
        assert!(seen.values().all(|rows| rows.is_sorted()));
        assert_eq!(seen.values().map(Vec::len).sum::<usize>(), 50);
        assert!(seen.contains_key(&QueueChoice::Any), "rows without a key go anywhere");
    }

    #[test]
    fn the_id_of_a_row_does_not_depend_on_its_batch() {
        let rows = rows(&["a", "b"], &[None, None]);
        let ids = |rows_max| {
            let limits = Limits { rows_max, ..LIMITS };
            let send_batches = rows.send_batches("orders", 4, Placement::Turn, limits).unwrap();
            let sent = send_batches.iter().map(|batch| rows.encode(&context(None), batch, 0).unwrap());
            sent.flat_map(|sent| sent.unique_ids().map(str::to_owned).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        assert_eq!(ids(1), ids(2));
        assert_eq!(ids(1).len(), 2);
        // Ids are permanent: with another hash, a restart would repeat rows under new ids.
        assert_eq!(ids(2)[0], "90D9DF0F76AB51999601965520CF7002", "XXH3-128 of query|7| and 10");
    }

    #[test]
    fn a_batch_holds_its_rows_with_their_properties() {
        let rows = rows(&["one", "two"], &[Some("k"), Some("k")]);
        let send_batches = rows.send_batches("orders", 4, Placement::Hash, LIMITS).unwrap();
        let [batch] = send_batches.as_slice() else { panic!("{send_batches:?}") };
        let sent = rows.encode(&context(None), batch, 0).unwrap();
        let members: Vec<_> = inner_messages(&sent.body).map(Result::unwrap).collect();
        assert_eq!(members.iter().map(|member| member.body).collect::<Vec<_>>(), [b"one", b"two"]);
        for member in members {
            assert_eq!(properties::get(member.properties, b"__SHARDINGKEY"), Some(b"k".as_slice()));
            assert_eq!(properties::get(member.properties, b"source"), Some(b"table".as_slice()));
        }
    }

    #[test]
    fn a_row_that_cannot_be_sent_is_named() {
        let rows = rows(&["one", ""], &[None, None]);
        let send_batches = rows.send_batches("orders", 4, Placement::Turn, LIMITS).unwrap();
        let error = rows.encode(&context(None), &send_batches[0], 0).unwrap_err().to_string();
        assert!(error.starts_with("row 1: its body"), "{error}");
        assert!(rows.send_batches("orders", 4, Placement::Column, LIMITS).is_err());
    }

    #[test]
    fn an_invalid_topic_is_refused_with_its_row() {
        for topic in ["", "has space", "SCHEDULE_TOPIC_XXXX"] {
            let rows = Rows { fixed_topic: Some(topic.into()), ..rows(&["one"], &[None]) };
            let send_batches = rows.send_batches(topic, 4, Placement::Turn, LIMITS).unwrap();
            let error = rows.encode(&context(None), &send_batches[0], 0).unwrap_err().to_string();
            assert!(error.starts_with("row 0: topic"), "{error}");
        }
    }
}
