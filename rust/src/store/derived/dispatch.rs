//! Dispatch: the interface between the log and the derived files.
//!
//! Each derived part takes every record once, in log order, when it becomes visible, and keeps new data in memory.
//! Maintenance writes and syncs it. A part can be truncated to a position of the log and replayed from there.
//!
//! *Invariant*: after `write` and `sync`, everything taken before `write` began is on disk.

use std::sync::Arc;

use crate::message::record::RecordView;
use crate::message::{MessageType, multi_dispatch, sysflag, tag};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::error::StoreError;

use super::index::key_hashes::KeyHashes;
use super::queue::consume_queue::ConsumeQueue;
use super::queue::unit::Unit;

/// The place of a record in one of its light queues.
#[derive(Clone, Debug)]
pub(crate) struct LightPlace {
    pub(crate) queue: Arc<ConsumeQueue>,
    pub(crate) offset: QueueOffset,
}

impl LightPlace {
    /// Returns whether the queue's next record has another offset. Under the put lock.
    pub(crate) fn is_out_of_turn(&self) -> bool {
        self.queue.next() != self.offset
    }
}

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
    /// Its places in light queues; `None` for most records.
    pub(crate) lights: Option<Box<[LightPlace]>>,
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
            lights: None,
            queue,
        }
    }

    /// Adds the places of the record in light queues, which `queue_of` returns by name.
    pub(crate) fn with_lights(
        self,
        record: &RecordView<'_>,
        queue_of: impl Fn(&str) -> Option<Arc<ConsumeQueue>>,
    ) -> Self {
        let places = multi_dispatch::places(record.topic(), record.properties());
        if places.is_empty() {
            return self;
        }
        let place = |(name, offset)| Some(LightPlace { queue: queue_of(name)?, offset });
        Self { lights: Some(places.into_iter().filter_map(place).collect()), ..self }
    }

    /// Returns its places in light queues.
    pub(crate) fn lights(&self) -> &[LightPlace] {
        self.lights.as_deref().unwrap_or_default()
    }

    /// Returns the light queues that take it.
    pub(crate) fn light_queues(&self) -> impl Iterator<Item = &Arc<ConsumeQueue>> {
        self.lights().iter().map(|place| &place.queue).filter(|queue| !queue.is_deleted())
    }

    /// Returns its entry in every queue.
    pub(crate) fn unit(&self) -> Unit {
        Unit { physical: self.physical.0, size: self.size, tags_code: self.tags_code }
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
