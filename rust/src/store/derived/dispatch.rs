//! Dispatch: the interface between the log and the derived files.
//!
//! Each derived part takes every record once, in log order, when it becomes visible, and keeps new data in memory.
//! Maintenance writes and syncs it. A part can be truncated to a position of the log and replayed from there.
//!
//! *Invariant*: after `write` and `sync`, everything taken before `write` began is on disk.

use std::sync::Arc;

use crate::message::record::RecordView;
use crate::message::{MessageType, sysflag, tag};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::error::StoreError;

use super::index::key_hashes::KeyHashes;
use super::queue::consume_queue::ConsumeQueue;

/// The fields of a record that the derived files need.
pub(crate) struct DispatchRequest {
    pub(crate) queue: Arc<ConsumeQueue>,
    pub(crate) sys_flag: i32,
    pub(crate) physical: PhysicalOffset,
    pub(crate) size: u32,
    /// The third field of the queue entry.
    pub(crate) tags_code: i64,
    pub(crate) queue_offset: QueueOffset,
    pub(crate) store_timestamp_ms: i64,
    /// Hashes of the record's keys.
    pub(crate) keys: KeyHashes,
    /// The type for statistics.
    pub(crate) message_type: MessageType,
}

impl DispatchRequest {
    /// Rebuilds the request of a record read from the log.
    pub(crate) fn of(record: &RecordView<'_>, queue: Arc<ConsumeQueue>) -> Self {
        Self {
            sys_flag: record.sys_flag(),
            physical: record.physical_offset(),
            size: record.total_size() as u32,
            tags_code: queue.tags_code(tag::tags_code(record.properties()), record.store_timestamp_ms()),
            queue_offset: record.queue_offset(),
            store_timestamp_ms: record.store_timestamp_ms(),
            keys: KeyHashes::of(record.topic(), record.properties()),
            message_type: MessageType::Normal,
            queue,
        }
    }

    pub(crate) fn is_queued(&self) -> bool {
        sysflag::is_queued(self.sys_flag)
    }

    /// Returns whether its keys are indexed. Rolled back messages are not.
    pub(crate) fn is_indexed(&self) -> bool {
        sysflag::is_indexed(self.sys_flag)
    }
}

/// A set of files computed from the log.
pub(crate) trait Derived: Send + Sync {
    /// Takes records, in log order; under the dispatch lock, or alone in recovery.
    fn take(&self, records: &[DispatchRequest]);
    /// Writes memory to the files. Called by maintenance and recovery.
    fn write(&self) -> Result<(), StoreError>;
    /// Makes everything written durable.
    fn sync(&self) -> Result<(), StoreError>;
    /// Removes files whose records are all before `log_begin`, the beginning of the log, in bounded steps. Returns
    /// true when nothing is left to do. Never called in recovery.
    fn trim(&self, log_begin: u64) -> Result<bool, StoreError>;
    /// Returns a number that changes when files are lost or changed by another program.
    fn digest(&self) -> u64;
}
