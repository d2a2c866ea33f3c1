//! Recovery: a writable store from the files on disk.
//!
//! Owns the decision how far back to read. After an orderly stop of rmqpy, if the folder still matches: nothing.
//! After a crash of rmqpy: from the record of the checkpoint. After another broker: from the beginning of the file
//! that holds it. For missing files: from the beginning of the log. Reading ends at the first record that is not
//! whole; the rest is durably zeroed before anything is written. A broken record that was durable before is damaged,
//! not torn: it is skipped and reported, and the records after it stay.
//!
//! Derived files decide nothing: if the disk is too full for them, missing entries stay in memory, and the
//! checkpoint does not move.
//!
//! *Invariant*: a second run changes nothing, also when the first was interrupted; no byte of the log before its end
//! ever changes; when recovery returns, everything it found is durable.
//! Threads: the opener of the store; `RecoveryProgress` may be read from any.

mod checkpoint;
mod deleted_topics;
mod drain;
mod progress;
mod queue_load;
mod replay;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::clock::SharedClock;
use crate::positions::QueueKey;
use crate::store::compaction;
use crate::store::derived::{Derived, DerivedFiles, Index, Shape};
use crate::store::disk::{DIRECT_BYTES, Disk, Open};
use crate::store::error::{StoreError, unless_full};
use crate::store::log::{
    Active, Checksums, LastRecord, Segments, TrustBoundary, WalkEnd, WritePathKind, WriteRing, is_whole,
    record_at, remove_parts, walk,
};
use crate::store::reports::events::{Event, Events};
use crate::store::settings::options::Options;

use queue_load::Folders;
use replay::{Replay, ReplayBase, empty};

pub use progress::{RecoveryPhase, RecoveryProgress};

pub(crate) use checkpoint::{
    CHECKPOINT_BYTES, Checkpoint, CheckpointFiles, CleanStop, MANIFEST_BYTES, Manifest,
};
pub(crate) use deleted_topics::{DeletedTopics, DigestBase};
pub(crate) use drain::{drain, undrained_bytes};

/// The margin by which Apache's broker distrusts the times of its checkpoint.
const TIMESTAMP_SLACK_MS: i64 = 3000;

pub(super) struct Recovered {
    pub(crate) segments: Segments,
    pub(crate) checksums: Checksums,
    /// The file to append to.
    pub(crate) active: Active,
    /// Queues and index, up to date with the log.
    pub(crate) derived: DerivedFiles,
    /// Topics that must not be restored from the log.
    pub(crate) deleted: DeletedTopics,
    /// The last record of the log.
    pub(crate) last: Option<LastRecord>,
    pub(crate) checkpoint: Checkpoint,
}

impl Recovered {
    /// Returns what the last record adds to the digest in each of its queues.
    pub(super) fn weights_of_last(&self) -> Vec<u64> {
        let last = self.last.and_then(|last| {
            record_at(&self.segments, last.physical, |record| replay::weights_of(record, &self.deleted))
        });
        last.unwrap_or_default()
    }
}

/// Opens log, queues and index of the store in `options.paths`, which this process has locked. `lost_bytes` of its
/// log were left out when it was copied.
pub(super) fn recover(
    options: &Options,
    disk: &Arc<dyn Disk>,
    clock: &SharedClock,
    checkpoint_files: &CheckpointFiles,
    progress: &RecoveryProgress,
    events: &Arc<Events>,
    lost_bytes: u64,
) -> Result<Recovered, StoreError> {
    progress.enter(RecoveryPhase::Loading, 0);
    let paths = &options.paths;
    if let Some(event) = drain(disk, paths, options.segment_bytes, checkpoint_files)? {
        events.add(event);
    }
    let segments = load(options, disk, events)?;
    let (checkpoint, manifest) = checkpoint_files.load()?;
    let was_aborted = checkpoint_files.is_aborted()?;
    checkpoint_files.begin()?;
    let deleted = DeletedTopics::load(disk, &paths.root, segments.begin())?;
    let stop = manifest.and_then(|manifest| manifest.clean_stop).filter(|_| !was_aborted);
    let durable = stop.map_or(checkpoint.record.max(0) as u64, |stop| stop.log_end);
    let checksums = Checksums::load(disk, &paths.root, &segments, durable, manifest.is_some(), events)?;
    let recovery = Recovery {
        options,
        disk,
        clock,
        checkpoint_files,
        progress,
        events,
        segments,
        checksums,
        durable,
        synced: if manifest.is_some() { durable } else { 0 },
        deleted,
        checkpoint,
        lost_bytes,
    };
    match (stop, manifest) {
        (Some(stop), _) => recovery.after_clean_stop(stop),
        (None, manifest) => {
            let queues = manifest.map(|manifest| recovery.deleted.digest_now(manifest.base()));
            recovery.after_crash(queues)
        }
    }
}

/// Loads the files of the log, with a write ring if it is enabled and possible.
fn load(options: &Options, disk: &Arc<dyn Disk>, events: &Arc<Events>) -> Result<Segments, StoreError> {
    let paths = &options.paths;
    let load = |write_path| {
        let scratch = paths.segment_scratch();
        Segments::load(Arc::clone(disk), paths.log.clone(), scratch, options.segment_bytes, write_path)
    };
    let mut segments = load(options.durability.write_path())?;
    if segments.write_path() != WritePathKind::Ring {
        return Ok(segments);
    }
    let is_awaited = options.durability.promises_disk();
    let (dir, bytes) = (paths.write_ring(), options.ring_bytes);
    let ring = try_direct(&**disk, &paths.direct_scratch())
        .and_then(|()| WriteRing::make(disk, dir, bytes, segments.size(), is_awaited));
    match ring {
        Ok(ring) => segments.set_write_ring(ring),
        Err(error) => {
            events.add(Event::NoRing { reason: error.to_string() });
            remove_parts(&**disk, &paths.write_ring())?;
            segments = load(WritePathKind::Mapping)?;
        }
    }
    Ok(segments)
}

/// Checks that the file system of the log supports direct writes; some reject only the first write.
fn try_direct(disk: &dyn Disk, scratch: &Path) -> Result<(), StoreError> {
    disk.remove_file(scratch)?;
    let zeros = vec![0; 2 * DIRECT_BYTES];
    let start = zeros.as_ptr().align_offset(DIRECT_BYTES).min(DIRECT_BYTES);
    let block = zeros.get(start..start + DIRECT_BYTES).unwrap_or_default();
    let write = || {
        disk.open(scratch, Open::Create)?.allocate(DIRECT_BYTES as u64)?;
        disk.open(scratch, Open::Direct)?.write_at(block, 0)
    };
    let written = write();
    disk.remove_file(scratch)?;
    written.map_err(StoreError::io(scratch, "test direct writes to"))
}

struct Recovery<'a> {
    options: &'a Options,
    disk: &'a Arc<dyn Disk>,
    clock: &'a SharedClock,
    checkpoint_files: &'a CheckpointFiles,
    progress: &'a RecoveryProgress,
    events: &'a Arc<Events>,
    segments: Segments,
    checksums: Checksums,
    /// The position before which everything was durable when the store was last open.
    durable: u64,
    /// The position before which rmqpy synced everything, so that it need not be written again.
    synced: u64,
    deleted: DeletedTopics,
    checkpoint: Checkpoint,
    lost_bytes: u64,
}

impl Recovery<'_> {
    fn derived(&self) -> Result<(DerivedFiles, Folders), StoreError> {
        let options = self.options;
        let index = Index::new(
            self.disk,
            &options.paths.root,
            options.paths.index.clone(),
            Arc::clone(self.clock),
            Arc::clone(self.events),
            Shape { slots: options.index_slots as usize, entries: options.index_entries as usize },
        );
        let deleted = self.deleted.unfinished();
        let (queues, folders) = queue_load::open(self.disk, options, &deleted)?;
        for topic in &deleted {
            queues.files().remove_topic(topic)?;
            compaction::remove_topic(&**self.disk, &options.paths.root, topic)?;
            // If the disk has no space for the note, the next start removes them again.
            unless_full(self.deleted.finish(&[topic.as_str()]))?;
        }
        Ok((DerivedFiles { queues, index: options.index_enabled.then_some(index) }, folders))
    }

    /// Opens the store as the clean stop left it, if it still matches.
    fn after_clean_stop(self, stop: CleanStop) -> Result<Recovered, StoreError> {
        let Some(last) = self.last_record_of(&stop) else { return self.after_crash(None) };
        let (derived, folders) = self.derived()?;
        let loaded = queue_load::load(&derived.queues, &**self.disk, &self.segments, folders, None)?;
        derived.queues.recount();
        if let Some(index) = &derived.index {
            index.load();
        }
        let begin = self.segments.begin();
        if !loaded.damaged.is_empty() || derived.digest() != stop.derived {
            drop(derived);
            return self.from(begin, None, loaded.damaged);
        }
        loaded.in_doubt.iter().try_for_each(|queue| derived.queues.correct_min(queue, begin))?;
        if let Some(index) = &derived.index {
            index.resume(begin, stop.log_end);
        }
        let active = match self.segments.resume(stop.log_end)? {
            Some(active) => active,
            None => self.segments.create()?,
        };
        let Self { segments, checksums, deleted, checkpoint, .. } = self;
        Ok(Recovered { segments, checksums, active, derived, deleted, last, checkpoint })
    }

    /// Returns the last record, if log and clean stop agree about the end of the log.
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

    /// Reads the log from the position up to which the checkpoint is trusted.
    ///
    /// `queues` is the digest that the queues must have up to there, if the checkpoint is rmqpy's.
    fn after_crash(self, queues: Option<u64>) -> Result<Recovered, StoreError> {
        let record = self.checkpoint.record.max(0) as u64;
        let is_whole_there = record_at(&self.segments, record, |found| is_whole(found, record)) == Some(true);
        match queues.filter(|_| is_whole_there) {
            Some(queues) => self.from(record, Some(queues), HashMap::new()),
            None => {
                let from = self.file_of_checkpoint().max(self.segments.begin());
                self.from(from, None, HashMap::new())
            }
        }
    }

    /// Returns the beginning of the newest file that the checkpoint, of any broker, covers.
    fn file_of_checkpoint(&self) -> u64 {
        let times = self.checkpoint.log_timestamp_ms.min(self.checkpoint.queue_timestamp_ms);
        let files = self.segments.all();
        let candidate = files.iter().rev().find(|segment| {
            let base = segment.base();
            record_at(&self.segments, base, |first| {
                is_whole(first, base)
                    && match self.checkpoint.record {
                        // Brokers before 5.4 store only times.
                        0 => first.store_timestamp_ms() <= times.saturating_sub(TIMESTAMP_SLACK_MS),
                        record => first.physical_offset().0 <= record.max(0) as u64,
                    }
            }) == Some(true)
        });
        candidate.map_or(0, |segment| segment.base())
    }

    /// Cuts queues and index at `from`, replays the log from there, and ends the log at the first record that is not
    /// whole. `ends` are the last offsets of queues found damaged.
    fn from(
        self,
        from: u64,
        queues: Option<u64>,
        mut ends: HashMap<QueueKey, u64>,
    ) -> Result<Recovered, StoreError> {
        let begin = self.segments.begin();
        let (derived, folders) = self.derived()?;
        let damaged =
            queue_load::load(&derived.queues, &**self.disk, &self.segments, folders, Some(from))?.damaged;
        derived.queues.recount();
        if queues.is_some_and(|queues| !damaged.is_empty() || queues != derived.queues.digest()) {
            // Files were changed, and only the log shows which queues are missing.
            drop(derived);
            ends.extend(damaged);
            return self.from(begin, None, ends);
        }
        let mut skips: HashSet<QueueKey> = damaged.keys().cloned().collect();
        ends.extend(damaged);
        if let Some(index) = &derived.index {
            index.load_cut(from, begin, from);
        }
        let limit = self.segments.all().last().map_or(0, |segment| segment.limit());
        self.progress.enter(RecoveryPhase::Scanning, limit - from.min(limit));
        let base = match queues {
            // The digest matched.
            Some(_) => ReplayBase::Held,
            None if from == begin => ReplayBase::Expired,
            None => ReplayBase::InDoubt,
        };
        if base == ReplayBase::Expired {
            empty(&derived.queues, skips.drain())?;
        }
        let mut replay = Replay::new(&derived, self.progress, &self.deleted, begin, (from, base));
        replay.lost_bytes = self.lost_bytes;
        replay.skips = skips;
        let (end, ending) =
            walk(&self.segments, from, limit, self.trust(), |at, found| replay.take(at, found))?;
        if base != ReplayBase::InDoubt {
            replay.finish(&ends)?;
        }
        if ending == WalkEnd::Torn {
            self.report_torn_tail(end);
        }
        let (mut last, mut damage, damaged) = (replay.last(&self.segments), replay.damage, replay.skips);
        if !damaged.is_empty() {
            let rebuilt = self.rebuild(&derived, damaged, &ends, begin..end)?;
            (last, damage) = (rebuilt.0.or(last), rebuilt.1);
        }
        self.report_damage(&damage);
        derived.queues.all().iter().try_for_each(|queue| derived.queues.correct_min(queue, begin))?;
        self.settle(derived, last, from, end)
    }

    /// Refills damaged queues from the whole log.
    fn rebuild(
        &self,
        derived: &DerivedFiles,
        damaged: HashSet<QueueKey>,
        ends: &HashMap<QueueKey, u64>,
        range: Range<u64>,
    ) -> Result<(Option<LastRecord>, Vec<Range<u64>>), StoreError> {
        empty(&derived.queues, damaged.iter().cloned())?;
        self.progress.enter(RecoveryPhase::Rebuilding, range.end - range.start);
        let from = (range.start, ReplayBase::Expired);
        let mut replay = Replay::new(derived, self.progress, &self.deleted, range.start, from);
        replay.only = Some(damaged);
        replay.lost_bytes = self.lost_bytes;
        replay.fills_index = false;
        walk(&self.segments, range.start, range.end, self.trust(), |at, found| replay.take(at, found))?;
        replay.finish(ends)?;
        Ok((replay.last(&self.segments), replay.damage))
    }

    /// Makes everything durable: log, end of the log, queues and index, checkpoint.
    fn settle(
        mut self,
        derived: DerivedFiles,
        last: Option<LastRecord>,
        from: u64,
        end: u64,
    ) -> Result<Recovered, StoreError> {
        self.progress.enter(RecoveryPhase::Syncing, 0);
        self.segments.rewrite(from.max(self.synced).min(end)..end)?;
        let active = match self.segments.cut(end)? {
            Some(active) => active,
            None => self.segments.create()?,
        };
        self.checksums.cut(&self.segments, end);
        // Data without space stays in memory; then the checkpoint does not move, and a crash reads this part again.
        let mut lacking =
            unless_full(derived.write().and_then(|()| derived.sync()).and_then(|()| derived.note()))?;
        let before = record_at(&self.segments, self.checkpoint.record.max(0) as u64, |record| {
            LastRecord::of(record, &self.deleted)
        });
        let last = last.or(before.filter(|last| last.physical < end));
        derived.queues.recount();
        if lacking.is_none() {
            let log_timestamp_ms = last.map_or(0, |last| last.store_timestamp_ms);
            let checkpoint = Checkpoint {
                log_timestamp_ms,
                queue_timestamp_ms: log_timestamp_ms,
                index_timestamp_ms: derived.index.as_ref().map_or(0, Index::full_timestamp_ms),
                record: last.map_or(0, |last| last.physical as i64),
                ..self.checkpoint
            };
            let queues = derived.queues.digest().wrapping_sub(last.map_or(0, |last| last.weight));
            lacking = unless_full(self.checkpoint_files.save(&checkpoint, queues, None))?;
            if lacking.is_none() {
                self.checkpoint = checkpoint;
            }
        }
        if let Some(error) = lacking {
            self.events.add(Event::NotNoted { error: error.to_string() });
        }
        let Self { segments, checksums, deleted, checkpoint, .. } = self;
        Ok(Recovered { segments, checksums, active, derived, deleted, last, checkpoint })
    }

    fn trust(&self) -> TrustBoundary<'_> {
        TrustBoundary { durable: self.durable, checksums: &self.checksums }
    }

    /// Reports unreadable ranges.
    fn report_damage(&self, damage: &[Range<u64>]) {
        for range in damage {
            if let Some(segment) = self.segments.find(range.start) {
                let path = segment.path().to_owned();
                self.events.add(Event::Damaged { path, from: range.start, until: range.end });
            }
        }
    }

    /// Reports where the log is cut, and how many bytes are lost.
    fn report_torn_tail(&self, end: u64) {
        let Some(segment) = self.segments.find(end) else { return };
        let bytes = self.segments.used_behind(end);
        self.events.add(Event::TornTail { path: segment.path().to_owned(), at: end, bytes });
    }
}
