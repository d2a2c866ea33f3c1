//! Dispatch: the seam between the log and what is computed from it.
//!
//! Each derived part takes every record once, in log order, when it becomes visible; keeps what it can in memory; is
//! written and synced by maintenance; and can be cut back to a position of the log and fed again from there.
//!
//! Invariant: after `write` and `sync`, everything taken before `write` began is on disk.

use std::sync::Arc;

use crate::message::record::RecordView;
use crate::message::{MessageType, sysflag, tag};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::error::StoreError;

use super::index::key_hashes::KeyHashes;
use super::queue::consume_queue::ConsumeQueue;

/// What the derived files need to know of one record.
pub(crate) struct DispatchRequest {
    pub(crate) queue: Arc<ConsumeQueue>,
    pub(crate) sys_flag: i32,
    pub(crate) physical: PhysicalOffset,
    pub(crate) size: u32,
    /// Third field of the queue entry.
    pub(crate) tags_code: i64,
    pub(crate) queue_offset: QueueOffset,
    pub(crate) store_timestamp_ms: i64,
    /// Hashes of the keys it can be looked up by.
    pub(crate) keys: KeyHashes,
    /// What it is counted as.
    pub(crate) message_type: MessageType,
}

impl DispatchRequest {
    /// What append would have left of a record that is read again.
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

    /// Whether it can be looked up by key: rolled back messages cannot.
    pub(crate) fn is_indexed(&self) -> bool {
        sysflag::is_indexed(self.sys_flag)
    }
}

/// A set of files computed from the log.
pub(crate) trait Derived: Send + Sync {
    /// Takes records, in log order; under the dispatch lock, or alone in recovery.
    fn take(&self, records: &[DispatchRequest]);
    /// Brings what is in memory to the files. Called by maintenance and by recovery.
    fn write(&self) -> Result<(), StoreError>;
    /// Makes what was written durable.
    fn sync(&self) -> Result<(), StoreError>;
    /// Removes files whose records are all before `log_begin`, where the log begins now; a piece of the work at a time.
    /// `true` when there is nothing left to do. Never in recovery.
    fn trim(&self, log_begin: u64) -> Result<bool, StoreError>;
    /// A number that changes when files are lost or changed behind the store's back.
    fn digest(&self) -> u64;
}
