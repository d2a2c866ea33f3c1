//! From records of the log, read again, to the derived files.
//!
//! Owns what becomes of each record that recovery walks over: which queue takes its unit, whether the index takes its
//! keys, and which queues have to be fed from further back because older records are missing.
//!
//! Invariant: a queue gets its records in log order, each once, or none at all.
//! Threads: recovery.

use std::collections::HashSet;
use std::ops::Range;

use crate::message::{sysflag, tag};
use crate::positions::{QueueKey, QueueOffset};

use super::consume_queue::Unit;
use super::deleted::DeletedTopics;
use super::derived::{Derived, DerivedFiles};
use super::dispatch::{Dispatch, LastRecord};
use super::error::StoreError;
use super::key_hashes::KeyHashes;
use super::progress::Progress;
use super::queues::Queues;
use super::scan::{Found, record_at};
use super::segments::Segments;

/// Bytes of the smallest record.
const RECORD_BYTES_MIN: u64 = 90;
/// Records between two writes of what was rebuilt, which bounds the memory it takes.
const RECORDS_BETWEEN_WRITES: usize = 1 << 16;

/// Gives records of the log to the derived files.
pub struct Feed<'a> {
    derived: &'a DerivedFiles,
    progress: &'a Progress,
    deleted: &'a DeletedTopics,
    from: u64,
    /// The only queues to feed; `None` feeds all.
    pub only: Option<HashSet<QueueKey>>,
    /// Whether a queue starts over where its offsets do not follow. It must not while older records may be missing.
    pub restarts: bool,
    /// Queues that cannot be fed, because older records are missing.
    pub skips: HashSet<QueueKey>,
    /// Whether the index is fed.
    pub feeds_index: bool,
    /// What is damaged in the log, in order.
    pub damage: Vec<Range<u64>>,
    /// Position of the newest record.
    last: Option<u64>,
    records: usize,
}

impl<'a> Feed<'a> {
    /// A feed of everything from `from` on.
    pub fn new(
        derived: &'a DerivedFiles,
        progress: &'a Progress,
        deleted: &'a DeletedTopics,
        from: u64,
    ) -> Self {
        Self {
            derived,
            progress,
            deleted,
            from,
            only: None,
            restarts: false,
            skips: HashSet::new(),
            feeds_index: true,
            damage: Vec::new(),
            last: None,
            records: 0,
        }
    }

    /// The newest record that was taken. Looked at once, at the end: hashing every record's topic costs as much as
    /// reading it.
    pub fn last(&self, segments: &Segments) -> Option<LastRecord> {
        record_at(segments, self.last?, |record| LastRecord::of(record, self.deleted))
    }

    /// Takes what is at `at`, which is the next thing in the log.
    pub fn take(&mut self, at: u64, found: Found<'_>) -> Result<(), StoreError> {
        let record = match found {
            Found::Record(record) => record,
            Found::Damage(until) => {
                self.damage.push(at..until);
                return Ok(());
            }
        };
        self.last = Some(at);
        if self.deleted.covers(record.topic(), at) {
            return Ok(());
        }
        let Ok(topic) = std::str::from_utf8(record.topic()) else { return Ok(()) };
        // Inner batches live in queues of another kind, which are left as they are.
        if record.sys_flag() & sysflag::INNER_BATCH != 0 {
            return Ok(());
        }
        // A name that cannot be a directory cannot have come from a send; it keeps its place in the log.
        let Ok(queue) = self.derived.queues.get_or_create(topic, record.queue_id()) else { return Ok(()) };
        let dispatch = Dispatch {
            transaction: record.sys_flag() & sysflag::TRANSACTION_MASK,
            physical: record.physical_offset(),
            size: record.total_size() as u32,
            tags_code: queue.tags_code(tag::tags_code(record.properties()), record.store_timestamp_ms()),
            queue_offset: record.queue_offset(),
            store_timestamp_ms: record.store_timestamp_ms(),
            keys: KeyHashes::of(record.topic(), record.properties()),
            queue,
        };
        if dispatch.is_queued() {
            self.take_into_queue(&dispatch)?;
        }
        if let Some(index) = self.derived.index.as_ref().filter(|_| self.feeds_index) {
            index.take(&dispatch);
        }
        self.records += 1;
        if self.records.is_multiple_of(RECORDS_BETWEEN_WRITES) {
            self.derived.write()?;
        }
        self.progress.reached(at - self.from);
        Ok(())
    }

    fn take_into_queue(&mut self, record: &Dispatch) -> Result<(), StoreError> {
        let queues = &self.derived.queues;
        let key = record.queue.key();
        if self.only.as_ref().is_some_and(|only| !only.contains(key)) || self.skips.contains(key) {
            return Ok(());
        }
        let unit = Unit { physical: record.physical.0, size: record.size, tags_code: record.tags_code };
        if queues.restore(&record.queue, record.queue_offset, unit) {
            return Ok(());
        }
        if self.bridge(record)? && queues.restore(&record.queue, record.queue_offset, unit) {
            return Ok(());
        }
        if !self.restarts {
            self.skips.insert(key.clone());
            return Ok(());
        }
        // The topic was deleted and made again, or part of the log is gone: older messages of the queue cannot keep
        // their places, newer ones must.
        queues.restart(&record.queue, record.queue_offset.0)?;
        queues.restore(&record.queue, record.queue_offset, unit);
        Ok(())
    }
}

impl Feed<'_> {
    /// Puts units that lead nowhere in the places of messages that lie in damage between a queue's last record and this
    /// one, so that the others keep their offsets; `false` where no damage explains the gap.
    fn bridge(&self, record: &Dispatch) -> Result<bool, StoreError> {
        let (queues, queue) = (&self.derived.queues, &record.queue);
        let next = queue.max().0;
        if next == queue.min().0 || record.queue_offset.0 <= next {
            return Ok(false);
        }
        let missing = record.queue_offset.0 - next;
        let last = queues.unit(queue, next - 1).map_err(StoreError::io(queues.files().root(), "read"))?;
        let after = last.map_or(0, |last| last.end());
        let between = || self.damage.iter().filter(|damage| damage.start >= after);
        let bytes: u64 = between().map(|damage| damage.end - damage.start).sum();
        let Some(first) = between().next().filter(|_| missing <= bytes / RECORD_BYTES_MIN) else {
            return Ok(false);
        };
        // One byte each, so that positions grow from unit to unit.
        let lost = |index| Unit { physical: first.start + index, size: 1, tags_code: 0 };
        Ok((0..missing).all(|index| queues.restore(queue, QueueOffset(next + index), lost(index))))
    }
}

/// Empties queues that are to be fed from the begin of the log.
pub fn empty(queues: &Queues, keys: impl Iterator<Item = QueueKey>) -> Result<(), StoreError> {
    for key in keys {
        let queue = queues.get_or_create(&key.topic, key.queue_id)?;
        queues.restart(&queue, 0)?;
    }
    Ok(())
}
