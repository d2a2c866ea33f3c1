//! Group commit: many senders, one flush.
//!
//! Owns the answer to "is this position on disk?". One flush takes everything published so far in one go; replies
//! that wait are released when the durable position passes theirs. While one flush runs, the next one's messages
//! collect: that is the whole delay, there is no timer. In async mode the same thread flushes by the clock.
//!
//! A flush that failed is never tried again: the kernel may have dropped the pages and would say yes the next time. The
//! log refuses writes from then on, waiters are told, and reads go on.
//!
//! Invariant: durable <= published, and both only grow.
//! Threads: `release_after` from any connection, without blocking it; never while holding the put lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::positions::PhysicalOffset;
use crate::store::error::StoreError;
use crate::store::sync::{AtomicU64, Condvar, Mutex};

use super::commit_log::CommitLog;
use super::dispatcher::{Arrivals, Dispatcher};
use super::write_path::Unwritten;

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
        let _one = self.flushing.lock();
        let flushed = if self.is_sync {
            self.dispatcher.advance(&self.log, |position, unwritten| self.reach(position, unwritten))
        } else {
            let position = self.log.published();
            self.reach(position, &Unwritten::default()).map(|()| position)
        };
        match &flushed {
            Ok(position) => {
                self.log.room_was_made();
                self.tell(|arrivals| arrivals.durable(*position));
            }
            Err(error) => self.fail(error.to_string()),
        }
        flushed
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
            self.log.segments().write(unwritten)?;
            self.log.segments().sync(durable.0..position.0)?;
            self.durable.store(position.0, Ordering::Release);
        }
        Ok(())
    }

    /// The flush thread: runs until it is stopped.
    pub(crate) fn run(&self) {
        loop {
            let is_stopped = self.wait();
            if is_stopped {
                return;
            }
            if self.log.failure().is_none() && self.durable() < self.log.published() {
                // An error has latched the log; all waiters have been told.
                let _ = self.flush();
            }
        }
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
