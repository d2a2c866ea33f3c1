//! Log: the CommitLog, from its files up to the positions that consumers may read.
//!
//! From the bottom up: `segment` and `segments` are the files, `checksums` verifies them, `scan` walks their
//! records, `write_path` holds new bytes until they are in a file, and `ring` is one of its kinds. `commit_log`
//! appends and moves *reserved* and *published*, `dispatcher` moves *visible*, `flush` moves *durable*.

mod checksums;
mod commit_log;
mod conditions;
mod dispatcher;
mod flush;
mod growth;
mod light_put;
mod put;
mod ring;
mod scan;
mod segment;
mod segments;
mod write_path;

pub use dispatcher::Arrivals;
pub use growth::{Growth, Watcher};
pub use light_put::LightPut;
pub use put::Put;

pub(crate) use checksums::Checksums;
pub(crate) use commit_log::{CommitLog, NoRoom, RawRecord, RawStop};
pub(crate) use dispatcher::{Dispatcher, LastRecord};
pub(crate) use flush::Flush;
pub(crate) use put::STORE_TIME_AHEAD_MS_MAX;
pub(crate) use ring::{FoundMarks, MARKED_BYTES, Marks, Part, WriteRing, remove_parts, sound_bytes};
pub(crate) use scan::{Found, TrustBoundary, WalkEnd, is_entry_of, is_whole, record_at, walk};
pub(crate) use segment::Segment;
pub(crate) use segments::{Active, Segments};
pub(crate) use write_path::WritePathKind;
