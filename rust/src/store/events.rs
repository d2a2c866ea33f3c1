//! Events of the store that an operator should read about.
//!
//! Owns a bounded list. The part that decides something adds it once, with its facts; the broker takes the list every second
//! and writes it to its log, because nothing here may call up.
//!
//! Threads: any.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::store::disk::Space;
use crate::store::waiting_rooms::{Left, Undelivered, WaitingRoom, messages};

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
        path: PathBuf,
        space: Space,
    },
    DiskFull {
        path: PathBuf,
        space: Space,
    },
    DiskHasRoom {
        path: PathBuf,
        space: Space,
    },
    /// A step of maintenance has failed and is tried again; told when that begins, not each time.
    StepFailed {
        step: Step,
        error: String,
    },
    /// A step of maintenance that had failed has not for some seconds.
    StepRecovered {
        step: Step,
    },
    /// The clock is further behind the newest message than store times may run ahead, and they went back with it.
    ClockSetBack {
        by_ms: u64,
    },
    /// Messages left the room they waited in without being delivered.
    Undelivered(Undelivered),
    /// Delayed messages wait in a level that the settings lack.
    LevelGone {
        level: usize,
        count: u64,
    },
    /// A file of the log has expired and is not deleted: a message in it waits.
    Held {
        path: PathBuf,
        /// The position of the first message that waits; `None` while it is not known yet.
        at: Option<u64>,
    },
    /// Messages from this position of the log on are not all in the index.
    IndexIncomplete {
        from: u64,
        reason: String,
    },
    /// All of them are.
    IndexComplete,
    /// Queues, or what is noted of a start or stop, have no room on the disk: the next start reads more of the log.
    NotNoted {
        error: String,
    },
    /// What a killed process had left in the spool is in the log.
    SpoolDrained {
        bytes: u64,
    },
    /// What is in the spool does not continue the log, or cannot be trusted to: its files were moved.
    SpoolSetAside {
        path: PathBuf,
        reason: SpoolMismatch,
    },
    /// There is no spool, and the log is written through a mapping.
    NoSpool {
        reason: String,
    },
    /// So many events were not taken in time.
    Missed {
        count: u64,
    },
}

/// Why files of a spool do not go into the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpoolMismatch {
    /// The machine was started since, so that it is not known what of them reached the disk.
    OtherBoot,
    /// They do not continue the log, or are damaged.
    OtherLog,
}

/// What maintenance does in a round, each on its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Expire,
    Trim,
    NextFile,
    Queues,
    Index,
    Checksums,
    Checkpoint,
}

impl Step {
    /// What does not happen while it fails.
    fn name(self) -> &'static str {
        match self {
            Self::Expire => "expired files of the log are not deleted",
            Self::Trim => "files of queues and index that lead to deleted messages are not deleted",
            Self::NextFile => "the next file of the log is not made",
            Self::Queues => "queues are not written",
            Self::Index => "the index is not written",
            Self::Checksums => "checksums of the log are not written",
            Self::Checkpoint => "no checkpoint is made",
        }
    }
}

impl Event {
    /// Whether an operator should do something about it.
    pub(crate) fn is_warning(&self) -> bool {
        match self {
            Self::TornTail { .. }
            | Self::Damaged { .. }
            | Self::DiskShort { .. }
            | Self::DiskFull { .. }
            | Self::StepFailed { .. }
            | Self::ClockSetBack { .. }
            | Self::LevelGone { .. }
            | Self::Held { at: Some(_), .. }
            | Self::IndexIncomplete { .. }
            | Self::NotNoted { .. }
            | Self::SpoolSetAside { .. }
            | Self::NoSpool { .. }
            | Self::Missed { .. }
            | Self::Deleted { is_expired: false, .. } => true,
            // An operator has deleted the topic.
            Self::Undelivered(undelivered) => undelivered.reason != Left::TopicDeleted,
            Self::DiskHasRoom { .. }
            | Self::Held { at: None, .. }
            | Self::StepRecovered { .. }
            | Self::IndexComplete
            | Self::SpoolDrained { .. }
            | Self::Deleted { is_expired: true, .. } => false,
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
            Self::DiskShort { path, space } => {
                write!(out, "{}: expired files are deleted at any hour", DiskUsage(path, *space))
            }
            Self::DiskFull { path, space } => {
                write!(out, "{}: messages are refused", DiskUsage(path, *space))
            }
            Self::DiskHasRoom { path, space } => {
                write!(out, "{}: messages are taken again", DiskUsage(path, *space))
            }
            Self::StepFailed { step, error } => write!(out, "{}, which is tried again: {error}", step.name()),
            Self::StepRecovered { step } => write!(out, "no longer: {}", step.name()),
            Self::ClockSetBack { by_ms } => write!(
                out,
                "the clock was set back: messages are stored with a time {} s before that of earlier ones",
                by_ms / 1_000
            ),
            Self::Undelivered(undelivered) => undelivered.fmt(out),
            Self::LevelGone { level, count } => write!(
                out,
                "{} in level {level}, which messageDelayLevel lacks: each is delivered at the time that it was given",
                messages(*count, WaitingRoom::DELAYED, ["waits", "wait"])
            ),
            Self::Held { path, at: Some(at) } => write!(
                out,
                "{}: expired, and stays: a message in it waits, at position {at} of the log; the file is deleted after \
                 the delivery, or with deleteWaitingEnable=true",
                path.display()
            ),
            Self::Held { path, at: None } => {
                write!(out, "{}: expired, and stays until it is known which messages wait", path.display())
            }
            Self::IndexIncomplete { from, reason } => {
                write!(out, "messages from position {from} of the log on are not all found by key: {reason}")
            }
            Self::IndexComplete => out.write_str("all messages are found by key again"),
            Self::NotNoted { error } => {
                write!(out, "the next start reads more of the log, for its disk has no room: {error}")
            }
            Self::SpoolDrained { bytes } => {
                write!(
                    out,
                    "{bytes} bytes of messages, left in the spool by a killed process, are in the log now"
                )
            }
            Self::SpoolSetAside { path, reason } => write!(
                out,
                "{}: messages that a killed process left in the spool are here, and not in the log: {}",
                path.display(),
                match reason {
                    SpoolMismatch::OtherBoot =>
                        "the machine was started since, and what of them reached the disk is not known; remove them",
                    SpoolMismatch::OtherLog =>
                        "they do not continue it; restore the log that they continue and move them back to rmqpy/spool \
                         before the next start, or remove them",
                }
            ),
            Self::NoSpool { reason } => {
                write!(out, "the commit log is written through a memory mapping, not a spool: {reason}")
            }
            Self::Missed { count } => write!(out, "{count} earlier events of the store were not logged"),
        }
    }
}

/// How full a disk is.
struct DiskUsage<'a>(&'a Path, Space);

impl fmt::Display for DiskUsage<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(path, space) = self;
        let (used, free) = (space.used_percent(), space.free >> 20);
        write!(out, "{}: {used} % of its disk is in use, {free} MiB are free", path.display())
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
