//! Columns: the decoder of pulled records, for single messages and for tables.
//!
//! `row` is a message in its record or batch, `schema` defines the available columns, `table` fills them. Only this
//! module decompresses bodies. Pure functions of bytes; any thread.

mod error;
mod row;
mod schema;
mod table;

pub(crate) use error::RowError;
pub(crate) use row::{Row, each_row};
pub(crate) use schema::{COLUMNS, Column, DEFAULT_COUNT, SchemaError};
pub(crate) use table::{BadText, Origin, Table};
