//! One decoder of pulled records, for single messages and for tables.
//!
//! `row` is a message wherever it lies, `schema` names the columns a table can have, `table` fills them. Bodies are
//! decompressed here and nowhere else. Pure functions of bytes; any thread.

mod error;
mod row;
mod schema;
mod table;

pub use error::RowError;
pub use row::{BODY_BYTES_MAX, Row, each_row};
pub use schema::{COLUMNS, Column, DEFAULT_COUNT, Kind, SchemaError, Source, arrow_schema};
pub use table::{BadText, Origin, Table};
