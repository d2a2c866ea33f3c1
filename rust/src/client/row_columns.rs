//! Columns of a batch of rows to send: a typed view, checked once.
//!
//! Invariant: a cell that is null reads as nothing. Pure; any thread.

use std::ops::Range;

use arrow_array::{Array, BinaryArray, Int32Array, Int64Array, MapArray, RecordBatch, StringArray};

use super::message_fields::Delivery;

/// Rows that cannot become messages.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RowsError {
    #[error("column {name} has to be {wanted}, not {given}")]
    Type { name: &'static str, wanted: &'static str, given: String },
    /// There is no such column, and no message without it.
    #[error("there is no column {0}")]
    Missing(&'static str),
    #[error("row {row}: {reason}")]
    Row { row: usize, reason: String },
}

#[derive(Debug)]
pub(super) struct RowColumns {
    pub(super) count: usize,
    pub(super) body: BinaryArray,
    pub(super) topic: Text,
    pub(super) tags: Text,
    pub(super) keys: Text,
    pub(super) sharding_key: Text,
    pub(super) broker_name: Text,
    pub(super) message_id: Text,
    pub(super) identity: Text,
    pub(super) properties: Option<Pairs>,
    pub(super) queue_id: Int,
    pub(super) flag: Int,
    delay_level: Int,
    deliver_at: Option<Int64Array>,
}

impl RowColumns {
    /// Without `has_topic`, a topic column is like any other that is not looked at.
    /// Fails when a column has another type than it must have, or there is no body.
    pub(super) fn new(batch: &RecordBatch, has_topic: bool) -> Result<Self, RowsError> {
        let text = |name| column(batch, name, "string").map(Text);
        let int = |name| column(batch, name, "int").map(Int);
        Ok(Self {
            count: batch.num_rows(),
            body: column(batch, "body", "binary")?.ok_or(RowsError::Missing("body"))?,
            topic: if has_topic { text("topic")? } else { Text(None) },
            tags: text("tags")?,
            keys: text("keys")?,
            sharding_key: text("shardingKey")?,
            broker_name: text("brokerName")?,
            message_id: text("msgId")?,
            identity: text("identity")?,
            properties: column(batch, "properties", "map<string,string>")?.map(Pairs::new).transpose()?,
            queue_id: int("queueId")?,
            delay_level: int("delayLevel")?,
            flag: int("flag")?,
            deliver_at: column(batch, "deliverTimestamp", "bigint")?,
        })
    }

    pub(super) fn delivery(&self, row: usize) -> Option<Delivery> {
        let level = self.delay_level.get(row).map(Delivery::Level);
        let at = self.deliver_at.as_ref().filter(|each| each.is_valid(row));
        level.or_else(|| at.map(|each| Delivery::At(each.value(row))))
    }

    /// Bytes of all cells that travel.
    pub(super) fn bytes(&self, row: usize) -> usize {
        let texts = [&self.tags, &self.keys, &self.sharding_key];
        let texts: usize = texts.into_iter().filter_map(|each| each.get(row)).map(str::len).sum();
        let pairs = self.properties.as_ref().map_or(0, |pairs| pairs.bytes(row));
        self.body.value(row).len() + texts + pairs
    }
}

/// A column of text, which need not be there.
#[derive(Debug)]
pub(super) struct Text(Option<StringArray>);

impl Text {
    pub(super) fn get(&self, row: usize) -> Option<&str> {
        self.0.as_ref().filter(|each| each.is_valid(row)).map(|each| each.value(row))
    }
}

/// A column of 32-bit numbers, which need not be there.
#[derive(Debug)]
pub(super) struct Int(Option<Int32Array>);

impl Int {
    pub(super) fn get(&self, row: usize) -> Option<i32> {
        self.0.as_ref().filter(|each| each.is_valid(row)).map(|each| each.value(row))
    }
}

/// A column of names and values.
#[derive(Debug)]
pub(super) struct Pairs {
    map: MapArray,
    names: StringArray,
    values: StringArray,
}

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
    pub(super) fn fill(&self, properties: &mut Vec<(String, String)>, row: usize) {
        let valid = self.range(row).filter(|at| self.values.is_valid(*at));
        properties
            .extend(valid.map(|at| (self.names.value(at).to_owned(), self.values.value(at).to_owned())));
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
