//! Delivery of timed messages: steps that read the queue, note pending messages and deliver due ones.
//!
//! A step reads on in the queue and notes its messages in the timer log (`enqueue`), reads the chains of slots that
//! have begun, and delivers the due messages (`dequeue`). Until a step reaches the end of the queue, it delivers
//! only messages due before the newest one read, because an unread message may be a recall.
//!
//! `delivered_ms` is the time by which all noted messages have been delivered. It does not go back with the clock: a
//! later message that is due before it waits in memory, and the saved progress does not pass it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use super::recalls::Recalls;
use super::repeats::Repeats;
use super::statistics::ByTopic;
use crate::clock::SharedClock;
use crate::dataplane::delivery::delays::{STORED_BYTES_MAX, check_size};
use crate::dataplane::delivery::escapes::Outlet;
use crate::dataplane::delivery::timers::files::{
    LogMark, ProgressFile, ROLL, SEAL, Slot, TimerFiles, TimerLog, TimerProgress, Unsynced, Wheel, WheelFile,
    count, is_recall,
};
use crate::dataplane::state::settled::Settled;
use crate::message::topic::TIMER_TOPIC;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::{GetResult, Store, StoreError};

/// Messages read or delivered under one hold of the put lock.
pub(super) const BATCH_MESSAGES_MAX: u32 = 64;
/// The maximum number of batches in a step.
pub(super) const BATCHES_MAX: usize = 16;
/// Maximum sleep. A new message may be due before all others, and the wall clock may be set.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// The pause after a failed append or read.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// A message whose slot has begun.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Waiting {
    pub(super) at_ms: i64,
    /// Sorts recalls before the messages of their slot.
    pub(super) is_delivery: bool,
    /// The position of its unit in the timer log, which is in queue order.
    pub(super) position: u64,
    pub(super) physical: u64,
    kind: u8,
}

impl Waiting {
    /// Decodes a unit of the timer log.
    pub(super) fn new(at_ms: i64, position: u64, physical: u64, kind: u32) -> Self {
        Self { at_ms, is_delivery: !is_recall(kind), position, physical, kind: kind as u8 }
    }

    /// Returns whether the message is stored again because its time is beyond the window.
    pub(super) fn is_roll(&self) -> bool {
        u32::from(self.kind) & ROLL != 0
    }

    /// Returns by how much its delivery reduces the number of pending messages.
    pub(super) fn count(&self) -> i32 {
        count(self.kind.into())
    }
}

/// The data that a save makes durable.
pub(super) struct Snapshot {
    pub(super) progress: TimerProgress,
    pub(super) unsynced: Vec<Unsynced>,
    pub(super) slots: Vec<(i64, Slot)>,
}

pub(super) struct Delivery {
    pub(super) store: Arc<Store>,
    clock: SharedClock,
    pub(super) outlet: Outlet,
    pub(super) log: TimerLog,
    pub(super) wheel: Wheel,
    /// A heap with the earliest message on top.
    pub(super) waiting: BinaryHeap<Reverse<Waiting>>,
    /// Checkpoints and acknowledgements of popped messages that are due while this broker acts for its master. They name
    /// messages of this log, so that only the master can use them: until it returns, the saved progress stays before them.
    pub(super) held: Vec<Waiting>,
    pub(super) recalls: Recalls,
    /// Records of the revive topic that need no delivery.
    pub(super) settled: Arc<Settled>,
    pub(super) repeats: Repeats,
    /// The first slot that was not read from the log yet.
    pub(super) next_slot: i64,
    /// The offset of the next message to read.
    pub(super) next: QueueOffset,
    /// The store time of the last message read.
    pub(super) read_ms: i64,
    pub(super) delivered_ms: i64,
    /// Units due by this time were delivered before the last start.
    pub(super) recovered_ms: i64,
    /// Earlier messages that were due by `recovered_ms` were delivered, too. A rebuild reads the queue up to this
    /// offset.
    pub(super) known: QueueOffset,
    pub(super) pending: i64,
    pub(super) topics: ByTopic,
    /// Whether messages were delivered since the last save.
    pub(super) is_moved: bool,
    saved: TimerProgress,
    is_log_trusted: bool,
    /// The position before which units can be removed once the progress is saved.
    oldest: Option<u64>,
    pub(super) found: GetResult,
}

impl Delivery {
    pub(super) fn load(
        store: Arc<Store>,
        clock: SharedClock,
        outlet: Outlet,
        settled: Arc<Settled>,
    ) -> Result<(Self, ProgressFile, WheelFile), StoreError> {
        let (disk, root) = (store.disk(), store.root());
        let (mut progress_file, progress) = ProgressFile::load(disk, root)?;
        let options = store.timer_options();
        let queue = store.queue(TIMER_TOPIC, 0);
        let queue_begin = queue.as_ref().map_or(QueueOffset(0), |queue| queue.min());
        let queue_end = queue.map_or(0, |queue| queue.max().0);
        let is_of_queue = progress.queue_offset <= queue_end;
        let found = if is_of_queue { TimerFiles::recover(disk, root, options, &progress)? } else { None };
        let files = match found {
            Some(files) => files,
            None => {
                let now_ms = clock.wall_ms() as i64;
                TimerFiles::create(disk, root, options, (&mut progress_file, &progress), now_ms)?
            }
        };
        let TimerFiles { log, wheel, wheel_file, pending, is_sealed, is_new } = files;
        let offset = QueueOffset(progress.queue_offset.min(queue_end));
        settled.clear();
        let delivery = Self {
            settled,
            clock,
            outlet,
            log,
            wheel,
            waiting: BinaryHeap::new(),
            held: Vec::new(),
            recalls: Recalls::default(),
            repeats: if is_sealed { Repeats::none() } else { Repeats::since(progress.delivered_ms, &store) },
            next_slot: i64::MIN,
            next: if is_new { queue_begin } else { offset },
            read_ms: i64::MIN,
            delivered_ms: progress.delivered_ms,
            recovered_ms: progress.delivered_ms,
            known: offset,
            pending,
            topics: if is_new { ByTopic::whole() } else { ByTopic::default() },
            is_moved: false,
            saved: progress,
            is_log_trusted: true,
            oldest: None,
            found: GetResult::default(),
            store,
        };
        Ok((delivery, progress_file, wheel_file))
    }

    pub(super) fn pending(&self) -> u64 {
        self.pending.max(0).cast_unsigned()
    }

    /// Reads on, delivers due messages, and returns the pause before the next step.
    pub(super) fn step(&mut self) -> Duration {
        let now = self.clock.wall_ms() as i64;
        let Ok(is_read) = self.read_on(now) else { return REFUSED_PAUSE };
        if self.next < self.known {
            // Until the log is rebuilt, a due message may be behind unread ones.
            return if is_read { Duration::ZERO } else { REFUSED_PAUSE };
        }
        let until = if is_read { now } else { now.min(self.read_ms) };
        match self.deliver(until, now) {
            Ok(true) if is_read => self.pause(now),
            Ok(_) => Duration::ZERO,
            Err(()) => REFUSED_PAUSE,
        }
    }

    /// Returns the time until a message may be due.
    fn pause(&self, now: i64) -> Duration {
        let next = self.waiting.peek().map(|Reverse(first)| first.at_ms);
        let slot = self.wheel.next(self.next_slot).map(|(slot, _)| self.wheel.begin_ms(slot) + 1);
        let next = next.into_iter().chain(slot).min().unwrap_or(i64::MAX);
        Duration::from_millis(next.saturating_sub(now).max(0) as u64).min(SLEEP_MAX)
    }

    /// Returns the position before which no timed message is pending; `None` if it cannot be read.
    pub(super) fn waits_from(&mut self) -> Option<PhysicalOffset> {
        // Read before the queue, so that a message stored meanwhile lies after it.
        let end = self.store.visible();
        // Units are in the order of the commit log.
        let noted = match self.wheel.oldest() {
            Some(position) => self.log.read(position).ok()?,
            None => None,
        };
        let Some(queue) = self.store.queue(TIMER_TOPIC, 0) else { return Some(end) };
        let next = self.next.max(queue.min());
        let unread = if next < queue.max() { self.store.units(&queue, next, 1).ok()? } else { Vec::new() };
        let unread = unread.first().map(|unit| unit.physical);
        let positions = noted.map(|unit| unit.physical).into_iter().chain(unread);
        Some(positions.map(PhysicalOffset).fold(end, PhysicalOffset::min))
    }

    /// Fails if a pending message exceeds the record size of the log.
    pub(super) fn check_sizes(&mut self) -> Result<(), StoreError> {
        if self.store.record_bytes_max() >= STORED_BYTES_MAX {
            return Ok(());
        }
        let mut sizes = Vec::new();
        let (wheel, recovered_ms) = (&self.wheel, self.recovered_ms);
        self.log.scan(|_, unit| {
            if unit.kind & SEAL == 0 && wheel.over_ms(unit.due_ms, unit.kind) > recovered_ms {
                sizes.push(u64::from(unit.size));
            }
        })?;
        if let Some(queue) = self.store.queue(TIMER_TOPIC, 0) {
            let mut offset = self.next.max(queue.min());
            while offset < queue.max() {
                let units = self.store.units(&queue, offset, BATCH_MESSAGES_MAX as usize)?;
                if units.is_empty() {
                    break;
                }
                offset = QueueOffset(offset.0 + units.len() as u64);
                sizes.extend(units.iter().map(|unit| u64::from(unit.size)));
            }
        }
        check_size(&self.store, sizes.into_iter(), || "a timed message".to_owned())
    }

    /// Returns the time by which all noted messages were delivered.
    pub(super) fn safe_ms(&self) -> i64 {
        self.delivered_ms.min(self.first_ms().saturating_sub(1))
    }

    /// The time of the first message that waits in memory.
    pub(super) fn first_ms(&self) -> i64 {
        let held = self.held.iter().map(|held| held.at_ms);
        held.chain(self.waiting.peek().map(|Reverse(first)| first.at_ms)).min().unwrap_or(i64::MAX)
    }

    /// Returns the same, or the minimum during a rebuild, which delivers nothing.
    pub(super) fn delivered_by_ms(&self) -> i64 {
        if self.next < self.known { i64::MIN } else { self.safe_ms() }
    }

    /// Returns the progress and the data it depends on; `None` if it is unchanged or not known yet.
    pub(super) fn snapshot(&mut self) -> Option<Snapshot> {
        if self.next < self.known || self.log.write().is_err() {
            return None;
        }
        let delivered_ms = self.safe_ms();
        self.wheel.forget_until(delivered_ms);
        let mark = LogMark {
            end: self.log.end(),
            precision_ms: self.store.timer_options().precision_ms,
            digest: self.wheel.digest(),
        };
        let log = self.is_log_trusted.then_some(mark);
        let progress = TimerProgress { delivered_ms, queue_offset: self.next.0, log };
        let is_same = self.saved.queue_offset == progress.queue_offset && self.saved.log == progress.log;
        if !self.is_moved && (is_same || self.next == QueueOffset(0)) {
            return None;
        }
        self.is_moved = false;
        if self.log.has_old_files() {
            self.oldest = Some(self.wheel.oldest().unwrap_or(self.log.end()));
        }
        Some(Snapshot { progress, unsynced: self.log.take_unsynced(), slots: self.wheel.take_changed() })
    }

    /// Records a completed save.
    pub(super) fn saved(&mut self, progress: &TimerProgress) -> Result<(), StoreError> {
        self.saved = *progress;
        self.oldest.take().map_or(Ok(()), |oldest| self.log.trim(oldest))
    }

    /// Returns the data of a failed save for the next one.
    pub(super) fn not_saved(&mut self, snapshot: &Snapshot) {
        (self.is_moved, self.oldest) = (true, None);
        self.wheel.give_back(&snapshot.slots);
        self.log.give_back(&snapshot.unsynced);
    }

    /// Starts a rebuild from the beginning of the queue, because the log lacks messages due after `delivered_ms`.
    pub(super) fn begin_again(&mut self, delivered_ms: i64) {
        self.distrust_log();
        (self.delivered_ms, self.recovered_ms) = (delivered_ms, delivered_ms);
        (self.known, self.next) = (self.next, QueueOffset(0));
        self.held.clear();
        self.settled.clear();
        (self.waiting, self.wheel) = (BinaryHeap::new(), Wheel::new(self.store.timer_options().precision_ms));
        (self.pending, self.next_slot) = (0, i64::MIN);
        self.topics.begin_again();
    }

    /// Makes the next start rebuild the timer log.
    pub(super) fn distrust_log(&mut self) {
        self.is_log_trusted = false;
    }
}
