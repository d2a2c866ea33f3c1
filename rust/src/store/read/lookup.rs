//! Lookup: ranges of a queue, records by position or key, and offsets by time.
//!
//! Matches the results of Apache's broker, offset by offset, because clients depend on the status and the next offset.
//! Records are returned as slices of the mapping, adjacent ones as one; only records in a write ring are copied.
//!
//! *Invariant*: nothing from a queue's max on is returned.
//! Threads: any. Reads far from the end of the log may block on the disk: `Store::get_hot` refuses them, and
//! `Store::read_later` runs them on a separate thread.

use std::mem;
use std::ops::{Range, RangeInclusive};

use bytes::Bytes;

use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::derived::{ConsumeQueue, DerivedFiles, QueueFileCache, Unit};
use crate::store::error::StoreError;
use crate::store::log::{CommitLog, STORE_TIME_AHEAD_MS_MAX, record_at};
use crate::store::read::io_range::IoRange;

/// Minimum number of units that a read examines, however few messages are requested, because a filter may reject
/// most.
const EXAMINED_UNITS_MIN: u64 = 800;
/// The range of the size limit of one read.
const READ_BYTES: RangeInclusive<usize> = 100..=128 << 20;
/// Maximum number of results of one query by key.
pub(super) const QUERY_RECORDS_MAX: usize = 64;
/// Distance between the bytes that are touched to load a slice into memory.
const PAGE_BYTES: usize = 4096;
/// Rounds of a query by key; each continues before the last.
const QUERY_ROUNDS: usize = 3;

/// A read request for a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Get {
    pub offset: QueueOffset,
    /// Maximum number of messages. At least one message is returned.
    pub messages_max: u32,
    /// Maximum number of bytes. At least one message is returned, whatever its size.
    pub bytes_max: usize,
}

/// The filter of a read.
pub(crate) enum ReadFilter<'f> {
    /// Called with the tags code of a message.
    Codes(&'f mut dyn FnMut(i64) -> bool),
    /// Called with the properties of a message. `None` ends the read before that message, but never for the first
    /// message of a call.
    Properties(&'f mut dyn FnMut(&[u8]) -> Option<bool>),
}

/// The status of a read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum GetStatus {
    Found,
    /// The filter accepts no message of the range.
    #[default]
    NoMatchedMessage,
    /// The queue has never had a message.
    NoMessageInQueue,
    /// The messages of the range were deleted from the log.
    MessageWasRemoving,
    /// The queue does not exist. Never returned by the store, which is called with a queue.
    NoMatchedLogicQueue,
    /// The queue's entry cannot be read.
    OffsetFoundNull,
    /// The offset is beyond the end.
    OffsetOverflowBadly,
    /// The offset is the end, where the next message will be.
    OffsetOverflowOne,
    /// The offset is before the beginning.
    OffsetTooSmall,
    /// The consumer's offset was reset. Returned by the broker, never by the store.
    OffsetReset,
}

impl GetStatus {
    /// Returns the name in Apache's answers.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Found => "FOUND",
            Self::NoMatchedMessage => "NO_MATCHED_MESSAGE",
            Self::NoMessageInQueue => "NO_MESSAGE_IN_QUEUE",
            Self::MessageWasRemoving => "MESSAGE_WAS_REMOVING",
            Self::NoMatchedLogicQueue => "NO_MATCHED_LOGIC_QUEUE",
            Self::OffsetFoundNull => "OFFSET_FOUND_NULL",
            Self::OffsetOverflowBadly => "OFFSET_OVERFLOW_BADLY",
            Self::OffsetOverflowOne => "OFFSET_OVERFLOW_ONE",
            Self::OffsetTooSmall => "OFFSET_TOO_SMALL",
            Self::OffsetReset => "OFFSET_RESET",
        }
    }
}

/// The result of a read, reused for reads of one store.
#[derive(Default, Debug)]
pub struct GetResult {
    pub status: GetStatus,
    /// The offset to read next.
    pub next_begin: QueueOffset,
    /// The queue's first offset.
    pub(crate) min: QueueOffset,
    /// The queue's offset after the last message.
    pub(crate) max: QueueOffset,
    /// The records in order; records adjacent in the log are one slice.
    pub slices: Vec<Bytes>,
    pub bytes: usize,
    pub count: u32,
    /// Units that the last read copied ahead.
    cache: QueueFileCache,
}

impl GetResult {
    /// Drops the messages so that their memory can be freed; keeps the lists for the next read.
    pub(crate) fn clear(&mut self) {
        self.slices.clear();
        (self.bytes, self.count) = (0, 0);
    }

    /// Touches every page of the messages, so that they are in memory when another thread writes them to a socket.
    pub(crate) fn touch(&self) {
        for page in self.slices.iter().flat_map(|slice| slice.chunks(PAGE_BYTES)) {
            std::hint::black_box(page.first());
        }
    }

    /// Returns the memory of the lists, filled or not.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.slices.capacity() * size_of::<Bytes>() + self.cache.kept_bytes()
    }

    /// Frees that memory, dropping the result.
    pub(crate) fn shrink(&mut self) {
        *self = Self::default();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Boundary {
    /// The first stored at that time or later.
    Lower,
    /// The last stored at that time or earlier.
    Upper,
}

/// The result of a query by key.
#[derive(Default, Debug)]
pub struct QueryResult {
    pub records: Vec<Bytes>,
    pub(crate) last_timestamp_ms: i64,
    pub(crate) last_physical: u64,
}

/// Reads log and derived files together.
pub(super) struct StoreReader<'a> {
    pub(super) log: &'a CommitLog,
    pub(super) derived: &'a DerivedFiles,
}

impl StoreReader<'_> {
    /// Reads a range of a queue; calls `filter` before a message is examined. Returns false, with nothing read, if
    /// the first message is further than `hot_bytes` from the end of the log. If an error follows some messages,
    /// they are the result, and the next read returns the error.
    pub(super) fn get(
        &self,
        queue: &ConsumeQueue,
        ask: &Get,
        hot_bytes: u64,
        filter: &mut ReadFilter<'_>,
        into: &mut GetResult,
    ) -> Result<bool, StoreError> {
        let (min, max) = (queue.min(), queue.max());
        into.slices.clear();
        (into.min, into.max, into.bytes, into.count) = (min, max, 0, 0);
        let outside = if max.0 == 0 {
            Some((GetStatus::NoMessageInQueue, QueueOffset(0)))
        } else if ask.offset < min {
            Some((GetStatus::OffsetTooSmall, min))
        } else if ask.offset == max {
            Some((GetStatus::OffsetOverflowOne, max))
        } else if ask.offset > max {
            Some((GetStatus::OffsetOverflowBadly, max))
        } else {
            None
        };
        match outside {
            Some((status, next)) => {
                (into.status, into.next_begin) = (status, next);
                Ok(true)
            }
            None => {
                let mut cache = mem::take(&mut into.cache);
                let is_read = self.get_within(queue, ask, hot_bytes, filter, &mut cache, into);
                into.cache = cache;
                is_read
            }
        }
    }

    fn get_within(
        &self,
        queue: &ConsumeQueue,
        ask: &Get,
        hot_bytes: u64,
        filter: &mut ReadFilter<'_>,
        cache: &mut QueueFileCache,
        into: &mut GetResult,
    ) -> Result<bool, StoreError> {
        let bytes_max = ask.bytes_max.clamp(*READ_BYTES.start(), *READ_BYTES.end());
        let examined_max = EXAMINED_UNITS_MIN.max(u64::from(ask.messages_max));
        let limit = into.max.0.min(ask.offset.0 + examined_max);
        let mut run = IoRange::default();
        let mut removed_until = 0;
        into.status = GetStatus::NoMatchedMessage;
        into.next_begin = ask.offset;
        'units: while into.next_begin.0 < limit {
            let units = match cache.units(&self.derived.queues, queue, into.next_begin.0..limit) {
                Err(error) if into.next_begin == ask.offset => return Err(error),
                units => units.unwrap_or_default().iter().map(Unit::decode),
            };
            let Some(first) = units.clone().next() else { break };
            if into.next_begin == ask.offset && !self.is_near(first.physical, hot_bytes) {
                // Consumers that lag read what was sent one after the other: readahead has brought most of it.
                let last = units.clone().take(ask.messages_max as usize).next_back().unwrap_or(first);
                if !self
                    .log
                    .segments()
                    .is_resident(first.physical..last.physical.saturating_add(last.size.into()))
                {
                    return Ok(false);
                }
            }
            for unit in units {
                let is_full = into.count > 0
                    && (into.count >= ask.messages_max || into.bytes + unit.size as usize > bytes_max);
                if is_full || !unit.is_plausible() {
                    break 'units;
                }
                let offset = into.next_begin.0;
                into.next_begin = into.next_begin.advanced(1);
                if unit.physical < removed_until {
                    continue;
                }
                let is_wanted = match filter {
                    ReadFilter::Codes(accept) => Some(accept(unit.tags_code)),
                    ReadFilter::Properties(select) => self.is_selected(&unit, *select),
                };
                match is_wanted {
                    Some(true) => {}
                    Some(false) => continue,
                    None => {
                        into.next_begin = QueueOffset(offset);
                        break 'units;
                    }
                }
                let claimed = (!queue.is_light()).then_some(offset);
                if run.add(self.log, &unit, claimed, &mut into.slices) {
                    into.status = GetStatus::Found;
                    into.bytes += unit.size as usize;
                    into.count += 1;
                } else {
                    if unit.physical < self.log.segments().begin() {
                        // Its file was deleted, like everything else before the log's beginning.
                        removed_until = self.log.segments().begin();
                    }
                    if into.count == 0 {
                        into.status = GetStatus::MessageWasRemoving;
                    }
                }
            }
        }
        run.finish(&mut into.slices);
        if into.next_begin == ask.offset {
            // Nothing was readable there, but the next file may be sound.
            let file_units = self.derived.queues.files().file_units();
            into.status = GetStatus::OffsetFoundNull;
            into.next_begin = QueueOffset((ask.offset.0 / file_units + 1) * file_units).min(into.max);
        }
        Ok(true)
    }

    /// Calls `select` for a record. A record not in the log counts as selected; the caller notices that it is
    /// missing.
    fn is_selected(&self, unit: &Unit, select: &mut dyn FnMut(&[u8]) -> Option<bool>) -> Option<bool> {
        let selected = record_at(self.log.segments(), unit.physical, |record| select(record.properties()));
        selected.unwrap_or(Some(true))
    }

    pub(super) fn record(&self, at: PhysicalOffset, visible: PhysicalOffset) -> Option<Bytes> {
        let size = record_at(self.log.segments(), at.0, |record| record.total_size())?;
        if at.0 + size as u64 > visible.0 {
            return None;
        }
        if let Some(part) = self.log.segments().part_at(at.0) {
            return part.bytes_from(at.0).get(..size).map(Bytes::copy_from_slice);
        }
        let segment = self.log.segments().find(at.0)?;
        let is_sound = self.log.checksums().is_sound(&segment, at.0..at.0 + size as u64);
        is_sound.then(|| self.log.segments().slice(at.0, size))?
    }

    pub(super) fn store_time(
        &self,
        queue: &ConsumeQueue,
        offset: QueueOffset,
    ) -> Result<Option<i64>, StoreError> {
        if offset < queue.min() || offset >= queue.max() {
            return Ok(None);
        }
        let unit = self.derived.queues.unit(queue, offset.0)?;
        Ok(unit.and_then(|unit| {
            record_at(self.log.segments(), unit.physical, |record| record.store_timestamp_ms())
        }))
    }

    /// Returns the offset for a time, always within the queue. Ignores messages with times beyond both the clock and
    /// `timestamp_ms`: see [`credible`](Self::credible).
    pub(super) fn offset_by_time(
        &self,
        queue: &ConsumeQueue,
        timestamp_ms: i64,
        boundary: Boundary,
    ) -> Result<QueueOffset, StoreError> {
        let (min, max) = (queue.min().0, queue.max().0);
        let is_before = |stored: Option<i64>| match stored {
            Some(stored) if boundary == Boundary::Lower => stored < timestamp_ms,
            Some(stored) => stored <= timestamp_ms,
            // Deleted from the log, so older than everything in it.
            None => true,
        };
        let now = self.log.clock().wall_ms() as i64;
        let latest = timestamp_ms.max(now.saturating_add(STORE_TIME_AHEAD_MS_MAX));
        let (mut low, mut high) = (min, max);
        while low < high {
            let middle = low + (high - low) / 2;
            let (at, stored) = self.credible(queue, middle..high, latest)?;
            if is_before(stored) {
                low = at + 1;
            } else {
                high = middle;
            }
        }
        Ok(match boundary {
            Boundary::Lower => QueueOffset(low),
            Boundary::Upper => QueueOffset(low.saturating_sub(1).max(min)),
        })
    }

    /// Returns the first of these offsets with a store time up to `latest`, and that time, or the last offset.
    /// Messages before it were stamped by a clock that was ahead, and they are older than the message there.
    fn credible(
        &self,
        queue: &ConsumeQueue,
        offsets: Range<u64>,
        latest: i64,
    ) -> Result<(u64, Option<i64>), StoreError> {
        let time = |offset: u64| self.store_time(queue, QueueOffset(offset));
        let is_credible = |stored: Option<i64>| stored.is_none_or(|stored| stored <= latest);
        let (mut at, mut stored) = (offsets.start, time(offsets.start)?);
        let (mut ahead, mut step) = (at, 1);
        while !is_credible(stored) && at + 1 < offsets.end {
            ahead = at;
            at = (at + step).min(offsets.end - 1);
            stored = time(at)?;
            step *= 2;
        }
        // The end of the range lies in the last step.
        while is_credible(stored) && at - ahead > 1 {
            let middle = ahead + (at - ahead) / 2;
            match time(middle)? {
                found if is_credible(found) => (at, stored) = (middle, found),
                _ => ahead = middle,
            }
        }
        Ok((at, stored))
    }

    /// Returns records of `topic` with a key of this hash, stored within `begin_ms..=end_ms`, newest first.
    pub(super) fn query(
        &self,
        topic: &str,
        hash: i32,
        records_max: usize,
        begin_ms: i64,
        end_ms: i64,
        visible: PhysicalOffset,
    ) -> Result<QueryResult, StoreError> {
        let mut result = QueryResult::default();
        let Some(index) = &self.derived.index else { return Ok(result) };
        let records_max = records_max.min(QUERY_RECORDS_MAX);
        let mut end_ms = end_ms;
        for _ in 0..QUERY_ROUNDS {
            let mut hits = index.find(hash, records_max, begin_ms, end_ms)?;
            result.last_timestamp_ms = hits.last_timestamp_ms;
            result.last_physical = hits.last_physical;
            hits.physical.sort_unstable_by(|a, b| b.cmp(a));
            hits.physical.dedup();
            for at in &hits.physical {
                let is_hit = record_at(self.log.segments(), *at, |record| record.topic() == topic.as_bytes());
                if is_hit == Some(true) {
                    result.records.extend(self.record(PhysicalOffset(*at), visible));
                }
            }
            // Colliding hashes of other topics may have used up all results.
            let oldest = hits
                .physical
                .last()
                .and_then(|at| record_at(self.log.segments(), *at, |record| record.store_timestamp_ms()));
            match oldest {
                Some(oldest) if result.records.is_empty() && oldest > begin_ms => end_ms = oldest,
                _ => break,
            }
        }
        Ok(result)
    }

    /// Returns whether a message exists at `offset`, at most `bytes` from the end of the log.
    pub(super) fn has_near(
        &self,
        queue: &ConsumeQueue,
        offset: QueueOffset,
        bytes: u64,
    ) -> Result<bool, StoreError> {
        let unit = self.derived.queues.unit(queue, offset.0.max(queue.min().0))?;
        Ok(unit.is_some_and(|unit| self.is_near(unit.physical, bytes)))
    }

    /// Returns whether a position of the log is at most `bytes` from its end.
    pub(super) fn is_near(&self, at: u64, bytes: u64) -> bool {
        self.log.published().0.saturating_sub(at) <= bytes
    }
}
