//! Delivery of timed messages: what waits, how far the queue has been read, and by when all has been delivered.
//!
//! A step reads on in the queue and notes what waits (`enqueue`), takes the chains of slots that have begun from the
//! timer log, and delivers what is due (`dequeue`). While the queue has more to be read, only what is due before the
//! newest message that was read is delivered: one that comes later may take it back.
//!
//! `delivered_ms` is the time by which everything noted has been delivered. It stays where the clock is set back: what
//! comes then and is due before it waits in memory, and holds back what is saved.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use super::recalls::Recalls;
use super::repeats::Repeats;
use super::statistics::ByTopic;
use crate::clock::SharedClock;
use crate::dataplane::delays::{STORED_BYTES_MAX, check_size};
use crate::dataplane::escapes::Outlet;
use crate::message::topic::TIMER_TOPIC;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::timers::{
    LogMark, ProgressFile, ROLL, SEAL, Slot, TimerFiles, TimerLog, TimerProgress, Unsynced, Wheel, WheelFile,
    count, is_recall,
};
use crate::store::{GetResult, Store, StoreError};

/// Messages that are read, or move on, with one taking of the put lock.
pub(super) const BATCH_MESSAGES_MAX: u32 = 64;
/// Batches of one step.
pub(super) const BATCHES_MAX: usize = 16;
/// Longest sleep: a message may be sent that is due sooner than all others, and the wall clock may be set.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Pause after the store refused a message, or could not read one.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// A message of a slot that has begun.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Waiting {
    pub(super) at_ms: i64,
    /// What takes back comes before what is delivered.
    pub(super) is_delivery: bool,
    /// Of its unit in the timer log: the order of the queue.
    pub(super) position: u64,
    pub(super) physical: u64,
    kind: u8,
}

impl Waiting {
    /// As its unit in the timer log says.
    pub(super) fn new(at_ms: i64, position: u64, physical: u64, kind: u32) -> Self {
        Self { at_ms, is_delivery: !is_recall(kind), position, physical, kind: kind as u8 }
    }

    /// It is stored again, for its time is later.
    pub(super) fn is_roll(&self) -> bool {
        u32::from(self.kind) & ROLL != 0
    }

    /// How many messages wait less when this is done.
    pub(super) fn count(&self) -> i32 {
        count(self.kind.into())
    }
}

/// What a save has to bring to the disk.
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
    /// The earliest first.
    pub(super) waiting: BinaryHeap<Reverse<Waiting>>,
    pub(super) recalls: Recalls,
    pub(super) repeats: Repeats,
    /// Slots before this one have been read from the log.
    pub(super) next_slot: i64,
    /// The next message of the queue to be read.
    pub(super) next: QueueOffset,
    /// When the last one was stored that was read.
    pub(super) read_ms: i64,
    pub(super) delivered_ms: i64,
    /// Units due by then were delivered before the last start.
    pub(super) recovered_ms: i64,
    /// Messages before it, due by `recovered_ms`, were, too: the log is made anew from the queue up to here.
    pub(super) known: QueueOffset,
    pub(super) pending: i64,
    pub(super) topics: ByTopic,
    /// Messages that have moved on since the last save.
    pub(super) is_moved: bool,
    saved: TimerProgress,
    is_log_trusted: bool,
    /// Where units can be removed from once the progress is saved.
    oldest: Option<u64>,
    pub(super) found: GetResult,
}

impl Delivery {
    pub(super) fn load(
        store: Arc<Store>,
        clock: SharedClock,
        outlet: Outlet,
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
        let delivery = Self {
            clock,
            outlet,
            log,
            wheel,
            waiting: BinaryHeap::new(),
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

    /// Reads on, delivers what is due, and returns when to look again.
    pub(super) fn step(&mut self) -> Duration {
        let now = self.clock.wall_ms() as i64;
        let Ok(is_read) = self.read_on(now) else { return REFUSED_PAUSE };
        if self.next < self.known {
            // What is due may be behind what is not, until all of it is noted again.
            return if is_read { Duration::ZERO } else { REFUSED_PAUSE };
        }
        let until = if is_read { now } else { now.min(self.read_ms) };
        match self.deliver(until, now) {
            Ok(true) if is_read => self.pause(now),
            Ok(_) => Duration::ZERO,
            Err(()) => REFUSED_PAUSE,
        }
    }

    /// Time until something may be due.
    fn pause(&self, now: i64) -> Duration {
        let next = self.waiting.peek().map(|Reverse(first)| first.at_ms);
        let slot = self.wheel.next(self.next_slot).map(|(slot, _)| self.wheel.begin_ms(slot) + 1);
        let next = next.into_iter().chain(slot).min().unwrap_or(i64::MAX);
        Duration::from_millis(next.saturating_sub(now).max(0) as u64).min(SLEEP_MAX)
    }

    /// The position before which no timed message waits; `None` where that cannot be read.
    pub(super) fn waits_from(&mut self) -> Option<PhysicalOffset> {
        // Queues show their messages before this position does: what comes meanwhile lies behind it.
        let end = self.store.visible();
        // Units are in the order of the log of messages.
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

    /// An error where a message waits that is larger than the log takes.
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

    /// Everything noted that was due by then has been delivered.
    pub(super) fn safe_ms(&self) -> i64 {
        let first = self.waiting.peek().map_or(i64::MAX, |Reverse(first)| first.at_ms);
        self.delivered_ms.min(first.saturating_sub(1))
    }

    /// How far delivery has got, and what makes that true; `None` where nothing has changed, or cannot be told yet.
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

    /// Notes what the disk has now.
    pub(super) fn saved(&mut self, progress: &TimerProgress) -> Result<(), StoreError> {
        self.saved = *progress;
        self.oldest.take().map_or(Ok(()), |oldest| self.log.trim(oldest))
    }

    /// Has what was in a snapshot be tried again.
    pub(super) fn not_saved(&mut self, snapshot: &Snapshot) {
        (self.is_moved, self.oldest) = (true, None);
        self.wheel.give_back(&snapshot.slots);
        self.log.give_back(&snapshot.unsynced);
    }

    /// Reads the queue again from its begin: the log has not all of what is due after `delivered_ms`.
    pub(super) fn begin_again(&mut self, delivered_ms: i64) {
        self.distrust_log();
        (self.delivered_ms, self.recovered_ms) = (delivered_ms, delivered_ms);
        (self.known, self.next) = (self.next, QueueOffset(0));
        (self.waiting, self.wheel) = (BinaryHeap::new(), Wheel::new(self.store.timer_options().precision_ms));
        (self.pending, self.next_slot) = (0, i64::MIN);
        self.topics.begin_again();
    }

    /// Has the next start make the timer log anew.
    pub(super) fn distrust_log(&mut self) {
        self.is_log_trusted = false;
    }
}
