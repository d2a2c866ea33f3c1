//! The columns a table of messages can have, their names and their types.
//!
//! Names are those of the old Spark connector. Types are exactly Spark's: `timestamp[us, UTC]`, `binary`, `string`,
//! `map<string, string>` with a key that is never null; every column may be null.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};

/// The part of a message that fills a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Topic,
    BrokerName,
    QueueId,
    QueueOffset,
    /// The producer's id, or the broker's where there is none.
    MsgId,
    Tags,
    /// Joined by spaces.
    Keys,
    /// Decompressed.
    Body,
    /// All of them.
    Properties,
    Flag,
    BornTimestamp,
    StoreTimestamp,
    /// `ip:port`, as the next one.
    BornHost,
    StoreHost,
    SysFlag,
    ReconsumeTimes,
    /// Place in the broker's log.
    PhysicalOffset,
    StoreSize,
    BodyCrc,
    TransactionId,
    DeliverTimestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ColumnType {
    Text,
    Binary,
    Int,
    /// 64 bits; of a time, milliseconds since the epoch.
    BigInt,
    /// Microseconds since the epoch, UTC.
    Timestamp,
    Map,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Column {
    pub(crate) source: Source,
    pub(crate) column_type: ColumnType,
}

/// A column that no message can fill. The text lists what there is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum SchemaError {
    #[error("there is no column {name:?}; there are {}", known_names())]
    Name { name: String },
    #[error("column {name} cannot be {wanted:?}; it can be {known}")]
    Type { name: String, wanted: String, known: String },
    #[error("a table needs at least one column")]
    Empty,
}

use ColumnType::{BigInt, Binary, Int, Map, Text, Timestamp};

/// Every column: its name, and the types it can have, the usual one first.
pub(crate) const COLUMNS: [(&str, Source, &[ColumnType]); 21] = [
    ("topic", Source::Topic, &[Text]),
    ("brokerName", Source::BrokerName, &[Text]),
    ("queueId", Source::QueueId, &[Int]),
    ("queueOffset", Source::QueueOffset, &[BigInt]),
    ("msgId", Source::MsgId, &[Text]),
    ("tags", Source::Tags, &[Text]),
    ("keys", Source::Keys, &[Text]),
    ("body", Source::Body, &[Binary, Text]),
    ("properties", Source::Properties, &[Map, Text]),
    ("flag", Source::Flag, &[Int]),
    ("bornTimestamp", Source::BornTimestamp, &[Timestamp, BigInt]),
    ("storeTimestamp", Source::StoreTimestamp, &[Timestamp, BigInt]),
    ("bornHost", Source::BornHost, &[Text]),
    ("storeHost", Source::StoreHost, &[Text]),
    ("sysFlag", Source::SysFlag, &[Int]),
    ("reconsumeTimes", Source::ReconsumeTimes, &[Int]),
    ("physicalOffset", Source::PhysicalOffset, &[BigInt]),
    ("storeSize", Source::StoreSize, &[Int]),
    ("bodyCrc", Source::BodyCrc, &[Int]),
    ("transactionId", Source::TransactionId, &[Text]),
    ("deliverTimestamp", Source::DeliverTimestamp, &[Timestamp, BigInt]),
];

/// Columns, from the first, that a table has unless others are asked for.
pub(crate) const DEFAULT_COUNT: usize = 12;

fn known_names() -> String {
    COLUMNS.map(|(name, ..)| name).join(", ")
}

impl ColumnType {
    /// Spark's name of the type.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Text => "string",
            Binary => "binary",
            Int => "int",
            BigInt => "bigint",
            Timestamp => "timestamp",
            Map => "map<string,string>",
        }
    }

    /// The Arrow type Spark expects for it.
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Text => DataType::Utf8,
            Binary => DataType::Binary,
            Int => DataType::Int32,
            BigInt => DataType::Int64,
            Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Map => {
                let entries = Fields::from(vec![
                    Field::new("key", DataType::Utf8, false),
                    Field::new("value", DataType::Utf8, true),
                ]);
                DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false)
            }
        }
    }
}

impl Column {
    /// The column called `name`, of the type called `wanted`, or of its usual type.
    /// Fails when there is no such column, or it cannot have that type.
    pub(crate) fn find(name: &str, wanted: Option<&str>) -> Result<Self, SchemaError> {
        let (_, source, types) = COLUMNS
            .iter()
            .find(|(known, ..)| *known == name)
            .ok_or_else(|| SchemaError::Name { name: name.to_owned() })?;
        let mut types = types.iter().copied();
        let found = match wanted {
            None => types.next(),
            Some(wanted) => types.clone().find(|known| known.name() == wanted),
        };
        found.map(|column_type| Self { source: *source, column_type }).ok_or_else(|| SchemaError::Type {
            name: name.to_owned(),
            wanted: wanted.unwrap_or_default().to_owned(),
            known: types.map(ColumnType::name).collect::<Vec<_>>().join(" or "),
        })
    }

    /// The columns of a table for which none were chosen.
    pub(crate) fn defaults() -> Vec<Self> {
        let usual = COLUMNS.iter().take(DEFAULT_COUNT);
        usual.filter_map(|(name, ..)| Self::find(name, None).ok()).collect()
    }

    pub(crate) fn name(&self) -> &'static str {
        COLUMNS.iter().find(|(_, source, _)| *source == self.source).map_or("", |(name, ..)| name)
    }
}

/// The Arrow schema of a table with these columns. Fails when there are none.
pub(crate) fn arrow_schema(columns: &[Column]) -> Result<Arc<Schema>, SchemaError> {
    if columns.is_empty() {
        return Err(SchemaError::Empty);
    }
    let fields = columns.iter().map(|column| Field::new(column.name(), column.column_type.data_type(), true));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_usual_columns_unless_others_are_chosen() {
        let names: Vec<&str> = Column::defaults().iter().map(Column::name).collect();
        assert_eq!(
            names,
            [
                "topic",
                "brokerName",
                "queueId",
                "queueOffset",
                "msgId",
                "tags",
                "keys",
                "body",
                "properties",
                "flag",
                "bornTimestamp",
                "storeTimestamp"
            ]
        );
    }

    #[test]
    fn unknown_names_and_types_are_refused_with_what_there_is() {
        let name = Column::find("offset", None).unwrap_err().to_string();
        assert!(name.contains("queueOffset"), "{name}");
        let wanted = Column::find("body", Some("int")).unwrap_err().to_string();
        assert_eq!(wanted, "column body cannot be \"int\"; it can be binary or string");
        assert_eq!(Column::find("bornTimestamp", Some("bigint")).unwrap().column_type, ColumnType::BigInt);
        assert_eq!(arrow_schema(&[]).unwrap_err(), SchemaError::Empty);
    }
}
