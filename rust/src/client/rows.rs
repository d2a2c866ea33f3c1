//! Rows of an Arrow batch as messages to send: the way out of a table.
//!
//! Owns a checked view of the columns, and decides which rows travel together. A row becomes bytes when its parcel is
//! sent, so that what is under way is bounded by the window and not by the batch. Invariant: every row is in exactly
//! one parcel, those of one queue in their order. Pure; any thread.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, BinaryArray, Int32Array, Int64Array, MapArray, RecordBatch, StringArray};
use twox_hash::XxHash3_128;

use super::fields::{Delivery, FieldError, Fields};
use super::outgoing::{Letterhead, Outgoing, Packing};
use crate::message::id::hashed_id;
use crate::message::tag::java_hash;

/// Why rows cannot become messages.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// A column has another type.
    #[error("column {name} has to be {wanted}, not {given}")]
    Type {
        /// Its name.
        name: &'static str,
        /// What it has to be.
        wanted: &'static str,
        /// What it is.
        given: String,
    },
    /// There is no such column, and no message without it.
    #[error("there is no column {0}")]
    Missing(&'static str),
    /// One row cannot be sent.
    #[error("row {row}: {reason}")]
    Row {
        /// Its place in the batch.
        row: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// Where the ids of rows come from.
#[derive(Clone, Debug)]
pub struct Identity {
    /// What tells this batch of rows from all others: a row that is sent again under the same seed has the same id.
    pub seed: Vec<u8>,
    /// Number of the first row, for rows that have nothing better to tell them apart.
    pub first: u64,
}

/// What is done with a row that names neither queue nor sharding key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// It goes where there is room.
    Turn,
    /// Its keys are hashed.
    Hash,
    /// It is refused.
    Column,
}

/// Where the rows of a parcel go.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// Any queue.
    Any,
    /// The one at this place among the topic's queues.
    Index(usize),
    /// This one, of that broker, or of any that has it.
    Queue(Option<String>, i32),
}

/// What bounds a parcel.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Rows of one parcel.
    pub rows_max: usize,
    /// Bytes of one parcel, bodies and properties; a larger row goes alone.
    pub bytes_max: usize,
    /// Bodies of at least so many bytes go alone: a batch is never compressed.
    pub alone_from_bytes: Option<usize>,
}

/// Rows that travel together.
#[derive(Debug)]
pub struct Parcel {
    /// Where they go.
    pub place: Place,
    rows: Vec<u32>,
    bytes: usize,
    is_alone: bool,
}

impl Parcel {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// A batch of rows to send.
#[derive(Debug)]
pub struct Rows {
    count: usize,
    fixed_topic: Option<String>,
    identity: Option<Identity>,
    extra: Vec<(String, String)>,
    body: BinaryArray,
    topic: Option<StringArray>,
    tags: Option<StringArray>,
    keys: Option<StringArray>,
    sharding_key: Option<StringArray>,
    broker_name: Option<StringArray>,
    message_id: Option<StringArray>,
    distinct: Option<StringArray>,
    properties: Option<Pairs>,
    queue_id: Option<Int32Array>,
    delay_level: Option<Int32Array>,
    flag: Option<Int32Array>,
    deliver_at: Option<Int64Array>,
}

#[derive(Debug)]
struct Pairs {
    map: MapArray,
    names: StringArray,
    values: StringArray,
}

impl Rows {
    /// A view of a batch. `topic` is that of all rows; without one there has to be a column. `extra` are properties
    /// every message gets.
    ///
    /// # Errors
    /// When a column has another type than it must have.
    pub fn new(
        batch: &RecordBatch,
        topic: Option<String>,
        identity: Option<Identity>,
        extra: Vec<(String, String)>,
    ) -> Result<Self, RowsError> {
        if topic.is_none() && batch.column_by_name("topic").is_none() {
            return Err(RowsError::Missing("topic"));
        }
        let text = |name| column::<StringArray>(batch, name, "string");
        let int = |name| column::<Int32Array>(batch, name, "int");
        Ok(Self {
            count: batch.num_rows(),
            body: column(batch, "body", "binary")?.ok_or(RowsError::Missing("body"))?,
            topic: if topic.is_some() { None } else { text("topic")? },
            fixed_topic: topic,
            identity,
            extra,
            tags: text("tags")?,
            keys: text("keys")?,
            sharding_key: text("shardingKey")?,
            broker_name: text("brokerName")?,
            message_id: text("msgId")?,
            distinct: text("identity")?,
            properties: column(batch, "properties", "map<string,string>")?.map(Pairs::new).transpose()?,
            queue_id: int("queueId")?,
            delay_level: int("delayLevel")?,
            flag: int("flag")?,
            deliver_at: column(batch, "deliverTimestamp", "bigint")?,
        })
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Every topic that rows go to.
    ///
    /// # Errors
    /// When a row has none.
    pub fn topics(&self) -> Result<BTreeSet<&str>, RowsError> {
        (0..self.count).map(|row| self.topic(row)).collect()
    }

    /// The rows of one topic, put together: those that name a queue or a key with those of the same queue, others
    /// with their neighbours. `queues` is how many the topic has.
    ///
    /// # Errors
    /// At the first row that cannot be placed.
    pub fn parcels(
        &self,
        topic: &str,
        queues: usize,
        placement: Placement,
        limits: Limits,
    ) -> Result<Vec<Parcel>, RowsError> {
        let mut done = Vec::new();
        let mut open: BTreeMap<Place, (Vec<u32>, usize)> = BTreeMap::new();
        for row in 0..self.count {
            if self.topic(row)? != topic {
                continue;
            }
            let place = self.place(row, queues, placement)?;
            let bytes = self.bytes(row);
            let is_alone = limits.alone_from_bytes.is_some_and(|limit| self.body.value(row).len() >= limit)
                || self.delivery(row).is_some();
            let (rows, size) = open.entry(place.clone()).or_default();
            let is_full = rows.len() >= limits.rows_max || *size + bytes > limits.bytes_max;
            if !rows.is_empty() && (is_alone || is_full) {
                let (rows, bytes) = (std::mem::take(rows), std::mem::take(size));
                done.push(Parcel { place: place.clone(), rows, bytes, is_alone: false });
            }
            // Record batches of more rows than this do not come out of anything.
            let index = u32::try_from(row).map_err(|_| refused(row, "the batch is too long"))?;
            if is_alone {
                done.push(Parcel { place, rows: vec![index], bytes, is_alone: true });
            } else {
                rows.push(index);
                *size += bytes;
            }
        }
        let rest = open.into_iter().filter(|(_, (rows, _))| !rows.is_empty());
        done.extend(rest.map(|(place, (rows, bytes))| Parcel { place, rows, bytes, is_alone: false }));
        Ok(done)
    }

    /// A parcel as it travels.
    ///
    /// # Errors
    /// At the first row that no broker takes.
    pub fn pack(
        &self,
        letterhead: &Arc<Letterhead>,
        parcel: &Parcel,
        now_ms: u64,
    ) -> Result<Outgoing, RowsError> {
        let mut fields = Fields { properties: self.extra.clone(), ..Fields::default() };
        let mut hashed = Vec::new();
        let mut packing = Packing::with_capacity(parcel.rows.len(), parcel.bytes);
        for row in parcel.rows.iter().map(|row| *row as usize) {
            self.fill(&mut fields, row)?;
            let body = self.body.value(row);
            let id = self.id(letterhead, row, now_ms, &mut hashed);
            if parcel.is_alone {
                return Ok(letterhead.message_as(&fields, body, id, now_ms));
            }
            packing.add(&fields, body, id);
        }
        Ok(letterhead.seal(&fields.topic, packing, now_ms))
    }

    fn topic(&self, row: usize) -> Result<&str, RowsError> {
        match &self.fixed_topic {
            Some(topic) => Ok(topic),
            None => text(self.topic.as_ref(), row).ok_or_else(|| refused(row, "its topic is null")),
        }
    }

    fn place(&self, row: usize, queues: usize, placement: Placement) -> Result<Place, RowsError> {
        if let Some(queue_id) = number(self.queue_id.as_ref(), row) {
            return Ok(Place::Queue(text(self.broker_name.as_ref(), row).map(str::to_owned), queue_id));
        }
        let key = text(self.sharding_key.as_ref(), row);
        let key = match placement {
            Placement::Hash => key.or_else(|| text(self.keys.as_ref(), row)),
            _ => key,
        };
        match (key, placement) {
            (Some(key), _) => {
                let hash = java_hash(key.as_bytes()).unsigned_abs() as usize;
                Ok(Place::Index(hash.checked_rem(queues).unwrap_or_default()))
            }
            (None, Placement::Turn) => Ok(Place::Any),
            (None, Placement::Hash) => Err(refused(row, "it has neither shardingKey nor keys")),
            (None, Placement::Column) => Err(refused(row, "its queueId is null")),
        }
    }

    /// Roughly what a row takes on its way.
    fn bytes(&self, row: usize) -> usize {
        let texts = [&self.tags, &self.keys, &self.sharding_key];
        let texts: usize = texts.into_iter().filter_map(|each| text(each.as_ref(), row)).map(str::len).sum();
        let pairs = self.properties.as_ref().map_or(0, |pairs| pairs.bytes(row));
        let extra: usize = self.extra.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        self.body.value(row).len() + texts + pairs + extra + ROW_FIXED_BYTES
    }

    fn delivery(&self, row: usize) -> Option<Delivery> {
        let level = number(self.delay_level.as_ref(), row).map(Delivery::Level);
        let at = self.deliver_at.as_ref().filter(|each| each.is_valid(row));
        level.or_else(|| at.map(|each| Delivery::At(each.value(row))))
    }

    /// Everything of a row but its body. `fields` begins with the properties that every row has, and is used again for
    /// row after row: what does not change costs nothing then.
    fn fill(&self, fields: &mut Fields, row: usize) -> Result<(), RowsError> {
        if self.body.is_null(row) || self.body.value(row).is_empty() {
            return Err(refused(row, "its body is null or empty, which no broker takes"));
        }
        let topic = self.topic(row)?;
        let wrong = |error: FieldError| refused(row, &error.to_string());
        // The first row's is always looked at: an empty topic is what there was before.
        if fields.topic.is_empty() || fields.topic != topic {
            topic.clone_into(&mut fields.topic);
            fields.check_topic().map_err(wrong)?;
        }
        fields.tag = text(self.tags.as_ref(), row).map(str::to_owned);
        fields.keys.clear();
        let keys = text(self.keys.as_ref(), row).unwrap_or_default();
        fields.keys.extend(keys.split_whitespace().map(str::to_owned));
        fields.sharding_key = text(self.sharding_key.as_ref(), row).map(str::to_owned);
        fields.delivery = self.delivery(row);
        fields.flag = number(self.flag.as_ref(), row).unwrap_or_default();
        if let Some(pairs) = &self.properties {
            fields.properties.clear();
            pairs.fill(&mut fields.properties, row);
            fields.properties.extend(self.extra.iter().cloned());
        }
        fields.check_content().map_err(wrong)
    }

    /// The id of a row. `hashed` is a buffer to be used again.
    fn id(&self, letterhead: &Letterhead, row: usize, now_ms: u64, hashed: &mut Vec<u8>) -> String {
        if let Some(id) = text(self.message_id.as_ref(), row) {
            return id.to_owned();
        }
        let Some(Identity { seed, first }) = &self.identity else {
            return letterhead.ids.next(now_ms).as_str().to_owned();
        };
        hashed.clear();
        hashed.extend_from_slice(seed);
        match text(self.distinct.as_ref(), row) {
            Some(distinct) => hashed.extend_from_slice(distinct.as_bytes()),
            None => hashed.extend_from_slice(&(first + row as u64).to_be_bytes()),
        }
        hashed_id(XxHash3_128::oneshot(hashed)).as_str().to_owned()
    }
}

/// Frame, id, and the switch of each message inside a batch.
const ROW_FIXED_BYTES: usize = 80;

impl Pairs {
    fn new(map: MapArray) -> Result<Self, RowsError> {
        let other = |given: &dyn Array| RowsError::Type {
            name: "properties",
            wanted: "map<string,string>",
            given: given.data_type().to_string(),
        };
        let names = map.keys().as_any().downcast_ref::<StringArray>().cloned();
        let values = map.values().as_any().downcast_ref::<StringArray>().cloned();
        let (Some(names), Some(values)) = (names, values) else { return Err(other(&map)) };
        Ok(Self { map, names, values })
    }

    fn range(&self, row: usize) -> Range<usize> {
        if self.map.is_null(row) {
            return 0..0;
        }
        let offsets = self.map.value_offsets();
        let at =
            |index: usize| offsets.get(index).and_then(|at| usize::try_from(*at).ok()).unwrap_or_default();
        at(row)..at(row + 1)
    }

    fn bytes(&self, row: usize) -> usize {
        let lengths =
            self.range(row).map(|at| self.names.value_length(at) + self.values.value_length(at) + 2);
        lengths.map(|length| usize::try_from(length).unwrap_or_default()).sum()
    }

    /// Names with values; a name whose value is null is left out.
    fn fill(&self, properties: &mut Vec<(String, String)>, row: usize) {
        let told = self.range(row).filter(|at| self.values.is_valid(*at));
        properties.extend(told.map(|at| (self.names.value(at).to_owned(), self.values.value(at).to_owned())));
    }
}

fn column<A: Array + Clone + 'static>(
    batch: &RecordBatch,
    name: &'static str,
    wanted: &'static str,
) -> Result<Option<A>, RowsError> {
    let Some(column) = batch.column_by_name(name) else { return Ok(None) };
    match column.as_any().downcast_ref::<A>() {
        Some(typed) => Ok(Some(typed.clone())),
        None => Err(RowsError::Type { name, wanted, given: column.data_type().to_string() }),
    }
}

fn text(column: Option<&StringArray>, row: usize) -> Option<&str> {
    column.filter(|each| each.is_valid(row)).map(|each| each.value(row))
}

fn number(column: Option<&Int32Array>, row: usize) -> Option<i32> {
    column.filter(|each| each.is_valid(row)).map(|each| each.value(row))
}

fn refused(row: usize, reason: &str) -> RowsError {
    RowsError::Row { row, reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use arrow_array::RecordBatch;

    use super::*;
    use crate::message::batch::inner_messages;
    use crate::message::properties;
    use crate::message::sysflag::Compression;

    const LIMITS: Limits = Limits { rows_max: 100, bytes_max: 1 << 20, alone_from_bytes: None };

    fn letterhead() -> Arc<Letterhead> {
        Arc::new(Letterhead {
            group: "pg".into(),
            compress_from_bytes: None,
            compression: Compression::Zlib,
            template_queues: 4,
            ids: Letterhead::unique_ids(1),
        })
    }

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
    fn every_row_is_in_one_parcel_and_those_of_a_queue_are_in_order() {
        let bodies: Vec<String> = (0..50).map(|number| number.to_string()).collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        let keys: Vec<Option<&str>> =
            (0..50).map(|number| [None, Some("a"), Some("b")][number % 3]).collect();
        let limits = Limits { rows_max: 7, ..LIMITS };
        let parcels = rows(&bodies, &keys).parcels("orders", 4, Placement::Turn, limits).unwrap();
        let mut seen: BTreeMap<Place, Vec<u32>> = BTreeMap::new();
        for parcel in &parcels {
            assert!((1..=7).contains(&parcel.len()));
            seen.entry(parcel.place.clone()).or_default().extend(&parcel.rows);
        }
        assert!(seen.values().all(|rows| rows.is_sorted()));
        assert_eq!(seen.values().map(Vec::len).sum::<usize>(), 50);
        assert!(seen.contains_key(&Place::Any), "rows without a key go anywhere");
    }

    #[test]
    fn a_row_has_the_same_id_whatever_it_travels_with() {
        let rows = rows(&["a", "b"], &[None, None]);
        let ids = |rows_max| {
            let limits = Limits { rows_max, ..LIMITS };
            let parcels = rows.parcels("orders", 4, Placement::Turn, limits).unwrap();
            let sent = parcels.iter().map(|parcel| rows.pack(&letterhead(), parcel, 0).unwrap());
            sent.flat_map(|sent| sent.unique_ids().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(ids(1), ids(2));
        assert_eq!(ids(1).len(), 2);
        // Ids are promised for good: a change of the hash would let a restart repeat rows under new ones.
        assert_eq!(ids(2)[0], "90D9DF0F76AB51999601965520CF7002", "XXH3-128 of query|7| and 10");
    }

    #[test]
    fn a_parcel_holds_its_rows_with_their_properties() {
        let rows = rows(&["one", "two"], &[Some("k"), Some("k")]);
        let parcels = rows.parcels("orders", 4, Placement::Hash, LIMITS).unwrap();
        let [parcel] = parcels.as_slice() else { panic!("{parcels:?}") };
        let sent = rows.pack(&letterhead(), parcel, 0).unwrap();
        let members: Vec<_> = inner_messages(sent.body()).map(Result::unwrap).collect();
        assert_eq!(members.iter().map(|member| member.body).collect::<Vec<_>>(), [b"one", b"two"]);
        for member in members {
            assert_eq!(properties::get(member.properties, b"__SHARDINGKEY"), Some(b"k".as_slice()));
            assert_eq!(properties::get(member.properties, b"source"), Some(b"table".as_slice()));
        }
    }

    #[test]
    fn a_row_that_cannot_be_sent_is_named() {
        let rows = rows(&["one", ""], &[None, None]);
        let parcels = rows.parcels("orders", 4, Placement::Turn, LIMITS).unwrap();
        let error = rows.pack(&letterhead(), &parcels[0], 0).unwrap_err().to_string();
        assert!(error.starts_with("row 1: its body"), "{error}");
        assert!(rows.parcels("orders", 4, Placement::Column, LIMITS).is_err());
    }

    #[test]
    fn a_topic_that_no_broker_takes_is_refused_with_its_row() {
        for topic in ["", "has space", "SCHEDULE_TOPIC_XXXX"] {
            let rows = Rows { fixed_topic: Some(topic.into()), ..rows(&["one"], &[None]) };
            let parcels = rows.parcels(topic, 4, Placement::Turn, LIMITS).unwrap();
            let error = rows.pack(&letterhead(), &parcels[0], 0).unwrap_err().to_string();
            assert!(error.starts_with("row 0: topic"), "{error}");
        }
    }
}
