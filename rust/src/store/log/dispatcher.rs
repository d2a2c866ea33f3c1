//! Dispatcher: records go from appended to visible.
//!
//! Owns the position *visible*, which consumers may see: in async mode it follows *published* and is advanced by the
//! appending thread itself; in sync mode it follows *durable* and is advanced by the flush thread. The thread that advances
//! it drains the log's ring into the derived files, and then tells the waiters of a queue.
//!
//! Invariant: a record is in its queue before `visible` passes it, and records arrive in log order.
//! Threads: any, one at a time under the dispatch lock; never while holding the put lock.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::derived::{ConsumeQueue, Derived, DerivedFiles, DispatchRequest};
use crate::store::error::StoreError;
use crate::store::sync::{AtomicU64, Mutex, fence};
use crate::store::waiting_rooms::Waits;

use super::commit_log::CommitLog;
use super::growth::Growth;
use super::write_path::Unwritten;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastRecord {
    pub(crate) physical: u64,
    pub(crate) store_timestamp_ms: i64,
    /// What it adds to the digest of the queues: nothing if it is in none.
    pub(crate) weight: u64,
}

/// Listener for new messages. Called from the thread that made them visible, with the dispatch lock held:
/// an implementation may read from the store, must not append to it, and must not block.
pub trait Arrivals: Send + Sync {
    /// A message is visible in a queue that has waiters; `max` is the offset after it.
    fn arrived(&self, queue: &ConsumeQueue, max: QueueOffset, tags_code: i64);
    /// Everything before `position` is on disk.
    fn durable(&self, position: PhysicalOffset);
    /// Enough copies of the log reach up to `position`: see [`Store::confirm`](crate::store::Store::confirm). No lock is held.
    fn confirmed(&self, _position: PhysicalOffset) {}
    /// There may be room again for appends that found none: see [`Store::try_append`](crate::store::Store::try_append).
    fn room_was_made(&self) {}
    /// Which messages wait for their time or a decision. Maintenance asks, and must not be blocked.
    fn waits(&self) -> Waits {
        Waits::Nothing
    }
    /// The store has stopped taking writes: nothing that still waits for the disk will get there.
    fn latched(&self);
}

/// Moves records from the log's ring into the derived files.
pub(crate) struct Dispatcher {
    derived: DerivedFiles,
    arrivals: OnceLock<Arc<dyn Arrivals>>,
    moving: Mutex<Moving>,
    visible: AtomicU64,
    growth: Growth,
}

struct Moving {
    /// Memory that changes places with the log's ring.
    ring: Vec<DispatchRequest>,
    /// Memory that changes places with the log's write buffer.
    unwritten: Unwritten,
    /// The newest record that is visible.
    last: Option<LastRecord>,
}

impl Dispatcher {
    pub(crate) fn new(derived: DerivedFiles, visible: PhysicalOffset, last: Option<LastRecord>) -> Self {
        Self {
            derived,
            arrivals: OnceLock::new(),
            moving: Mutex::new(Moving { ring: Vec::new(), unwritten: Unwritten::default(), last }),
            visible: AtomicU64::new(visible.0),
            growth: Growth::default(),
        }
    }

    /// Sets the listener for arrivals. Only the first call counts.
    pub(crate) fn set_arrivals(&self, arrivals: Arc<dyn Arrivals>) {
        let _ = self.arrivals.set(arrivals);
    }

    pub(crate) fn arrivals(&self) -> Option<&Arc<dyn Arrivals>> {
        self.arrivals.get()
    }

    pub(crate) fn growth(&self) -> &Growth {
        &self.growth
    }

    pub(crate) fn derived(&self) -> &DerivedFiles {
        &self.derived
    }

    /// Position that consumers may see.
    pub(crate) fn visible(&self) -> PhysicalOffset {
        PhysicalOffset(self.visible.load(Ordering::Acquire))
    }

    /// The newest visible record, and the digest of the queues at that moment without it.
    pub(crate) fn last(&self) -> (Option<LastRecord>, u64) {
        let moving = self.moving.lock();
        let weight = moving.last.map_or(0, |last| last.weight);
        (moving.last, self.derived.queues.digest().wrapping_sub(weight))
    }

    /// Takes a topic's queues out of the table, while nothing is appended and nothing dispatched, and returns them. `note` is
    /// told the end of the log at that moment, before they go.
    pub(crate) fn remove_topic(
        &self,
        log: &CommitLog,
        topic: &str,
        note: impl FnOnce(PhysicalOffset),
    ) -> Vec<Arc<ConsumeQueue>> {
        let mut moving = self.moving.lock();
        let removed = log.between_appends(|| {
            note(log.published());
            self.derived.queues.remove(topic)
        });
        if let Some(last) =
            moving.last.as_mut().filter(|last| removed.iter().any(|queue| queue.weight() == last.weight))
        {
            // The newest record belongs to no queue any more.
            last.weight = 0;
        }
        removed
    }

    /// Lets a queue go on with the record at a position of the log that does not follow: see `Queues::start_over`. Only when
    /// all that was appended is visible.
    pub(crate) fn start_over(
        &self,
        queue: &Arc<ConsumeQueue>,
        offset: QueueOffset,
        physical: PhysicalOffset,
        log_begin: u64,
    ) -> Result<(), StoreError> {
        let mut moving = self.moving.lock();
        if let Some(last) = moving.last.as_mut().filter(|last| last.weight == queue.weight()) {
            // What it added is not told apart any more from what was lost.
            last.weight = 0;
        }
        self.derived.queues.start_over(queue, offset, physical.0, log_begin)
    }

    /// Lets a log in which nothing was written begin at a position.
    pub(crate) fn begin_at(&self, position: PhysicalOffset) {
        let _moving = self.moving.lock();
        self.visible.store(position.0, Ordering::Release);
    }

    /// Makes everything visible that the ring holds, once `ready` says that it may be: at once in async mode, after
    /// the flush up to the position it is given in sync mode; what it is given beside that is in no file yet. An error
    /// of `ready` leaves the records invisible for good.
    pub(crate) fn advance(
        &self,
        log: &CommitLog,
        ready: impl FnOnce(PhysicalOffset, &Unwritten) -> Result<(), StoreError>,
    ) -> Result<PhysicalOffset, StoreError> {
        let mut moving = self.moving.lock();
        let Moving { ring, unwritten, last } = &mut *moving;
        let position = log.take_ring(ring, unwritten);
        let is_ready = ready(position, unwritten);
        unwritten.bytes.clear();
        if is_ready.is_ok() {
            self.derived.take(ring);
            if let Some(newest) = ring.last() {
                let store_timestamp_ms = newest.store_timestamp_ms;
                let weight = if newest.is_queued() { newest.queue.weight() } else { 0 };
                *last = Some(LastRecord { physical: newest.physical.0, store_timestamp_ms, weight });
            }
            self.visible.store(position.0, Ordering::Release);
            self.growth.tell();
            self.announce(ring);
        }
        ring.clear();
        is_ready.map(|()| position)
    }

    /// Stops half-way in `advance`: the queues show what `visible` has not passed. What a write buffer holds is lost.
    #[cfg(test)]
    pub(crate) fn fill_queues(&self, log: &CommitLog) {
        let mut moving = self.moving.lock();
        let Moving { ring, unwritten, .. } = &mut *moving;
        log.take_ring(ring, unwritten);
        unwritten.bytes.clear();
        self.derived.take(ring);
        ring.clear();
    }

    fn announce(&self, records: &[DispatchRequest]) {
        let Some(arrivals) = self.arrivals.get() else { return };
        // The queues' ends before their waiters, for all of them at once: see `ConsumeQueue::set_awaited`.
        fence(Ordering::SeqCst);
        for record in records {
            if record.queue.is_awaited() && record.is_queued() {
                arrivals.arrived(&record.queue, record.queue_offset.advanced(1), record.tags_code);
            }
        }
    }
}
