//! Message: the encoding shared by disk and wire.
//!
//! `record` is the unit of the log and of every pull; `properties`, `batch`, `id`, `tag`, `sysflag` and `compression`
//! are its parts. `sql` filters by properties, `message_type` derives a message's type, `recall_handle` identifies a
//! timed message, `multi_dispatch` reads the light queues of a message, `lite`, `topic` and `namespace` define names,
//! and `shown_time` converts timestamps to dates. Everything here is a pure function of bytes: no I/O, no clock, no locks;
//! any thread.
//!
//! Invariant: decoders borrow, check every length before use, and never panic on foreign bytes.

pub mod batch;
pub mod compression;
pub mod error;
pub mod id;
pub(crate) mod lite;
pub mod message_type;
pub(crate) mod multi_dispatch;
pub(crate) mod namespace;
pub mod properties;
pub mod recall_handle;
pub mod record;
pub(crate) mod shown_time;
pub mod sql;
pub mod sysflag;
pub mod tag;
pub(crate) mod topic;

pub use error::{BatchError, CompressionError, DispatchError, IdError, RecordError};
pub use message_type::MessageType;
