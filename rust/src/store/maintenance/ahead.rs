//! Ahead: prefaulted or preallocated pages that the appender reaches next.
//!
//! Otherwise the appender takes a fault on each page and waits there for the file system, with the put lock held; or
//! every flush has to record new blocks in the file system. A separate thread does only this, because a checkpoint
//! can take longer than a burst of sends takes to use up the prepared bytes.
//!
//! *Invariant*: only bytes after the published ones are touched.
//! Threads: its own; `advance` from any, one at a time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::large_pages::LargePages;
use crate::store::log::{Active, CommitLog, Flush, WritePathKind};

/// Pauses between two checks of the appender, while it moves and while it does not.
const PAUSE: Duration = Duration::from_millis(10);
const IDLE_PAUSE: Duration = Duration::from_millis(50);
/// Bytes prepared ahead of the appender: those of this many pauses, within these limits.
const AHEAD_PAUSES: u64 = 40;
const AHEAD_BYTES_MIN: u64 = 4 << 20;
const AHEAD_BYTES_MAX: u64 = 64 << 20;
/// Minimum for a mapping that is written: the bytes of a starting burst in the longer pause.
const AHEAD_BYTES_USED_MIN: u64 = 16 << 20;
/// Bytes prepared per step, during which a flush has to wait.
const STEP_BYTES: u64 = 1 << 20;
/// Minimum prepared per check of a mapping. Preparing more than the appender needs before the next check would delay
/// sends, because it keeps a processor busy.
const SHARE_BYTES_MIN: u64 = 512 << 10;
/// Minimum of upcoming bytes that are made writable again after writeback has write-protected their pages.
const NEXT_BYTES_MIN: u64 = 256 << 10;

/// Prepares the start of a new file before it is set, because waiting appends use it immediately.
pub(super) fn begin((segment, appender): &Active) {
    // The file of a write buffer is written only by the flush.
    if appender.is_some() {
        // A failure only makes appends a little slower.
        let _ = segment.prepare(segment.base()..segment.base() + AHEAD_BYTES_USED_MIN);
    }
}

pub(crate) struct Ahead {
    log: Arc<CommitLog>,
    flush: Arc<Flush>,
    window: Mutex<Window>,
    is_stopped: Mutex<bool>,
    stopped: Condvar,
}

struct Window {
    /// The position of the appender at the last check.
    seen: u64,
    /// End of the prepared bytes.
    ready: u64,
    /// Recent number of bytes per check.
    pace: u64,
    large: LargePages,
}

impl Ahead {
    pub(crate) fn new(log: Arc<CommitLog>, flush: Arc<Flush>) -> Self {
        let end = log.published().0;
        let window = Mutex::new(Window { seen: end, ready: end, pace: 0, large: LargePages::default() });
        Self { log, flush, window, is_stopped: Mutex::new(false), stopped: Condvar::new() }
    }

    /// Prepares the bytes that the appender needs next. Returns whether the appender has moved.
    pub(crate) fn advance(&self) -> bool {
        let mut window = self.window.lock();
        let end = self.log.published().0;
        let moved = end - window.seen;
        window.seen = end;
        window.pace = moved.max(window.pace - window.pace / 16);
        let is_mapped = self.log.segments().write_path() == WritePathKind::Mapping;
        let least = if is_mapped && window.pace > 0 { AHEAD_BYTES_USED_MIN } else { AHEAD_BYTES_MIN };
        let ahead = (window.pace * AHEAD_PAUSES).clamp(least, AHEAD_BYTES_MAX);
        if is_mapped && moved > 0 {
            // Preparing a prepared page is cheap.
            let next = end + (window.pace * 4).max(NEXT_BYTES_MIN);
            self.prepare(end, next.min(window.ready));
        }
        let from = window.ready.max(end);
        if is_mapped {
            let window = &mut *window;
            window.large.choose(self.log.segments().find(end), window.pace);
            let until = (end + ahead).min(from + (2 * moved).max(SHARE_BYTES_MIN));
            window.ready = window.large.timed(until.saturating_sub(from), || self.prepare(from, until));
        } else if window.ready < end + ahead / 2 {
            // In large steps, because each may cost a sync.
            window.ready = self.prepare(from, end + ahead);
        }
        moved > 0
    }

    /// Prepares bytes from `at` to `until`, as far as files exist for them. Returns the end.
    fn prepare(&self, mut at: u64, until: u64) -> u64 {
        let segments = self.log.segments();
        while at < until {
            let Some(segment) = segments.find(at) else { break };
            let step = (at + STEP_BYTES).min(until).min(segment.limit());
            let prepare = || segment.prepare(at..step);
            // A failure only makes appends a little slower.
            let _ = match segments.write_path() {
                WritePathKind::Mapping => prepare(),
                // The pages of the write ring stay mapped, and those of the file are bypassed.
                WritePathKind::Ring => Ok(()),
                WritePathKind::WriteBuffer => {
                    self.flush.between_flushes(prepare).and_then(|()| segment.sync(at..step))
                }
            };
            // Bytes that the appender has passed need no preparation.
            at = step.max(self.log.published().0.min(until));
        }
        at
    }

    /// Prepares pages until the thread is stopped.
    pub(crate) fn run(&self) {
        let mut pause = IDLE_PAUSE;
        loop {
            {
                let mut is_stopped = self.is_stopped.lock();
                if !*is_stopped {
                    self.stopped.wait_for(&mut is_stopped, pause);
                }
                if *is_stopped {
                    return;
                }
            }
            pause = if self.advance() { PAUSE } else { IDLE_PAUSE };
        }
    }

    pub(crate) fn stop(&self) {
        *self.is_stopped.lock() = true;
        self.stopped.notify_all();
    }
}
