//! Reading: the read operations of an open store; `lookup` implements them.
//!
//! Threads: any. Reads that may block on the disk belong on [`Store::read_later`].

use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::message::tag;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::derived::{ConsumeQueue, UNIT_BYTES, Unit};
use crate::store::error::StoreError;
use crate::store::log::record_at;
use crate::store::read::lookup::{Boundary, Get, GetResult, QueryResult, ReadFilter, StoreReader};

use crate::store::Store;

/// Maximum number of units per query, and of encoded ones.
const UNITS_MAX: usize = 1_024;
const ENCODED_UNITS_MAX: u64 = 65_536;

impl Store {
    fn reader(&self) -> StoreReader<'_> {
        StoreReader { log: &self.log, derived: self.dispatcher.derived() }
    }

    /// Reads a range of a queue; calls `accept` with the tags code of every message.
    pub fn get(
        &self,
        queue: &ConsumeQueue,
        ask: &Get,
        accept: &mut dyn FnMut(i64) -> bool,
        into: &mut GetResult,
    ) -> Result<(), StoreError> {
        self.get_near(queue, ask, u64::MAX, &mut ReadFilter::Codes(accept), into).map(drop)
    }

    /// Reads a range of a queue with any kind of filter.
    pub(crate) fn get_filtered(
        &self,
        queue: &ConsumeQueue,
        ask: &Get,
        filter: &mut ReadFilter<'_>,
        into: &mut GetResult,
    ) -> Result<(), StoreError> {
        self.get_near(queue, ask, u64::MAX, filter, into).map(drop)
    }

    /// Reads like [`get_filtered`](Self::get_filtered) if that will not block on the disk; otherwise returns false,
    /// with nothing read.
    pub(crate) fn get_hot(
        &self,
        queue: &ConsumeQueue,
        ask: &Get,
        filter: &mut ReadFilter<'_>,
        into: &mut GetResult,
    ) -> Result<bool, StoreError> {
        self.get_near(queue, ask, self.hot_bytes(), filter, into)
    }

    fn get_near(
        &self,
        queue: &ConsumeQueue,
        ask: &Get,
        hot_bytes: u64,
        filter: &mut ReadFilter<'_>,
        into: &mut GetResult,
    ) -> Result<bool, StoreError> {
        let read = if queue.is_compacted() && ask.offset < queue.max() {
            if hot_bytes != u64::MAX {
                return Ok(false);
            }
            self.compaction.get(queue, ask, filter, into).map(|()| true)
        } else {
            self.reader().get(queue, ask, hot_bytes, filter, into)
        };
        match read {
            Ok(true) => self.count(into),
            Ok(false) => {}
            Err(_) => drop(self.counters.gets_failed.fetch_add(1, Ordering::Relaxed)),
        }
        read
    }

    fn count(&self, got: &GetResult) {
        self.counters.gets.fetch_add(1, Ordering::Relaxed);
        match got.count {
            0 => self.counters.gets_missed.fetch_add(1, Ordering::Relaxed),
            count => self.counters.got_messages.fetch_add(u64::from(count), Ordering::Relaxed),
        };
    }

    /// Returns whether a read at a position of the log will not block on the disk.
    pub(crate) fn is_hot(&self, at: PhysicalOffset) -> bool {
        self.reader().is_near(at.0, self.hot_bytes())
    }

    /// Returns whether a message exists at `offset`, and memory may hold everything from there to the end of the
    /// log.
    pub(crate) fn may_be_in_memory(
        &self,
        queue: &ConsumeQueue,
        offset: QueueOffset,
    ) -> Result<bool, StoreError> {
        self.reader().has_near(queue, offset, self.in_memory_bytes)
    }

    /// Returns the bytes assumed to be in memory: less than the limit, because other processes need memory, too.
    fn hot_bytes(&self) -> u64 {
        let bytes = self.in_memory_bytes / 4;
        let segments = self.log.segments();
        let published = self.log.published().0;
        segments.write_ring().map_or(bytes, |ring| bytes.min(published.saturating_sub(ring.in_memory_from())))
    }

    /// Returns units of a queue from `offset` on, at most `UNITS_MAX`, and fewer than `count` at its end.
    pub(crate) fn units(
        &self,
        queue: &ConsumeQueue,
        offset: QueueOffset,
        count: usize,
    ) -> Result<Vec<Unit>, StoreError> {
        let queues = &self.dispatcher.derived().queues;
        let end = queue.max().0.min(offset.0.saturating_add(count.min(UNITS_MAX) as u64));
        (offset.0..end).map_while(|at| queues.unit(queue, at).transpose()).collect()
    }

    /// Returns the offset of a queue's first message whose record is at `position` or later; its end without one.
    pub(crate) fn first_from(
        &self,
        queue: &ConsumeQueue,
        position: PhysicalOffset,
    ) -> Result<QueueOffset, StoreError> {
        self.dispatcher.derived().queues.first_from(queue, position.0).map(QueueOffset)
    }

    /// Returns the encoded units `begin..end` of a queue, at most `ENCODED_UNITS_MAX`, fewer at its end.
    pub(crate) fn encoded_units(
        &self,
        queue: &ConsumeQueue,
        begin: QueueOffset,
        end: QueueOffset,
    ) -> Result<Vec<u8>, StoreError> {
        let queues = &self.dispatcher.derived().queues;
        let wanted = end.0.min(queue.max().0).saturating_sub(begin.0).min(ENCODED_UNITS_MAX);
        let mut units = vec![[0; UNIT_BYTES]; wanted as usize];
        let mut done = 0;
        while let Some(rest) = units.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match queues.read(queue, begin.0 + done as u64, rest)? {
                0 => break,
                count => done += count,
            }
        }
        units.truncate(done);
        Ok(units.into_flattened())
    }

    /// Runs `read` on the thread for reads that may block on the disk. Returns false, with nothing done, if its
    /// queue is full or the store is closed.
    pub fn read_later(&self, read: impl FnOnce(&Self) + Send + 'static) -> bool {
        let reads = self.cold_reads.lock();
        reads.as_ref().is_some_and(|reads| reads.try_send(Box::new(read)).is_ok())
    }

    /// Returns the record that begins at `at`; `None` if none begins there, or it is not visible.
    #[must_use]
    pub fn lookup(&self, at: PhysicalOffset) -> Option<Bytes> {
        self.reader().record(at, self.visible())
    }

    /// Returns the record of a unit that a queue has shown; `None` if it was deleted from the log. Queues show
    /// messages shortly before `visible` passes them, so the readers of a queue must not check that.
    pub(crate) fn lookup_queued(&self, at: PhysicalOffset) -> Option<Bytes> {
        self.reader().record(at, self.log.published())
    }

    /// Returns records of `topic` with `key`, stored within `begin_ms..=end_ms`, newest first; at most
    /// [`QUERY_RECORDS_MAX`]. Keys are compared by hash; clients discard collisions.
    pub fn query(
        &self,
        topic: &str,
        key: &str,
        records_max: usize,
        begin_ms: i64,
        end_ms: i64,
    ) -> Result<QueryResult, StoreError> {
        let hash = tag::key_hash(topic.as_bytes(), key.as_bytes());
        self.reader().query(topic, hash, records_max, begin_ms, end_ms, self.visible())
    }

    /// Returns the offset for a time, always within the queue.
    pub fn offset_by_time(
        &self,
        queue: &ConsumeQueue,
        timestamp_ms: i64,
        boundary: Boundary,
    ) -> Result<QueueOffset, StoreError> {
        self.reader().offset_by_time(queue, timestamp_ms, boundary)
    }

    /// Returns the store time of the message at an offset, if there is one.
    pub fn store_time(&self, queue: &ConsumeQueue, offset: QueueOffset) -> Result<Option<i64>, StoreError> {
        self.reader().store_time(queue, offset)
    }

    /// Returns the store time of the oldest message of a queue.
    pub fn earliest_store_time(&self, queue: &ConsumeQueue) -> Result<Option<i64>, StoreError> {
        self.store_time(queue, queue.min())
    }

    /// Returns the store time of the newest visible message.
    pub(crate) fn last_store_time(&self) -> Option<i64> {
        self.dispatcher.last().0.map(|last| last.store_timestamp_ms)
    }

    /// Returns the store time of the oldest message of the log, which may belong to a deleted topic.
    #[must_use]
    pub fn log_begin_time(&self) -> Option<i64> {
        let (begin, _) = self.range();
        (begin < self.visible())
            .then(|| record_at(self.log.segments(), begin.0, |record| record.store_timestamp_ms()))
            .flatten()
    }
}
