//! CommitLog: appends under the put lock.
//!
//! Owns the end of the log: the holder of the put lock assigns the position, the queue offset and the store time of
//! a message, encodes it in place and publishes it. A burst takes the lock once. Messages are validated and sized
//! before the lock; under it nothing blocks, allocates or enters the kernel. The fields that the derived files need
//! go into a ring, so that no record is parsed again.
//!
//! *Invariant*: positions and the offsets of every queue only grow, and so do store times unless the clock is set
//! back by more than their maximum lead. A record never spans two files. The ring holds exactly the records between
//! *visible* and *published*, in log order.
//! Threads: `append` from any connection; `take_ring` from the thread that advances *visible*.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::clock::SharedClock;
use crate::message::record::Stamp;
use crate::message::sysflag;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::derived::DispatchRequest;
use crate::store::disk::Appender;
use crate::store::error::{PutError, StoreError};
use crate::store::sync::{AtomicU64, Condvar, Mutex, MutexGuard};

use super::checksums::Checksums;
use super::conditions::{Condition, Conditions, Snapshot};
use super::put::{Put, Stored, next_group, store_time};
use super::ring::RingWriter;
use super::segment::Segment;
use super::segments::{Active, Segments};
use super::write_path::{BLANK_BYTES_MIN, Blank, WritePath, blank_head};

/// Maximum number of published records that are not visible yet. A burst beyond it waits for the flush.
const RING_RECORDS_MAX: usize = 1 << 16;
/// Maximum number of places of those records in light queues, 25 MB.
const RING_LIGHTS_MAX: usize = 1 << 20;
/// The time that an append waits for room before it asks again.
const WAIT_STEP: Duration = Duration::from_millis(5);

/// The reason why an append has to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoRoom {
    /// The next file does not exist yet.
    File,
    /// Too many bytes or records wait for the flush.
    Flush,
}

/// The log and the right to append to it.
pub(crate) struct CommitLog {
    segments: Segments,
    checksums: Checksums,
    clock: SharedClock,
    writer: Mutex<Writer>,
    /// The file after the active one, and the right to write it.
    next: Mutex<Option<Active>>,
    room: Condvar,
    waiting: Mutex<()>,
    conditions: Conditions,
    published: AtomicU64,
    /// The size of the last step back of store times until it is taken; otherwise 0.
    set_back_ms: AtomicU64,
    failure: OnceLock<String>,
    /// The maximum size of joined records.
    group_bytes_max: u64,
}

struct Writer {
    segment: Arc<Segment>,
    write_path: Box<dyn WritePath>,
    /// *Reserved*: the position of the next record.
    end: u64,
    store_timestamp_ms: i64,
    ring: Vec<DispatchRequest>,
    /// Places in light queues of the records in the ring.
    lights: usize,
}

impl CommitLog {
    /// Continues a log at `end`, in `segment`.
    pub(crate) fn new(
        segments: Segments,
        checksums: Checksums,
        clock: SharedClock,
        (segment, appender): Active,
        store_timestamp_ms: i64,
    ) -> Result<Self, StoreError> {
        let end = segment.published();
        let write_path: Box<dyn WritePath> = match (appender, segments.write_ring()) {
            (Some(appender), _) => Box::new(appender),
            (None, Some(ring)) => {
                let base = segment.base();
                let block = RingWriter::block_begin(base, end);
                Box::new(RingWriter::new(Arc::clone(ring), base, end, segment.bytes_from(block)))
            }
            (None, None) => {
                let expected = "expected a write ring or a mapping that can be written".to_owned();
                return Err(StoreError::Layout { path: segment.path().to_owned(), expected });
            }
        };
        let group_bytes_max = segments.write_ring().map_or(u64::MAX, |ring| ring.group_bytes());
        let writer = Writer {
            segment,
            write_path,
            end,
            store_timestamp_ms,
            ring: Vec::with_capacity(RING_RECORDS_MAX),
            lights: 0,
        };
        Ok(Self {
            segments,
            checksums,
            clock,
            writer: Mutex::new(writer),
            next: Mutex::new(None),
            room: Condvar::new(),
            waiting: Mutex::new(()),
            conditions: Conditions::new(),
            published: AtomicU64::new(end),
            set_back_ms: AtomicU64::new(0),
            failure: OnceLock::new(),
            group_bytes_max,
        })
    }

    pub(crate) fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Returns the clock of store times.
    pub(crate) fn clock(&self) -> &SharedClock {
        &self.clock
    }

    pub(crate) fn checksums(&self) -> &Checksums {
        &self.checksums
    }

    pub(crate) fn published(&self) -> PhysicalOffset {
        PhysicalOffset(self.published.load(Ordering::Acquire))
    }

    /// Returns the newest store time. No record has a later one.
    pub(crate) fn store_timestamp_ms(&self) -> i64 {
        self.writer.lock().store_timestamp_ms
    }

    /// Returns the reason why writes are refused; `None` while they are accepted.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Refuses writes from now on. The first reason is kept. Returns true for the first call.
    pub(crate) fn latch(&self, reason: String) -> bool {
        // Under the put lock, so that no append is in progress when this returns, and none begins later.
        let _writer = self.writer.lock();
        self.failure.set(reason).is_ok()
    }

    /// Returns whether messages are refused for lack of space: all, or those that do not fit into the active file.
    pub(crate) fn is_full(&self) -> bool {
        let conditions = self.conditions.load();
        conditions.has(Condition::Full) || conditions.has(Condition::LacksSpace)
    }

    /// Sets whether messages are refused because the disk is full. Returns the previous value.
    pub(crate) fn set_full(&self, is_full: bool) -> bool {
        self.conditions.set(Condition::Full, is_full)
    }

    /// Takes the size of the last step back of store times, in milliseconds.
    pub(crate) fn take_set_back(&self) -> Option<u64> {
        Some(self.set_back_ms.swap(0, Ordering::Relaxed)).filter(|by_ms| *by_ms > 0)
    }

    /// Closes the log for messages. When this returns, no append is in progress.
    pub(crate) fn close(&self) {
        let _writer = self.writer.lock();
        self.conditions.set(Condition::Closed, true);
    }

    /// Appends `puts` in order and sets the outcome of each. Joined puts succeed or fail together. Returns the
    /// number of decided puts; the others found no room.
    ///
    /// Without room, calls `make_room` with the reason and without a lock held; false ends the append.
    pub(crate) fn append(&self, puts: &mut [Put<'_>], mut make_room: impl FnMut(NoRoom) -> bool) -> usize {
        let mut done = 0;
        while done < puts.len() {
            let (_, rest) = puts.split_at_mut(done);
            let (count, missing) = self.append_while_there_is_room(rest);
            done += count;
            let Some(missing) = missing else { break };
            let has_waited_long_enough = !make_room(missing);
            if has_waited_long_enough || self.conditions.has(Condition::Stalled) {
                self.conditions.set(Condition::Stalled, true);
                if missing == NoRoom::Flush {
                    self.conditions.set(Condition::LacksFlush, true);
                }
                let (_, rest) = puts.split_at_mut(done);
                rest.iter_mut().for_each(|put| put.outcome = Err(PutError::Busy));
                break;
            }
        }
        done
    }

    /// Waits briefly for [`room_was_made`](Self::room_was_made); returns the time to charge to the append.
    pub(crate) fn wait_for_room(&self) -> Duration {
        let mut waiting = self.waiting.lock();
        self.room.wait_for(&mut waiting, WAIT_STEP);
        WAIT_STEP
    }

    /// Wakes appends that wait for a file or for room in the ring.
    pub(crate) fn room_was_made(&self) {
        self.conditions.set(Condition::Stalled, false);
        let _waiting = self.waiting.lock();
        self.room.notify_all();
    }

    /// Returns whether an append gave up waiting for a flush since the last call.
    pub(crate) fn take_lacked_flush(&self) -> bool {
        self.conditions.set(Condition::LacksFlush, false)
    }

    fn append_while_there_is_room(&self, puts: &mut [Put<'_>]) -> (usize, Option<NoRoom>) {
        let mut writer = self.writer.lock();
        let now = self.clock.wall_ms() as i64;
        let store_time = store_time(writer.store_timestamp_ms, now);
        if store_time < writer.store_timestamp_ms {
            self.set_back_ms.store((writer.store_timestamp_ms - store_time) as u64, Ordering::Relaxed);
        }
        writer.store_timestamp_ms = store_time;
        let (mut done, mut missing) = (0, None);
        while let Some(group) = next_group(puts, done) {
            let size = group.iter_mut().fold(0_u64, |size, put| size.saturating_add(put.measure()));
            match self.check(group, size) {
                Err(error) => group.iter_mut().for_each(|put| put.outcome = Err(error)),
                Ok(()) => match self.find_room(&mut writer, group.len(), size) {
                    None => group.iter_mut().for_each(|put| writer.place(put)),
                    Some(NoRoom::File) if self.conditions.has(Condition::LacksSpace) => {
                        group.iter_mut().for_each(|put| put.outcome = Err(PutError::DiskFull));
                    }
                    found => {
                        missing = found;
                        break;
                    }
                },
            }
            done += group.len();
        }
        self.publish(&mut writer);
        (done, missing)
    }

    /// Continues in the next file if the records do not fit the active one. Returns what they still lack.
    fn find_room(&self, writer: &mut MutexGuard<'_, Writer>, count: usize, size: u64) -> Option<NoRoom> {
        if !writer.has_ring_room(count) {
            return Some(NoRoom::Flush);
        }
        if size + BLANK_BYTES_MIN as u64 > writer.file_room() && !self.roll(writer) {
            return Some(NoRoom::File);
        }
        if writer.write_path.has_room(size as usize) { None } else { Some(NoRoom::Flush) }
    }

    /// Returns the size of the largest record, or of the largest group of joined records.
    pub(crate) fn record_bytes_max(&self) -> u64 {
        self.group_bytes_max.min(self.segments.size().saturating_sub(BLANK_BYTES_MIN as u64))
    }

    fn check(&self, group: &[Put<'_>], size: u64) -> Result<(), PutError> {
        if self.check_open()?.has(Condition::Replica) {
            return Err(PutError::Replica);
        }
        if size == u64::MAX {
            return Err(PutError::TooManyLights);
        }
        // Apache's broker blanks a whole file for such a record, stores nothing and reports success.
        if size > self.record_bytes_max() {
            return Err(PutError::TooLarge);
        }
        if group.iter().any(|put| put.queue.is_deleted()) {
            return Err(PutError::QueueGone);
        }
        // The topic is still there: the sender tries again, and the light queue is created again.
        if group.iter().any(Put::lacks_light) {
            return Err(PutError::Busy);
        }
        Ok(())
    }

    /// Checks that the log accepts messages now.
    fn check_open(&self) -> Result<Snapshot, PutError> {
        let conditions = self.conditions.load();
        if conditions.has(Condition::Closed) || self.failure.get().is_some() {
            return Err(PutError::ReadOnly);
        }
        if conditions.has(Condition::Full) { Err(PutError::DiskFull) } else { Ok(conditions) }
    }

    fn publish(&self, writer: &mut MutexGuard<'_, Writer>) {
        writer.write_path.commit();
        self.published.store(writer.end, Ordering::Release);
    }

    /// Ends the file with a blank and continues in the next one. Returns false, with nothing done, if that is not
    /// ready.
    fn roll(&self, writer: &mut MutexGuard<'_, Writer>) -> bool {
        let Some((segment, appender)) = self.next.lock().take() else {
            self.conditions.set(Condition::WantsNext, true);
            return false;
        };
        let size = writer.file_room() as usize;
        writer.enter(Blank { size, bytes: &blank_head(size) }, segment, appender);
        true
    }

    /// Moves out the records that are not visible yet, in log order. Returns the position that they reach.
    ///
    /// `into` must be empty; its memory becomes the ring's.
    pub(crate) fn take_ring(&self, into: &mut Vec<DispatchRequest>) -> PhysicalOffset {
        debug_assert!(into.is_empty());
        into.reserve_exact(RING_RECORDS_MAX.saturating_sub(into.capacity()));
        let mut writer = self.writer.lock();
        std::mem::swap(&mut writer.ring, into);
        writer.lights = 0;
        PhysicalOffset(writer.end)
    }

    /// Calls `work` while no append can happen.
    pub(crate) fn between_appends<T>(&self, work: impl FnOnce() -> T) -> T {
        let _writer = self.writer.lock();
        work()
    }

    /// Returns whether the next file must be created: an append waits for it, or half of the active file is used.
    pub(crate) fn needs_next(&self) -> bool {
        // Released before the put lock is taken, because an append takes it under that lock.
        let has_next = self.next.lock().is_some();
        let is_due = || {
            let writer = self.writer.lock();
            writer.file_room() <= writer.segment.size() as u64 / 2
        };
        !has_next && (self.conditions.has(Condition::WantsNext) || is_due())
    }

    /// Sets the next file.
    pub(crate) fn set_next(&self, next: Active) {
        *self.next.lock() = Some(next);
        self.conditions.set(Condition::WantsNext, false);
        self.conditions.set(Condition::LacksSpace, false);
        self.room_was_made();
    }

    /// Refuses messages that do not fit into the active file until the next one exists, for which the disk lacks
    /// space. Returns true for the first call.
    pub(crate) fn set_lacking_space(&self) -> bool {
        let has_begun = !self.conditions.set(Condition::LacksSpace, true);
        if has_begun {
            self.room_was_made();
        }
        has_begun
    }

    /// Drops the next file at an orderly stop.
    pub(crate) fn drop_next(&self) {
        self.next.lock().take();
    }
}

impl Writer {
    /// Returns the bytes that still fit into the file.
    fn file_room(&self) -> u64 {
        self.segment.limit() - self.end
    }

    /// Returns whether the ring has room for `count` records. Their light queues may exceed the bound by one burst.
    fn has_ring_room(&self, count: usize) -> bool {
        self.ring.len() + count <= self.ring.capacity() && self.lights < RING_LIGHTS_MAX
    }

    /// Ends the file with a blank and continues in the next one.
    fn enter(&mut self, blank: Blank<'_>, next: Arc<Segment>, appender: Option<Appender>) {
        self.write_path.enter(blank, next.base(), appender);
        self.end = next.base();
        self.segment = next;
    }

    fn place(&mut self, put: &mut Put<'_>) {
        let record = put.lights.as_ref().map(|lights| lights.record(&put.record));
        let record = record.as_ref().unwrap_or(&put.record);
        let size = record.encoded_len();
        let is_queued = sysflag::is_queued(record.sys_flag);
        let queue_offset = if is_queued { put.queue.next() } else { QueueOffset(0) };
        let physical = PhysicalOffset(self.end);
        let stamp = Stamp { physical, queue: queue_offset, store_timestamp_ms: self.store_timestamp_ms };
        let Some(into) = self.write_path.append(size) else {
            // The caller checked the room of the whole group.
            debug_assert!(false, "no room for a record that was measured");
            put.outcome = Err(PutError::Busy);
            return;
        };
        record.encode(into, stamp);
        self.end += size as u64;
        if is_queued {
            put.queue.advance_next();
        }
        let lights = put.lights.as_mut().map(|lights| lights.place());
        self.lights += lights.as_ref().map_or(0, |lights| lights.len());
        self.ring.push(DispatchRequest {
            queue: Arc::clone(&put.queue),
            sys_flag: put.record.sys_flag,
            physical,
            size: size as u32,
            tags_code: put.queue.tags_code(put.tags_code, self.store_timestamp_ms),
            queue_offset,
            store_timestamp_ms: self.store_timestamp_ms,
            keys: std::mem::take(&mut put.keys),
            message_type: put.message_type,
            lights,
        });
        put.outcome = Ok(Stored {
            physical,
            queue_offset,
            store_timestamp_ms: self.store_timestamp_ms,
            end: PhysicalOffset(self.end),
        });
    }
}

mod raw;

pub(crate) use raw::{RawRecord, RawStop};

#[cfg(test)]
mod tests;
