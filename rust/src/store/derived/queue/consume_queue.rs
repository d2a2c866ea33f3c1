//! ConsumeQueue: a queue of a topic, as 20-byte units that point into the log.
//!
//! Owns the queue's offsets and its newest units. The thread that makes a record visible adds its unit in memory;
//! maintenance writes units to the queue's files (`queue_files`) and keeps some in memory, because consumers mostly
//! read the end. 50,000 queues must fit into one process, so an idle queue holds no buffer, mapping or descriptor.
//!
//! *Invariant*: min <= max <= next; offsets are dense: unit `i` is the record with queue offset `i`; every unit is
//! in the file, in the tail, or in both.
//! Threads: `next` under the put lock; `push` under the dispatch lock; the rest from any.

use std::collections::VecDeque;
use std::iter;
use std::sync::atomic::Ordering;

use crate::message::record::RecordView;
use crate::message::topic::is_light;
use crate::message::{MessageType, lite, multi_dispatch};
use crate::positions::{QueueKey, QueueOffset};
use crate::store::sync::{AtomicBool, AtomicU64, Mutex, fence};

use super::unit::{UNIT_BYTES, Unit};

/// Written units that stay in memory, for consumers at the end of the queue.
const WARM_UNITS: usize = 64;

/// A queue of a topic.
#[derive(Debug)]
pub struct ConsumeQueue {
    key: QueueKey,
    /// Distinguishes queues that had the same name at different times.
    serial: u64,
    weight: u64,
    /// Delay of its messages, if it is the queue of a delay level.
    delay_ms: Option<u64>,
    is_light: bool,
    /// Whether it is the queue of a lite topic, whose consumers are notified of every message.
    is_lite: bool,
    /// When its last message was stored, of a light queue; 0 while unknown.
    stored_ms: AtomicU64,
    next: AtomicU64,
    /// The offset of the first unit that its files may hold.
    first: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    is_awaited: AtomicBool,
    is_deleted: AtomicBool,
    is_compacted: AtomicBool,
    is_listed: AtomicBool,
    tail: Mutex<Tail>,
}

/// The newest units, from offset `first` on.
#[derive(Debug, Default)]
struct Tail {
    first: u64,
    units: VecDeque<[u8; UNIT_BYTES]>,
    /// The capacity of `units` that was prefaulted; differs from the real one after `units` has grown.
    touched: usize,
    /// The offset of the first unit that is not in a file.
    written: u64,
    /// The offset of the next unit at the last `cool_down`.
    cooled: u64,
    /// Messages that became visible since the last `take_arrivals`.
    arrived: ArrivedByType,
}

impl Tail {
    /// Creates an empty tail whose next unit is at `offset`.
    fn at(offset: u64) -> Self {
        Self { first: offset, written: offset, cooled: offset, ..Self::default() }
    }
}

/// Messages of each type, and their bytes.
pub(crate) type ArrivedByType = [Arrived; MessageType::ALL.len()];

/// Messages that became visible, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// The result of adding units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pushed {
    pub(crate) count: u64,
    /// Units that are now only in memory.
    pub(crate) unwritten: usize,
}

impl ConsumeQueue {
    /// Creates a queue whose files hold the units `min..max`.
    pub(crate) fn new(key: QueueKey, serial: u64, min: u64, max: u64) -> Self {
        Self {
            weight: weight_of(key.topic.as_bytes(), key.queue_id),
            is_light: is_light(&key.topic),
            is_lite: lite::is_queue(&key.topic),
            stored_ms: AtomicU64::new(0),
            key,
            serial,
            delay_ms: None,
            next: AtomicU64::new(max),
            first: AtomicU64::new(min),
            min: AtomicU64::new(min),
            max: AtomicU64::new(max),
            is_awaited: AtomicBool::new(false),
            is_deleted: AtomicBool::new(false),
            is_compacted: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
            tail: Mutex::new(Tail::at(max)),
        }
    }

    pub(crate) fn delayed_by(mut self, delay_ms: Option<u64>) -> Self {
        self.delay_ms = delay_ms;
        self
    }

    /// Returns the third field of a unit: the delivery time in the queue of a delay level, else `of_tag`.
    pub(crate) fn tags_code(&self, of_tag: i64, store_timestamp_ms: i64) -> i64 {
        self.delay_ms.map_or(of_tag, |delay_ms| store_timestamp_ms.saturating_add_unsigned(delay_ms))
    }

    /// Returns whether its records may belong to other topics, and have their offsets here in a property.
    pub(crate) fn is_light(&self) -> bool {
        self.is_light
    }

    /// Returns whether it is the queue of a lite topic.
    pub(crate) fn is_lite(&self) -> bool {
        self.is_lite
    }

    /// Returns when the last message of a light queue was stored, in milliseconds since the epoch; 0 while unknown.
    pub(crate) fn stored_ms(&self) -> i64 {
        self.stored_ms.load(Ordering::Relaxed).cast_signed()
    }

    /// Notes when the last message of a light queue was stored.
    pub(crate) fn note_stored(&self, at_ms: i64) {
        self.stored_ms.store(at_ms.max(0).cast_unsigned(), Ordering::Relaxed);
    }

    /// Returns the offset of one of its records.
    pub(crate) fn offset_of(&self, record: &RecordView<'_>) -> QueueOffset {
        let place = || multi_dispatch::place(record.topic(), record.properties(), &self.key.topic);
        self.is_light.then(place).flatten().unwrap_or(record.queue_offset())
    }

    #[must_use]
    pub fn key(&self) -> &QueueKey {
        &self.key
    }

    /// Returns what a message of this queue adds to the digest of all queues.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    /// Returns a number that no other queue of this process has.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns the first offset whose record is still in the log.
    #[must_use]
    pub fn min(&self) -> QueueOffset {
        QueueOffset(self.min.load(Ordering::Acquire))
    }

    /// Returns the offset after the last visible message.
    #[must_use]
    pub fn max(&self) -> QueueOffset {
        QueueOffset(self.max.load(Ordering::Acquire))
    }

    /// Sets whether the queue has waiters for messages.
    ///
    /// A waiter checks `max` again afterwards. The fence pairs with the one in `announce`: either the waiter sees
    /// the new message, or the dispatch sees the waiter.
    pub fn set_awaited(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Returns whether the queue has waiters for messages. That of a lite topic always may.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_lite || self.is_awaited.load(Ordering::Acquire)
    }

    /// Returns whether the queue was deleted, so that it takes no messages and leaves no files.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    pub(crate) fn delete(&self) {
        self.is_deleted.store(true, Ordering::Release);
    }

    /// Returns whether consumers read the copy with the newest message of each key.
    pub(crate) fn is_compacted(&self) -> bool {
        self.is_compacted.load(Ordering::Relaxed)
    }

    pub(crate) fn set_compacted(&self, is_compacted: bool) {
        self.is_compacted.store(is_compacted, Ordering::Relaxed);
    }

    /// Returns the offset that the next message gets. Under the put lock.
    pub(crate) fn next(&self) -> QueueOffset {
        QueueOffset(self.next.load(Ordering::Relaxed))
    }

    /// Reserves an offset. Under the put lock.
    pub(crate) fn advance_next(&self) {
        self.next.store(self.next.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Raises `min`; it never falls.
    pub(crate) fn raise_min(&self, min: u64) {
        self.min.fetch_max(min.min(self.max.load(Ordering::Acquire)), Ordering::AcqRel);
    }

    /// Returns the offset of the first unit that its files may hold.
    pub(crate) fn first(&self) -> u64 {
        self.first.load(Ordering::Acquire)
    }

    /// Records that its files hold nothing before `offset` any more.
    pub(crate) fn removed_before(&self, offset: u64) {
        self.first.fetch_max(offset, Ordering::AcqRel);
    }

    /// Adds the units of records that become visible, each at its offset, under one lock. Skips a unit that is not
    /// the next one.
    pub(crate) fn push_all(&self, units: impl Iterator<Item = (QueueOffset, Unit, MessageType)>) -> Pushed {
        let mut tail = self.tail.lock();
        let begin = tail.first + tail.units.len() as u64;
        let mut max = begin;
        for (offset, unit, message_type) in units {
            if offset.0 == max {
                tail.units.push_back(unit.encode());
                let arrived = &mut tail.arrived[message_type as usize];
                arrived.messages += 1;
                arrived.bytes += u64::from(unit.size);
                max += 1;
            }
        }
        self.max.store(max, Ordering::Release);
        Pushed { count: max - begin, unwritten: (max - tail.written) as usize }
    }

    /// Adds the unit of a record, unless it is not the next one, without counting it: a record in light queues is counted
    /// in its own queue.
    pub(crate) fn push_light(&self, offset: QueueOffset, unit: Unit) -> Pushed {
        let mut tail = self.tail.lock();
        let max = tail.first + tail.units.len() as u64;
        let is_next = offset.0 == max;
        if is_next {
            tail.units.push_back(unit.encode());
            self.max.store(max + 1, Ordering::Release);
        }
        let count = u64::from(is_next);
        Pushed { count, unwritten: (max + count - tail.written) as usize }
    }

    /// Adds one unit; returns false, with nothing done, unless it is the next one.
    pub(crate) fn push(&self, offset: QueueOffset, unit: Unit) -> bool {
        self.push_all(iter::once((offset, unit, MessageType::Normal))).count == 1
    }

    /// Takes the counts of messages that became visible since the last call, by type. There is one caller.
    pub(crate) fn take_arrivals(&self) -> ArrivedByType {
        std::mem::take(&mut self.tail.lock().arrived)
    }

    /// Adds a unit in recovery, when nothing is appended. The next message follows it.
    pub(crate) fn restore(&self, offset: QueueOffset, unit: Unit) -> bool {
        let is_next =
            if self.is_light { self.push_light(offset, unit).count == 1 } else { self.push(offset, unit) };
        if is_next {
            self.next.store(offset.0 + 1, Ordering::Relaxed);
        }
        is_next
    }

    /// Restarts the queue at `offset` in recovery and drops earlier units.
    pub(crate) fn restart(&self, offset: QueueOffset) {
        let mut tail = self.tail.lock();
        *tail = Tail::at(offset.0);
        self.next.store(offset.0, Ordering::Relaxed);
        self.first.store(offset.0, Ordering::Release);
        self.min.store(offset.0, Ordering::Release);
        self.max.store(offset.0, Ordering::Release);
    }

    /// Marks the queue as dirty; returns true if it was clean.
    pub(crate) fn list(&self) -> bool {
        // Read first: the flag of a busy queue is set, and a plain read keeps the cache line shared.
        !self.is_listed.load(Ordering::Acquire) && !self.is_listed.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn unlist(&self) {
        self.is_listed.store(false, Ordering::Release);
    }

    /// Copies units from `offset` on into `into` as far as they are in memory; returns `None` if the first one is
    /// not.
    pub(crate) fn read_tail(&self, offset: u64, into: &mut [[u8; UNIT_BYTES]]) -> Option<usize> {
        let tail = self.tail.lock();
        let skip = usize::try_from(offset.checked_sub(tail.first)?).ok()?;
        let units = tail.units.iter().skip(skip);
        let count = units.len().min(into.len());
        into.iter_mut().zip(units).for_each(|(into, unit)| *into = *unit);
        Some(count)
    }

    /// Returns the offset of the first unit that is not in a file; reading below it needs the files.
    pub(crate) fn written(&self) -> u64 {
        self.tail.lock().written
    }

    /// Copies up to `count_max` unwritten units into `into`; returns the offset of the first.
    pub(crate) fn copy_unwritten(&self, count_max: usize, into: &mut Vec<u8>) -> u64 {
        let tail = self.tail.lock();
        let skip = (tail.written - tail.first) as usize;
        for unit in tail.units.iter().skip(skip).take(count_max) {
            into.extend_from_slice(unit);
        }
        tail.written
    }

    /// Records that all units before `offset` are in files, and drops most of them from memory.
    pub(crate) fn wrote(&self, offset: u64) {
        let mut tail = self.tail.lock();
        tail.written = offset;
        let excess = ((offset - tail.first) as usize).saturating_sub(WARM_UNITS).min(tail.units.len());
        tail.units.drain(..excess);
        tail.first += excess as u64;
    }

    /// Preallocates and prefaults memory for `count` units, so that adding them causes no page fault. Replaces
    /// memory that grew while units piled up, because moving through it would fault on each page. Returns the
    /// preallocated units, and those whose earlier preallocation was freed.
    pub(crate) fn make_room(&self, count: usize) -> (usize, usize) {
        let has_room = |tail: &Tail| tail.touched >= count && tail.units.capacity() == tail.touched;
        if has_room(&self.tail.lock()) {
            return (0, 0);
        }
        let mut units = VecDeque::with_capacity(count);
        units.resize(count, [0; UNIT_BYTES]);
        units.clear();
        let mut tail = self.tail.lock();
        if has_room(&tail) || tail.units.len() > count {
            return (0, 0);
        }
        units.append(&mut tail.units);
        let made = units.capacity();
        tail.units = units;
        (made, std::mem::replace(&mut tail.touched, made))
    }

    /// Frees the memory of a queue without new units since the last call, and most of it if there were few.
    /// Unwritten units stay. Returns the units for which preallocated memory remains.
    pub(crate) fn cool_down(&self) -> usize {
        let mut tail = self.tail.lock();
        let end = tail.first + tail.units.len() as u64;
        let came = (end - std::mem::replace(&mut tail.cooled, end)) as usize;
        if tail.written == end && came == 0 {
            tail.first = end;
            tail.units = VecDeque::new();
        } else if tail.units.capacity() / 4 > came.max(WARM_UNITS) {
            tail.units.shrink_to(came);
        }
        tail.touched = tail.touched.min(tail.units.capacity());
        tail.touched
    }
}

/// Returns what a message of a queue adds to the digest of all queues: a hash that is stable across processes
/// (FNV-1a). The digest is a sum, so that a missing or short queue changes it.
pub(crate) fn weight_of(topic: &[u8], queue_id: u32) -> u64 {
    topic
        .iter()
        .chain(&queue_id.to_be_bytes())
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MessageType::{Fifo, Normal, Transaction};

    fn queue(max: u64) -> ConsumeQueue {
        ConsumeQueue::new(QueueKey::new("t", 0), 0, 0, max)
    }

    fn unit(physical: u64) -> Unit {
        Unit { physical, size: 100, tags_code: -7 }
    }

    #[test]
    fn a_unit_has_the_bytes_of_apache() {
        let bytes = Unit { physical: 0x0102, size: 0x0304, tags_code: -2 }.encode();
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 255, 255, 255, 255, 255, 255, 255, 254]);
        assert_eq!(Unit::decode(&bytes), Unit { physical: 0x0102, size: 0x0304, tags_code: -2 });
    }

    #[test]
    fn a_unit_out_of_turn_is_refused() {
        let queue = queue(5);
        assert!(!queue.push(QueueOffset(6), unit(0)));
        assert!(!queue.push(QueueOffset(4), unit(0)));
        assert!(queue.push(QueueOffset(5), unit(0)));
        assert_eq!(queue.max(), QueueOffset(6));
    }

    #[test]
    fn units_of_a_batch_are_added_together_except_those_out_of_turn() {
        let queue = queue(5);
        let offsets = [5, 6, 9, 7, 6, 8].into_iter().zip([Normal, Fifo, Fifo, Fifo, Normal, Transaction]);
        let pushed =
            queue.push_all(offsets.map(|(offset, kind)| (QueueOffset(offset), unit(offset * 100), kind)));
        assert_eq!((pushed.count, pushed.unwritten, queue.max()), (4, 4, QueueOffset(9)));
        let of = |messages| Arrived { messages, bytes: messages * 100 };
        assert_eq!(queue.take_arrivals(), [of(1), of(2), of(0), of(1), of(0), of(0)]);
        assert_eq!(queue.take_arrivals(), [Arrived::default(); 6]);
        let mut into = [[0; UNIT_BYTES]; 8];
        assert_eq!(queue.read_tail(5, &mut into), Some(4));
        let physical = into[..4].iter().map(|bytes| Unit::decode(bytes).physical).collect::<Vec<_>>();
        assert_eq!(physical, [500, 600, 700, 800]);
        queue.wrote(8);
        assert_eq!(queue.push_all(iter::once((QueueOffset(9), unit(900), Normal))).unwritten, 2);
    }

    #[test]
    fn written_units_stay_warm_until_the_queue_cools_down() {
        let queue = queue(0);
        for index in 0..200 {
            assert!(queue.push(QueueOffset(index), unit(index * 100)));
        }
        let mut bytes = Vec::new();
        assert_eq!(queue.copy_unwritten(usize::MAX, &mut bytes), 0);
        assert_eq!(bytes.len(), 200 * UNIT_BYTES);
        queue.wrote(200);
        let mut into = [[0; UNIT_BYTES]; 32];
        assert_eq!(queue.read_tail(0, &mut into), None);
        assert_eq!(queue.read_tail(190, &mut into), Some(10));
        assert_eq!(Unit::decode(&into[9]), unit(19_900));
        queue.cool_down();
        assert_eq!(queue.read_tail(190, &mut into), Some(10), "units came since the queue was created");
        queue.cool_down();
        assert_eq!(queue.read_tail(190, &mut into), None);
        assert_eq!(queue.written(), 200);
    }

    #[test]
    fn prefaulted_memory_replaces_memory_that_grew_while_units_piled_up() {
        let queue = queue(0);
        let pushed =
            |from: u64, to: u64| (from..to).for_each(|at| assert!(queue.push(QueueOffset(at), unit(at))));
        assert_eq!(queue.make_room(1000), (1000, 0));
        assert_eq!(queue.make_room(1000), (0, 0));
        pushed(0, 3000);
        assert_eq!(queue.make_room(1000), (0, 0), "the units need more than that");
        queue.wrote(3000);
        assert_eq!(queue.make_room(1000), (1000, 1000));
        assert_eq!(queue.tail.lock().units.capacity(), 1000);
        pushed(3000, 3900);
        let mut into = [[0; UNIT_BYTES]; 1];
        assert_eq!(queue.read_tail(2990, &mut into), Some(1));
        assert_eq!(Unit::decode(&into[0]), unit(2990));
        assert_eq!(queue.make_room(2000), (2000, 1000));
        assert_eq!(queue.make_room(500), (0, 0), "there is room for more than that");
    }
}
