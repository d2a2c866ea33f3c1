//! Compacted queue: the copy of one queue.
//!
//! Records arrive in the order of their offsets, and each is appended to the last pair of files. `next` is the offset
//! of the ordinary queue from which on nothing was considered yet: a record with an earlier offset is in the files, or
//! a newer one of its key is, or it is deleted. A round replaces files; what arrives meanwhile goes to later ones.
//!
//! *Invariant*: offsets in the files ascend and are below `next`.
//! Threads: any reads; the rest one at a time under `writing`. Lock order: `round`, `writing`, `files`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use crate::positions::QueueKey;
use crate::store::disk::Disk;
use crate::store::error::StoreError;

use super::layout::{FileBytes, FilePair, Folders};
use super::loading::{Loaded, cut, load};
use super::scan::UnitReader;
use super::swap::Swap;
use super::writer::Writer;

pub(super) struct CompactedQueue {
    pub(super) key: QueueKey,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) folders: Folders,
    pub(super) bytes: FileBytes,
    /// Held during a round.
    pub(super) round: Mutex<()>,
    /// When the next round is due.
    pub(super) due_at: Mutex<Duration>,
    writing: Mutex<Writing>,
    pub(super) files: RwLock<Files>,
    next: AtomicU64,
    /// The offset before which each key has one message.
    compacted: AtomicU64,
    /// Bytes that were appended since the last round.
    dirty_bytes: AtomicU64,
    /// Whether the topic was deleted.
    is_gone: AtomicBool,
}

/// The readable files.
pub(super) struct Files {
    pub(super) pairs: Vec<FilePair>,
    /// Whether their names may belong to other files, because a replacement did not come to its end.
    pub(super) is_torn: bool,
}

pub(super) struct Writing {
    pub(super) writer: Writer,
    /// `next`, with records that are not written yet.
    pub(super) next: u64,
    /// A replacement that is certain, and its result.
    swap: Option<(Swap, Vec<FilePair>)>,
}

impl CompactedQueue {
    /// Loads a queue. Before `compacted`, the last round has left one message of each key.
    pub(super) fn open(
        disk: &Arc<dyn Disk>,
        root: &Path,
        key: QueueKey,
        wanted: FileBytes,
        compacted: u64,
    ) -> Result<Self, StoreError> {
        let folders = Folders::of(root, &key.topic, key.queue_id);
        let Loaded { bytes, files } = load(disk, &folders, wanted)?;
        let last = files.iter().rev().find(|pair| pair.units > 0).map_or(0, |pair| pair.last + 1);
        // Without files the position is that of lost ones.
        let compacted = if files.is_empty() { 0 } else { compacted };
        let next = last.max(compacted);
        let dirty = files.iter().filter(|pair| pair.units > 0 && pair.last >= compacted);
        let dirty_bytes = dirty.map(|pair| pair.end).sum();
        let writer = Writer::new(disk, folders.clone(), bytes, 0, files.clone());
        Ok(Self {
            key,
            disk: Arc::clone(disk),
            folders,
            bytes,
            round: Mutex::default(),
            due_at: Mutex::default(),
            writing: Mutex::new(Writing { writer, next, swap: None }),
            files: RwLock::new(Files { pairs: files, is_torn: false }),
            next: AtomicU64::new(next),
            compacted: AtomicU64::new(compacted),
            dirty_bytes: AtomicU64::new(dirty_bytes),
            is_gone: AtomicBool::new(false),
        })
    }

    /// Returns the offset from which on nothing was copied yet.
    pub(super) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    pub(super) fn compacted(&self) -> u64 {
        self.compacted.load(Ordering::Acquire)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Returns whether a round is worth its I/O: it reads and writes everything, so what arrived since the last one
    /// has to be a third of it.
    pub(super) fn is_dirty(&self) -> bool {
        let all: u64 = self.files.read().pairs.iter().map(|pair| pair.end).sum();
        let dirty = self.dirty_bytes.load(Ordering::Acquire);
        dirty > 0 && dirty.saturating_mul(3) >= all
    }

    /// Appends records with `work`, and publishes what it has written.
    pub(super) fn write<T>(
        &self,
        work: impl FnOnce(&mut Writing) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut writing = self.writing.lock();
        if self.is_gone() {
            return Err(StoreError::TopicDeleted { topic: self.key.topic.to_string() });
        }
        self.finish_swap(&mut writing)?;
        // The rest of a failed write goes first, so that it does not pile up.
        writing.writer.write()?;
        let outcome = work(&mut writing);
        self.publish(&mut writing)?;
        outcome
    }

    /// Writes the records that were added, and shows them to readers.
    fn publish(&self, writing: &mut Writing) -> Result<(), StoreError> {
        let written = writing.writer.write();
        let bytes = |pairs: &[FilePair]| pairs.iter().map(|pair| pair.end).sum::<u64>();
        let mut files = self.files.write();
        let added = bytes(writing.writer.files()).saturating_sub(bytes(&files.pairs));
        self.dirty_bytes.fetch_add(added, Ordering::AcqRel);
        files.pairs.clear();
        files.pairs.extend_from_slice(writing.writer.files());
        if written.is_ok() {
            self.next.store(writing.next, Ordering::Release);
        }
        written
    }

    pub(super) fn sync(&self) -> Result<(), StoreError> {
        self.writing.lock().writer.sync()
    }

    /// Goes back to `offset` of the ordinary queue: later records are not those that the queue has now.
    pub(super) fn rewind(&self, offset: u64) -> Result<(), StoreError> {
        let _round = self.round.lock();
        let mut writing = self.writing.lock();
        self.finish_swap(&mut writing)?;
        let mut files = self.files.write();
        let mut kept: Vec<FilePair> = Vec::new();
        for pair in &files.pairs {
            if pair.units == 0 || pair.last < offset {
                kept.push(*pair);
                continue;
            }
            let mut units = UnitReader::open(&self.disk, &self.folders, pair.base)?;
            let count = units.first_from(pair, offset)?;
            let mut short = FilePair::empty(pair.base);
            for index in 0..count {
                units.unit(index)?.iter().for_each(|unit| short.add(unit));
            }
            cut(&self.disk, &self.folders, self.bytes, &short)?;
            kept.push(short);
        }
        files.pairs.clone_from(&kept);
        writing.writer.reset(kept);
        writing.next = offset;
        self.next.store(offset, Ordering::Release);
        self.compacted.fetch_min(offset, Ordering::AcqRel);
        Ok(())
    }

    /// Begins a round: returns the files that it replaces, all of them durable, and the offset after them. New records
    /// go to a new file from now on.
    pub(super) fn begin_round(&self) -> Result<(Vec<FilePair>, u64), StoreError> {
        let mut writing = self.writing.lock();
        self.finish_swap(&mut writing)?;
        self.publish(&mut writing)?;
        let covered = self.next();
        writing.writer.end_file()?;
        writing.writer.stop_continuing();
        self.dirty_bytes.store(0, Ordering::Release);
        Ok((writing.writer.files().to_vec(), covered))
    }

    /// Ends a round that has no result.
    pub(super) fn cancel_round(&self, sources: &[FilePair]) {
        self.writing.lock().writer.continue_last();
        self.add_dirty(sources);
    }

    fn add_dirty(&self, pairs: &[FilePair]) {
        self.dirty_bytes.fetch_add(pairs.iter().map(|pair| pair.end).sum(), Ordering::AcqRel);
    }

    /// Replaces `sources` by the files of `result`, which are durable in the folders for new files. Once the note is
    /// on the disk, an error only delays the replacement.
    pub(super) fn replace(
        &self,
        sources: &[FilePair],
        result: &[FilePair],
        covered: u64,
    ) -> Result<(), StoreError> {
        let bases = |pairs: &[FilePair]| pairs.iter().map(|pair| pair.base).collect();
        let swap = Swap { old: bases(sources), new: bases(result) };
        let mut writing = self.writing.lock();
        if self.is_gone() {
            return Ok(());
        }
        // After an error the note may be on the disk, so the sources take no more records.
        swap.begin(&*self.disk, &self.folders).inspect_err(|_| self.add_dirty(sources))?;
        let later = writing.writer.files().iter().filter(|pair| !swap.old.contains(&pair.base));
        let files = result.iter().chain(later).copied().collect();
        writing.swap = Some((swap, files));
        self.compacted.store(covered, Ordering::Release);
        self.finish_swap(&mut writing)
    }

    /// Finishes a replacement that is certain.
    fn finish_swap(&self, writing: &mut Writing) -> Result<(), StoreError> {
        let Some((swap, pairs)) = writing.swap.take() else { return Ok(()) };
        let mut files = self.files.write();
        files.is_torn = true;
        if let Err(error) = swap.finish(&*self.disk, &self.folders) {
            writing.swap = Some((swap, pairs));
            return Err(error);
        }
        *files = Files { pairs: pairs.clone(), is_torn: false };
        writing.writer.replace(pairs);
        Ok(())
    }

    /// Stops the use of the queue: its files will be removed. Returns when nothing writes to them any more.
    pub(super) fn retire(&self) {
        self.is_gone.store(true, Ordering::Release);
        drop(self.round.lock());
        drop(self.writing.lock());
        self.files.write().pairs.clear();
    }
}
