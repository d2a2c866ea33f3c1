//! Derived files: the files that are computed from the log and can be rebuilt from it.
//!
//! `dispatch` is the interface of a part, `queue` and `index` are the parts, `files` is their list, and `pace`
//! determines how much memory they preallocate. No acknowledgement waits for them.

mod dispatch;
mod files;
mod index;
mod pace;
mod queue;

pub use index::key_hashes::KeyHashes;
pub use index::layout::Shape;
pub use queue::consume_queue::ConsumeQueue;
pub use queue::unit::Unit;

pub(crate) use dispatch::{Derived, DispatchRequest, LightPlace};
pub(crate) use files::{DerivedFiles, digest_with_index};
pub(crate) use index::Index;
pub(crate) use index::index_file::Key;
pub(crate) use index::indexed_note::{EVERYTHING, IndexedNote};
pub(crate) use index::layout::{ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES};
pub(crate) use queue::consume_queue::{Arrived, weight_of};
pub(crate) use queue::queue_file_cache::QueueFileCache;
pub(crate) use queue::queue_files::QueueFiles;
pub(crate) use queue::queues::{LIGHT_QUEUES_MAX, Queues};
pub(crate) use queue::unit::UNIT_BYTES;
