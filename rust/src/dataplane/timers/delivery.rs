//! Delivery of timed messages: from the queue into the wheel, from the wheel to where they were meant to go.
//!
//! A step reads on in the queue, takes the chains of slots that have begun from the timer log, and delivers what is
//! due, in the order of time and, within a millisecond, of the queue. What is read after its time was delivered comes at
//! once and is never noted; where the log of messages refuses it, reading stays before it.
//!
//! `delivered_ms` is the time by which everything noted has been delivered. It stays where the clock is set back: what
//! comes then and is due before it waits in memory, and holds back what is saved.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use super::schedule::{Plan, plan};
use crate::clock::SharedClock;
use crate::dataplane::delays::sound_records;
use crate::message::properties::{self, PROPERTIES_BYTES_MAX, name};
use crate::message::record::{RecordFields, RecordView};
use crate::message::topic::TIMER_TOPIC;
use crate::message::{MessageType, tag};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::timers::{
    DEFAULT, ProgressFile, ROLL, Slot, TimerLog, TimerProgress, TimerUnit, Unsynced, Wheel, WheelFile,
};
use crate::store::{ConsumeQueue, Get, GetResult, KeyHashes, Put, PutError, Store, StoreError};

/// Messages that are read, or move on, with one taking of the put lock.
const BATCH_MESSAGES_MAX: u32 = 64;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Batches of one step.
const BATCHES_MAX: usize = 16;
/// Room for messages of slots that have begun that is kept while they are fewer.
const WAITING_KEPT_MAX: usize = 4096;
/// Longest sleep: a message may be sent that is due sooner than all others, and the wall clock may be set.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Pause after the store refused a message, or could not read one.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// Room for what is added to the properties of a message that moves on.
const ADDED_BYTES: usize = 96;

/// A message of a slot that has begun.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Waiting {
    at_ms: i64,
    /// Of its unit in the timer log: the order of the queue.
    position: u64,
    physical: u64,
    is_roll: bool,
}

/// What a save has to bring to the disk.
pub(super) struct Snapshot {
    pub(super) progress: TimerProgress,
    pub(super) unsynced: Vec<Unsynced>,
    pub(super) slots: Vec<(i64, Slot)>,
}

pub(super) struct Delivery {
    store: Arc<Store>,
    clock: SharedClock,
    log: TimerLog,
    wheel: Wheel,
    /// The earliest first.
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Slots before this one have been read from the log.
    next_slot: i64,
    /// The next message of the queue to be read.
    next: QueueOffset,
    delivered_ms: i64,
    /// Units due by then were delivered before the last start.
    recovered_ms: i64,
    /// Messages before it, due by `recovered_ms`, were, too: the log is made anew from the queue up to here.
    known: QueueOffset,
    pending: u64,
    /// Messages that have moved on since the last save.
    is_moved: bool,
    saved: TimerProgress,
    is_log_trusted: bool,
    /// Where units can be removed from once the progress is saved.
    oldest: Option<u64>,
    found: GetResult,
}

impl Delivery {
    pub(super) fn load(
        store: Arc<Store>,
        clock: SharedClock,
    ) -> Result<(Self, ProgressFile, WheelFile), StoreError> {
        let (disk, root) = (store.disk(), store.root());
        let options = store.timer_options();
        let (progress_file, progress) = ProgressFile::load(disk, root)?;
        let mut wheel = Wheel::new(options.precision_ms);
        let (mut pending, dir) = (0, root.join("timerlog"));
        let mut log = None;
        let queue_end = store.queue(TIMER_TOPIC, 0).map_or(0, |queue| queue.max().0);
        if let Some((end, precision_ms)) = progress.log
            && precision_ms == options.precision_ms
            && progress.queue_offset <= queue_end
            && let Some(mut found) = TimerLog::load(disk, dir.clone(), options.log_file_bytes, end)?
        {
            let is_whole = found.scan(|position, unit| {
                wheel.add(wheel.slot_of(unit.due_ms), position);
                pending += u64::from(unit.due_ms > progress.delivered_ms);
            })?;
            log = is_whole.then_some(found);
        }
        let is_log_new = log.is_none();
        let log = match log {
            Some(log) => log,
            None => {
                (wheel, pending) = (Wheel::new(options.precision_ms), 0);
                TimerLog::create(disk, dir, options.log_file_bytes)?
            }
        };
        wheel.forget_until(progress.delivered_ms);
        let _ = wheel.take_changed();
        let slots = WheelFile::new(disk, root.join("timerwheel"), is_log_new);
        let offset = QueueOffset(progress.queue_offset.min(queue_end));
        let delivery = Self {
            clock,
            log,
            wheel,
            waiting: BinaryHeap::new(),
            next_slot: i64::MIN,
            next: if is_log_new { QueueOffset(0) } else { offset },
            delivered_ms: progress.delivered_ms,
            recovered_ms: progress.delivered_ms,
            known: offset,
            pending,
            is_moved: false,
            saved: progress,
            is_log_trusted: true,
            oldest: None,
            found: GetResult::default(),
            store,
        };
        Ok((delivery, progress_file, slots))
    }

    pub(super) fn pending(&self) -> u64 {
        self.pending
    }

    /// Reads on, delivers what is due, and returns when to look again.
    pub(super) fn step(&mut self) -> Duration {
        let now = self.clock.wall_ms() as i64;
        let Ok(is_read) = self.read_on(now) else { return REFUSED_PAUSE };
        if self.next < self.known {
            // What is due may be behind what is not, until all of it is noted again.
            return if is_read { Duration::ZERO } else { REFUSED_PAUSE };
        }
        match self.deliver(now) {
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
}

/// What a message that moves on is given.
struct Moved {
    queue: Arc<ConsumeQueue>,
    properties: Vec<u8>,
    is_roll: bool,
}

impl Moved {
    fn put<'a>(&'a self, record: &RecordView<'a>) -> Put<'a> {
        let key = self.queue.key();
        let topic = if self.is_roll {
            TIMER_TOPIC.as_bytes()
        } else {
            properties::get(record.properties(), name::REAL_TOPIC).unwrap_or_default()
        };
        let fields = RecordFields {
            queue_id: key.queue_id,
            topic,
            properties: &self.properties,
            prepared_transaction_offset: 0,
            ..record.fields()
        };
        let (tags_code, keys) = (tag::tags_code(&self.properties), KeyHashes::of(topic, &self.properties));
        let put = Put::new(Arc::clone(&self.queue), fields, tags_code, keys);
        Put { message_type: MessageType::Delay, ..put }
    }
}

/// Whether a message has to be tried again: a queue that was deleted has taken its messages along, and what is too
/// large for the log will ever be.
fn is_again(put: &Put<'_>) -> bool {
    !matches!(put.outcome, Ok(_) | Err(PutError::QueueGone | PutError::TooLarge))
}

/// From the queue into the wheel.
impl Delivery {
    /// Reads on in the queue, some batches at most; whether its end has been reached.
    fn read_on(&mut self, now: i64) -> Result<bool, ()> {
        // What an earlier step could not write.
        self.log.write().map_err(drop)?;
        let Some(queue) = self.store.queue(TIMER_TOPIC, 0) else { return Ok(true) };
        for _ in 0..BATCHES_MAX {
            if self.next >= queue.max() {
                return Ok(true);
            }
            let ask = Get { offset: self.next, messages_max: BATCH_MESSAGES_MAX, bytes_max: BATCH_BYTES_MAX };
            let mut found = std::mem::take(&mut self.found);
            let read = self.store.get(&queue, &ask, &mut |_| true, &mut found).map_err(drop);
            let noted = read.and_then(|()| self.note(&found, now));
            found.clear();
            self.found = found;
            noted?;
        }
        Ok(self.next >= queue.max())
    }

    /// Notes what waits of these messages, and delivers what is due.
    fn note(&mut self, found: &GetResult, now: i64) -> Result<(), ()> {
        let records: Vec<RecordView<'_>> =
            found.slices.iter().flat_map(|slice| sound_records(slice)).collect();
        let begin = self.next.max(found.min);
        let missing = found.next_begin.0.saturating_sub(begin.0).saturating_sub(records.len() as u64);
        let mut due = Vec::new();
        let mut later = Vec::new();
        for record in &records {
            let options = self.store.timer_options();
            let Some(plan) = plan(record.properties(), record.store_timestamp_ms(), options) else {
                continue;
            };
            let is_known = record.queue_offset() < self.known;
            if is_known && plan.at_ms <= self.recovered_ms {
                continue;
            }
            if is_known || plan.at_ms > now.min(self.delivered_ms) {
                later.push((record, plan));
            } else if let Some(copy) = self.copy(record, plan.is_roll, i64::MAX, now) {
                due.push((*record, copy));
            }
        }
        let refused = self.append(&due);
        let first = refused.first().and_then(|index| due.get(*index));
        let reached = first.map_or(found.next_begin, |(record, _)| record.queue_offset());
        for (record, plan) in later.into_iter().filter(|(record, _)| record.queue_offset() < reached) {
            self.wait(record, plan);
        }
        self.next = reached;
        if refused.is_empty() && missing > 0 {
            self.store.report_lost_timers(missing);
        }
        let written = self.log.write().map_err(drop);
        if refused.is_empty() { written } else { Err(()) }
    }

    fn wait(&mut self, record: &RecordView<'_>, plan: Plan) {
        let slot = self.wheel.slot_of(plan.at_ms);
        let topic = properties::get(record.properties(), name::REAL_TOPIC).unwrap_or_default();
        let physical = record.physical_offset().0;
        let position = self.log.push(&TimerUnit {
            previous: self.wheel.last(slot),
            kind: if plan.is_roll { DEFAULT | ROLL } else { DEFAULT },
            stored_ms: record.store_timestamp_ms(),
            due_ms: plan.at_ms,
            physical,
            size: record.total_size() as u32,
            topic_hash: tag::java_hash(topic),
        });
        self.wheel.add(slot, position);
        self.pending += 1;
        // Its slot has been read already, or is passed over as one of before the start.
        if slot < self.next_slot || plan.at_ms <= self.recovered_ms {
            let Plan { at_ms, is_roll } = plan;
            self.waiting.push(Reverse(Waiting { at_ms, position, physical, is_roll }));
        }
    }
}

/// From the wheel to where it was meant to go.
impl Delivery {
    /// Delivers what is due, some batches at most; whether that was all.
    fn deliver(&mut self, now: i64) -> Result<bool, ()> {
        self.read_slots(now)?;
        for _ in 0..BATCHES_MAX {
            let mut batch = Vec::new();
            while batch.len() < BATCH_MESSAGES_MAX as usize
                && let Some(Reverse(first)) = self.waiting.peek().filter(|Reverse(first)| first.at_ms <= now)
            {
                batch.push(*first);
                self.waiting.pop();
            }
            if batch.is_empty() {
                self.waiting.shrink_to(WAITING_KEPT_MAX.max(self.waiting.len() * 2));
                self.delivered_ms = self.delivered_ms.max(now);
                self.wheel.forget_until(self.safe_ms());
                return Ok(true);
            }
            self.move_on(&batch, now)?;
        }
        Ok(false)
    }

    /// What a message becomes, stored or delivered; `None` for one that has nowhere to go.
    fn copy(&self, record: &RecordView<'_>, is_roll: bool, enqueued_ms: i64, now: i64) -> Option<Moved> {
        let original = record.properties();
        let topic = properties::get(original, name::REAL_TOPIC)?;
        let queue_id = properties::get(original, name::REAL_QUEUE_ID)?;
        let queue_id: u32 = std::str::from_utf8(queue_id).ok()?.parse().ok()?;
        let topic = std::str::from_utf8(topic).ok()?;
        // Also of what waits on: a topic that was deleted has taken it along.
        let mut queue = self.store.queue_of_waiting(topic, queue_id, record.physical_offset()).ok()?;
        if is_roll {
            queue = self.store.queue_or_create(TIMER_TOPIC, 0).ok()?;
        }
        let rolls = properties::get(original, name::TIMER_ROLL_TIMES);
        let rolls: u32 = rolls.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0);
        let is_ours = |found: &[u8]| {
            found == name::TIMER_ENQUEUE_MS
                || found == name::TIMER_DEQUEUE_MS
                || (is_roll && found == name::TIMER_ROLL_TIMES)
        };
        let mut properties = Vec::with_capacity(original.len() + ADDED_BYTES);
        let mut writer = properties::Writer::copy_if(&mut properties, original, |found| !is_ours(found));
        writer
            .append(name::TIMER_ENQUEUE_MS, enqueued_ms.to_string().as_bytes())
            .append(name::TIMER_DEQUEUE_MS, now.to_string().as_bytes());
        if is_roll {
            writer.append(name::TIMER_ROLL_TIMES, rolls.saturating_add(1).to_string().as_bytes());
        }
        if properties.len() > PROPERTIES_BYTES_MAX {
            // What says how long it waited is not worth the message.
            properties = original.to_vec();
        }
        Some(Moved { queue, properties, is_roll })
    }

    /// Appends these; the indices of those that have to be tried again.
    fn append(&self, moved: &[(RecordView<'_>, Moved)]) -> Vec<usize> {
        if moved.is_empty() {
            return Vec::new();
        }
        let mut puts: Vec<Put<'_>> = moved.iter().map(|(record, moved)| moved.put(record)).collect();
        self.store.append(&mut puts);
        if let Some(last) = puts.iter().rev().find_map(|put| put.outcome.ok())
            && self.store.is_sync()
        {
            self.store.release_after(last.end);
        }
        puts.iter().enumerate().filter(|(_, put)| is_again(put)).map(|(index, _)| index).collect()
    }

    /// Takes the chains of slots that have begun from the log.
    fn read_slots(&mut self, now: i64) -> Result<(), ()> {
        while let Some((slot, ends)) = self.wheel.next(self.next_slot)
            && self.wheel.begin_ms(slot) < now
        {
            let mut chain = Vec::with_capacity(ends.count as usize);
            let mut next = Some(ends.last);
            while let Some(position) = next {
                let Some(unit) = self.log.read(position).map_err(drop)? else {
                    // Lost behind our back: the next start reads the queue again.
                    self.distrust_log();
                    break;
                };
                // Chains lead back.
                next = unit.previous.filter(|previous| *previous < position);
                if unit.due_ms > self.recovered_ms {
                    let (at_ms, physical, is_roll) = (unit.due_ms, unit.physical, unit.kind & ROLL != 0);
                    chain.push(Reverse(Waiting { at_ms, position, physical, is_roll }));
                }
            }
            if self.waiting.is_empty() {
                // In place: a slot may have a million.
                self.waiting = BinaryHeap::from(chain);
            } else {
                self.waiting.extend(chain);
            }
            self.next_slot = slot + 1;
        }
        // What comes for a time that has been shown, after the clock was set back, waits in memory.
        self.next_slot = self.next_slot.max(self.wheel.slot_of(now) + 1);
        Ok(())
    }

    /// Appends copies of these messages to where they were meant to go; what is refused waits on.
    fn move_on(&mut self, batch: &[Waiting], now: i64) -> Result<(), ()> {
        let found: Vec<_> =
            batch.iter().map(|waiting| self.store.lookup(PhysicalOffset(waiting.physical))).collect();
        let mut copies = Vec::with_capacity(batch.len());
        let (mut of_copies, mut missing) = (Vec::with_capacity(batch.len()), 0);
        for (waiting, bytes) in batch.iter().zip(&found) {
            let record = bytes.as_ref().and_then(|bytes| sound_records(bytes).next());
            let Some(record) = record.filter(|record| record.topic() == TIMER_TOPIC.as_bytes()) else {
                missing += 1;
                continue;
            };
            if let Some(copy) = self.copy(&record, waiting.is_roll, record.store_timestamp_ms(), now) {
                copies.push((record, copy));
                of_copies.push(*waiting);
            }
        }
        let refused = self.append(&copies);
        let again: Vec<_> = refused.iter().filter_map(|index| of_copies.get(*index).copied()).collect();
        self.is_moved = true;
        self.pending = self.pending.saturating_sub((batch.len() - again.len()) as u64);
        if missing > 0 {
            self.store.report_lost_timers(missing);
        }
        if again.is_empty() {
            return Ok(());
        }
        self.waiting.extend(again.into_iter().map(Reverse));
        Err(())
    }
}

/// What is brought to the disk.
impl Delivery {
    /// Everything noted that was due by then has been delivered.
    fn safe_ms(&self) -> i64 {
        let first = self.waiting.peek().map_or(i64::MAX, |Reverse(first)| first.at_ms);
        self.delivered_ms.min(first.saturating_sub(1))
    }

    /// How far delivery has got, and what makes that true; `None` where nothing has changed, or cannot be told yet.
    pub(super) fn snapshot(&mut self) -> Option<Snapshot> {
        if self.next < self.known || self.log.write().is_err() {
            return None;
        }
        let precision_ms = self.store.timer_options().precision_ms;
        let progress = TimerProgress {
            delivered_ms: self.safe_ms(),
            queue_offset: self.next.0,
            log: self.is_log_trusted.then(|| (self.log.end(), precision_ms)),
        };
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

    /// Has the next start make the timer log anew.
    pub(super) fn distrust_log(&mut self) {
        self.is_log_trusted = false;
    }
}
