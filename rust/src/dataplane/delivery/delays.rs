//! Delay levels: delivery of delayed messages from `SCHEDULE_TOPIC_XXXX`, which has one queue for each level.
//!
//! All messages of a level have the same delay, so each queue is in the order of delivery and only its front needs a
//! deadline. The third field of a queue entry is the time of delivery. A due message is appended to its destination
//! queue, and then the offset of the level passes it. The offsets are saved every few seconds, so a crash loses no
//! message but may deliver the last ones again.
//!
//! A time of delivery later than any message stored now can have comes from a clock that ran ahead. Such a message
//! is due immediately, as in Apache's broker. The comparison allows for the lead that store times may have over the
//! clock, so that a small step back of the clock delivers nothing early.
//!
//! The messages of a level that was removed from the settings are still delivered, because the entries of its queue
//! hold the times.
//!
//! *Invariant*: an offset passes a message only when its copy is in the log, or the message was reported as
//! undelivered.
//! Threads: `slot` runs on I/O threads; delivery has its own thread, which may wait for the disk.

use std::collections::BTreeMap;
use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::deadlines::Deadlines;
use super::escapes::{Outlet, Stuck};
use crate::clock::SharedClock;
use crate::dataplane::state::rejection::ErrorReply;
use crate::message::properties::{self, name};
use crate::message::record::{RecordFields, RecordView};
use crate::message::topic::{HALF_TOPIC, SCHEDULE_TOPIC};
use crate::message::{MessageType, tag};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::remoting::codes::response;
use crate::store::{
    ConsumeQueue, FirstOf, Get, GetResult, KeyHashes, Left, Put, STORE_TIME_AHEAD_MS_MAX, Store, StoreError,
    WaitingRoom,
};

/// Messages copied under one hold of the put lock.
const BATCH_MESSAGES_MAX: u32 = 64;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Maximum sleep of a level. It is shorter than every delay, so no message is late, and it bounds the effect of a
/// wall clock that is set.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// The pause after a failed append or read.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// The maximum delay of a message in a level that the settings lack, longer than that of any level.
const GONE_LEVEL_DELAY: Duration = Duration::from_secs(366 * 86_400);
/// An upper bound of the size of a record: the largest body, names and properties.
pub(super) const STORED_BYTES_MAX: u64 = 16 << 20;
/// The maximum number of levels in the settings.
const LEVELS_MAX: u32 = 128;
/// Queue entries of one read.
const SIZES_READ: usize = 1_024;

/// The queue in which a message waits, and the properties that it gets.
pub(in crate::dataplane) struct DelaySlot<'a> {
    pub(in crate::dataplane) queue: Arc<ConsumeQueue>,
    level: String,
    topic: &'a str,
    queue_id: String,
}

impl DelaySlot<'_> {
    /// Returns the properties for level, topic and queue, named as in Apache's broker.
    pub(in crate::dataplane) fn properties(&self) -> [(&[u8], &[u8]); 3] {
        [
            (name::DELAY, self.level.as_bytes()),
            (name::REAL_TOPIC, self.topic.as_bytes()),
            (name::REAL_QUEUE_ID, self.queue_id.as_bytes()),
        ]
    }
}

/// Returns the queue in which a message for `topic` waits. Levels above the last count as the last.
pub(in crate::dataplane) fn slot<'a>(
    store: &Store,
    level: u32,
    topic: &'a str,
    queue_id: u32,
) -> Result<DelaySlot<'a>, ErrorReply> {
    let level = level.clamp(1, store.delay_levels_ms().len() as u32);
    let queue = store
        .queue_or_create(SCHEDULE_TOPIC, level - 1)
        .map_err(|error| ErrorReply::new(response::SERVICE_NOT_AVAILABLE, error.to_string()))?;
    Ok(DelaySlot { queue, level: level.to_string(), topic, queue_id: queue_id.to_string() })
}

/// The next offset of each level, from level 1 on.
type Offsets = Arc<[AtomicU64]>;

pub(in crate::dataplane) struct Delays {
    offsets: Offsets,
    wheel: Deadlines<Level>,
}

impl Delays {
    /// Starts delivery, each level at its offset in `from` or else at the beginning of its queue. An offset beyond
    /// the end of its queue is set to the end.
    pub(in crate::dataplane) fn start(
        store: &Arc<Store>,
        clock: SharedClock,
        from: &BTreeMap<u32, u64>,
        outlet: Outlet,
    ) -> std::io::Result<Self> {
        let delays = store.delay_levels_ms();
        let levels = levels(store);
        for level in levels.iter().filter(|level| **level > delays.len() as u32) {
            let count = waiting(store, *level, from).map_or(0, |(queue, begin)| queue.max().0 - begin.0);
            if count > 0 {
                store.report_level_gone(*level as usize, count);
            }
        }
        let begin = |level| match waiting(store, level, from) {
            Some((_, begin)) => begin.0,
            None => from.get(&level).copied().unwrap_or_default(),
        };
        let last = levels.last().copied().unwrap_or_default();
        let offsets: Offsets = (1..=last).map(|level| AtomicU64::new(begin(level))).collect();
        let delivery = Delivery {
            store: Arc::clone(store),
            clock: Arc::clone(&clock),
            offsets: Arc::clone(&offsets),
            outlet,
        };
        let wheel = Deadlines::start("delays", clock, move |mut level| {
            let pause = delivery.deliver(&mut level);
            Some((pause, level))
        })?;
        for level in levels {
            let index = level as usize - 1;
            let delay =
                delays.get(index).map_or(GONE_LEVEL_DELAY, |delay_ms| Duration::from_millis(*delay_ms));
            wheel.add(Duration::ZERO, Level { index, delay, found: GetResult::default() });
        }
        Ok(Self { offsets, wheel })
    }

    /// Returns the position before which no delayed message is pending; `None` if it cannot be read.
    pub(in crate::dataplane) fn waits_from(&self, store: &Store) -> Option<PhysicalOffset> {
        // Read before the queues, so that a message stored meanwhile lies after it.
        let mut first = store.visible();
        for (index, offset) in self.offsets.iter().enumerate() {
            let Some(queue) = store.queue(SCHEDULE_TOPIC, index as u32) else { continue };
            let offset = QueueOffset(offset.load(Ordering::Acquire)).max(queue.min());
            if offset < queue.max() {
                let units = store.units(&queue, offset, 1).ok()?;
                first = units.first().map_or(first, |unit| first.min(PhysicalOffset(unit.physical)));
            }
        }
        Some(first)
    }

    /// Returns the offsets of the levels that have delivered messages. Flush the log before saving them: the copies
    /// of earlier messages must be durable.
    pub(in crate::dataplane) fn offsets(&self) -> BTreeMap<u32, u64> {
        let offsets = (1..).zip(self.offsets.iter().map(|offset| offset.load(Ordering::Acquire)));
        offsets.filter(|(_, offset)| *offset > 0).collect()
    }

    /// Delivers the messages that are due by the clock now; see `Deadlines::settle`.
    pub(in crate::dataplane) fn settle(&self, limit: Duration) -> bool {
        self.wheel.settle(limit)
    }

    /// Stops the delivery and waits for a delivery in progress.
    pub(in crate::dataplane) fn stop(&self) {
        self.wheel.stop();
    }
}

/// Returns the levels of the settings, and others in which messages were stored.
fn levels(store: &Store) -> Vec<u32> {
    let of_settings = store.delay_levels_ms().len() as u32;
    let stored = of_settings + 1..=LEVELS_MAX;
    (1..=of_settings).chain(stored.filter(|level| store.queue(SCHEDULE_TOPIC, level - 1).is_some())).collect()
}

/// Returns the queue of a level and the offset of its first pending message.
fn waiting(store: &Store, level: u32, from: &BTreeMap<u32, u64>) -> Option<(Arc<ConsumeQueue>, QueueOffset)> {
    let queue = store.queue(SCHEDULE_TOPIC, level - 1)?;
    let begin = from.get(&level).map_or(queue.min(), |offset| QueueOffset(*offset).min(queue.max()));
    Some((queue, begin))
}

/// Fails if a pending message exceeds the record size of the log, because delivery could only drop it.
pub(in crate::dataplane) fn check_sizes(store: &Store, from: &BTreeMap<u32, u64>) -> Result<(), StoreError> {
    if store.record_bytes_max() >= STORED_BYTES_MAX {
        return Ok(());
    }
    for level in levels(store) {
        let Some((queue, begin)) = waiting(store, level, from) else { continue };
        let mut offset = begin.max(queue.min());
        while offset < queue.max() {
            let units = store.units(&queue, offset, SIZES_READ)?;
            let sizes = units.iter().map(|unit| u64::from(unit.size));
            check_size(store, sizes, || format!("a delayed message of level {level}"))?;
            if units.is_empty() {
                break;
            }
            offset = QueueOffset(offset.0 + units.len() as u64);
        }
    }
    Ok(())
}

/// A level, with its buffer for reads.
struct Level {
    index: usize,
    delay: Duration,
    found: GetResult,
}

struct Delivery {
    store: Arc<Store>,
    clock: SharedClock,
    offsets: Offsets,
    outlet: Outlet,
}

impl Delivery {
    /// Delivers the due messages and returns the pause before the next call.
    fn deliver(&self, level: &mut Level) -> Duration {
        let idle = level.delay.min(SLEEP_MAX);
        let queue = self.store.queue(SCHEDULE_TOPIC, level.index as u32);
        let (Some(queue), Some(next)) = (queue, self.offsets.get(level.index)) else { return idle };
        let offset = QueueOffset(next.load(Ordering::Acquire));
        if offset == queue.max() {
            return idle;
        }
        let now = self.clock.wall_ms() as i64;
        let latest = now.saturating_add(level.delay.as_millis() as i64 + STORE_TIME_AHEAD_MS_MAX);
        let mut undue: Option<i64> = None;
        let mut undue_count = 0;
        let ask = Get { offset, messages_max: BATCH_MESSAGES_MAX, bytes_max: BATCH_BYTES_MAX };
        let mut is_due = |deliver_at: i64| {
            let is_due = undue.is_none() && (deliver_at <= now || deliver_at > latest);
            if !is_due {
                undue.get_or_insert(deliver_at);
                undue_count += 1;
            }
            is_due
        };
        if self.store.get(&queue, &ask, &mut is_due, &mut level.found).is_err() {
            // A failed read may succeed later, so the offset stays.
            return REFUSED_PAUSE;
        }
        let found = &level.found;
        let sound: Vec<RecordView<'_>> = found.slices.iter().flat_map(|slice| sound_records(slice)).collect();
        let refused = self.move_on(level.index, &sound);
        let reached = refused.unwrap_or(QueueOffset(found.next_begin.0.saturating_sub(undue_count)));
        let kept = found.min.clamp(offset, reached.max(offset));
        self.report(level.index, Left::Gone, offset, kept.0 - offset.0);
        self.report_missing(level.index, kept.0..reached.0, &sound);
        level.found.clear();
        next.store(reached.0, Ordering::Release);
        match undue {
            _ if refused.is_some() => REFUSED_PAUSE,
            Some(deliver_at) => {
                Duration::from_millis(deliver_at.saturating_sub(now).max(0) as u64).min(SLEEP_MAX)
            }
            None if reached < queue.max() => Duration::ZERO,
            None => idle,
        }
    }

    /// Appends copies of these messages to their destination queues. Returns the offset of the first message to
    /// retry.
    fn move_on(&self, index: usize, sound: &[RecordView<'_>]) -> Option<QueueOffset> {
        let mut waiting = Vec::with_capacity(sound.len());
        let mut puts = Vec::with_capacity(sound.len());
        let (mut lost, mut stopped) = (Vec::new(), None);
        for record in sound {
            match self.put(record) {
                Ok(put) => {
                    waiting.push(record);
                    puts.push(put);
                }
                Err(Stuck::Lost(reason)) => lost.push((record.queue_offset(), reason)),
                Err(Stuck::Later) => {
                    stopped = Some(record.queue_offset());
                    break;
                }
            }
        }
        let positions = waiting.iter().map(|record| record.physical_offset());
        let refused = self.outlet.pass_on(&self.store, WaitingRoom::Level(index + 1), positions, &mut puts);
        let refused =
            refused.first().and_then(|index| waiting.get(*index)).map(|record| record.queue_offset());
        let again = refused.or(stopped);
        // Later messages are read again with the retry.
        for (offset, reason) in
            lost.into_iter().filter(|(offset, _)| again.is_none_or(|again| *offset < again))
        {
            self.report(index, reason, offset, 1);
        }
        again
    }

    fn report(&self, index: usize, reason: Left, first: QueueOffset, count: u64) {
        self.store.report_undelivered(WaitingRoom::Level(index + 1), reason, FirstOf::Queue(first), count);
    }

    /// Reports the messages in the offset range `passed` that are not among the sound records.
    fn report_missing(&self, index: usize, passed: Range<u64>, sound: &[RecordView<'_>]) {
        let mut read = sound.iter().map(|record| record.queue_offset().0).peekable();
        let mut missing = passed.filter(|offset| read.next_if_eq(offset).is_none());
        if let Some(first) = missing.next() {
            self.report(index, Left::Unreadable, QueueOffset(first), 1 + missing.count() as u64);
        }
    }

    /// Builds the message as it was sent.
    fn put<'r>(&self, record: &RecordView<'r>) -> Result<Put<'r>, Stuck> {
        let properties = record.properties();
        let (topic, name, queue_id) = destination(properties).ok_or(Stuck::Lost(Left::Nowhere))?;
        let queue = self.store.queue_of_waiting(name, queue_id, record.physical_offset())?;
        // Apache's clients see DELAY, REAL_TOPIC and REAL_QID, so they stay.
        let record = RecordFields { queue_id, topic, prepared_transaction_offset: 0, ..record.fields() };
        let put = Put::new(queue, record, tag::tags_code(properties), KeyHashes::of(topic, properties));
        let lights = self.store.light_put(topic, properties);
        Ok(Put { message_type: MessageType::Delay, lights, ..put })
    }
}

/// Returns the topic and queue that the message was sent to, from its properties.
pub(super) fn destination(properties: &[u8]) -> Option<(&[u8], &str, u32)> {
    // A half message that a client stored with a delay would have no reader.
    let is_half = |topic: &&[u8]| *topic == HALF_TOPIC.as_bytes();
    let topic = properties::get(properties, name::REAL_TOPIC).filter(|topic| !is_half(topic))?;
    let queue_id = properties::get(properties, name::REAL_QUEUE_ID)?;
    Some((topic, std::str::from_utf8(topic).ok()?, std::str::from_utf8(queue_id).ok()?.parse().ok()?))
}

/// Fails if one of these sizes exceeds the record size of the log.
pub(super) fn check_size(
    store: &Store,
    sizes: impl Iterator<Item = u64>,
    name: impl Fn() -> String,
) -> Result<(), StoreError> {
    let bytes_max = store.record_bytes_max();
    let Some(bytes) = sizes.filter(|bytes| *bytes > bytes_max).max() else { return Ok(()) };
    Err(StoreError::Option(format!(
        "{} has {bytes} bytes, and the commit log admits {bytes_max}: set commitLogRingBytes to four times that \
         size, or commitLogWritePath=mapping until it is delivered",
        name()
    )))
}

/// Iterates over the records of a slice that are undamaged. The lookup has compared each size with the queue entry,
/// so a damaged record does not hide its neighbours. A copy of a damaged record would look like the end of the log
/// to a recovery.
pub(super) fn sound_records(slice: &[u8]) -> impl Iterator<Item = RecordView<'_>> {
    let mut rest = slice;
    let records = iter::from_fn(move || {
        let size = u32::from_be_bytes(*rest.first_chunk()?) as usize;
        let (record, behind) = rest.split_at_checked(size.max(1))?;
        rest = behind;
        Some(record)
    });
    let parsed = records.filter_map(|record| RecordView::parse(record).ok());
    parsed.filter(|record| record.body_crc_matches() && record.check_text().is_ok())
}

#[cfg(test)]
mod tests;
