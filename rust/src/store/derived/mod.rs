//! Derived files: everything that is computed from the log, can be deleted, and is rebuilt from it.
//!
//! `dispatch` is what a part takes and does, `queue` and `index` are the parts there are, `files` is their list, `pace`
//! is how much memory they make early. Nothing here is on the way of an acknowledgement.

mod dispatch;
mod files;
mod index;
mod pace;
mod queue;

pub use index::key_hashes::KeyHashes;
pub use index::layout::Shape;
pub use queue::consume_queue::ConsumeQueue;
pub use queue::unit::Unit;

pub(crate) use dispatch::{Derived, DispatchRequest};
pub(crate) use files::{DerivedFiles, digest_with_index};
pub(crate) use index::Index;
pub(crate) use index::index_file::Key;
pub(crate) use index::indexed_note::{EVERYTHING, IndexedNote};
pub(crate) use index::layout::{ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES};
pub(crate) use queue::consume_queue::{Arrived, weight_of};
pub(crate) use queue::queue_file_cache::QueueFileCache;
pub(crate) use queue::queue_files::QueueFiles;
pub(crate) use queue::queues::Queues;
pub(crate) use queue::unit::UNIT_BYTES;
