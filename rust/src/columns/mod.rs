//! One decoder of pulled records, for single messages and for tables.
//!
//! `row` is a message wherever it lies, `schema` names the columns a table can have, `table` fills them. Bodies are
//! decompressed here and nowhere else. Pure functions of bytes; any thread.

mod error;
mod row;
mod schema;
mod table;

pub(crate) use error::RowError;
pub(crate) use row::{Row, each_row};
pub(crate) use schema::{COLUMNS, Column, DEFAULT_COUNT, SchemaError};
pub(crate) use table::{BadText, Origin, Table};
