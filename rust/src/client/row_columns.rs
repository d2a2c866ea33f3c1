//! Row columns: a typed view of the rows to send, validated once.
//!
//! Invariant: a null cell reads as absent. Pure; any thread.

use std::borrow::Cow;
use std::ops::Range;

use arrow_array::{
    Array, BinaryArray, Int32Array, Int64Array, ListArray, MapArray, RecordBatch, StringArray,
};

use super::message_fields::Delivery;

/// Rows that cannot become messages.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RowsError {
    #[error("column {name} must be {wanted}, not {given}")]
    Type { name: &'static str, wanted: &'static str, given: String },
    /// A required column is missing.
    #[error("column {0} is missing")]
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
    pub(super) keys: Keys,
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
    /// Finds the columns of a batch. Without `has_topic`, a topic column is ignored. Fails when a column has the wrong
    /// type, or the body column is missing.
    pub(super) fn new(batch: &RecordBatch, has_topic: bool) -> Result<Self, RowsError> {
        let text = |name| column(batch, name, "string").map(Text);
        let int = |name| column(batch, name, "int").map(Int);
        Ok(Self {
            count: batch.num_rows(),
            body: column(batch, "body", "binary")?.ok_or(RowsError::Missing("body"))?,
            topic: if has_topic { text("topic")? } else { Text(None) },
            tags: text("tags")?,
            keys: Keys::new(batch)?,
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

    /// Returns the delivery time of a row. Fails when the row has both a level and a time.
    pub(super) fn delivery(&self, row: usize) -> Result<Option<Delivery>, RowsError> {
        let level = self.delay_level.get(row).map(Delivery::Level);
        let at = self.deliver_at.as_ref().filter(|each| each.is_valid(row));
        match (level, at) {
            (Some(_), Some(_)) => {
                Err(RowsError::Row { row, reason: "give one of delayLevel and deliverTimestamp".to_owned() })
            }
            (level, at) => Ok(level.or_else(|| at.map(|each| Delivery::At(each.value(row))))),
        }
    }

    /// Returns the size of all cells that are sent.
    pub(super) fn bytes(&self, row: usize) -> usize {
        let texts = [&self.tags, &self.sharding_key];
        let texts: usize = texts.into_iter().filter_map(|each| each.get(row)).map(str::len).sum();
        let texts = texts + self.keys.bytes(row);
        let pairs = self.properties.as_ref().map_or(0, |pairs| pairs.bytes(row));
        self.body.value(row).len() + texts + pairs
    }
}

/// An optional text column.
#[derive(Debug)]
pub(super) struct Text(Option<StringArray>);

impl Text {
    pub(super) fn get(&self, row: usize) -> Option<&str> {
        self.0.as_ref().filter(|each| each.is_valid(row)).map(|each| each.value(row))
    }
}

/// A column of keys: a text separated by spaces, or a list of keys.
#[derive(Debug)]
pub(super) enum Keys {
    Text(Text),
    List(ListArray, StringArray),
}

impl Keys {
    fn new(batch: &RecordBatch) -> Result<Self, RowsError> {
        let Some(list) =
            batch.column_by_name("keys").and_then(|each| each.as_any().downcast_ref::<ListArray>())
        else {
            return column(batch, "keys", "string or list<string>").map(|text| Self::Text(Text(text)));
        };
        match list.values().as_any().downcast_ref::<StringArray>() {
            Some(texts) => Ok(Self::List(list.clone(), texts.clone())),
            None => Err(RowsError::Type {
                name: "keys",
                wanted: "string or list<string>",
                given: list.data_type().to_string(),
            }),
        }
    }

    /// Appends the keys of a row; null elements are skipped.
    pub(super) fn fill(&self, keys: &mut Vec<String>, row: usize) {
        match self {
            Self::Text(text) => {
                keys.extend(text.get(row).unwrap_or_default().split_whitespace().map(str::to_owned));
            }
            Self::List(list, texts) => keys.extend(elements(list, texts, row).map(str::to_owned)),
        }
    }

    /// Returns all keys of a row as one text, for hashing; `None` without keys.
    pub(super) fn joined(&self, row: usize) -> Option<Cow<'_, str>> {
        match self {
            Self::Text(text) => text.get(row).map(Cow::Borrowed),
            Self::List(list, texts) => {
                let keys: Vec<&str> = elements(list, texts, row).collect();
                (!keys.is_empty()).then(|| Cow::Owned(keys.join(" ")))
            }
        }
    }

    fn bytes(&self, row: usize) -> usize {
        match self {
            Self::Text(text) => text.get(row).map_or(0, str::len),
            Self::List(list, texts) => elements(list, texts, row).map(|key| key.len() + 1).sum(),
        }
    }
}

/// Iterates over the non-null elements of a list.
fn elements<'a>(
    list: &'a ListArray,
    texts: &'a StringArray,
    row: usize,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let range = if list.is_null(row) { 0..0 } else { span(list.value_offsets(), row) };
    range.filter(|at| texts.is_valid(*at)).map(|at| texts.value(at))
}

/// Returns the range of a row's elements among those of all rows.
fn span(offsets: &[i32], row: usize) -> Range<usize> {
    let at = |index: usize| offsets.get(index).and_then(|at| usize::try_from(*at).ok()).unwrap_or_default();
    at(row)..at(row + 1)
}

/// An optional column of 32-bit numbers.
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
        span(self.map.value_offsets(), row)
    }

    fn bytes(&self, row: usize) -> usize {
        let lengths =
            self.range(row).map(|at| self.names.value_length(at) + self.values.value_length(at) + 2);
        lengths.map(|length| usize::try_from(length).unwrap_or_default()).sum()
    }

    /// Appends names with values; a name with a null value is skipped.
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
