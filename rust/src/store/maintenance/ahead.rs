//! Pages ahead: what the appender comes to next is made ready before it gets there.
//!
//! Otherwise it takes a fault on each page, and waits there for whatever the file system does at that time, with the put
//! lock held; or every flush has to tell the file system about new blocks. A thread of its own looks after that alone: a
//! checkpoint takes longer than a flood of sends takes to use up any bytes ahead.
//!
//! Invariant: only bytes behind the published ones are touched.
//! Threads: its own; `advance` from any, one at a time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::large_pages::LargePages;
use crate::store::log::{Active, CommitLog, Flush, WritePathKind};

/// Pause between two looks at the appender, while it moves and while it does not.
const PAUSE: Duration = Duration::from_millis(10);
const IDLE_PAUSE: Duration = Duration::from_millis(50);
/// Bytes that are made ready ahead of the appender: so many pauses' worth, within these bounds.
const AHEAD_PAUSES: u64 = 40;
const AHEAD_BYTES_MIN: u64 = 4 << 20;
const AHEAD_BYTES_MAX: u64 = 64 << 20;
/// The least for a mapping that is written to: what a flood that begins writes in the longer pause.
const AHEAD_BYTES_USED_MIN: u64 = 16 << 20;
/// Bytes that are made ready in one go, while a flush has to wait.
const STEP_BYTES: u64 = 1 << 20;
/// Of a mapping the least that is made ready at one look. More than the appender needs until the next one would keep
/// a processor for so long that sends wait for it.
const SHARE_BYTES_MIN: u64 = 512 << 10;
/// Of what is next the least that is made writable again, after the kernel took that from pages it wrote to the disk.
const NEXT_BYTES_MIN: u64 = 256 << 10;

/// Makes the begin of a new file ready, before appends may go there: those that wait for it do so at once.
pub(super) fn begin((segment, appender): &Active) {
    // What goes through a write buffer does not come here before its flush.
    if appender.is_some() {
        // Where it cannot be done appends are a little slower.
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
    /// Where the appender was at the last look.
    seen: u64,
    /// Up to where bytes are ready.
    ready: u64,
    /// Bytes from look to look, of late.
    pace: u64,
    large: LargePages,
}

impl Ahead {
    pub(crate) fn new(log: Arc<CommitLog>, flush: Arc<Flush>) -> Self {
        let end = log.published().0;
        let window = Mutex::new(Window { seen: end, ready: end, pace: 0, large: LargePages::default() });
        Self { log, flush, window, is_stopped: Mutex::new(false), stopped: Condvar::new() }
    }

    /// Makes ready what the appender needs next. Whether it has moved.
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
            // Pages that are ready cost next to nothing.
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
            // In large pieces: each may cost a sync.
            window.ready = self.prepare(from, end + ahead);
        }
        moved > 0
    }

    /// Makes bytes from `at` to `until` ready, as far as there are files for them; returns how far that is.
    fn prepare(&self, mut at: u64, until: u64) -> u64 {
        let segments = self.log.segments();
        while at < until {
            let Some(segment) = segments.find(at) else { break };
            let step = (at + STEP_BYTES).min(until).min(segment.limit());
            let prepare = || segment.prepare(at..step);
            // Where it cannot be done appends are a little slower.
            let _ = match segments.write_path() {
                WritePathKind::Mapping => prepare(),
                // Its pages are there, and the file's are passed by.
                WritePathKind::Spool => Ok(()),
                WritePathKind::WriteBuffer => {
                    self.flush.between_flushes(prepare).and_then(|()| segment.sync(at..step))
                }
            };
            // What was overtaken needs no more.
            at = step.max(self.log.published().0.min(until));
        }
        at
    }

    /// The thread: runs until it is stopped.
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
