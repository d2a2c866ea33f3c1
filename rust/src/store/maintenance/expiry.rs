//! Expiry: does what the rule of `retention` says.
//!
//! Owns the deletion of old files of the log, oldest first, and of what queues and index hold of them; and the watermarks
//! of the disk. A file goes whole, and only when everything in it is durable elsewhere: a checkpoint behind it, so that
//! no recovery will want it. It is removed before it is out of the list, each removal durable before the next, so that a
//! crash leaves no gap; a reader of it keeps its mapping alive. Queues and index follow in small pieces.
//!
//! Invariants: the log begins with a file that is there; a queue's min leads to a record behind that begin, or is its
//! max; of a queue, and of the index, the newest file always stays.
//! Threads: that of maintenance, or one that asks for a deletion, one at a time under the lock of its rounds; never on the
//! way of an append. `set` from any.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::store::derived::DerivedFiles;
use crate::store::disk::Space;
use crate::store::error::StoreError;
use crate::store::events::{Event, Events};
use crate::store::log::{CommitLog, Segment, record_at};
use crate::store::retention::{ClockWatch, Deletable, Retention, newest_of};
use crate::store::waiting_rooms::Waits;

use super::volumes::{Usage, Volumes};

/// How often the space of the disks is measured.
const SPACE_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is found out whether a message in an expired file waits still.
const HELD_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Expiry {
    log: Arc<CommitLog>,
    events: Arc<Events>,
    retention: Mutex<Retention>,
    volumes: Volumes,
    state: Mutex<ExpiryState>,
}

struct ExpiryState {
    clock_watch: ClockWatch,
    /// When the space was last looked at, and what was seen.
    measured_at: Option<Duration>,
    space: Space,
    is_short: bool,
    /// When a file was deleted last.
    deleted_at: Option<Duration>,
    /// Begin of the log to which queues and index were trimmed last.
    trimmed: Option<u64>,
    /// The file that was reported as held last, and whether it was known what holds it.
    held: Option<(u64, bool)>,
    held_at: Option<Duration>,
}

impl Expiry {
    pub(crate) fn new(
        log: Arc<CommitLog>,
        events: Arc<Events>,
        retention: Retention,
        volumes: Volumes,
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
        Self { log, events, retention: Mutex::new(retention), volumes, state: Mutex::new(state) }
    }

    pub(crate) fn set(&self, retention: Retention) {
        *self.retention.lock() = retention;
        let mut state = self.state.lock();
        (state.measured_at, state.held_at) = (None, None);
    }

    /// Sees when the clock is set, and tells where store times went back with it.
    pub(crate) fn check_clock(&self) {
        self.state.lock().clock_watch.check(&**self.log.clock());
        if let Some(by_ms) = self.log.take_set_back() {
            self.events.add(Event::ClockSetBack { by_ms });
        }
    }

    /// Refuses messages before the disk is full to the last byte, and takes them again by itself.
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

    /// Whether a file of so many bytes may be made: messages are taken with it, too.
    pub(crate) fn check_room(&self, needed: u64) -> Result<(), StoreError> {
        let segments = self.log.segments();
        let Ok(Space { free, total }) = segments.space() else { return Ok(()) };
        let left = Space { free: free.saturating_sub(needed), total };
        if total > 0 && (free < needed || self.retention.lock().is_full(left)) {
            return Err(StoreError::NoSpace { path: segments.dir().to_owned(), needed, free });
        }
        Ok(())
    }

    /// The oldest file, if the rule lets it go now; at any hour, if it has expired and that is `asked` for.
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
        // The file that is written stays, and so does the one made early behind it.
        later.first().filter(|next| next.base() < self.log.published().0)?;
        let first_of =
            |file: &Arc<Segment>| record_at(segments, file.base(), |record| record.store_timestamp_ms());
        // Where no first record can be read, the newest of all is no older.
        let behind =
            later.iter().filter_map(first_of).chain(iter::once_with(|| self.log.store_timestamp_ms()));
        let newest = newest_of(first_of(oldest), behind, now_ms);
        let is_before = |time: i64| newest.is_some_and(|newest| newest < time);
        let may_go = before.is_none_or(is_before);
        let is_expired = is_before(retention.expired_before(now_ms));
        // What the one before it has freed is known by now, or its reader still keeps the space.
        let is_premature = !is_expired && self.has_just_deleted();
        let keeps_waiting = retention.keeps_waiting && before.is_some();
        (may_go && !is_premature).then(|| Due { segment: Arc::clone(oldest), is_expired, keeps_waiting })
    }

    /// Whether a file stays for messages in it that wait. Reported when that begins.
    pub(crate) fn is_held(&self, due: &Due, waits: Waits) -> bool {
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

    /// Whether a file was held so short a time ago that it may be taken for granted.
    fn was_just_held(&self) -> bool {
        let now = self.log.clock().elapsed();
        self.state.lock().held_at.is_some_and(|at| now.saturating_sub(at) < HELD_INTERVAL)
    }

    fn has_just_deleted(&self) -> bool {
        let now = self.log.clock().elapsed();
        self.state.lock().deleted_at.is_some_and(|at| now.saturating_sub(at) < SPACE_INTERVAL)
    }

    /// Deletes the oldest file. The caller knows that no recovery will want it.
    pub(crate) fn delete(&self, due: &Due) -> Result<(), StoreError> {
        let segments = self.log.segments();
        if let Some(spool) = segments.spool() {
            spool.forget_before(due.segment.limit());
        }
        segments.remove_first(&due.segment)?;
        self.events.add(Event::Deleted {
            path: due.segment.path().to_owned(),
            end: due.segment.limit(),
            is_expired: due.is_expired,
        });
        // A file of checksums that stays is removed by the next start.
        let _ = self.log.checksums().remove(due.segment.base());
        // How much room there is now decides about the next one.
        let mut state = self.state.lock();
        state.measured_at = None;
        state.deleted_at = Some(self.log.clock().elapsed());
        Ok(())
    }

    /// Takes a piece of what is no longer in the log out of queues and index; `true` when nothing is left to do.
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
    /// It goes only when no message in it waits.
    keeps_waiting: bool,
}

impl Due {
    pub(crate) fn end(&self) -> u64 {
        self.segment.limit()
    }
}
