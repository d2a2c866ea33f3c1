//! The columns a table of messages can have, their names and their types.
//!
//! Names are those of the old Spark connector. Types are exactly Spark's: `timestamp[us, UTC]`, `binary`, `string`,
//! `map<string, string>` with a key that is never null; every column may be null.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};

/// What a column is filled with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Topic the message was read from.
    Topic,
    /// Broker it was read from.
    BrokerName,
    /// Queue it was read from.
    QueueId,
    /// Position in that queue.
    QueueOffset,
    /// The producer's id, or the broker's where there is none.
    MsgId,
    /// Tag.
    Tags,
    /// Keys, joined by spaces.
    Keys,
    /// Body, decompressed.
    Body,
    /// All properties.
    Properties,
    /// The application's flag.
    Flag,
    /// When the producer made it.
    BornTimestamp,
    /// When the broker stored it.
    StoreTimestamp,
    /// Producer, `ip:port`.
    BornHost,
    /// Broker, `ip:port`.
    StoreHost,
    /// Bits of the record.
    SysFlag,
    /// Deliveries that failed before.
    ReconsumeTimes,
    /// Place in the broker's log.
    PhysicalOffset,
    /// Size of the record.
    StoreSize,
    /// Checksum of the stored body.
    BodyCrc,
    /// Transaction it was sent in.
    TransactionId,
    /// When it was to be delivered.
    DeliverTimestamp,
}

/// The type a column has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// Bytes.
    Binary,
    /// 32 bits.
    Int,
    /// 64 bits; of a time, milliseconds since the epoch.
    BigInt,
    /// Microseconds since the epoch, UTC.
    Timestamp,
    /// Names and values.
    Map,
}

/// One column of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// What it is filled with.
    pub source: Source,
    /// Its type.
    pub kind: Kind,
}

/// A column nobody can fill. The text lists what there is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SchemaError {
    /// No such name.
    #[error("there is no column {name:?}; there are {}", known_names())]
    Name {
        /// What was asked for.
        name: String,
    },
    /// The column cannot have that type.
    #[error("column {name} cannot be {kind:?}; it can be {known}")]
    Kind {
        /// The column.
        name: String,
        /// What was asked for.
        kind: String,
        /// What it can be.
        known: String,
    },
    /// Nothing was asked for.
    #[error("a table needs at least one column")]
    Empty,
}

use Kind::{BigInt, Binary, Int, Map, Text, Timestamp};

/// Every column: its name, and the types it can have, the usual one first.
pub const COLUMNS: [(&str, Source, &[Kind]); 21] = [
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

/// How many of the columns, from the first, a table has when nobody says otherwise.
pub const DEFAULT_COUNT: usize = 12;

fn known_names() -> String {
    COLUMNS.map(|(name, ..)| name).join(", ")
}

impl Kind {
    /// Spark's name of the type.
    #[must_use]
    pub fn name(self) -> &'static str {
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
    #[must_use]
    pub fn data_type(self) -> DataType {
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
    /// The column called `name`, of the type called `kind`, or of its usual type.
    ///
    /// # Errors
    /// When there is no such column, or it cannot have that type.
    pub fn find(name: &str, kind: Option<&str>) -> Result<Self, SchemaError> {
        let (_, source, kinds) = COLUMNS
            .iter()
            .find(|(known, ..)| *known == name)
            .ok_or_else(|| SchemaError::Name { name: name.to_owned() })?;
        let mut kinds = kinds.iter().copied();
        let found = match kind {
            None => kinds.next(),
            Some(kind) => kinds.clone().find(|known| known.name() == kind),
        };
        found.map(|kind| Self { source: *source, kind }).ok_or_else(|| SchemaError::Kind {
            name: name.to_owned(),
            kind: kind.unwrap_or_default().to_owned(),
            known: kinds.map(Kind::name).collect::<Vec<_>>().join(" or "),
        })
    }

    /// The columns of a table nobody chose the columns of.
    #[must_use]
    pub fn defaults() -> Vec<Self> {
        let usual = COLUMNS.iter().take(DEFAULT_COUNT);
        usual.filter_map(|(name, ..)| Self::find(name, None).ok()).collect()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        COLUMNS.iter().find(|(_, source, _)| *source == self.source).map_or("", |(name, ..)| name)
    }
}

/// The Arrow schema of a table with these columns.
///
/// # Errors
/// When there are none.
pub fn arrow_schema(columns: &[Column]) -> Result<Arc<Schema>, SchemaError> {
    if columns.is_empty() {
        return Err(SchemaError::Empty);
    }
    let fields = columns.iter().map(|column| Field::new(column.name(), column.kind.data_type(), true));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_usual_columns_unless_somebody_chooses() {
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
        let kind = Column::find("body", Some("int")).unwrap_err().to_string();
        assert_eq!(kind, "column body cannot be \"int\"; it can be binary or string");
        assert_eq!(Column::find("bornTimestamp", Some("bigint")).unwrap().kind, Kind::BigInt);
        assert_eq!(arrow_schema(&[]).unwrap_err(), SchemaError::Empty);
    }
}
