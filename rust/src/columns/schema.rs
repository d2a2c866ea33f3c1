//! Schema: the available columns of a message table, with names and types.
//!
//! Names are those of the old Spark connector. Types are exactly Spark's: `timestamp[us, UTC]`, `binary`, `string`,
//! `map<string, string>` with non-null keys; every column is nullable.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};

/// The part of a message that fills a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Topic,
    BrokerName,
    QueueId,
    QueueOffset,
    /// The producer's id, or the broker's if absent.
    MsgId,
    Tags,
    /// Joined by spaces.
    Keys,
    /// Decompressed.
    Body,
    /// All properties.
    Properties,
    Flag,
    BornTimestamp,
    StoreTimestamp,
    /// `ip:port`, as the next one.
    BornHost,
    StoreHost,
    SysFlag,
    ReconsumeTimes,
    /// Position in the broker's log.
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
    /// 64 bits; times are milliseconds since the epoch.
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

/// An invalid column. The text lists the valid ones.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum SchemaError {
    #[error("column {name:?} does not exist; the columns are {}", known_names())]
    Name { name: String },
    #[error("column {name} cannot be {wanted:?}; it can be {known}")]
    Type { name: String, wanted: String, known: String },
    #[error("a table needs at least one column")]
    Empty,
}

use ColumnType::{BigInt, Binary, Int, Map, Text, Timestamp};

/// Every column: its name, source and possible types, the default first.
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

/// The number of columns, from the first, in a default table.
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

    /// Returns the Arrow type Spark expects for it.
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
    /// Returns the column called `name`, of type `wanted` or its default type. Fails when the column does not exist,
    /// or cannot have that type.
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

    /// Returns the columns of a default table.
    pub(crate) fn defaults() -> Vec<Self> {
        let usual = COLUMNS.iter().take(DEFAULT_COUNT);
        usual.filter_map(|(name, ..)| Self::find(name, None).ok()).collect()
    }

    pub(crate) fn name(&self) -> &'static str {
        COLUMNS.iter().find(|(_, source, _)| *source == self.source).map_or("", |(name, ..)| name)
    }
}

/// Returns the Arrow schema of these columns. Fails when there are none.
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
    fn a_table_has_the_default_columns_unless_others_are_chosen() {
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
    fn unknown_names_and_types_are_refused_with_the_valid_ones() {
        let name = Column::find("offset", None).unwrap_err().to_string();
        assert!(name.contains("queueOffset"), "{name}");
        let wanted = Column::find("body", Some("int")).unwrap_err().to_string();
        assert_eq!(wanted, "column body cannot be \"int\"; it can be binary or string");
        assert_eq!(Column::find("bornTimestamp", Some("bigint")).unwrap().column_type, ColumnType::BigInt);
        assert_eq!(arrow_schema(&[]).unwrap_err(), SchemaError::Empty);
    }
}
