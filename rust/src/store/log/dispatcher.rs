//! Dispatcher: the step of records from appended to visible.
//!
//! Owns the position *visible*, the end of what consumers may read. In async mode it follows *published*, and the
//! appending thread advances it; in sync mode it follows *durable*, and the flush thread does. That thread drains
//! the log's ring into the derived files and then notifies the waiters of each queue.
//!
//! *Invariant*: a record is in its queue before `visible` passes it; records arrive in log order.
//! Threads: any, one at a time under the dispatch lock; never while holding the put lock.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::derived::{ConsumeQueue, Derived, DerivedFiles, DispatchRequest};
use crate::store::error::StoreError;
use crate::store::sync::{AtomicU64, Mutex, fence};
use crate::store::waiting_rooms::Waits;

use super::commit_log::CommitLog;
use super::growth::Growth;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastRecord {
    pub(crate) physical: u64,
    pub(crate) store_timestamp_ms: i64,
    /// What it adds to the digest of its queues, light ones included: 0 if it is in none.
    pub(crate) weight: u64,
}

/// Listener for new messages. Called on the thread that made them visible, with the dispatch lock held:
/// an implementation may read from the store, must not append to it, and must not block.
pub trait Arrivals: Send + Sync {
    /// A message is visible in a queue that has waiters; `max` is the offset after it.
    fn arrived(&self, queue: &Arc<ConsumeQueue>, max: QueueOffset, tags_code: i64);
    /// Everything before `position` is on disk.
    fn durable(&self, position: PhysicalOffset);
    /// Enough replicas have the log up to `position`: see [`Store::confirm`](crate::store::Store::confirm). Called
    /// without locks.
    fn confirmed(&self, _position: PhysicalOffset) {}
    /// Rejected appends may find room now: see [`Store::try_append`](crate::store::Store::try_append).
    fn room_was_made(&self) {}
    /// Returns the pending delayed, timed and half messages. Maintenance calls this, and it must not block.
    fn waits(&self) -> Waits {
        Waits::Nothing
    }
    /// The store refuses writes from now on: replies that wait for the disk will never be released.
    fn latched(&self);
}

/// Moves records from the log's ring into the derived files.
pub(crate) struct Dispatcher {
    derived: DerivedFiles,
    /// Weak, because the listener owns the store.
    arrivals: OnceLock<Weak<dyn Arrivals>>,
    moving: Mutex<Moving>,
    visible: AtomicU64,
    growth: Growth,
}

struct Moving {
    /// Swapped with the log's ring.
    ring: Vec<DispatchRequest>,
    /// The newest record that is visible.
    last: Option<LastRecord>,
    /// What it adds to the digest in each of its queues.
    weights: Vec<u64>,
}

impl Moving {
    /// Notes that the newest record no longer adds anything for queues of this weight.
    fn forget(&mut self, weight: u64) {
        self.weights.retain(|one| *one != weight);
        if let Some(last) = &mut self.last {
            last.weight = sum(&self.weights);
        }
    }
}

/// Returns the sum of weights, which may overflow like the digest.
fn sum(weights: &[u64]) -> u64 {
    weights.iter().fold(0, |sum, weight| sum.wrapping_add(*weight))
}

impl Dispatcher {
    /// `weights` are those of `last` in each of its queues.
    pub(crate) fn new(
        derived: DerivedFiles,
        visible: PhysicalOffset,
        last: Option<LastRecord>,
        weights: Vec<u64>,
    ) -> Self {
        Self {
            derived,
            arrivals: OnceLock::new(),
            moving: Mutex::new(Moving { ring: Vec::new(), last, weights }),
            visible: AtomicU64::new(visible.0),
            growth: Growth::default(),
        }
    }

    /// Sets the listener. Only the first call counts.
    pub(crate) fn set_arrivals(&self, arrivals: Weak<dyn Arrivals>) {
        let _ = self.arrivals.set(arrivals);
    }

    /// Returns the listener, if it still exists.
    pub(crate) fn arrivals(&self) -> Option<Arc<dyn Arrivals>> {
        self.arrivals.get()?.upgrade()
    }

    pub(crate) fn growth(&self) -> &Growth {
        &self.growth
    }

    pub(crate) fn derived(&self) -> &DerivedFiles {
        &self.derived
    }

    /// Returns the position up to which consumers may read.
    pub(crate) fn visible(&self) -> PhysicalOffset {
        PhysicalOffset(self.visible.load(Ordering::Acquire))
    }

    /// Returns the newest visible record, and the digest of the queues without it.
    pub(crate) fn last(&self) -> (Option<LastRecord>, u64) {
        let moving = self.moving.lock();
        let weight = moving.last.map_or(0, |last| last.weight);
        (moving.last, self.derived.queues.digest().wrapping_sub(weight))
    }

    /// Removes a topic's queues from the table and returns them, while nothing is appended or dispatched. Before
    /// that `note` receives the end of the log.
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
        removed.iter().for_each(|queue| moving.forget(queue.weight()));
        removed
    }

    /// Continues a queue at a record that does not follow its last one: see `Queues::start_over`. Only when
    /// everything appended is visible.
    pub(crate) fn start_over(
        &self,
        queue: &Arc<ConsumeQueue>,
        offset: QueueOffset,
        physical: PhysicalOffset,
        log_begin: u64,
    ) -> Result<(), StoreError> {
        let mut moving = self.moving.lock();
        // The digest contains the lost records, too.
        moving.forget(queue.weight());
        self.derived.queues.start_over(queue, offset, physical.0, log_begin)
    }

    /// Moves the beginning of an empty log.
    pub(crate) fn begin_at(&self, position: PhysicalOffset) {
        let _moving = self.moving.lock();
        self.visible.store(position.0, Ordering::Release);
    }

    /// Makes the records of the ring visible after `ready`. In async mode `ready` returns immediately; in sync mode
    /// it flushes up to the given position. If it fails, the records stay invisible.
    pub(crate) fn advance(
        &self,
        log: &CommitLog,
        ready: impl FnOnce(PhysicalOffset) -> Result<(), StoreError>,
    ) -> Result<PhysicalOffset, StoreError> {
        let mut moving = self.moving.lock();
        let Moving { ring, last, weights } = &mut *moving;
        let position = log.take_ring(ring);
        let is_ready = ready(position);
        if is_ready.is_ok() {
            self.derived.take(ring);
            if let Some(newest) = ring.last() {
                let store_timestamp_ms = newest.store_timestamp_ms;
                weights.clear();
                weights.extend(newest.is_queued().then(|| newest.queue.weight()));
                weights.extend(newest.light_queues().map(|queue| queue.weight()));
                let weight = sum(weights);
                *last = Some(LastRecord { physical: newest.physical.0, store_timestamp_ms, weight });
            }
            self.visible.store(position.0, Ordering::Release);
            self.growth.notify();
            self.announce(ring);
        }
        ring.clear();
        is_ready.map(|()| position)
    }

    /// Stops halfway through `advance`: the queues are ahead of `visible`.
    #[cfg(test)]
    pub(crate) fn fill_queues(&self, log: &CommitLog) {
        let mut moving = self.moving.lock();
        let Moving { ring, .. } = &mut *moving;
        log.take_ring(ring);
        self.derived.take(ring);
        ring.clear();
    }

    fn announce(&self, records: &[DispatchRequest]) {
        if self.arrivals.get().is_none() {
            return;
        }
        // All queues get their ends before any waiter is notified: see `ConsumeQueue::set_awaited`.
        fence(Ordering::SeqCst);
        let is_awaited = |record: &&DispatchRequest| {
            (record.queue.is_awaited() && record.is_queued())
                || record.lights().iter().any(|place| place.queue.is_awaited())
        };
        let mut awaited = records.iter().filter(is_awaited).peekable();
        if awaited.peek().is_none() {
            return;
        }
        let Some(arrivals) = self.arrivals() else { return };
        for record in awaited {
            if record.queue.is_awaited() && record.is_queued() {
                arrivals.arrived(&record.queue, record.queue_offset.advanced(1), record.tags_code);
            }
            for place in record.lights().iter().filter(|place| place.queue.is_awaited()) {
                arrivals.arrived(&place.queue, place.offset.advanced(1), record.tags_code);
            }
        }
    }
}
