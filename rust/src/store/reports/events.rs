//! Events: facts about the store, for operators.
//!
//! Owns a bounded list. The part that makes a decision adds one event, with its facts. The broker polls the list
//! every second and logs it, because nothing here may call Python.
//!
//! Threads: any.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::store::disk::Space;
use crate::store::waiting_rooms::{Left, Undelivered, WaitingRoom, messages};

/// Maximum number of events not taken yet; beyond it the oldest are dropped and counted.
const EVENTS_MAX: usize = 1000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Recovery has cut the log at the first record that was not whole.
    TornTail {
        path: PathBuf,
        at: u64,
        bytes: u64,
    },
    /// Bytes of the log are damaged; messages in them are not served.
    Damaged {
        path: PathBuf,
        from: u64,
        until: u64,
    },
    /// A file of the log was deleted, with every message before `end`.
    Deleted {
        path: PathBuf,
        end: u64,
        /// Whether the file had expired; otherwise it was deleted because the disk is full and the settings allow
        /// it.
        is_expired: bool,
    },
    /// Disk usage is so high that expired files are deleted at any hour.
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
    /// A step of maintenance failed and is retried; reported when the failure begins.
    StepFailed {
        step: Step,
        error: String,
    },
    /// A failed step of maintenance has succeeded for some seconds.
    StepRecovered {
        step: Step,
    },
    /// The clock is behind the newest message by more than the maximum lead of store times, which have followed it
    /// back.
    ClockSetBack {
        by_ms: u64,
    },
    /// Pending messages were discarded.
    Undelivered(Undelivered),
    /// Delayed messages are pending in a level that the settings lack.
    LevelGone {
        level: usize,
        count: u64,
    },
    /// A file of the log has expired but is kept, because a message in it is pending.
    Held {
        path: PathBuf,
        /// The position of the first pending message; `None` while it is unknown.
        at: Option<u64>,
    },
    /// Messages from this position of the log on are not all in the index.
    IndexIncomplete {
        from: u64,
        reason: String,
    },
    /// The index is complete again.
    IndexComplete,
    /// The disk has no space for queues or for notes of a start or stop: the next start reads more of the log.
    NotNoted {
        error: String,
    },
    /// The messages that a killed process left in the write ring are in the log now.
    RingDrained {
        bytes: u64,
    },
    /// The write ring does not continue the log, or cannot be trusted: its files were moved.
    RingSetAside {
        path: PathBuf,
        reason: RingMismatch,
    },
    /// Without a write ring, the log is written through a mapping.
    NoRing {
        reason: String,
    },
    /// A queue of a compacted topic was rewritten with the newest message of each key.
    Compacted {
        queue: String,
        kept: u64,
        dropped: u64,
    },
    /// Events were dropped because they were not taken in time.
    Missed {
        count: u64,
    },
}

/// The reason why files of a write ring were not moved into the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingMismatch {
    /// The machine was rebooted, so it is unknown which bytes reached the disk.
    OtherBoot,
    /// They do not continue the log, or are damaged.
    OtherLog,
}

/// A step of a maintenance round; each may fail alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Expire,
    Trim,
    NextFile,
    Queues,
    Index,
    Checksums,
    Checkpoint,
    Copy,
    Compact,
}

impl Step {
    /// Returns the action, as an infinitive.
    fn name(self) -> &'static str {
        match self {
            Self::Expire => "delete expired files of the log",
            Self::Trim => "delete files of queues and index for deleted messages",
            Self::NextFile => "create the next file of the log",
            Self::Queues => "write queues",
            Self::Index => "write the index",
            Self::Checksums => "write checksums of the log",
            Self::Checkpoint => "make a checkpoint",
            Self::Copy => "copy messages of compacted topics",
            Self::Compact => "compact a topic",
        }
    }
}

impl Event {
    /// Returns whether an operator should act.
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
            | Self::RingSetAside { .. }
            | Self::Missed { .. }
            | Self::Deleted { is_expired: false, .. } => true,
            // An operator deleted the topic.
            Self::Undelivered(undelivered) => undelivered.reason != Left::TopicDeleted,
            Self::DiskHasRoom { .. }
            | Self::Held { at: None, .. }
            | Self::StepRecovered { .. }
            | Self::IndexComplete
            | Self::RingDrained { .. }
            | Self::NoRing { .. }
            | Self::Compacted { .. }
            | Self::Deleted { is_expired: true, .. } => false,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TornTail { path, at, bytes } => write!(
                out,
                "{}: cut at position {at} of the log: the {bytes} bytes after it were not a whole record",
                path.display()
            ),
            Self::Damaged { path, from, until } => write!(
                out,
                "{}: damaged from position {from} of the log to {until}: messages there are not served; restore the file",
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
                write!(out, "{}: messages are accepted again", DiskUsage(path, *space))
            }
            Self::StepFailed { step, error } => write!(out, "cannot {}, retrying: {error}", step.name()),
            Self::StepRecovered { step } => write!(out, "recovered: can {} again", step.name()),
            Self::ClockSetBack { by_ms } => write!(
                out,
                "the clock was set back: messages are stored with times up to {} s before earlier ones",
                by_ms / 1_000
            ),
            Self::Undelivered(undelivered) => undelivered.fmt(out),
            Self::LevelGone { level, count } => write!(
                out,
                "{} in level {level}, which messageDelayLevel lacks: each is delivered at its original time",
                messages(*count, WaitingRoom::DELAYED, ["waits", "wait"])
            ),
            Self::Held { path, at: Some(at) } => write!(
                out,
                "{}: expired, but kept: the message at position {at} of the log waits; the file is deleted after \
                 the delivery, or with deleteWaitingEnable=true",
                path.display()
            ),
            Self::Held { path, at: None } => {
                write!(out, "{}: expired, but kept until the waiting messages are known", path.display())
            }
            Self::IndexIncomplete { from, reason } => {
                write!(out, "the index is incomplete from position {from} of the log on: {reason}")
            }
            Self::IndexComplete => out.write_str("the index is complete again"),
            Self::NotNoted { error } => {
                write!(out, "the next start has to read more of the log: {error}")
            }
            Self::RingDrained { bytes } => {
                write!(
                    out,
                    "moved {bytes} bytes of messages from the write ring of a killed process into the log"
                )
            }
            Self::RingSetAside { path, reason } => write!(
                out,
                "{}: has messages from the write ring of a killed process that are not in the log: {}",
                path.display(),
                match reason {
                    RingMismatch::OtherBoot =>
                        "the machine was rebooted, so it is unknown which bytes reached the disk; remove them",
                    RingMismatch::OtherLog =>
                        "they do not continue it; restore the matching log and move them back to rmqpy/ring \
                         before the next start, or remove them",
                }
            ),
            Self::NoRing { reason } => {
                write!(out, "the commit log is written through a memory mapping, not a write ring: {reason}")
            }
            Self::Compacted { queue, kept, dropped } => {
                write!(out, "compacted {queue}: {kept} messages kept, {dropped} older ones dropped")
            }
            Self::Missed { count } => write!(out, "{count} earlier events of the store were not logged"),
        }
    }
}

/// Usage of a disk.
struct DiskUsage<'a>(&'a Path, Space);

impl fmt::Display for DiskUsage<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(path, space) = self;
        let (used, free) = (space.used_percent(), space.free >> 20);
        write!(out, "{}: {used} % of its disk is in use, {free} MiB are free", path.display())
    }
}

/// Events that were not taken yet.
#[derive(Default, Debug)]
pub(in crate::store) struct Events {
    list: Mutex<List>,
}

#[derive(Default, Debug)]
struct List {
    waiting: VecDeque<Event>,
    missed: u64,
}

impl Events {
    pub(in crate::store) fn add(&self, event: Event) {
        let mut list = self.list.lock();
        if list.waiting.len() >= EVENTS_MAX {
            list.waiting.pop_front();
            list.missed += 1;
        }
        list.waiting.push_back(event);
    }

    /// Takes all events, oldest first.
    pub(in crate::store) fn take(&self) -> Vec<Event> {
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
    fn events_are_taken_once_in_order_and_the_oldest_are_dropped() {
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
