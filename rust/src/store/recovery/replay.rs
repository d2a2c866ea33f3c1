//! Replay: records of the log for the derived files, read again.
//!
//! Owns the decision about each record that recovery reads: which queue takes its unit, whether the index takes its
//! keys, and which queues have to be replayed from further back because older records are missing.
//!
//! The offsets of a queue increase by one along the log. A record *out of turn* is judged by the next one of its
//! queue, because no checksum of RocketMQ's format covers the offset: if the next one continues from it, the queue was
//! created again, or part of the log is gone; otherwise the record is damaged. Lost records keep their places in the
//! queue.
//!
//! *Invariant*: a queue gets its records in log order, each once, or none at all; no offset is larger than the log
//! explains.
//! Threads: recovery.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use crate::message::record::RecordView;
use crate::message::{multi_dispatch, sysflag, tag};
use crate::positions::{QueueKey, QueueOffset};
use crate::store::derived::{
    ConsumeQueue, Derived, DerivedFiles, DispatchRequest, Queues, UNIT_BYTES, Unit, weight_of,
};
use crate::store::error::{StoreError, unless_full};
use crate::store::log::{Found, LastRecord, Segments, record_at};

use super::deleted_topics::DeletedTopics;
use super::progress::RecoveryProgress;

/// The largest offset that fits into the files of a queue, whose positions are signed.
const QUEUE_OFFSET_MAX: u64 = i64::MAX as u64 / UNIT_BYTES as u64 - 1;
/// Records between two writes, which bounds the memory.
const RECORDS_BETWEEN_WRITES: usize = 1 << 16;
/// Maximum number of records whose units and keys stay in memory while the disk is full: some 200 MiB.
const RECORDS_IN_MEMORY_MAX: usize = 1 << 22;

/// The records that the queues hold from before the replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplayBase {
    /// All records: offsets continue from there.
    Held,
    /// No record is left in the log: a queue may begin at any offset.
    Expired,
    /// Unknown: a queue whose offsets do not follow has to be replayed from the beginning of the log.
    InDoubt,
}

pub(crate) struct Replay<'a> {
    derived: &'a DerivedFiles,
    progress: &'a RecoveryProgress,
    deleted: &'a DeletedTopics,
    log_begin: u64,
    from: u64,
    /// The only queues to fill; `None` fills all.
    pub(crate) only: Option<HashSet<QueueKey>>,
    base: ReplayBase,
    /// Queues that cannot be filled, because older records are missing.
    pub(crate) skips: HashSet<QueueKey>,
    /// Records out of turn that no other record of their queue has followed yet.
    suspects: HashMap<QueueKey, Entry>,
    pub(crate) fills_index: bool,
    /// The number of damaged bytes that were deleted from the log.
    pub(crate) lost_bytes: u64,
    /// Damaged ranges of the log, in order.
    pub(crate) damage: Vec<Range<u64>>,
    /// Position of the newest record.
    last: Option<u64>,
    /// The number of records, and of their places in light queues.
    records: usize,
    /// That number at the last write, and at the last successful write.
    tried: usize,
    written: usize,
}

/// A unit, and the offset that its record claims.
struct Entry {
    queue: Arc<ConsumeQueue>,
    offset: QueueOffset,
    unit: Unit,
}

impl Entry {
    /// Returns whether the files of a queue can hold an entry at this offset.
    fn has_a_place(&self) -> bool {
        self.offset.0 <= QUEUE_OFFSET_MAX
    }
}

impl<'a> Replay<'a> {
    /// Starts a replay of everything from `from` on, of a log that begins at `log_begin`.
    pub(crate) fn new(
        derived: &'a DerivedFiles,
        progress: &'a RecoveryProgress,
        deleted: &'a DeletedTopics,
        log_begin: u64,
        (from, base): (u64, ReplayBase),
    ) -> Self {
        Self {
            derived,
            progress,
            deleted,
            log_begin,
            from,
            base,
            only: None,
            skips: HashSet::new(),
            suspects: HashMap::new(),
            fills_index: true,
            lost_bytes: 0,
            damage: Vec::new(),
            last: None,
            records: 0,
            tried: 0,
            written: 0,
        }
    }

    /// Returns the newest record. Computed once, at the end: hashing every record's topic costs as much as reading
    /// it.
    pub(crate) fn last(&self, segments: &Segments) -> Option<LastRecord> {
        record_at(segments, self.last?, |record| LastRecord::of(record, self.deleted))
    }

    /// Takes the record or damage at `at`, the next one of the log.
    pub(crate) fn take(&mut self, at: u64, found: Found<'_>) -> Result<(), StoreError> {
        let record = match found {
            Found::Record(record) => record,
            Found::Damage(until) => {
                self.damage.push(at..until);
                return Ok(());
            }
        };
        self.last = Some(at);
        // Inner batches belong to queues of another kind, which stay unchanged.
        if record.sys_flag() & sysflag::INNER_BATCH != 0 {
            return Ok(());
        }
        if self.records - self.tried >= RECORDS_BETWEEN_WRITES {
            self.tried = self.records;
            self.write()?;
        }
        self.take_lights(at, record)?;
        if self.deleted.covers(record.topic(), at) {
            return Ok(());
        }
        let Ok(topic) = std::str::from_utf8(record.topic()) else { return Ok(()) };
        // A send cannot use a topic that cannot name a directory; the record keeps its place in the log.
        let Ok(queue) = self.derived.queues.get_or_create(topic, record.queue_id()) else { return Ok(()) };
        let dispatch = DispatchRequest::of(record, queue);
        if dispatch.is_queued() {
            let unit = Unit { physical: at, size: dispatch.size, tags_code: dispatch.tags_code };
            let queue = Arc::clone(&dispatch.queue);
            self.take_into_queue(Entry { queue, offset: dispatch.queue_offset, unit })?;
        }
        if let Some(index) = self.derived.index.as_ref().filter(|_| self.fills_index) {
            index.take(slice::from_ref(&dispatch));
        }
        self.records += 1;
        self.progress.reached(at - self.from);
        Ok(())
    }

    /// Takes a record into its light queues, whether or not its own topic was deleted.
    fn take_lights(&mut self, at: u64, record: &RecordView<'_>) -> Result<(), StoreError> {
        for (name, offset) in multi_dispatch::places(record.topic(), record.properties()) {
            if self.deleted.covers(name.as_bytes(), at) {
                continue;
            }
            let Ok(queue) = self.derived.queues.get_or_create(name, 0) else { continue };
            self.records += 1;
            let tags_code = tag::tags_code(record.properties());
            let unit = Unit { physical: at, size: record.total_size() as u32, tags_code };
            self.take_into_light(Entry { queue, offset, unit })?;
        }
        Ok(())
    }

    /// Takes a record into a light queue, which may lack records: those of topics that only another broker admits, or that
    /// a copy of the store left out. A smaller offset than the next is that of another queue of this name, or a mistake.
    fn take_into_light(&mut self, entry: Entry) -> Result<(), StoreError> {
        let key = entry.queue.key();
        let is_wanted = self.only.as_ref().is_none_or(|only| only.contains(key)) && !self.skips.contains(key);
        if !is_wanted || self.enter(&entry) || !entry.has_a_place() {
            return Ok(());
        }
        match self.base {
            ReplayBase::InDoubt => drop(self.skips.insert(key.clone())),
            _ if entry.offset.0 > 0 && entry.offset < entry.queue.max() => {}
            ReplayBase::Expired | ReplayBase::Held => self.start_over(&entry)?,
        }
        Ok(())
    }

    /// Writes the rebuilt data. On a full disk it stays in memory, up to a limit.
    fn write(&mut self) -> Result<(), StoreError> {
        match unless_full(self.derived.write())? {
            Some(error) if self.records - self.written > RECORDS_IN_MEMORY_MAX => return Err(error),
            Some(_) => {}
            None => self.written = self.records,
        }
        Ok(())
    }

    /// Decides about the last suspects. `ends` are the offsets that queues had reached before they were emptied: a
    /// queue whose newest records are damaged does not assign their offsets again.
    pub(crate) fn finish(&mut self, ends: &HashMap<QueueKey, u64>) -> Result<(), StoreError> {
        for suspect in std::mem::take(&mut self.suspects).into_values() {
            let Entry { queue, offset, unit } = &suspect;
            // With only two records, which contradict each other: damage produces large numbers rather than small
            // ones.
            let first = self.newest(queue)?.filter(|_| queue.max() == queue.min().advanced(1));
            let wrong = first.filter(|_| self.base == ReplayBase::Expired && *offset < queue.min());
            if let Some(wrong) = wrong {
                self.note_damage(&wrong);
            }
            // A queue created again begins at 0. Older records of topics deleted by rmqpy were filtered out before.
            if wrong.is_some() || (offset.0 == 0 && self.base == ReplayBase::Expired) {
                self.start_over(&suspect)?;
            } else {
                self.note_damage(unit);
                self.fill(queue, queue.max().0 + 1, unit.physical, u64::from(unit.size));
            }
        }
        for (key, end) in ends {
            if let Some(queue) = self.derived.queues.get(&key.topic, key.queue_id) {
                self.bridge(&queue, *end)?;
            }
        }
        Ok(())
    }

    fn take_into_queue(&mut self, entry: Entry) -> Result<(), StoreError> {
        let key = entry.queue.key();
        if self.only.as_ref().is_some_and(|only| !only.contains(key)) || self.skips.contains(key) {
            return Ok(());
        }
        if let Some(suspect) = self.suspects.remove(key) {
            match suspect.has_a_place() && entry.offset == suspect.offset.advanced(1) {
                true => self.start_over(&suspect)?,
                false => self.note_damage(&suspect.unit),
            }
        }
        if self.enter(&entry) || (self.bridge(&entry.queue, entry.offset.0)? && self.enter(&entry)) {
            return Ok(());
        }
        let begins = entry.has_a_place() && self.newest(&entry.queue)?.is_none();
        match self.base {
            ReplayBase::InDoubt => drop(self.skips.insert(key.clone())),
            ReplayBase::Expired if begins => self.start_over(&entry)?,
            ReplayBase::Expired | ReplayBase::Held => drop(self.suspects.insert(key.clone(), entry)),
        }
        Ok(())
    }

    /// Adds the next unit of a queue; returns false, with nothing done, if it is not the next.
    fn enter(&self, entry: &Entry) -> bool {
        self.derived.queues.restore(&entry.queue, entry.offset, entry.unit)
    }

    /// Continues a queue at an entry that does not follow.
    fn start_over(&self, entry: &Entry) -> Result<(), StoreError> {
        let Entry { queue, offset, unit } = entry;
        self.derived.queues.start_over(queue, *offset, unit.physical, self.log_begin)?;
        self.enter(entry);
        Ok(())
    }

    fn newest(&self, queue: &ConsumeQueue) -> Result<Option<Unit>, StoreError> {
        self.derived.queues.newest(queue, self.log_begin)
    }

    /// Fills the places up to `until` if damage after the queue's newest record explains the gap, so that the others
    /// keep their offsets. Returns false if it does not.
    fn bridge(&self, queue: &Arc<ConsumeQueue>, until: u64) -> Result<bool, StoreError> {
        let Some(newest) = self.newest(queue)? else { return Ok(false) };
        let between = || self.damage.iter().filter(|damage| damage.start >= newest.end());
        let bytes = between().map(|damage| damage.end - damage.start).sum::<u64>() + self.lost_bytes;
        let at = between().next().map_or(newest.end() - 1, |damage| damage.start);
        Ok(self.fill(queue, until, at, bytes))
    }

    fn fill(&self, queue: &Arc<ConsumeQueue>, until: u64, at: u64, bytes: u64) -> bool {
        self.derived.queues.fill(queue, until, at, bytes)
    }

    /// Counts a record as damaged although its lengths and its body are valid.
    fn note_damage(&mut self, unit: &Unit) {
        let place = self.damage.partition_point(|damage| damage.start < unit.physical);
        self.damage.insert(place, unit.physical..unit.end());
    }
}

impl LastRecord {
    /// Describes a record of the log, checking whether its topic was deleted since.
    pub(crate) fn of(record: &RecordView<'_>, deleted: &DeletedTopics) -> Self {
        let weight = weights_of(record, deleted).into_iter().fold(0_u64, u64::wrapping_add);
        Self { physical: record.physical_offset().0, store_timestamp_ms: record.store_timestamp_ms(), weight }
    }
}

/// Returns what a record of the log adds to the digest in each of its queues, except those of topics that were deleted
/// since.
pub(super) fn weights_of(record: &RecordView<'_>, deleted: &DeletedTopics) -> Vec<u64> {
    let is_kept = |topic: &[u8]| !deleted.covers(topic, record.physical_offset().0);
    let own = (sysflag::is_queued(record.sys_flag()) && is_kept(record.topic()))
        .then(|| weight_of(record.topic(), record.queue_id()));
    let places = multi_dispatch::places(record.topic(), record.properties());
    let names = places.iter().map(|(name, _)| name.as_bytes()).filter(|name| is_kept(name));
    own.into_iter().chain(names.map(|name| weight_of(name, 0))).collect()
}

/// Empties queues that will be filled from the beginning of the log.
pub(crate) fn empty(queues: &Queues, keys: impl Iterator<Item = QueueKey>) -> Result<(), StoreError> {
    for key in keys {
        let queue = queues.get_or_create(&key.topic, key.queue_id)?;
        queues.restart(&queue, 0)?;
    }
    Ok(())
}
