//! Events of the store that an operator should read about.
//!
//! Owns a bounded list. The part that decides something adds it once, with its facts; the broker takes the list every second
//! and writes it to its log, because nothing here may call up.
//!
//! Threads: any.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;

use parking_lot::Mutex;

use crate::store::disk::Space;

/// Events that wait to be taken, at most; the oldest make room, and are counted.
const EVENTS_MAX: usize = 1000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Recovery has cut the log: what followed was not a whole record.
    TornTail {
        path: PathBuf,
        at: u64,
        bytes: u64,
    },
    /// Bytes of the log are not what was written there; what lies in them is not served.
    Damaged {
        path: PathBuf,
        from: u64,
        until: u64,
    },
    /// A file of the log was deleted, with every message before a position.
    Deleted {
        path: PathBuf,
        end: u64,
        /// Whether its time had come. If not, it went because the disk is full and that was asked for.
        is_expired: bool,
    },
    /// So much of the disk is in use that expired files are deleted at any hour.
    DiskShort {
        space: Space,
    },
    DiskFull {
        space: Space,
    },
    DiskHasRoom {
        space: Space,
    },
    /// So many events were not taken in time.
    Missed {
        count: u64,
    },
}

impl Event {
    /// Whether an operator should do something about it.
    pub(crate) fn is_warning(&self) -> bool {
        match self {
            Self::TornTail { .. }
            | Self::Damaged { .. }
            | Self::DiskShort { .. }
            | Self::DiskFull { .. }
            | Self::Missed { .. }
            | Self::Deleted { is_expired: false, .. } => true,
            Self::DiskHasRoom { .. } | Self::Deleted { is_expired: true, .. } => false,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TornTail { path, at, bytes } => write!(
                out,
                "{}: cut at position {at} of the log: the {bytes} bytes behind it were no whole record",
                path.display()
            ),
            Self::Damaged { path, from, until } => write!(
                out,
                "{}: damaged: what lies from position {from} of the log to {until} is not served; restore the file",
                path.display()
            ),
            Self::Deleted { path, end, is_expired } => {
                let why = if *is_expired { "it has expired" } else { "the disk is full; it has not expired" };
                write!(out, "{}: deleted, {why}: the log begins at position {end}", path.display())
            }
            Self::DiskShort { space } => {
                write!(out, "{}: expired files are deleted at any hour", DiskUsage(*space))
            }
            Self::DiskFull { space } => write!(out, "{}: messages are refused", DiskUsage(*space)),
            Self::DiskHasRoom { space } => write!(out, "{}: messages are taken again", DiskUsage(*space)),
            Self::Missed { count } => write!(out, "{count} earlier events of the store were not logged"),
        }
    }
}

/// How full a disk is.
struct DiskUsage(Space);

impl fmt::Display for DiskUsage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(space) = self;
        write!(out, "{} % of the disk is in use, {} MiB are free", space.used_percent(), space.free >> 20)
    }
}

/// Events that are not taken yet.
#[derive(Default, Debug)]
pub(super) struct Events {
    list: Mutex<List>,
}

#[derive(Default, Debug)]
struct List {
    waiting: VecDeque<Event>,
    missed: u64,
}

impl Events {
    pub(super) fn add(&self, event: Event) {
        let mut list = self.list.lock();
        if list.waiting.len() >= EVENTS_MAX {
            list.waiting.pop_front();
            list.missed += 1;
        }
        list.waiting.push_back(event);
    }

    /// Takes all events, oldest first.
    pub(super) fn take(&self) -> Vec<Event> {
        let mut list = self.list.lock();
        let missed = std::mem::take(&mut list.missed);
        let missed = (missed > 0).then_some(Event::Missed { count: missed });
        missed.into_iter().chain(list.waiting.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_once_in_order_and_the_oldest_make_room() {
        let events = Events::default();
        let torn = |at| Event::TornTail { path: PathBuf::from("log"), at, bytes: 7 };
        events.add(torn(1));
        events.add(torn(2));
        assert_eq!(events.take(), [torn(1), torn(2)]);
        assert_eq!(events.take(), []);
        (0..EVENTS_MAX as u64 + 3).for_each(|at| events.add(torn(at)));
        let taken = events.take();
        assert_eq!(taken.len(), EVENTS_MAX + 1);
        assert_eq!(taken[..2], [Event::Missed { count: 3 }, torn(3)]);
    }
}
