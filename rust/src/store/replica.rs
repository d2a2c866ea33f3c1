//! Replica: a store whose log is a copy of a master's, byte for byte.
//!
//! Such a store refuses messages. What it takes are the bytes of the master's log, at the position where its own ends and
//! nowhere else, cut anywhere: of a record that has not come whole the bytes are kept here, and in the log there are whole
//! records alone. So a killed process leaves nothing to be cut off, and where the log ends is what may be reported. Queues
//! and index are fed from the ring, as for any append, and the store flushes as its durability says.
//!
//! Every record is looked at before it is appended: that it says it is where it goes, that its body has the CRC it claims,
//! that its text is text, that files end where this log's do. What a broken master or wire sends is refused.
//!
//! Threads: one, which owns the [`Replica`]; it may wait for the disk.

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

/// The largest record, and the largest rest of a file without one, that a replica takes: the most memory it uses.
pub const RECORD_BYTES_MAX: usize = 64 << 20;
/// Bytes in front of a record, or of the blank that ends a file, that say which of them it is, and how large.
const HEAD_BYTES: usize = 8;
/// Records that are appended in one go.
const RECORDS_MAX: usize = 256;
/// Memory that is kept for records that come in pieces.
const KEPT_BYTES: usize = 1 << 20;
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Why bytes of a master's log were not taken. What was taken before stays; go on from [`Replica::end`].
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    #[error("the store is a master's: it takes messages, and no other log")]
    Master,
    #[error("the log is being copied already")]
    Busy,
    /// Bytes between are missing.
    #[error("a gap: what came belongs at {at}, and the log goes on at {end}")]
    Gap { at: PhysicalOffset, end: PhysicalOffset },
    /// The log has been there.
    #[error("an overlap: what came belongs at {at}, and the log goes on at {end}")]
    Overlap { at: PhysicalOffset, end: PhysicalOffset },
    #[error(
        "what came for position {at} is no whole record of that place: damaged on the way, or at the master"
    )]
    Damaged { at: PhysicalOffset },
    /// Files of the two logs differ in size.
    #[error(
        "at {at} the master's file goes on or ends where this log's does not: mappedFileSizeCommitLog must be the same \
         on both, and is {file_bytes} here"
    )]
    FileSize { at: PhysicalOffset, file_bytes: u64 },
    #[error("at {at} there is a record of {bytes} bytes, and a replica takes {RECORD_BYTES_MAX}")]
    TooLarge { at: PhysicalOffset, bytes: usize },
    /// A log that has records begins where it begins.
    #[error("the log holds messages already, and cannot begin at {at}")]
    NotEmpty { at: PhysicalOffset },
    #[error(transparent)]
    Put(#[from] PutError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The right to append to a store that is a copy.
#[derive(Debug)]
pub struct Replica {
    store: Arc<Store>,
    /// Where the log ends, and what came after that of a record that is not whole yet.
    end: PhysicalOffset,
    partial: Vec<u8>,
    /// The queue of the last record: the next one is often of the same.
    queue: Option<Arc<ConsumeQueue>>,
}

/// What lies at the front of some bytes.
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
    /// Whether the log is a copy of a master's: messages are refused.
    #[must_use]
    pub fn is_replica(&self) -> bool {
        self.log.is_replica()
    }

    /// The right to append to the copy of a master's log; there is one at a time.
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

    /// Bytes of the log from `at` on, in one file, `bytes_max` at most and perhaps fewer; `None` where there are none that may
    /// be copied.
    #[must_use]
    pub fn log_bytes(&self, at: PhysicalOffset, bytes_max: usize) -> Option<Bytes> {
        let segments = self.log.segments();
        let left = |end: u64| (end.saturating_sub(at.0)).min(bytes_max as u64) as usize;
        // The part first: when it is gone its bytes can be read in the file.
        let part = segments.spooled(at.0);
        let segment = segments.find(at.0)?;
        let end = self.copied_to().0.min(segment.limit());
        let readable = part.map_or_else(|| segment.published(), |part| part.end()).min(end);
        if readable > at.0 {
            return segments.slice(at.0, left(readable));
        }
        // What follows the blank of a full file may be in no memory, nor be mapped to be read; it is zeros.
        let zeros = if end == segment.limit() { left(end).min(ZEROS.len()) } else { 0 };
        (zeros > 0).then(|| Bytes::from_static(ZEROS.split_at(zeros).0))
    }

    /// Up to where other replicas may copy the log: what no power loss, or no kill, takes back, as the durability says.
    #[must_use]
    pub fn copied_to(&self) -> PhysicalOffset {
        if self.options.durability.is_shown_when_durable() { self.durable() } else { self.log.published() }
    }

    /// As many copies as replies promise reach up to here.
    #[must_use]
    pub fn confirmed(&self) -> PhysicalOffset {
        self.confirmation.position()
    }

    /// Copies that are in sync, this one among them.
    #[must_use]
    pub fn copies_in_sync(&self) -> usize {
        self.confirmation.in_sync()
    }

    /// Says both, and tells who waits for them.
    pub fn confirm(&self, position: PhysicalOffset, in_sync: usize) {
        let has_moved = self.confirmation.note(position, in_sync);
        if let Some(arrivals) = self.dispatcher.arrivals().filter(|_| has_moved) {
            arrivals.confirmed(position);
        }
    }

    /// Size of a file of the log.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.log.segments().size()
    }
}

impl Replica {
    /// Where the log ends, after its last whole record: what to ask for when a connection begins.
    #[must_use]
    pub fn end(&self) -> PhysicalOffset {
        self.end
    }

    /// What a kill of this process, or a power loss, does not take back, as the durability of the store says: what may be
    /// reported.
    #[must_use]
    pub fn kept(&self) -> PhysicalOffset {
        self.store.visible()
    }

    /// Whether there is nothing in the log.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let (begin, end) = self.store.range();
        begin == end
    }

    /// Forgets the bytes of a record that did not come whole: another connection begins at [`end`](Self::end).
    pub fn reconnect(&mut self) {
        self.end = self.store.log.published();
        self.partial = Vec::new();
        self.queue = None;
    }

    /// Lets a log without a record begin at `at`, where a file of the master's does.
    ///
    /// # Errors
    /// There are records, or no file can begin there.
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
            // Where the log goes on is not known then.
            .inspect_err(|error| flush.fail(error.to_string()))?;
        self.end = at;
        Ok(())
    }

    /// Appends bytes of the master's log that belong at `at`. When it returns, what they complete is appended, and visible as
    /// the durability of the store says.
    ///
    /// # Errors
    /// They belong elsewhere, are damaged, or there is no room for them for some seconds.
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

    /// Appends the whole records at the front of `bytes`, which belong at the end of the log; returns their size.
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

    /// What begins with `bytes` at a position; `None` where they are too few to say.
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
        let queue = self.queue_of(&record);
        Ok(RawRecord {
            bytes,
            store_timestamp_ms: record.store_timestamp_ms(),
            dispatch: queue.map(|queue| DispatchRequest::of(&record, queue)),
        })
    }

    /// The queue that a record is dispatched to, as recovery would; inner batches live in queues of another kind.
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
            // A name that cannot be a directory keeps its place in the log.
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
                    let queue = record.and_then(|record| Some((record, self.queue_of(&record)?)));
                    next.dispatch = queue.map(|(record, queue)| DispatchRequest::of(&record, queue));
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

    /// Likewise for bytes that no part of the spool takes, unlike the master's: one that does is made.
    fn make_large_room(&self, bytes: usize, waited: &mut Duration) -> Result<(), ReplicaError> {
        match self.store.log.segments().spool() {
            Some(spool) if spool.provide(bytes)? => Ok(()),
            _ => self.make_room(waited),
        }
    }

    /// Lets the queue of a record go on with it.
    fn start_over(&self, record: &RawRecord<'_>) -> Result<(), ReplicaError> {
        let Some(dispatch) = &record.dispatch else { return Ok(()) };
        let Store { dispatcher, flush, log, options, .. } = &*self.store;
        if options.durability.is_shown_when_durable() {
            flush.flush()?;
        } else {
            self.store.make_visible();
        }
        let begin = log.segments().begin();
        dispatcher.start_over(&dispatch.queue, dispatch.queue_offset, dispatch.physical, begin)?;
        Ok(())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.store.is_copied.store(false, Ordering::Release);
    }
}
