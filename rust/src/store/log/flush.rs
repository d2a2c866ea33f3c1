//! Group commit: many senders, one flush.
//!
//! Owns the position *durable*. One flush writes everything published so far, and the replies parked for it are
//! released when *durable* passes their positions. Messages that arrive during a flush wait for the next one,
//! without a timer in sync mode. In async mode the same thread flushes by the clock.
//!
//! A failed flush is never retried: the kernel may have dropped the dirty pages and would report success. The log
//! refuses writes from then on, the waiters are notified, and reads continue.
//!
//! The kernel write-protects pages during writeback, and the next append to such a page blocks on the file system.
//! So a flush that need not reach the end leaves out the pages that are being appended to (`flush_until`).
//!
//! *Invariant*: durable <= published, and both only grow.
//! Threads: `release_after` from any connection, without blocking it; never while holding the put lock.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::positions::PhysicalOffset;
use crate::store::error::StoreError;
use crate::store::sync::{AtomicU64, Condvar, Mutex};

use super::commit_log::CommitLog;
use super::dispatcher::{Arrivals, Dispatcher};
use super::write_path::Unwritten;

/// Page sizes that the kernel may use for a file, as powers of two.
const PAGE_SIZES: RangeInclusive<u32> = 12..=21;

pub(crate) struct Flush {
    log: Arc<CommitLog>,
    dispatcher: Arc<Dispatcher>,
    is_sync: bool,
    interval: Duration,
    durable: AtomicU64,
    /// Serializes flushes.
    flushing: Mutex<()>,
    request: Mutex<FlushRequest>,
    requested: Condvar,
}

struct FlushRequest {
    until: u64,
    is_stopped: bool,
}

impl Flush {
    /// Starts with a log whose bytes before `durable` are on disk.
    pub(crate) fn new(
        log: Arc<CommitLog>,
        dispatcher: Arc<Dispatcher>,
        is_sync: bool,
        interval: Duration,
        durable: PhysicalOffset,
    ) -> Self {
        Self {
            log,
            dispatcher,
            is_sync,
            interval,
            durable: AtomicU64::new(durable.0),
            flushing: Mutex::new(()),
            request: Mutex::new(FlushRequest { until: durable.0, is_stopped: false }),
            requested: Condvar::new(),
        }
    }

    /// Returns the position before which everything is on disk.
    pub(crate) fn durable(&self) -> PhysicalOffset {
        PhysicalOffset(self.durable.load(Ordering::Acquire))
    }

    /// Requests a flush up to `end`. `Arrivals::durable` or `Arrivals::latched` reports the result.
    pub(crate) fn release_after(&self, end: PhysicalOffset) {
        let mut request = self.request.lock();
        request.until = request.until.max(end.0);
        self.requested.notify_one();
    }

    /// Flushes everything published so far; in sync mode also makes it visible.
    pub(crate) fn flush(&self) -> Result<PhysicalOffset, StoreError> {
        self.flush_until(PhysicalOffset(u64::MAX))
    }

    /// Flushes at least up to `wanted`, and further where that touches no page that is being appended to.
    pub(crate) fn flush_until(&self, wanted: PhysicalOffset) -> Result<PhysicalOffset, StoreError> {
        let _one = self.flushing.lock();
        let flushed = if self.is_sync {
            self.dispatcher.advance(&self.log, |position, unwritten| self.reach(position, unwritten))
        } else {
            let (segments, position) = (self.log.segments(), self.log.published());
            let base = segments.find(position.0).map_or(position.0, |segment| segment.base());
            // The flush of a write ring does not write-protect the write ring's pages.
            let wanted = if segments.write_ring().is_some() { position } else { wanted };
            let position = whole_pages(base, position, wanted).max(self.durable());
            self.reach(position, &Unwritten::default()).map(|()| position)
        };
        match &flushed {
            Ok(position) => {
                self.log.room_was_made();
                self.notify(|arrivals| arrivals.durable(*position));
                if self.log.take_lacked_flush() {
                    self.notify(|arrivals| arrivals.room_was_made());
                }
            }
            Err(error) => self.fail(error.to_string()),
        }
        flushed
    }

    /// Starts an empty log at `position`; `work` creates its file.
    pub(crate) fn begin_at(
        &self,
        position: PhysicalOffset,
        work: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let _one = self.flushing.lock();
        work()?;
        self.durable.store(position.0, Ordering::Release);
        self.dispatcher.begin_at(position);
        Ok(())
    }

    /// Calls `work` while no flush is writing to the files of the log.
    pub(crate) fn between_flushes<T>(&self, work: impl FnOnce() -> T) -> T {
        let _one = self.flushing.lock();
        work()
    }

    /// Refuses writes from now on and notifies all waiters.
    pub(crate) fn fail(&self, reason: String) {
        if self.log.latch(reason) {
            self.notify(|arrivals| arrivals.latched());
        }
    }

    fn notify(&self, what: impl FnOnce(&dyn Arrivals)) {
        if let Some(arrivals) = self.dispatcher.arrivals() {
            what(&*arrivals);
        }
    }

    fn reach(&self, position: PhysicalOffset, unwritten: &Unwritten) -> Result<(), StoreError> {
        if let Some(reason) = self.log.failure() {
            return Err(StoreError::ReadOnly { reason: reason.to_owned() });
        }
        let durable = self.durable();
        if durable < position {
            let (segments, checksums) = (self.log.segments(), self.log.checksums());
            segments.write(unwritten)?;
            segments.write_from_ring(|at, crc| checksums.note(at, crc))?;
            segments.sync(durable.0..position.0)?;
            if let Some(ring) = segments.write_ring() {
                ring.synced();
            }
            self.durable.store(position.0, Ordering::Release);
        }
        Ok(())
    }

    /// Flushes until the thread is stopped.
    pub(crate) fn run(&self) {
        let mut seen = self.durable();
        loop {
            let is_stopped = self.wait();
            if is_stopped {
                return;
            }
            let published = self.log.published();
            if self.log.failure().is_none() && self.durable() < published {
                // Up to the end seen by the last run, or further if requested. An error latches the log and notifies
                // the waiters.
                let wanted = std::mem::replace(&mut seen, published).max(self.requested_until());
                let _ = self.flush_until(wanted);
            }
        }
    }

    fn requested_until(&self) -> PhysicalOffset {
        PhysicalOffset(self.request.lock().until)
    }

    /// Waits for a request or for the interval. Returns whether the thread is stopped.
    fn wait(&self) -> bool {
        let mut request = self.request.lock();
        let is_idle = self.log.failure().is_some() || request.until <= self.durable.load(Ordering::Acquire);
        if is_idle && !request.is_stopped {
            self.requested.wait_for(&mut request, self.interval);
        }
        request.is_stopped
    }

    pub(crate) fn stop(&self) {
        self.request.lock().is_stopped = true;
        self.requested.notify_all();
    }
}

/// Returns the last page boundary in `wanted..=end`, of the largest page size that has one, or else `end`. Pages
/// count from `base`.
fn whole_pages(base: u64, end: PhysicalOffset, wanted: PhysicalOffset) -> PhysicalOffset {
    let begin_of_page = |bits: u32| PhysicalOffset(end.0 - ((end.0 - base) & ((1 << bits) - 1)));
    PAGE_SIZES.rev().map(begin_of_page).find(|begin| *begin >= wanted).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(base: u64, end: u64, wanted: u64) -> u64 {
        whole_pages(base, PhysicalOffset(end), PhysicalOffset(wanted)).0
    }

    #[test]
    fn a_flush_leaves_out_the_largest_page_behind_its_goal() {
        assert_eq!(until(0, (5 << 20) + 777, 1 << 20), 4 << 20);
        assert_eq!(until(0, (5 << 20) + 777, (4 << 20) + 1), 5 << 20);
        assert_eq!(until(0, 3 * 4096 + 777, 4096 + 1), 8192, "the end of a smaller page");
        assert_eq!(until(0, 3 * 4096 + 777, 8192 + 1), 3 * 4096);
        assert_eq!(until(0, 3 * 4096 + 777, 3 * 4096 + 1), 3 * 4096 + 777);
        assert_eq!(until(0, 3 * 4096 + 777, u64::MAX), 3 * 4096 + 777);
    }

    #[test]
    fn pages_are_counted_from_the_begin_of_the_file() {
        assert_eq!(until(1000, 1000 + 4096 + 5, 1001), 1000 + 4096);
        assert_eq!(until(1000, 1000, 900), 1000);
    }
}
