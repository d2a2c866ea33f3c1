//! CommitLog: append under the put lock.
//!
//! Owns the end of the log: the holder of the put lock decides the position, the queue offset and the store time of a
//! message, encodes it in place and publishes it. A burst takes the lock once. Everything was validated and sized
//! before; inside there is no system call, no allocation and no waiting. What the derived files need to know of
//! each record goes into a ring beside it, so that nothing is parsed twice.
//!
//! Invariants: positions and every queue's offsets only grow, and so do store times unless the clock is set back further
//! than they may run ahead of it; a record never spans two files; the ring holds exactly the records between *visible*
//! and *published*, in log order.
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
use crate::store::error::PutError;
use crate::store::sync::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard};

use super::checksums::Checksums;
use super::put::{Put, Stored, next_group, store_time};
use super::segment::Segment;
use super::segments::{Active, Segments};
use super::spool::SpoolWriter;
use super::write_path::{BLANK_BYTES_MIN, Blank, Unwritten, WriteBuffer, WritePath, blank_head};

/// Records that may be published and not yet visible. A burst beyond waits for the flush.
const RING_RECORDS_MAX: usize = 1 << 16;
/// How long an append waits for room before it asks again.
const WAIT_STEP: Duration = Duration::from_millis(5);

/// Why an append cannot go on now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoRoom {
    /// The next file is not there yet.
    File,
    /// Too much waits for its flush.
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
    /// Whether an append waits for the next file.
    wants_next: AtomicBool,
    published: AtomicU64,
    is_closed: AtomicBool,
    is_full: AtomicBool,
    /// The next file cannot be made: the disk has no room for it.
    lacks_space: AtomicBool,
    /// An append has waited in vain: until there is room no other waits, for a sender that is told at once can go
    /// elsewhere, and a thread that waits serves no other.
    is_stalled: AtomicBool,
    /// By how much store times went back last, until somebody asks; else 0.
    set_back_ms: AtomicU64,
    /// An append has gone without a flush that would have made room.
    lacks_flush: AtomicBool,
    failure: OnceLock<String>,
    /// The log is a copy of another: it takes records of that one, and no messages.
    is_replica: AtomicBool,
    /// Bytes of joined records at most.
    group_bytes_max: u64,
}

struct Writer {
    segment: Arc<Segment>,
    write_path: Box<dyn WritePath>,
    /// *Reserved*: where the next record goes.
    end: u64,
    store_timestamp_ms: i64,
    ring: Vec<DispatchRequest>,
}

impl CommitLog {
    /// A log that goes on at `end`, in `segment`.
    pub(crate) fn new(
        segments: Segments,
        checksums: Checksums,
        clock: SharedClock,
        (segment, appender): Active,
        store_timestamp_ms: i64,
    ) -> Self {
        let end = segment.published();
        let write_path: Box<dyn WritePath> = match (appender, segments.spool()) {
            (Some(appender), _) => Box::new(appender),
            (None, Some(spool)) => {
                let base = segment.base();
                let block = SpoolWriter::block_begin(base, end);
                Box::new(SpoolWriter::new(Arc::clone(spool), base, end, segment.bytes_from(block)))
            }
            (None, None) => Box::new(WriteBuffer::new(end)),
        };
        let group_bytes_max = segments.spool().map_or(u64::MAX, |spool| spool.group_bytes());
        let writer = Writer {
            segment,
            write_path,
            end,
            store_timestamp_ms,
            ring: Vec::with_capacity(RING_RECORDS_MAX),
        };
        Self {
            segments,
            checksums,
            clock,
            writer: Mutex::new(writer),
            next: Mutex::new(None),
            room: Condvar::new(),
            waiting: Mutex::new(()),
            wants_next: AtomicBool::new(false),
            published: AtomicU64::new(end),
            is_closed: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            lacks_space: AtomicBool::new(false),
            is_stalled: AtomicBool::new(false),
            set_back_ms: AtomicU64::new(0),
            lacks_flush: AtomicBool::new(false),
            failure: OnceLock::new(),
            is_replica: AtomicBool::new(false),
            group_bytes_max,
        }
    }

    pub(crate) fn segments(&self) -> &Segments {
        &self.segments
    }

    /// The time that records are stored with.
    pub(crate) fn clock(&self) -> &SharedClock {
        &self.clock
    }

    pub(crate) fn checksums(&self) -> &Checksums {
        &self.checksums
    }

    pub(crate) fn published(&self) -> PhysicalOffset {
        PhysicalOffset(self.published.load(Ordering::Acquire))
    }

    /// The newest store time; none of the log is later.
    pub(crate) fn store_timestamp_ms(&self) -> i64 {
        self.writer.lock().store_timestamp_ms
    }

    /// Why writes are refused; `None` while they are accepted.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Refuses writes from now on. The first reason stays. `true` for the call that did it.
    pub(crate) fn latch(&self, reason: String) -> bool {
        // Under the put lock: when this returns no append is under way, and none will begin.
        let _writer = self.writer.lock();
        self.failure.set(reason).is_ok()
    }

    /// Whether messages are refused for lack of space: all, or those that do not fit into the file that is there.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire) || self.lacks_space.load(Ordering::Acquire)
    }

    /// Refuses messages while the disk is full, and takes them again. Returns whether it was so before.
    pub(crate) fn set_full(&self, is_full: bool) -> bool {
        self.is_full.swap(is_full, Ordering::AcqRel)
    }

    /// By how much store times went back with the clock since the last call, in milliseconds.
    pub(crate) fn take_set_back(&self) -> Option<u64> {
        Some(self.set_back_ms.swap(0, Ordering::Relaxed)).filter(|by_ms| *by_ms > 0)
    }

    /// Takes no more messages. When this returns no append is under way.
    pub(crate) fn close(&self) {
        let _writer = self.writer.lock();
        self.is_closed.store(true, Ordering::Release);
    }

    /// Appends `puts` in order and leaves each one's outcome in it. Joined puts succeed or fail together. Returns how many
    /// were decided about: the others found no room.
    ///
    /// `make_room` is called, with no lock held, when there is none, and told why; `false` ends the append.
    pub(crate) fn append(&self, puts: &mut [Put<'_>], mut make_room: impl FnMut(NoRoom) -> bool) -> usize {
        let mut done = 0;
        while done < puts.len() {
            let (_, rest) = puts.split_at_mut(done);
            let (count, missing) = self.append_while_there_is_room(rest);
            done += count;
            let Some(missing) = missing else { break };
            let has_waited_long_enough = !make_room(missing);
            if has_waited_long_enough || self.is_stalled.load(Ordering::Relaxed) {
                self.is_stalled.store(true, Ordering::Relaxed);
                self.lacks_flush.fetch_or(missing == NoRoom::Flush, Ordering::AcqRel);
                let (_, rest) = puts.split_at_mut(done);
                rest.iter_mut().for_each(|put| put.outcome = Err(PutError::Busy));
                break;
            }
        }
        done
    }

    /// Waits a moment for [`room_was_made`](Self::room_was_made); returns how long at most.
    pub(crate) fn wait_for_room(&self) -> Duration {
        let mut waiting = self.waiting.lock();
        self.room.wait_for(&mut waiting, WAIT_STEP);
        WAIT_STEP
    }

    /// Wakes appends that wait for a file or for room in the ring.
    pub(crate) fn room_was_made(&self) {
        self.is_stalled.store(false, Ordering::Relaxed);
        let _waiting = self.waiting.lock();
        self.room.notify_all();
    }

    /// Whether appends have gone without a flush since the last call.
    pub(crate) fn take_lacked_flush(&self) -> bool {
        self.lacks_flush.load(Ordering::Acquire) && self.lacks_flush.swap(false, Ordering::AcqRel)
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
            let size = group.iter().map(|put| put.record.encoded_len() as u64).sum::<u64>();
            match self.check(group, size) {
                Err(error) => group.iter_mut().for_each(|put| put.outcome = Err(error)),
                Ok(()) => match self.find_room(&mut writer, group.len(), size) {
                    None => group.iter_mut().for_each(|put| writer.place(put)),
                    Some(NoRoom::File) if self.lacks_space.load(Ordering::Acquire) => {
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

    /// Goes on in the next file where so many records do not fit; what they lack then.
    fn find_room(&self, writer: &mut MutexGuard<'_, Writer>, count: usize, size: u64) -> Option<NoRoom> {
        if writer.ring.len() + count > writer.ring.capacity() {
            return Some(NoRoom::Flush);
        }
        if size + BLANK_BYTES_MIN as u64 > writer.file_room() && !self.roll(writer) {
            return Some(NoRoom::File);
        }
        if writer.write_path.has_room(size as usize) { None } else { Some(NoRoom::Flush) }
    }

    /// The largest record, or group of records that belong together.
    pub(crate) fn record_bytes_max(&self) -> u64 {
        self.group_bytes_max.min(self.segments.size().saturating_sub(BLANK_BYTES_MIN as u64))
    }

    fn check(&self, group: &[Put<'_>], size: u64) -> Result<(), PutError> {
        self.check_open()?;
        if self.is_replica.load(Ordering::Acquire) {
            return Err(PutError::Replica);
        }
        // Java would blank a whole file for such a record, store nothing and say that all is well.
        if size > self.record_bytes_max() {
            return Err(PutError::TooLarge);
        }
        if group.iter().any(|put| put.queue.is_deleted()) {
            return Err(PutError::QueueGone);
        }
        Ok(())
    }

    /// Whether anything is taken now.
    fn check_open(&self) -> Result<(), PutError> {
        if self.is_closed.load(Ordering::Acquire) || self.failure.get().is_some() {
            return Err(PutError::ReadOnly);
        }
        if self.is_full.load(Ordering::Acquire) { Err(PutError::DiskFull) } else { Ok(()) }
    }

    fn publish(&self, writer: &mut MutexGuard<'_, Writer>) {
        writer.write_path.commit();
        self.published.store(writer.end, Ordering::Release);
    }

    /// Fills the file with a blank and goes on in the next one; `false`, and nothing done, when that is not ready.
    fn roll(&self, writer: &mut MutexGuard<'_, Writer>) -> bool {
        let Some((segment, appender)) = self.next.lock().take() else {
            self.wants_next.store(true, Ordering::Release);
            return false;
        };
        let size = writer.file_room() as usize;
        writer.enter(Blank { size, bytes: &blank_head(size) }, segment, appender);
        true
    }

    /// Hands over the records that are not visible yet, in log order, those of their bytes that are in no file yet, and
    /// the position they reach.
    ///
    /// Both must be empty; their memory becomes the ring's and the write path's.
    pub(crate) fn take_ring(
        &self,
        into: &mut Vec<DispatchRequest>,
        unwritten: &mut Unwritten,
    ) -> PhysicalOffset {
        debug_assert!(into.is_empty());
        into.reserve_exact(RING_RECORDS_MAX.saturating_sub(into.capacity()));
        let mut writer = self.writer.lock();
        std::mem::swap(&mut writer.ring, into);
        writer.write_path.take(unwritten);
        PhysicalOffset(writer.end)
    }

    /// Calls `work` while no append can happen.
    pub(crate) fn between_appends<T>(&self, work: impl FnOnce() -> T) -> T {
        let _writer = self.writer.lock();
        work()
    }

    /// Whether the file after the active one has to be made: it is waited for, or half of the active one is used.
    pub(crate) fn needs_next(&self) -> bool {
        // Let go of before the put lock is taken, under which an append takes it.
        let has_next = self.next.lock().is_some();
        let is_due = || {
            let writer = self.writer.lock();
            writer.file_room() <= writer.segment.size() as u64 / 2
        };
        !has_next && (self.wants_next.load(Ordering::Acquire) || is_due())
    }

    /// Puts the file after the active one in place.
    pub(crate) fn set_next(&self, next: Active) {
        *self.next.lock() = Some(next);
        self.wants_next.store(false, Ordering::Release);
        self.lacks_space.store(false, Ordering::Release);
        self.room_was_made();
    }

    /// Refuses what does not fit into the active file until the next one is in place: there is no room for it on the disk.
    /// `true` for the call that began it.
    pub(crate) fn set_lacking_space(&self) -> bool {
        let has_begun = !self.lacks_space.swap(true, Ordering::AcqRel);
        if has_begun {
            self.room_was_made();
        }
        has_begun
    }

    /// Gives the right to write the early file back, as at an orderly stop.
    pub(crate) fn drop_next(&self) {
        self.next.lock().take();
    }
}

impl Writer {
    /// Bytes that still fit into the file.
    fn file_room(&self) -> u64 {
        self.segment.limit() - self.end
    }

    /// Ends the file with a blank and goes on in the next one.
    fn enter(&mut self, blank: Blank<'_>, next: Arc<Segment>, appender: Option<Appender>) {
        self.write_path.enter(blank, next.base(), appender);
        self.end = next.base();
        self.segment = next;
    }

    fn place(&mut self, put: &mut Put<'_>) {
        let size = put.record.encoded_len();
        let is_queued = sysflag::is_queued(put.record.sys_flag);
        let queue_offset = if is_queued { put.queue.next() } else { QueueOffset(0) };
        let physical = PhysicalOffset(self.end);
        let stamp = Stamp { physical, queue: queue_offset, store_timestamp_ms: self.store_timestamp_ms };
        let Some(into) = self.write_path.append(size) else {
            // The caller saw that there is room for the whole group.
            debug_assert!(false, "no room for a record that was measured");
            put.outcome = Err(PutError::Busy);
            return;
        };
        put.record.encode(into, stamp);
        self.end += size as u64;
        if is_queued {
            put.queue.advance_next();
        }
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
