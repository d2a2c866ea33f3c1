//! Table: messages as Arrow columns, from rows to record batches.
//!
//! Invariant: every column has the same number of rows. A row that cannot be decoded leaves no trace: everything that
//! may fail is done before the first column grows. Memory is proportional to the rows; the reader decides when to
//! `finish`. One thread at a time.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, Int32Builder, Int64Builder, MapBuilder, MapFieldNames, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, Schema};

use super::error::RowError;
use super::row::{Row, each_row};
use super::schema::{Column, ColumnType, SchemaError, Source, arrow_schema};
use crate::message::properties::{self, name};
use crate::message::shown_time::shown_ms;
use crate::message::tag::TagFilter;

/// Size above which a batch refuses rows: Arrow counts the bytes of a column in 31 bits.
const BYTES_MAX: usize = 1 << 30;

/// The queue of the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) topic: &'a str,
    pub(crate) broker: &'a str,
    pub(crate) queue_id: i32,
}

/// The handling of a text body that is not UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadText {
    /// Fail, naming the message.
    Fail,
    /// Leave the cell null.
    Null,
    /// Replace invalid bytes with U+FFFD.
    Replace,
}

#[derive(Debug)]
pub(crate) struct Table {
    schema: Arc<Schema>,
    columns: Vec<Column>,
    cells: Vec<Cells>,
    bad_text: BadText,
    rows: usize,
    bytes: usize,
}

#[derive(Debug)]
enum Cells {
    Text(StringBuilder),
    Binary(BinaryBuilder),
    Int(Int32Builder),
    BigInt(Int64Builder),
    Timestamp(TimestampMicrosecondBuilder),
    /// Boxed: several times the size of the others.
    Map(Box<MapBuilder<StringBuilder, StringBuilder>>),
}

impl Table {
    /// Creates an empty table. Fails without columns.
    pub(crate) fn new(columns: Vec<Column>, bad_text: BadText) -> Result<Self, SchemaError> {
        let schema = arrow_schema(&columns)?;
        let cells = columns.iter().map(|column| Cells::new(column.column_type)).collect();
        Ok(Self { schema, columns, cells, bad_text, rows: 0, bytes: 0 })
    }

    pub(crate) fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the approximate size of the rows.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the messages of a pulled body that have one of the tags and an offset in `range`; returns how many. Fails
    /// at the first undecodable message; those before it are added.
    pub(crate) fn append(
        &mut self,
        body: &[u8],
        origin: &Origin<'_>,
        range: &Range<u64>,
        tags: &TagFilter,
    ) -> Result<usize, RowError> {
        let before = self.rows;
        each_row(body, |_, row| {
            // Brokers filter by hash; drop the collisions here.
            let has_tag = || *tags == TagFilter::All || tags.matches_tag(row.property(name::TAGS));
            let is_wanted = range.contains(&row.queue_offset()) && has_tag();
            if is_wanted { self.push(&row, origin) } else { Ok(()) }
        })?;
        Ok(self.rows - before)
    }

    fn push(&mut self, row: &Row<'_>, origin: &Origin<'_>) -> Result<(), RowError> {
        let queue_offset = row.queue_offset();
        let wanted = self.columns.iter().find(|column| column.source == Source::Body);
        let body = wanted.map(|_| row.body()).transpose()?;
        let text = match (wanted.map(|column| column.column_type), &body) {
            (Some(ColumnType::Text), Some(bytes)) => match std::str::from_utf8(bytes) {
                Ok(text) => Some(Cow::Borrowed(text)),
                Err(_) => match self.bad_text {
                    BadText::Fail => return Err(RowError::Text { queue_offset }),
                    BadText::Null => None,
                    BadText::Replace => Some(String::from_utf8_lossy(bytes)),
                },
            },
            _ => None,
        };
        let bytes = row.properties().len() + body.as_ref().map_or(0, |body| body.len()) + 64;
        if self.bytes + bytes > BYTES_MAX {
            return Err(RowError::Full { queue_offset, reason: "the batch would exceed 1 GiB".into() });
        }
        for (column, cells) in self.columns.iter().zip(&mut self.cells) {
            let body = (body.as_deref(), text.as_deref());
            cells
                .push(column.source, row, origin, body)
                .map_err(|error| RowError::Full { queue_offset, reason: error.to_string() })?;
        }
        self.rows += 1;
        self.bytes += bytes;
        Ok(())
    }

    /// Returns the rows so far as one batch and leaves the table empty. Never fails if only `append` has filled it.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let arrays: Vec<ArrayRef> = self.cells.iter_mut().map(Cells::finish).collect();
        self.rows = 0;
        self.bytes = 0;
        RecordBatch::try_new(Arc::clone(&self.schema), arrays)
    }
}

/// The body as bytes, and as text if requested and valid.
type Body<'a> = (Option<&'a [u8]>, Option<&'a str>);

impl Cells {
    fn new(column_type: ColumnType) -> Self {
        match column_type {
            ColumnType::Text => Self::Text(StringBuilder::new()),
            ColumnType::Binary => Self::Binary(BinaryBuilder::new()),
            ColumnType::Int => Self::Int(Int32Builder::new()),
            ColumnType::BigInt => Self::BigInt(Int64Builder::new()),
            ColumnType::Timestamp => Self::Timestamp(TimestampMicrosecondBuilder::new().with_timezone("UTC")),
            ColumnType::Map => {
                let names =
                    MapFieldNames { entry: "entries".into(), key: "key".into(), value: "value".into() };
                let (keys, values) = (StringBuilder::new(), StringBuilder::new());
                Self::Map(Box::new(MapBuilder::new(Some(names), keys, values)))
            }
        }
    }

    fn push(
        &mut self,
        source: Source,
        row: &Row<'_>,
        origin: &Origin<'_>,
        (bytes, text): Body<'_>,
    ) -> Result<(), ArrowError> {
        match self {
            Self::Text(cells) => match source {
                Source::Topic => cells.append_value(origin.topic),
                Source::BrokerName => cells.append_value(origin.broker),
                Source::MsgId => cells.append_value(row.message_id()),
                Source::Tags => append_property(cells, row, name::TAGS),
                Source::Keys => append_property(cells, row, name::KEYS),
                Source::TransactionId => append_property(cells, row, name::TRANSACTION_ID),
                Source::Properties => cells.append_value(properties_json(row)),
                Source::Body => cells.append_option(text),
                Source::BornHost => cells.append_value(row.record().born_host().to_string()),
                Source::StoreHost => cells.append_value(row.record().store_host().to_string()),
                _ => cells.append_null(),
            },
            Self::Binary(cells) => cells.append_option(bytes),
            Self::Int(cells) => cells.append_option(integer(source, row, origin)),
            Self::BigInt(cells) => cells.append_option(long(source, row)),
            Self::Timestamp(cells) => {
                cells.append_option(long(source, row).map(|ms| shown_ms(ms) * 1000));
            }
            Self::Map(cells) => {
                let may_repeat = has_lookalikes(row.properties());
                for (name, value) in properties::entries(row.properties()) {
                    // A map has each key once; as in every client, the last value counts.
                    if may_repeat && !row.property(name).is_some_and(|last| std::ptr::eq(last, value)) {
                        continue;
                    }
                    cells.keys().append_value(String::from_utf8_lossy(name));
                    cells.values().append_value(String::from_utf8_lossy(value));
                }
                cells.append(true)?;
            }
        }
        Ok(())
    }

    /// Returns the column so far. For variable-size cells the next column starts with the same capacity, which avoids
    /// copies while it grows.
    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Text(cells) => {
                let done = cells.finish();
                *cells = StringBuilder::with_capacity(done.len(), done.value_data().len());
                Arc::new(done)
            }
            Self::Binary(cells) => {
                let done = cells.finish();
                *cells = BinaryBuilder::with_capacity(done.len(), done.value_data().len());
                Arc::new(done)
            }
            Self::Int(cells) => Arc::new(cells.finish()),
            Self::BigInt(cells) => Arc::new(cells.finish()),
            Self::Timestamp(cells) => Arc::new(cells.finish()),
            Self::Map(cells) => Arc::new(cells.finish()),
        }
    }
}

/// Returns whether two names agree in length and first letter. Otherwise no name can be repeated.
fn has_lookalikes(properties: &[u8]) -> bool {
    let mut seen = 0_u64;
    properties::entries(properties).any(|(name, _)| {
        let letter = name.first().copied().unwrap_or_default();
        let bit = 1 << ((usize::from(letter) + name.len() * 31) % 64);
        let is_known = seen & bit != 0;
        seen |= bit;
        is_known
    })
}

fn append_property(cells: &mut StringBuilder, row: &Row<'_>, name: &[u8]) {
    match row.property(name) {
        Some(value) => cells.append_value(String::from_utf8_lossy(value)),
        None => cells.append_null(),
    }
}

fn integer(source: Source, row: &Row<'_>, origin: &Origin<'_>) -> Option<i32> {
    match source {
        Source::QueueId => Some(origin.queue_id),
        Source::Flag => Some(row.flag()),
        Source::SysFlag => Some(row.record().sys_flag()),
        Source::ReconsumeTimes => Some(row.record().reconsume_times()),
        Source::StoreSize => i32::try_from(row.record().total_size()).ok(),
        // The format's mask keeps it non-negative.
        Source::BodyCrc => i32::try_from(row.record().body_crc()).ok(),
        _ => None,
    }
}

/// Returns a 64-bit number; times in milliseconds.
fn long(source: Source, row: &Row<'_>) -> Option<i64> {
    match source {
        Source::QueueOffset => i64::try_from(row.queue_offset()).ok(),
        Source::PhysicalOffset => i64::try_from(row.record().physical_offset().0).ok(),
        Source::BornTimestamp => Some(row.record().born_timestamp_ms()),
        Source::StoreTimestamp => Some(row.record().store_timestamp_ms()),
        Source::DeliverTimestamp => {
            let text = row.property(name::TIMER_OUT_MS).or_else(|| row.property(name::TIMER_DELIVER_MS))?;
            std::str::from_utf8(text).ok()?.parse().ok()
        }
        _ => None,
    }
}

/// Returns the properties as a JSON object; the last of repeated names counts.
fn properties_json(row: &Row<'_>) -> String {
    let entries = properties::entries(row.properties())
        .map(|(name, value)| (lossy(name), serde_json::Value::String(lossy(value))));
    serde_json::Value::Object(entries.collect()).to_string()
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;

    use super::*;
    use crate::message::record::{RecordFields, Stamp};
    use crate::message::sysflag::COMPRESSED;
    use crate::positions::{PhysicalOffset, QueueOffset};

    const ORIGIN: Origin<'_> = Origin { topic: "orders", broker: "broker-a", queue_id: 3 };

    fn record(offset: u64, body: &[u8], sys_flag: i32) -> Vec<u8> {
        let host = SocketAddr::from(([10, 0, 0, 1], 5000));
        let fields = RecordFields {
            queue_id: 3,
            flag: 0,
            sys_flag,
            born_timestamp_ms: 1,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            body_crc: RecordFields::body_crc(body),
            topic: b"orders",
            properties: b"TAGS\x01a\x02",
        };
        let mut bytes = vec![0; fields.encoded_len()];
        let stamp = Stamp { physical: PhysicalOffset(0), queue: QueueOffset(offset), store_timestamp_ms: 2 };
        fields.encode(&mut bytes, stamp);
        bytes
    }

    fn columns(names: &[&str]) -> Vec<Column> {
        names.iter().map(|name| Column::find(name, None).unwrap()).collect()
    }

    #[test]
    fn rows_outside_the_range_or_with_other_tags_are_skipped() {
        let mut table = Table::new(columns(&["queueOffset"]), BadText::Fail).unwrap();
        let body: Vec<u8> = (0..10).flat_map(|offset| record(offset, b"x", 0)).collect();
        assert_eq!(table.append(&body, &ORIGIN, &(3..7), &TagFilter::parse("*")).unwrap(), 4);
        assert_eq!(table.append(&body, &ORIGIN, &(0..10), &TagFilter::parse("b")).unwrap(), 0);
        let batch = table.finish().unwrap();
        assert_eq!(batch.column(0).as_primitive::<Int64Type>().values(), &[3, 4, 5, 6]);
        assert_eq!((table.rows(), table.bytes()), (0, 0));
    }

    #[test]
    fn an_undecodable_row_leaves_no_trace() {
        let mut table = Table::new(columns(&["queueOffset", "body", "properties"]), BadText::Fail).unwrap();
        let body =
            [record(5, b"good", 0), record(6, b"not zlib", COMPRESSED), record(7, b"good", 0)].concat();
        let error = table.append(&body, &ORIGIN, &(0..10), &TagFilter::parse("*")).unwrap_err();
        assert!(matches!(error, RowError::Body { queue_offset: 6, .. }), "{error}");
        assert_eq!(table.finish().unwrap().num_rows(), 1);
    }

    #[test]
    fn bytes_after_the_last_whole_record_are_a_positioned_error() {
        let mut table = Table::new(columns(&["queueOffset"]), BadText::Fail).unwrap();
        let mut body = record(0, b"x", 0);
        let whole = body.len();
        body.extend_from_slice(&record(1, b"y", 0)[..20]);
        let error = table.append(&body, &ORIGIN, &(0..10), &TagFilter::parse("*")).unwrap_err();
        assert!(matches!(error, RowError::Record { at, .. } if at == whole), "{error}");
    }
}
