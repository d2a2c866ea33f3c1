//! Replica: a store whose log is a byte-exact copy of a master's.
//!
//! Such a store refuses messages. It accepts the bytes of the master's log only where its log ends, split anywhere.
//! The bytes of a partial record are kept here, so that the log has only whole records, a killed process leaves
//! nothing to cut off, and the end of the log may be reported. Queues and index are fed from the ring, as for any
//! append, and the store flushes according to its durability.
//!
//! Every record is checked before it is appended: its position, the CRC of its body, the validity of its text, and
//! that files end where those of this log do. Damaged input is refused.
//!
//! Threads: one, which owns the [`Replica`] and may block on the disk.

pub(in crate::store) mod confirmation;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use crate::message::record::{BLANK_MAGIC, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN, RecordView};
use crate::message::sysflag;
use crate::positions::PhysicalOffset;

use super::derived::DispatchRequest;
use super::error::{PutError, StoreError};
use super::log::{NoRoom, RawRecord, RawStop, is_whole};
use super::{ConsumeQueue, Store, WAIT_MAX};

/// The largest record, and the largest rest of a file without one, that a replica accepts. Bounds its memory.
pub const RECORD_BYTES_MAX: usize = 64 << 20;
/// Bytes at the front of a record, or of the blank that ends a file, with its kind and size.
const HEAD_BYTES: usize = 8;
/// Records per append.
const RECORDS_MAX: usize = 256;
/// Memory kept for partial records.
const KEPT_BYTES: usize = 1 << 20;
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// The reason why bytes of a master's log were refused. Earlier bytes are kept; continue from [`Replica::end`].
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    #[error("the store is a master's, not a replica")]
    Master,
    #[error("another replica of this store is active")]
    Busy,
    /// Bytes in between are missing.
    #[error("received bytes at {at}, but the log continues at {end}: a gap")]
    Gap { at: PhysicalOffset, end: PhysicalOffset },
    /// The log is past that position.
    #[error("received bytes at {at}, but the log continues at {end}: an overlap")]
    Overlap { at: PhysicalOffset, end: PhysicalOffset },
    #[error(
        "the bytes received for position {at} are not a valid record: damaged in transit, or at the master"
    )]
    Damaged { at: PhysicalOffset },
    /// Files of the two logs differ in size.
    #[error(
        "at {at} a file ends at the master or here, but not on both: mappedFileSizeCommitLog must be the same \
         on both, and is {file_bytes} here"
    )]
    FileSize { at: PhysicalOffset, file_bytes: u64 },
    #[error("the record at {at} has {bytes} bytes, more than the limit of {RECORD_BYTES_MAX}")]
    TooLarge { at: PhysicalOffset, bytes: usize },
    /// A log with records cannot begin elsewhere.
    #[error("the log has messages and cannot begin at {at}")]
    NotEmpty { at: PhysicalOffset },
    #[error(transparent)]
    Put(#[from] PutError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The permission to append to a replica.
#[derive(Debug)]
pub struct Replica {
    store: Arc<Store>,
    /// End of the log, and the received bytes of the partial record there.
    end: PhysicalOffset,
    partial: Vec<u8>,
    /// The queue of the last record, cached because the next one often has the same.
    queue: Option<Arc<ConsumeQueue>>,
}

/// The kind of a piece of the log.
#[derive(Clone, Copy)]
enum Piece {
    Record(usize),
    Blank(usize),
}

impl Piece {
    const fn bytes(self) -> usize {
        match self {
            Self::Record(bytes) | Self::Blank(bytes) => bytes,
        }
    }
}

impl Store {
    /// Returns whether the log is a copy of a master's, so that messages are refused.
    #[must_use]
    pub fn is_replica(&self) -> bool {
        self.log.is_replica()
    }

    /// Returns the permission to append to the copy of a master's log, which exists once at a time.
    ///
    /// # Errors
    /// [`ReplicaError::Master`] or [`ReplicaError::Busy`].
    pub fn replica(self: &Arc<Self>) -> Result<Replica, ReplicaError> {
        if !self.is_replica() {
            return Err(ReplicaError::Master);
        }
        if self.is_copied.swap(true, Ordering::AcqRel) {
            return Err(ReplicaError::Busy);
        }
        let end = self.log.published();
        Ok(Replica { store: Arc::clone(self), end, partial: Vec::new(), queue: None })
    }

    /// Returns bytes of the log from `at` on, in one file, at most `bytes_max` and perhaps fewer; `None` if nothing
    /// may be copied.
    #[must_use]
    pub fn log_bytes(&self, at: PhysicalOffset, bytes_max: usize) -> Option<Bytes> {
        let segments = self.log.segments();
        let left = |end: u64| (end.saturating_sub(at.0)).min(bytes_max as u64) as usize;
        // The part first: once it is recycled, its bytes are readable in the file.
        let part = segments.part_at(at.0);
        let segment = segments.find(at.0)?;
        let end = self.copied_to().0.min(segment.limit());
        let readable = part.map_or_else(|| segment.published(), |part| part.end()).min(end);
        if readable > at.0 {
            return segments.slice(at.0, left(readable));
        }
        // Bytes after the blank of a full file may be neither in memory nor mapped; they are zeros.
        let zeros = if end == segment.limit() { left(end).min(ZEROS.len()) } else { 0 };
        (zeros > 0).then(|| Bytes::from_static(ZEROS.split_at(zeros).0))
    }

    /// Returns the position up to which replicas may copy the log: bytes that survive a power loss, or a kill,
    /// depending on the durability.
    #[must_use]
    pub fn copied_to(&self) -> PhysicalOffset {
        if self.options.durability.promises_disk() { self.durable() } else { self.log.published() }
    }

    /// Returns the position that the promised number of copies has reached.
    #[must_use]
    pub fn confirmed(&self) -> PhysicalOffset {
        self.confirmation.position()
    }

    /// Returns the number of copies in sync, including this one.
    #[must_use]
    pub fn copies_in_sync(&self) -> usize {
        self.confirmation.in_sync()
    }

    /// Sets both, and notifies the listener.
    pub fn confirm(&self, position: PhysicalOffset, in_sync: usize) {
        let has_moved = self.confirmation.note(position, in_sync);
        if let Some(arrivals) = self.dispatcher.arrivals().filter(|_| has_moved) {
            arrivals.confirmed(position);
        }
    }

    /// Returns the size of a file of the log.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.log.segments().size()
    }
}

impl Replica {
    /// Returns the end of the log, after its last whole record, from which a new connection continues.
    #[must_use]
    pub fn end(&self) -> PhysicalOffset {
        self.end
    }

    /// Returns the position that may be reported: bytes before it survive a kill, or a power loss, depending on the
    /// durability.
    #[must_use]
    pub fn kept(&self) -> PhysicalOffset {
        self.store.visible()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        let (begin, end) = self.store.range();
        begin == end
    }

    /// Drops the bytes of a partial record: the next connection begins at [`end`](Self::end).
    pub fn reconnect(&mut self) {
        self.end = self.store.log.published();
        self.partial = Vec::new();
        self.queue = None;
    }

    /// Makes an empty log begin at `at`, where a file of the master's does.
    ///
    /// # Errors
    /// The log has records, or no file can begin there.
    pub fn begin_at(&mut self, at: PhysicalOffset) -> Result<(), ReplicaError> {
        if self.end == at {
            return Ok(());
        }
        if !self.is_empty() || !self.partial.is_empty() {
            return Err(ReplicaError::NotEmpty { at });
        }
        let file_bytes = self.store.file_bytes();
        if !at.0.is_multiple_of(file_bytes) {
            return Err(ReplicaError::FileSize { at, file_bytes });
        }
        let Store { log, flush, maintenance, .. } = &*self.store;
        maintenance
            .between_checkpoints(|_| {
                flush.begin_at(at, || {
                    log.begin_at(log.segments().begin_at(at.0)?);
                    log.checksums().begin_at(at.0);
                    Ok(())
                })
            })
            // The state of the log is unknown then.
            .inspect_err(|error| flush.fail(error.to_string()))?;
        self.end = at;
        Ok(())
    }

    /// Appends bytes of the master's log that belong at `at`. When it returns, completed records are appended, and
    /// visible according to the durability of the store.
    ///
    /// # Errors
    /// They belong elsewhere, are damaged, or found no room for some seconds.
    pub fn append(&mut self, at: PhysicalOffset, bytes: &[u8]) -> Result<(), ReplicaError> {
        let end = PhysicalOffset(self.end.0 + self.partial.len() as u64);
        if at > end {
            return Err(ReplicaError::Gap { at, end });
        }
        if at < end {
            return Err(ReplicaError::Overlap { at, end });
        }
        let mut rest = bytes;
        while !self.partial.is_empty() && !rest.is_empty() {
            let wanted = self.first_piece(&self.partial)?.map_or(HEAD_BYTES, Piece::bytes);
            let (more, after) = rest.split_at(rest.len().min(wanted - self.partial.len()));
            self.partial.extend_from_slice(more);
            rest = after;
            if self.first_piece(&self.partial)?.is_some_and(|piece| piece.bytes() == self.partial.len()) {
                let mut whole = mem::take(&mut self.partial);
                self.append_whole(&whole)?;
                whole.clear();
                whole.shrink_to(KEPT_BYTES);
                self.partial = whole;
            }
        }
        let taken = self.append_whole(rest)?;
        self.partial.extend_from_slice(rest.get(taken..).unwrap_or_default());
        Ok(())
    }

    /// Appends the whole records at the front of `bytes`, which belong at the end of the log. Returns their size.
    fn append_whole(&mut self, bytes: &[u8]) -> Result<usize, ReplicaError> {
        let (mut rest, mut at) = (bytes, self.end);
        let mut records = Vec::new();
        loop {
            let piece = self.piece_at(at, rest)?.filter(|piece| piece.bytes() <= rest.len());
            let Some(piece) = piece.filter(|_| records.len() < RECORDS_MAX) else {
                self.append_records(&mut records)?;
                if piece.is_none() {
                    break;
                }
                continue;
            };
            let (first, after) = rest.split_at(piece.bytes());
            match piece {
                Piece::Record(_) => records.push(self.record(at, first)?),
                Piece::Blank(_) => {
                    self.append_records(&mut records)?;
                    self.append_blank(first)?;
                }
            }
            (rest, at) = (after, PhysicalOffset(at.0 + first.len() as u64));
        }
        Ok(bytes.len() - rest.len())
    }

    fn first_piece(&self, bytes: &[u8]) -> Result<Option<Piece>, ReplicaError> {
        self.piece_at(self.end, bytes)
    }

    /// Identifies the piece at the front of `bytes`; `None` if there are too few.
    fn piece_at(&self, at: PhysicalOffset, bytes: &[u8]) -> Result<Option<Piece>, ReplicaError> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let [s0, s1, s2, s3, m0, m1, m2, m3] = *head;
        let size = u32::from_be_bytes([s0, s1, s2, s3]) as usize;
        let file_bytes = self.store.file_bytes();
        let room = (file_bytes - at.bytes_since(self.store.range().0) % file_bytes) as usize;
        let piece = match u32::from_be_bytes([m0, m1, m2, m3]) {
            MAGIC_V1 | MAGIC_V2 if size >= RECORD_BYTES_MIN && size <= i32::MAX as usize => {
                if size + HEAD_BYTES > room {
                    return Err(ReplicaError::FileSize { at, file_bytes });
                }
                Piece::Record(size)
            }
            BLANK_MAGIC if size >= HEAD_BYTES && size == room => Piece::Blank(size),
            BLANK_MAGIC if size >= HEAD_BYTES => return Err(ReplicaError::FileSize { at, file_bytes }),
            _ => return Err(ReplicaError::Damaged { at }),
        };
        if size > RECORD_BYTES_MAX {
            return Err(ReplicaError::TooLarge { at, bytes: size });
        }
        Ok(Some(piece))
    }

    fn record<'a>(&mut self, at: PhysicalOffset, bytes: &'a [u8]) -> Result<RawRecord<'a>, ReplicaError> {
        let record = RecordView::parse(bytes).ok().filter(|record| is_whole(record, at.0));
        let record = record.ok_or(ReplicaError::Damaged { at })?;
        let dispatch = self.dispatch_of(&record);
        Ok(RawRecord { bytes, store_timestamp_ms: record.store_timestamp_ms(), dispatch })
    }

    /// Returns the request of a record for its queue and its light queues.
    fn dispatch_of(&mut self, record: &RecordView<'_>) -> Option<DispatchRequest> {
        let queue = self.queue_of(record)?;
        let light_queue = |name: &str| self.store.queue_or_create(name, 0).ok();
        Some(DispatchRequest::of(record, queue).with_lights(record, light_queue))
    }

    /// Returns the queue of a record, like recovery; inner batches belong to queues of another kind.
    fn queue_of(&mut self, record: &RecordView<'_>) -> Option<Arc<ConsumeQueue>> {
        if record.sys_flag() & sysflag::INNER_BATCH != 0 {
            return None;
        }
        let is_it = |queue: &&Arc<ConsumeQueue>| {
            let key = queue.key();
            key.queue_id == record.queue_id() && key.topic.as_bytes() == record.topic() && !queue.is_deleted()
        };
        let topic = || std::str::from_utf8(record.topic()).ok();
        let queue = match self.queue.as_ref().filter(is_it) {
            Some(queue) => Some(Arc::clone(queue)),
            // A record whose topic cannot be a directory still keeps its place in the log.
            None => self.store.queue_or_create(topic()?, record.queue_id()).ok(),
        };
        self.queue.clone_from(&queue);
        queue
    }

    fn append_records(&mut self, records: &mut Vec<RawRecord<'_>>) -> Result<(), ReplicaError> {
        let sizes: Vec<u64> = records.iter().map(|record| record.bytes.len() as u64).collect();
        let mut rest = records.as_mut_slice();
        let mut waited = Duration::ZERO;
        while !rest.is_empty() {
            let (done, stop) = self.store.log.append_raw(rest);
            let (appended, after) = rest.split_at_mut(done);
            self.end.0 += appended.iter().map(|record| record.bytes.len() as u64).sum::<u64>();
            rest = after;
            let Some(next) = rest.first_mut() else { break };
            match stop {
                Some(RawStop::NoRoom(_)) => self.make_room(&mut waited)?,
                Some(RawStop::LargerThanParts) => self.make_large_room(next.bytes.len(), &mut waited)?,
                Some(RawStop::Refused(refusal)) => return Err(refusal.into()),
                Some(RawStop::OutOfTurn) => self.start_over(next)?,
                Some(RawStop::QueueGone) => {
                    let record = RecordView::parse(next.bytes).ok();
                    next.dispatch = record.and_then(|record| self.dispatch_of(&record));
                }
                None => {}
            }
        }
        records.clear();
        self.store.after_append();
        self.store.counters.put(sizes.len(), sizes.into_iter());
        Ok(())
    }

    fn append_blank(&mut self, bytes: &[u8]) -> Result<(), ReplicaError> {
        let mut waited = Duration::ZERO;
        loop {
            match self.store.log.append_blank(bytes) {
                Ok(()) => break,
                Err(RawStop::NoRoom(NoRoom::File | NoRoom::Flush)) => self.make_room(&mut waited)?,
                Err(RawStop::LargerThanParts) => self.make_large_room(bytes.len(), &mut waited)?,
                Err(RawStop::Refused(refusal)) => return Err(refusal.into()),
                Err(RawStop::OutOfTurn | RawStop::QueueGone) => return Err(PutError::Pending.into()),
            }
        }
        self.end.0 += bytes.len() as u64;
        self.store.after_append();
        Ok(())
    }

    fn make_room(&self, waited: &mut Duration) -> Result<(), ReplicaError> {
        *waited += self.store.make_room();
        if *waited >= WAIT_MAX { Err(PutError::Busy.into()) } else { Ok(()) }
    }

    /// Makes room for bytes larger than a part of the write ring, unlike the master's: creates a larger part.
    fn make_large_room(&self, bytes: usize, waited: &mut Duration) -> Result<(), ReplicaError> {
        match self.store.log.segments().write_ring() {
            Some(ring) if ring.provide(bytes)? => Ok(()),
            _ => self.make_room(waited),
        }
    }

    /// Continues the queues of a record with it, except those whose next record it is.
    fn start_over(&self, record: &RawRecord<'_>) -> Result<(), ReplicaError> {
        let Some(dispatch) = &record.dispatch else { return Ok(()) };
        let Store { dispatcher, flush, log, options, .. } = &*self.store;
        if options.durability.promises_disk() {
            flush.flush()?;
        } else {
            self.store.make_visible();
        }
        let begin = log.segments().begin();
        let own = dispatch.is_queued().then_some((&dispatch.queue, dispatch.queue_offset));
        let lights = dispatch.lights().iter().map(|place| (&place.queue, place.offset));
        for (queue, offset) in own.into_iter().chain(lights) {
            if queue.next() != offset {
                dispatcher.start_over(queue, offset, dispatch.physical, begin)?;
            }
        }
        Ok(())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.store.is_copied.store(false, Ordering::Release);
    }
}
