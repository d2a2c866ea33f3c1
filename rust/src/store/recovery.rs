//! From whatever is on the disk to a store that may be written.
//!
//! Owns the decision how far back to read. After an orderly stop of ours that still matches the folder: nothing. After
//! a crash of ours: from the record of the checkpoint. After anybody else: from the begin of the file that holds it.
//! And from the begin of the log for what turns out to be missing. Reading ends at the first record that is not
//! whole; what follows is zeroed, durably, before anything is written.
//!
//! Invariants: running it twice changes nothing the second time, also when the first was cut short; nothing of the log
//! before its end is ever changed; when it returns, all that it found is durable.
//! Threads: whoever opens the store; `Progress` may be read from any.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::clock::SharedClock;
use crate::message::record::RecordView;
use crate::message::{sysflag, tag};
use crate::positions::QueueKey;

use super::checkpoint::{Checkpoint, CleanStop, Marks};
use super::consume_queue::{Unit, weight_of};
use super::deleted::DeletedTopics;
use super::derived::{Derived, DerivedFiles};
use super::disk::Disk;
use super::dispatch::Dispatch;
use super::error::StoreError;
use super::index::{Index, KeyHashes};
use super::options::Options;
use super::queue_load;
use super::queues::Queues;
use super::scan::{is_whole, record_at, walk};
use super::segments::{Active, Segments};

/// Records between two writes of what was rebuilt, which bounds the memory it takes.
const RECORDS_BETWEEN_WRITES: usize = 1 << 16;
/// The original distrusts its checkpoint's times by this much.
const TIMESTAMP_SLACK_MS: i64 = 3000;

/// What opening a store is busy with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Phase {
    /// Taking the lock.
    Locking,
    /// Reading what files there are.
    Loading,
    /// Reading the log from the last checkpoint on.
    Scanning,
    /// Reading the log from its begin, for queues or keys that are missing.
    Rebuilding,
    /// Bringing what was found to disk.
    Syncing,
    /// The store is open.
    Open,
}

const PHASES: [Phase; 6] =
    [Phase::Locking, Phase::Loading, Phase::Scanning, Phase::Rebuilding, Phase::Syncing, Phase::Open];

/// How far opening a store has come, for another thread to look at.
#[derive(Default, Debug)]
pub struct Progress {
    phase: AtomicUsize,
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Phase, bytes of the log read in it, and bytes to read in all.
    #[must_use]
    pub fn now(&self) -> (Phase, u64, u64) {
        let phase = PHASES.get(self.phase.load(Ordering::Relaxed)).copied().unwrap_or(Phase::Open);
        (phase, self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    pub(super) fn enter(&self, phase: Phase, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.phase.store(phase as usize, Ordering::Relaxed);
    }

    fn reached(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }
}

/// What recovery found and made.
pub struct Recovered {
    /// The files of the log.
    pub segments: Segments,
    /// Where it goes on.
    pub active: Active,
    /// Queues and index, with everything that is in the log.
    pub derived: DerivedFiles,
    /// Topics that must not come back from the log.
    pub deleted: DeletedTopics,
    /// The last record, if there is any.
    pub last: Option<LastRecord>,
    /// The checkpoint on disk.
    pub checkpoint: Checkpoint,
}

/// The newest record of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastRecord {
    /// Where it begins.
    pub physical: u64,
    /// When it was stored.
    pub store_timestamp_ms: i64,
    /// What it adds to the digest of the queues: nothing if it is in none.
    pub weight: u64,
}

impl LastRecord {
    fn of(record: &RecordView<'_>, deleted: &DeletedTopics) -> Self {
        let is_queued = record.sys_flag() & sysflag::INNER_BATCH == 0
            && !deleted.covers(record.topic(), record.physical_offset().0)
            && !matches!(
                record.sys_flag() & sysflag::TRANSACTION_MASK,
                sysflag::PREPARED | sysflag::ROLLBACK
            );
        let weight = if is_queued { weight_of(record.topic(), record.queue_id()) } else { 0 };
        Self { physical: record.physical_offset().0, store_timestamp_ms: record.store_timestamp_ms(), weight }
    }
}

/// Opens log, queues and index of the store in `options.root`, which this process has locked.
pub fn recover(
    options: &Options,
    disk: &Arc<dyn Disk>,
    clock: &SharedClock,
    marks: &Marks,
    progress: &Progress,
) -> Result<Recovered, StoreError> {
    progress.enter(Phase::Loading, 0);
    for name in ["commitlog", "consumequeue", "index"] {
        let dir = options.root.join(name);
        disk.create_dir(&dir).map_err(StoreError::io(&dir, "create"))?;
    }
    let log_dir = options.root.join("commitlog");
    let scratch = options.root.join("rmqpy").join("segment");
    let segments = Segments::load(Arc::clone(disk), log_dir, scratch, options.segment_bytes, options.medium)?;
    let (checkpoint, mark) = marks.load()?;
    let was_aborted = marks.is_aborted()?;
    marks.begin()?;
    let deleted = DeletedTopics::load(disk, &options.root, segments.begin())?;
    let recovery = Recovery { options, disk, clock, marks, progress, segments, deleted, checkpoint };
    match mark {
        Some(mark) => match mark.clean_stop.filter(|_| !was_aborted) {
            Some(stop) => recovery.after_clean_stop(stop),
            None => recovery.after_crash(Some(mark.queues)),
        },
        None => recovery.after_crash(None),
    }
}

struct Recovery<'a> {
    options: &'a Options,
    disk: &'a Arc<dyn Disk>,
    clock: &'a SharedClock,
    marks: &'a Marks,
    progress: &'a Progress,
    segments: Segments,
    deleted: DeletedTopics,
    checkpoint: Checkpoint,
}

impl Recovery<'_> {
    fn derived(&self) -> Result<DerivedFiles, StoreError> {
        let options = self.options;
        let index = Index::new(
            Arc::clone(self.disk),
            options.root.join("index"),
            Arc::clone(self.clock),
            options.index_slots,
            options.index_entries,
        );
        let queues = queue_load::open(self.disk, options)?;
        for topic in self.deleted.unfinished() {
            queues.files().remove_topic(&topic)?;
            self.deleted.finish(&topic)?;
        }
        Ok(DerivedFiles { queues, index: options.index_enabled.then_some(index) })
    }

    /// Takes everything as it was left, if it is as it was left.
    fn after_clean_stop(self, stop: CleanStop) -> Result<Recovered, StoreError> {
        let Some(last) = self.last_record_of(&stop) else { return self.after_crash(None) };
        let derived = self.derived()?;
        let damaged = queue_load::load(&derived.queues, &**self.disk, &self.segments, None)?;
        derived.queues.recount();
        if let Some(index) = &derived.index {
            index.load()?;
        }
        if !damaged.is_empty() || derived.digest() != stop.derived {
            drop(derived);
            let begin = self.segments.begin();
            return self.from(begin, None);
        }
        queue_load::correct_min_offsets(&derived.queues, self.segments.begin())?;
        let active = match self.segments.resume(stop.log_end)? {
            Some(active) => active,
            None => self.segments.create()?,
        };
        let Self { segments, deleted, checkpoint, .. } = self;
        Ok(Recovered { segments, active, derived, deleted, last, checkpoint })
    }

    /// The last record, if log and clean stop agree about the end of the log.
    fn last_record_of(&self, stop: &CleanStop) -> Option<Option<LastRecord>> {
        let last_file = self.segments.all().last().map_or(0, |segment| segment.limit());
        let ends_in_last_file =
            (last_file.saturating_sub(self.segments.size())..=last_file).contains(&stop.log_end);
        let is_zero_behind = self
            .segments
            .find(stop.log_end)
            .is_none_or(|segment| segment.bytes_from(stop.log_end).iter().take(4096).all(|byte| *byte == 0));
        if !ends_in_last_file || !is_zero_behind {
            return None;
        }
        if stop.last_record == stop.log_end {
            return Some(None);
        }
        record_at(&self.segments, stop.last_record, |record| {
            let is_same = crc32fast::hash(record.bytes()) == stop.last_record_crc;
            let last = LastRecord::of(record, &self.deleted);
            is_same.then_some(Some(last))
        })?
    }

    /// Reads the log from where the checkpoint is to be believed.
    ///
    /// `queues` is the digest that queues must have up to there, if the checkpoint is ours.
    fn after_crash(self, queues: Option<u64>) -> Result<Recovered, StoreError> {
        let record = self.checkpoint.record.max(0) as u64;
        let is_whole_there = record_at(&self.segments, record, |found| is_whole(found, record)) == Some(true);
        match queues.filter(|_| is_whole_there) {
            Some(queues) => self.from(record, Some(queues)),
            None => {
                let from = self.file_of_checkpoint().max(self.segments.begin());
                self.from(from, None)
            }
        }
    }

    /// Begin of the newest file that the checkpoint, ours or not, vouches for.
    fn file_of_checkpoint(&self) -> u64 {
        let times = self.checkpoint.log_timestamp_ms.min(self.checkpoint.queue_timestamp_ms);
        let files = self.segments.all();
        let candidate = files.iter().rev().find(|segment| {
            let base = segment.base();
            record_at(&self.segments, base, |first| {
                is_whole(first, base)
                    && match self.checkpoint.record {
                        // Brokers before 5.4 know times only.
                        0 => first.store_timestamp_ms() <= times - TIMESTAMP_SLACK_MS,
                        record => first.physical_offset().0 <= record.max(0) as u64,
                    }
            }) == Some(true)
        });
        candidate.map_or(0, |segment| segment.base())
    }

    /// Cuts queues and index at `from`, feeds them from there, and ends the log where it stops making sense.
    fn from(self, from: u64, queues: Option<u64>) -> Result<Recovered, StoreError> {
        let begin = self.segments.begin();
        let derived = self.derived()?;
        let loaded = queue_load::load(&derived.queues, &**self.disk, &self.segments, Some(from))?;
        let mut damaged: HashSet<QueueKey> = loaded.into_iter().collect();
        derived.queues.recount();
        if damaged.is_empty() && queues.is_some_and(|queues| queues != derived.queues.digest()) {
            // Somebody deleted files: which queues are missing, only the log knows.
            drop(derived);
            return self.from(begin, None);
        }
        let is_index_lost = match &derived.index {
            Some(index) => index.load_cut(from)? && from > begin,
            None => false,
        };
        let limit = self.segments.all().last().map_or(0, |segment| segment.limit());
        self.progress.enter(Phase::Scanning, limit - from.min(limit));
        let mut feed = Feed::new(&derived, &self, from);
        feed.feeds_index = !is_index_lost;
        feed.restarts = from == begin;
        if feed.restarts {
            empty(&derived.queues, damaged.drain())?;
        } else {
            feed.skips = damaged;
        }
        let (end, _) = walk(&self.segments, from, limit, |at, record| feed.take(at, record))?;
        let (mut last, damaged) = (feed.last, feed.skips);
        if !damaged.is_empty() || is_index_lost {
            last = self.rebuild(&derived, damaged, is_index_lost, begin..end)?.or(last);
        }
        queue_load::correct_min_offsets(&derived.queues, begin)?;
        self.settle(derived, last, from, end)
    }

    /// Feeds what is missing from the whole log.
    fn rebuild(
        &self,
        derived: &DerivedFiles,
        damaged: HashSet<QueueKey>,
        is_index_lost: bool,
        range: Range<u64>,
    ) -> Result<Option<LastRecord>, StoreError> {
        empty(&derived.queues, damaged.iter().cloned())?;
        self.progress.enter(Phase::Rebuilding, range.end - range.start);
        let mut feed = Feed::new(derived, self, range.start);
        feed.only = Some(damaged);
        feed.feeds_index = is_index_lost;
        feed.restarts = true;
        walk(&self.segments, range.start, range.end, |at, record| feed.take(at, record))?;
        Ok(feed.last)
    }

    /// Makes it all durable: log, end of the log, queues and index, checkpoint.
    fn settle(
        mut self,
        derived: DerivedFiles,
        last: Option<LastRecord>,
        from: u64,
        end: u64,
    ) -> Result<Recovered, StoreError> {
        self.progress.enter(Phase::Syncing, 0);
        self.segments.rewrite(from..end)?;
        let active = match self.segments.cut(end)? {
            Some(active) => active,
            None => self.segments.create()?,
        };
        derived.write()?;
        derived.sync()?;
        let before = record_at(&self.segments, self.checkpoint.record.max(0) as u64, |record| {
            LastRecord::of(record, &self.deleted)
        });
        let last = last.or(before.filter(|last| last.physical < end));
        self.checkpoint.log_timestamp_ms = last.map_or(0, |last| last.store_timestamp_ms);
        self.checkpoint.queue_timestamp_ms = self.checkpoint.log_timestamp_ms;
        self.checkpoint.index_timestamp_ms = derived.index.as_ref().map_or(0, Index::full_timestamp_ms);
        self.checkpoint.record = last.map_or(0, |last| last.physical as i64);
        derived.queues.recount();
        let queues = derived.queues.digest().wrapping_sub(last.map_or(0, |last| last.weight));
        self.marks.save(&self.checkpoint, queues, None)?;
        let Self { segments, deleted, checkpoint, .. } = self;
        Ok(Recovered { segments, active, derived, deleted, last, checkpoint })
    }
}

/// Gives records of the log to the derived files.
struct Feed<'a> {
    derived: &'a DerivedFiles,
    progress: &'a Progress,
    deleted: &'a DeletedTopics,
    from: u64,
    /// The only queues to feed; `None` feeds all.
    only: Option<HashSet<QueueKey>>,
    /// Whether a queue starts over where its offsets do not follow. It must not while older records may be missing.
    restarts: bool,
    /// Queues that cannot be fed, because older records are missing.
    skips: HashSet<QueueKey>,
    feeds_index: bool,
    last: Option<LastRecord>,
    records: usize,
}

impl<'a> Feed<'a> {
    fn new(derived: &'a DerivedFiles, recovery: &'a Recovery<'_>, from: u64) -> Self {
        Self {
            derived,
            progress: recovery.progress,
            deleted: &recovery.deleted,
            from,
            only: None,
            restarts: false,
            skips: HashSet::new(),
            feeds_index: true,
            last: None,
            records: 0,
        }
    }

    fn take(&mut self, at: u64, record: &RecordView<'_>) -> Result<(), StoreError> {
        self.last = Some(LastRecord::of(record, self.deleted));
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

/// Empties queues that are to be fed from the begin of the log.
fn empty(queues: &Queues, keys: impl Iterator<Item = QueueKey>) -> Result<(), StoreError> {
    for key in keys {
        let queue = queues.get_or_create(&key.topic, key.queue_id)?;
        queues.restart(&queue, 0)?;
    }
    Ok(())
}
