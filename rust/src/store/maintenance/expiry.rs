//! Expiry: deletion of old log files by the rule of `retention`.
//!
//! Owns the deletion of old files of the log, oldest first, and of their entries in queues and index; and the
//! watermarks of the disk. A whole file is deleted, and only when everything in it is durable elsewhere: a later
//! checkpoint ensures that recovery will not need it. It is removed from the disk before it leaves the list, each
//! removal durable before the next, so that a crash leaves no gap. A reader keeps its mapping. Queues and index are
//! trimmed in small steps.
//!
//! *Invariant*: the log begins with an existing file; a queue's min points to a record after that beginning, or is
//! its max; the newest file of a queue, and of the index, always stays.
//! Threads: that of maintenance, or of a requested deletion, one at a time under the lock of its rounds; never on
//! the path of an append. `set` from any.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::store::compaction::Copied;
use crate::store::derived::DerivedFiles;
use crate::store::disk::Space;
use crate::store::error::StoreError;
use crate::store::log::{CommitLog, Segment, record_at};
use crate::store::reports::events::{Event, Events};
use crate::store::settings::retention::{ClockWatch, Deletable, Retention, newest_of};
use crate::store::waiting_rooms::Waits;

use super::volumes::{Usage, Volumes};

/// The interval for measuring the space of the disks.
const SPACE_INTERVAL: Duration = Duration::from_secs(1);

/// The interval for checking a held file again.
const HELD_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Expiry {
    log: Arc<CommitLog>,
    events: Arc<Events>,
    retention: Mutex<Retention>,
    volumes: Volumes,
    /// Files that end after this position are not copied yet, to where they are kept longer.
    keep_from: AtomicU64,
    copied: Arc<Copied>,
    state: Mutex<ExpiryState>,
}

struct ExpiryState {
    clock_watch: ClockWatch,
    /// The time of the last measurement, and its result.
    measured_at: Option<Duration>,
    space: Space,
    is_short: bool,
    /// Time of the last deletion.
    deleted_at: Option<Duration>,
    /// The beginning of the log to which queues and index were trimmed last.
    trimmed: Option<u64>,
    /// The last file reported as held, and whether the holding message was known.
    held: Option<(u64, bool)>,
    held_at: Option<Duration>,
}

impl Expiry {
    pub(crate) fn new(
        log: Arc<CommitLog>,
        events: Arc<Events>,
        retention: Retention,
        volumes: Volumes,
        copied: Arc<Copied>,
    ) -> Self {
        let state = ExpiryState {
            clock_watch: ClockWatch::new(&**log.clock()),
            measured_at: None,
            space: Space::default(),
            is_short: false,
            deleted_at: None,
            trimmed: None,
            held: None,
            held_at: None,
        };
        Self {
            log,
            events,
            retention: Mutex::new(retention),
            volumes,
            keep_from: AtomicU64::new(u64::MAX),
            copied,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn set(&self, retention: Retention) {
        *self.retention.lock() = retention;
        let mut state = self.state.lock();
        (state.measured_at, state.held_at) = (None, None);
    }

    /// Keeps files that end after `position`, unless the oldest file must go because the disk is full.
    pub(crate) fn keep_from(&self, position: u64) {
        self.keep_from.store(position, Ordering::Release);
    }

    /// Detects changes of the clock, and reports when store times went back with it.
    pub(crate) fn check_clock(&self) {
        self.state.lock().clock_watch.check(&**self.log.clock());
        if let Some(by_ms) = self.log.take_set_back() {
            self.events.add(Event::ClockSetBack { by_ms });
        }
    }

    /// Refuses messages before the disk is completely full, and accepts them again when there is space.
    pub(crate) fn check_space(&self) {
        let retention = self.retention.lock().clone();
        let mut state = self.state.lock();
        let now = self.log.clock().elapsed();
        if state.measured_at.is_some_and(|at| now.saturating_sub(at) < SPACE_INTERVAL) {
            return;
        }
        state.measured_at = Some(now);
        let Some(Usage { growing: (path, space), full }) = self.volumes.measure(&retention) else { return };
        state.space = space;
        let was_full = self.log.set_full(full.is_some());
        match full {
            Some((path, space)) if !was_full => self.events.add(Event::DiskFull { path, space }),
            None if was_full => self.events.add(Event::DiskHasRoom { path: path.clone(), space }),
            _ => {}
        }
        let is_short = retention.is_short(space);
        if is_short && !state.is_short {
            self.events.add(Event::DiskShort { path, space });
        }
        state.is_short = is_short;
    }

    /// Checks that there is space for a file of `needed` bytes, and that messages would still be accepted with it.
    pub(crate) fn check_room(&self, needed: u64) -> Result<(), StoreError> {
        let segments = self.log.segments();
        let Ok(Space { free, total }) = segments.space() else { return Ok(()) };
        let left = Space { free: free.saturating_sub(needed), total };
        if total > 0 && (free < needed || self.retention.lock().is_full(left)) {
            return Err(StoreError::NoSpace { path: segments.dir().to_owned(), needed, free });
        }
        Ok(())
    }

    /// Returns the oldest file if the rule allows its deletion now; an expired one at any hour if `is_asked`.
    pub(crate) fn due(&self, is_asked: bool) -> Option<Due> {
        let retention = self.retention.lock();
        let now_ms = self.log.clock().wall_ms();
        let (deletable, is_clock_in_doubt) = {
            let state = self.state.lock();
            (retention.deletable(now_ms, state.space), state.clock_watch.has_jumped(&**self.log.clock()))
        };
        let before = match deletable {
            Deletable::Oldest => None,
            Deletable::StoredBefore(_) if is_clock_in_doubt && !is_asked => return None,
            Deletable::StoredBefore(before) => Some(before),
            Deletable::Nothing if is_asked => Some(retention.expired_before(now_ms)),
            Deletable::Nothing => return None,
        };
        if !is_asked && before.is_some() && self.was_just_held() {
            return None;
        }
        let segments = self.log.segments();
        let list = segments.all();
        let [oldest, later @ ..] = list.as_slice() else { return None };
        if before.is_some() && oldest.limit() > self.keep_from.load(Ordering::Acquire) {
            return None;
        }
        // The file being written stays, and so does the next file.
        later.first().filter(|next| next.base() < self.log.published().0)?;
        let first_of =
            |file: &Arc<Segment>| record_at(segments, file.base(), |record| record.store_timestamp_ms());
        // If no first record can be read, the newest record of the log bounds the age.
        let behind =
            later.iter().filter_map(first_of).chain(iter::once_with(|| self.log.store_timestamp_ms()));
        let newest = newest_of(first_of(oldest), behind, now_ms);
        let is_before = |time: i64| newest.is_some_and(|newest| newest < time);
        let may_go = before.is_none_or(is_before);
        let is_expired = is_before(retention.expired_before(now_ms));
        // Waits until the space freed by the last deletion is visible; a reader of that file may still hold it.
        let is_premature = !is_expired && self.has_just_deleted();
        let keeps_waiting = retention.keeps_waiting && before.is_some();
        let is_forced = before.is_none();
        (may_go && !is_premature).then(|| Due {
            segment: Arc::clone(oldest),
            is_expired,
            keeps_waiting,
            is_forced,
        })
    }

    /// Returns whether a file is kept because messages in it are pending, and reports when that begins; or because
    /// messages of compacted topics are not copied yet, which takes seconds.
    pub(crate) fn is_held(&self, due: &Due, waits: Waits) -> bool {
        if self.copied.holds(due.end(), due.is_forced) {
            return true;
        }
        let at = match waits {
            Waits::From(at) if at.0 < due.end() => Some(at.0),
            Waits::Unknown => None,
            Waits::From(_) | Waits::Nothing => return false,
        };
        if !due.keeps_waiting {
            return false;
        }
        let mut state = self.state.lock();
        state.held_at = Some(self.log.clock().elapsed());
        let held = Some((due.segment.base(), at.is_some()));
        if state.held != held {
            state.held = held;
            self.events.add(Event::Held { path: due.segment.path().to_owned(), at });
        }
        true
    }

    /// Returns whether a file was held so recently that the check can be skipped.
    fn was_just_held(&self) -> bool {
        let now = self.log.clock().elapsed();
        self.state.lock().held_at.is_some_and(|at| now.saturating_sub(at) < HELD_INTERVAL)
    }

    fn has_just_deleted(&self) -> bool {
        let now = self.log.clock().elapsed();
        self.state.lock().deleted_at.is_some_and(|at| now.saturating_sub(at) < SPACE_INTERVAL)
    }

    /// Deletes the oldest file. The caller ensures that recovery will not need it.
    pub(crate) fn delete(&self, due: &Due) -> Result<(), StoreError> {
        let segments = self.log.segments();
        if let Some(ring) = segments.write_ring() {
            ring.forget_before(due.segment.limit());
        }
        segments.remove_first(&due.segment)?;
        self.events.add(Event::Deleted {
            path: due.segment.path().to_owned(),
            end: due.segment.limit(),
            is_expired: due.is_expired,
        });
        // If removing the checksums fails, the next start removes them.
        let _ = self.log.checksums().remove(due.segment.base());
        // The decision about the next file needs a new measurement.
        let mut state = self.state.lock();
        state.measured_at = None;
        state.deleted_at = Some(self.log.clock().elapsed());
        Ok(())
    }

    /// Removes some entries of deleted records from queues and index. Returns true when none are left.
    pub(crate) fn trim(&self, derived: &DerivedFiles) -> Result<bool, StoreError> {
        let mut state = self.state.lock();
        let begin = self.log.segments().begin();
        if state.trimmed == Some(begin) {
            return Ok(true);
        }
        let is_done = derived.trim(begin)?;
        state.trimmed = is_done.then_some(begin);
        Ok(is_done)
    }
}

pub(crate) struct Due {
    segment: Arc<Segment>,
    is_expired: bool,
    /// Whether pending messages in the file prevent its deletion.
    keeps_waiting: bool,
    /// Whether the disk is so full that the oldest file is deleted, whatever is in it.
    is_forced: bool,
}

impl Due {
    pub(crate) fn end(&self) -> u64 {
        self.segment.limit()
    }
}
