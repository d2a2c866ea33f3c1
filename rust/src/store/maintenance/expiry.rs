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

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::store::derived::DerivedFiles;
use crate::store::disk::Space;
use crate::store::error::StoreError;
use crate::store::events::{Event, Events};
use crate::store::log::{CommitLog, Segment, record_at};
use crate::store::retention::{Deletable, Retention};

/// How often the space of the disk is measured.
const SPACE_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Expiry {
    log: Arc<CommitLog>,
    events: Arc<Events>,
    retention: Mutex<Retention>,
    state: Mutex<ExpiryState>,
}

#[derive(Default)]
struct ExpiryState {
    /// When the space was last looked at, and what was seen.
    measured_at: Option<Duration>,
    space: Space,
    is_short: bool,
    /// Begin of the log to which queues and index were trimmed last.
    trimmed: Option<u64>,
}

impl Expiry {
    pub(crate) fn new(log: Arc<CommitLog>, events: Arc<Events>, retention: Retention) -> Self {
        Self { log, events, retention: Mutex::new(retention), state: Mutex::default() }
    }

    pub(crate) fn set(&self, retention: Retention) {
        *self.retention.lock() = retention;
        self.state.lock().measured_at = None;
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
        // A disk that does not say how much is free is not taken to be full.
        let Ok(space) = self.log.segments().space() else { return };
        state.space = space;
        let (is_full, was_full) = (retention.is_full(space), self.log.is_full());
        self.log.set_full(is_full);
        if is_full != was_full {
            self.events.add(if is_full { Event::DiskFull { space } } else { Event::DiskHasRoom { space } });
        }
        let is_short = retention.is_short(space);
        if is_short && !state.is_short {
            self.events.add(Event::DiskShort { space });
        }
        state.is_short = is_short;
    }

    /// The oldest file, if the rule lets it go now; at any hour, if it has expired and that is `asked` for.
    pub(crate) fn due(&self, is_asked: bool) -> Option<Due> {
        let retention = self.retention.lock();
        let now_ms = self.log.clock().wall_ms();
        let deletable = retention.deletable(now_ms, self.state.lock().space);
        let before = match deletable {
            Deletable::Oldest => None,
            Deletable::StoredBefore(before) => Some(before),
            Deletable::Nothing if is_asked => Some(retention.expired_before(now_ms)),
            Deletable::Nothing => return None,
        };
        let list = self.log.segments().all();
        let [oldest, next, ..] = list.as_slice() else { return None };
        // Store times never fall along the log, so whatever the file holds is no younger than what follows it.
        let follows = record_at(self.log.segments(), next.base(), |record| record.store_timestamp_ms())?;
        let is_expired = follows < retention.expired_before(now_ms);
        let may_go = before.is_none_or(|before| follows < before);
        may_go.then(|| Due { segment: Arc::clone(oldest), is_expired })
    }

    /// Deletes the oldest file. The caller knows that no recovery will want it.
    pub(crate) fn delete(&self, due: &Due) -> Result<(), StoreError> {
        self.log.segments().remove_first(&due.segment)?;
        self.events.add(Event::Deleted {
            path: due.segment.path().to_owned(),
            end: due.segment.limit(),
            is_expired: due.is_expired,
        });
        // A file of checksums that stays is removed by the next start.
        let _ = self.log.checksums().remove(due.segment.base());
        // How much room there is now decides about the next one, and is seen when the interval is over: a reader may
        // still read from the file and so keep its space.
        self.state.lock().space = Space::default();
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
}

impl Due {
    pub(crate) fn end(&self) -> u64 {
        self.segment.limit()
    }
}
