//! Group commit: many senders, one flush.
//!
//! Owns the position *durable*. One flush writes everything published so far, and the replies parked for it are
//! released when *durable* passes their positions. Messages that arrive during a flush wait for the next one,
//! without a timer in sync mode. In async mode the same thread flushes by the clock.
//!
//! A failed flush is never retried: the kernel may have dropped the dirty pages and would report success. The log
//! refuses writes from then on, the waiters are notified, and reads continue.
//!
//! *Invariant*: durable <= published, and both only grow.
//! Threads: `release_after` from any connection, without blocking it; never while holding the put lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::positions::PhysicalOffset;
use crate::store::error::StoreError;
use crate::store::sync::{AtomicU64, Condvar, Mutex};

use super::commit_log::CommitLog;
use super::dispatcher::{Arrivals, Dispatcher};

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
        let _one = self.flushing.lock();
        let flushed = if self.is_sync {
            self.dispatcher.advance(&self.log, |position| self.reach(position))
        } else {
            let position = self.log.published();
            self.reach(position).map(|()| position)
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

    fn reach(&self, position: PhysicalOffset) -> Result<(), StoreError> {
        if let Some(reason) = self.log.failure() {
            return Err(StoreError::ReadOnly { reason: reason.to_owned() });
        }
        let durable = self.durable();
        if durable < position {
            let (segments, checksums) = (self.log.segments(), self.log.checksums());
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
        loop {
            let is_stopped = self.wait();
            if is_stopped {
                return;
            }
            if self.log.failure().is_none() && self.durable() < self.log.published() {
                // An error latches the log and notifies the waiters.
                let _ = self.flush();
            }
        }
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
