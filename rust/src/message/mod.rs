//! Message: the same bytes on disk and on the wire.
//!
//! `record` is the unit of the log and of every pull; `properties`, `batch`, `id`, `tag`, `sysflag` and
//! `compression` are its parts, `sql` filters by its properties, `message_type` is what they make of it, `recall_handle` names
//! one that waits for its time, and `topic` and `namespace` know the names of topics, and `shown_time` makes dates of timestamps. Everything here is a pure function of
//! bytes: no I/O, no clock, no locks; any thread.
//!
//! Invariant: decoders borrow, check every length before they use it, and never panic on bytes from outside.

pub mod batch;
pub mod compression;
pub mod error;
pub mod id;
pub mod message_type;
pub(crate) mod namespace;
pub mod properties;
pub mod recall_handle;
pub mod record;
pub(crate) mod shown_time;
pub mod sql;
pub mod sysflag;
pub mod tag;
pub(crate) mod topic;

pub use error::{BatchError, CompressionError, IdError, RecordError};
pub use message_type::MessageType;
