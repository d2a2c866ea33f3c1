//! Group commit: many senders, one flush.
//!
//! Owns the answer to "is this position on disk?". One flush takes everything published so far in one go; replies
//! that wait are released when the durable position passes theirs. While one flush runs, the next one's messages
//! collect: that is the whole delay, there is no timer. In async mode the same thread flushes by the clock.
//!
//! A flush that failed is never tried again: the kernel may have dropped the pages and would say yes the next time. The
//! log refuses writes from then on, waiters are told, and reads go on.
//!
//! The kernel takes the right to write from pages that it brings to the disk, and the next append to such a page waits for
//! the file system. So a flush that need not reach the end leaves out the pages that appends are in (`flush_until`).
//!
//! Invariant: durable <= published, and both only grow.
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

/// Sizes, as powers of two, that the kernel's pages of a file may have.
const PAGE_SIZES: RangeInclusive<u32> = 12..=21;

pub(crate) struct Flush {
    log: Arc<CommitLog>,
    dispatcher: Arc<Dispatcher>,
    is_sync: bool,
    interval: Duration,
    durable: AtomicU64,
    /// One flush at a time.
    flushing: Mutex<()>,
    request: Mutex<FlushRequest>,
    requested: Condvar,
}

struct FlushRequest {
    until: u64,
    is_stopped: bool,
}

impl Flush {
    /// A log whose bytes before `durable` are on disk.
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

    /// Everything before this position is on disk.
    pub(crate) fn durable(&self) -> PhysicalOffset {
        PhysicalOffset(self.durable.load(Ordering::Acquire))
    }

    /// Asks for a flush that reaches `end`; `Arrivals::durable` or `Arrivals::latched` says what came of it.
    pub(crate) fn release_after(&self, end: PhysicalOffset) {
        let mut request = self.request.lock();
        request.until = request.until.max(end.0);
        self.requested.notify_one();
    }

    /// Flushes everything published so far, and in sync mode makes it visible.
    pub(crate) fn flush(&self) -> Result<PhysicalOffset, StoreError> {
        self.flush_until(PhysicalOffset(u64::MAX))
    }

    /// Flushes what is published up to `wanted` at least; more where that needs no page which appends may be in.
    pub(crate) fn flush_until(&self, wanted: PhysicalOffset) -> Result<PhysicalOffset, StoreError> {
        let _one = self.flushing.lock();
        let flushed = if self.is_sync {
            self.dispatcher.advance(&self.log, |position, unwritten| self.reach(position, unwritten))
        } else {
            let (segments, position) = (self.log.segments(), self.log.published());
            let base = segments.find(position.0).map_or(position.0, |segment| segment.base());
            // What is written from a spool leaves its pages as they are.
            let wanted = if segments.spool().is_some() { position } else { wanted };
            let position = whole_pages(base, position, wanted).max(self.durable());
            self.reach(position, &Unwritten::default()).map(|()| position)
        };
        match &flushed {
            Ok(position) => {
                self.log.room_was_made();
                self.tell(|arrivals| arrivals.durable(*position));
                if self.log.take_lacked_flush() {
                    self.tell(|arrivals| arrivals.room_was_made());
                }
            }
            Err(error) => self.fail(error.to_string()),
        }
        flushed
    }

    /// Lets a log in which nothing was written begin at a position, which `work` sees to.
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

    /// Calls `work` while nothing is written to the files of the log.
    pub(crate) fn between_flushes<T>(&self, work: impl FnOnce() -> T) -> T {
        let _one = self.flushing.lock();
        work()
    }

    /// Refuses writes from now on, and tells all waiters.
    pub(crate) fn fail(&self, reason: String) {
        if self.log.latch(reason) {
            self.tell(|arrivals| arrivals.latched());
        }
    }

    fn tell(&self, what: impl FnOnce(&dyn Arrivals)) {
        if let Some(arrivals) = self.dispatcher.arrivals() {
            what(&**arrivals);
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
            segments.write_spooled(|at, block| checksums.note(at, block))?;
            segments.sync(durable.0..position.0)?;
            if let Some(spool) = segments.spool() {
                spool.synced();
            }
            self.durable.store(position.0, Ordering::Release);
        }
        Ok(())
    }

    /// The flush thread: runs until it is stopped.
    pub(crate) fn run(&self) {
        let mut seen = self.durable();
        loop {
            let is_stopped = self.wait();
            if is_stopped {
                return;
            }
            let published = self.log.published();
            if self.log.failure().is_none() && self.durable() < published {
                // What was there the last time, and what is asked for. An error has latched the log; all waiters have been
                // told.
                let wanted = std::mem::replace(&mut seen, published).max(self.requested_until());
                let _ = self.flush_until(wanted);
            }
        }
    }

    fn requested_until(&self) -> PhysicalOffset {
        PhysicalOffset(self.request.lock().until)
    }

    /// Waits until a flush is requested, or for the interval; `true` when the thread is to end.
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

/// The last position in the file at `base`, up to `end`, where a page ends, the larger the better, that is not before `wanted`;
/// else `end`.
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
    fn a_flush_leaves_out_the_largest_page_that_holds_nothing_it_is_to_reach() {
        assert_eq!(until(0, (5 << 20) + 777, 1 << 20), 4 << 20);
        assert_eq!(until(0, (5 << 20) + 777, (4 << 20) + 1), 5 << 20);
        assert_eq!(until(0, 3 * 4096 + 777, 4096 + 1), 8192, "a smaller page would do, too");
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
