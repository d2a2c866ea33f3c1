//! Index: records by the hash of a key, in Apache's file format.
//!
//! Owns `index/`, a list of files (`index_file`) in log order. Keys of new records wait in memory (`waiting`), where
//! lookups find them too, until maintenance writes them. No message waits for the index, and its errors affect
//! nothing else: keys that could not be written stay in memory, keys beyond the limit are read from the log later,
//! and the next start reads their position from a note (`indexed_note`).
//!
//! *Invariant*: a hit is a record that existed when the entry was made, and is checked again when it is read. A
//! checkpoint goes no further than the index, or the note names the end of the index.
//! Threads: `take` under the dispatch lock; `find` from any; the rest from maintenance or recovery.

pub(crate) mod index_file;
pub(crate) mod indexed_note;
pub(crate) mod key_hashes;
pub(crate) mod layout;
mod load;
mod slot_pages;
mod waiting;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::SharedClock;
use crate::store::disk::Disk;
use crate::store::error::StoreError;
use crate::store::reports::events::{Event, Events};
use index_file::{IndexFile, KEYS_AHEAD, Key};
use indexed_note::{EVERYTHING, IndexedNote};
use layout::{Shape, file_name};
use waiting::{KeyPace, Waiting};

use super::dispatch::Derived;
use super::dispatch::DispatchRequest;

#[derive(Clone, Default, Debug)]
pub(crate) struct Hits {
    /// Positions of records, newest first.
    pub(crate) physical: Vec<u64>,
    pub(crate) last_timestamp_ms: i64,
    pub(crate) last_physical: u64,
}

pub(crate) struct Index {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    note: IndexedNote,
    clock: SharedClock,
    events: Arc<Events>,
    shape: Shape,
    files: Mutex<Files>,
    waiting: Mutex<Waiting>,
}

struct Files {
    list: Vec<IndexFile>,
    /// Keys that are in no file yet.
    inserting: Vec<Key>,
    /// The recent rate of keys, and the time of the last collection.
    pace: KeyPace,
    collected_at: Duration,
    /// The position before which all keys are in the files, and `durable`, before which they are durable there.
    written: u64,
    durable: u64,
    /// Whether every collected key is durable in the files.
    is_complete: bool,
    /// The position in the note on disk.
    noted: u64,
    /// Whether the last write failed.
    is_stuck: bool,
    /// The error of a failed sync: the content of the files is unknown until the next start.
    doubt: Option<String>,
    /// Whether the current gap was reported.
    is_reported: bool,
}

impl Files {
    /// Writes everything that is only in memory.
    fn write_dirty(&mut self) -> Result<(), StoreError> {
        let mut dirty = self.list.iter_mut().filter(|file| file.is_dirty());
        dirty.try_for_each(IndexFile::write)
    }
}

impl Index {
    /// Creates an index over `dir` of the store in `root`, with no files loaded.
    pub(crate) fn new(
        disk: &Arc<dyn Disk>,
        root: &Path,
        dir: PathBuf,
        clock: SharedClock,
        events: Arc<Events>,
        shape: Shape,
    ) -> Self {
        let files = Files {
            list: Vec::new(),
            inserting: Vec::new(),
            pace: KeyPace::default(),
            collected_at: clock.elapsed(),
            written: 0,
            durable: 0,
            is_complete: true,
            noted: EVERYTHING,
            is_stuck: false,
            doubt: None,
            is_reported: false,
        };
        Self {
            disk: Arc::clone(disk),
            dir,
            note: IndexedNote::of(disk, root),
            clock,
            events,
            shape,
            files: Mutex::new(files),
            waiting: Mutex::default(),
        }
    }

    fn save_note(&self, files: &mut Files, position: u64) -> Result<(), StoreError> {
        if files.noted != position {
            self.note.save(position)?;
            files.noted = position;
        }
        Ok(())
    }

    /// Reports once that entries are missing, and why.
    fn report(&self, files: &mut Files, reason: &str) {
        if !std::mem::replace(&mut files.is_reported, true) {
            self.events.add(Event::IndexIncomplete { from: files.durable, reason: reason.to_owned() });
        }
    }

    /// Leaves the files unchanged until the next start.
    fn give_up(&self, files: &mut Files, error: &StoreError) {
        files.doubt = Some(error.to_string());
        files.is_complete = false;
        files.inserting = Vec::new();
        self.waiting.lock().close(files.durable);
    }

    /// Takes the waiting keys.
    fn collect(&self, files: &mut Files) -> u64 {
        self.waiting.lock().take(&mut files.inserting)
    }

    fn insert(&self, files: &mut Files) -> Result<(), StoreError> {
        let Files { list, inserting, .. } = files;
        let mut done = 0;
        let inserted = inserting.chunks(KEYS_AHEAD).try_for_each(|next| {
            if let Some(file) = list.last() {
                file.prefetch(next.iter().map(|key| key.hash));
            }
            next.iter().try_for_each(|key| {
                self.insert_key(list, key)?;
                done += 1;
                Ok(())
            })
        });
        inserting.drain(..done);
        inserted?;
        list.last_mut().map_or(Ok(()), IndexFile::write_tail)
    }

    fn insert_key(&self, list: &mut Vec<IndexFile>, key: &Key) -> Result<(), StoreError> {
        if list.last().is_none_or(|file| file.is_full() || file.begins_after(key)) {
            list.last_mut().map_or(Ok(()), IndexFile::write_tail)?;
            let file = self.create(list)?;
            list.push(file);
        }
        list.last_mut().map_or(Ok(()), |file| file.insert(key))
    }

    fn create(&self, list: &[IndexFile]) -> Result<IndexFile, StoreError> {
        // Files are ordered by name, so a clock that was set back must not yield a smaller one.
        let newest = list.last().and_then(|file| file.path().file_name()?.to_str()?.parse().ok());
        let name = file_name(self.clock.wall_ms()).max(newest.map_or(0, |newest: u64| newest + 1));
        IndexFile::create(&*self.disk, &self.dir.join(format!("{name:017}")), self.shape)
    }

    /// Writes the end of the index, durably: before a checkpoint, which may go further.
    pub(crate) fn note(&self) -> Result<(), StoreError> {
        let mut files = self.files.lock();
        let position = if files.is_complete { EVERYTHING } else { files.durable };
        self.save_note(&mut files, position)?;
        if files.is_complete && std::mem::take(&mut files.is_reported) {
            self.events.add(Event::IndexComplete);
        }
        Ok(())
    }

    /// Returns whether the note can be reset, because no entry is missing any more.
    pub(crate) fn has_caught_up(&self) -> bool {
        let files = self.files.lock();
        let is_whole = !files.is_stuck && files.doubt.is_none() && self.waiting.lock().skipped().is_none();
        files.noted != EVERYTHING && is_whole
    }

    /// Returns the records that have to be read again, once everything before them is in the files.
    pub(crate) fn skipped(&self) -> Option<Range<u64>> {
        let files = self.files.lock();
        let is_ready = files.inserting.is_empty() && !files.is_stuck && files.doubt.is_none();
        self.waiting.lock().skipped().filter(|_| is_ready)
    }

    /// Returns the bytes of the log whose keys were skipped.
    pub(crate) fn skipped_bytes(&self) -> u64 {
        self.waiting.lock().skipped().map_or(0, |skipped| skipped.end - skipped.start)
    }

    /// Takes keys that were read again, of all records before `until`.
    pub(crate) fn take_skipped(&self, keys: &[Key], until: u64) {
        let mut files = self.files.lock();
        self.collect(&mut files);
        files.inserting.extend_from_slice(keys);
        let mut waiting = self.waiting.lock();
        waiting.still_taken(files.inserting.len());
        waiting.was_read(until);
    }

    /// Returns positions of at most `hits_max` records whose key hashes to `hash`, stored within `begin_ms..=end_ms`.
    pub(crate) fn find(
        &self,
        hash: i32,
        hits_max: usize,
        begin_ms: i64,
        end_ms: i64,
    ) -> Result<Hits, StoreError> {
        let mut files = self.files.lock();
        self.collect(&mut files);
        let mut hits = Hits::default();
        if let Some(newest) = files.list.last() {
            hits.last_timestamp_ms = newest.times().1;
            hits.last_physical = newest.end_physical();
        }
        if let Some(newest) = files.inserting.last() {
            hits.last_timestamp_ms = newest.store_timestamp_ms;
            hits.last_physical = newest.physical;
        }
        let is_hit = |key: &&Key| key.hash == hash && (begin_ms..=end_ms).contains(&key.store_timestamp_ms);
        let in_memory = files.inserting.iter().rev().filter(is_hit).map(|key| key.physical);
        hits.physical.extend(in_memory.take(hits_max));
        for file in files.list.iter().rev() {
            let (file_begin, file_end) = file.times();
            if hits.physical.len() >= hits_max {
                break;
            }
            if file_begin <= end_ms && file_end >= begin_ms {
                file.find(hash, hits_max, begin_ms..=end_ms, &mut hits.physical)
                    .map_err(StoreError::io(file.path(), "read"))?;
            }
        }
        Ok(hits)
    }

    /// Frees memory that a recent load needed.
    pub(crate) fn cool_down(&self) {
        self.files.lock().list.iter_mut().for_each(IndexFile::cool_down);
    }

    /// Returns the time of the newest key of the newest file that is full and durable, for Apache's checkpoint.
    pub(crate) fn full_timestamp_ms(&self) -> i64 {
        let files = self.files.lock();
        let full = files.list.iter().rev().find(|file| file.is_full() && !file.is_dirty());
        full.map_or(0, |file| file.times().1)
    }
}

impl Derived for Index {
    fn take(&self, records: &[DispatchRequest]) {
        let mut waiting = self.waiting.lock();
        records.iter().filter(|record| record.is_indexed()).for_each(|record| waiting.add(record));
    }

    /// Writes the collected keys. After an error the next call retries all of them.
    fn write(&self) -> Result<(), StoreError> {
        let mut files = self.files.lock();
        if let Some(reason) = &files.doubt {
            return Err(StoreError::InDoubt { reason: reason.clone() });
        }
        let until = self.collect(&mut files);
        let now = self.clock.elapsed();
        let since = now.saturating_sub(std::mem::replace(&mut files.collected_at, now));
        let count = files.inserting.len();
        files.pace.note(count, since);
        let written = self.insert(&mut files).and_then(|()| match files.is_stuck {
            true => files.write_dirty(),
            false => Ok(()),
        });
        let Files { inserting, pace, .. } = &mut *files;
        if inserting.is_empty() {
            pace.make_room(inserting);
        }
        files.written = files.inserting.first().map_or(until, |key| key.physical);
        files.is_stuck = written.is_err();
        let mut waiting = self.waiting.lock();
        waiting.still_taken(files.inserting.len());
        if waiting.skipped().is_some() {
            self.report(&mut files, "more keys than the disk could take");
        }
        written
    }

    /// Syncs dirty files. After an error nothing is written until the next start.
    fn sync(&self) -> Result<(), StoreError> {
        let (dirty, written) = {
            let mut files = self.files.lock();
            files.is_complete = false;
            if let Some(reason) = &files.doubt {
                return Err(StoreError::InDoubt { reason: reason.clone() });
            }
            files.write_dirty().inspect_err(|_| files.is_stuck = true)?;
            let dirty = files.list.iter().filter(|file| file.is_dirty());
            let dirty: Vec<_> = dirty.map(|file| (Arc::clone(file.file()), file.path().to_owned())).collect();
            (dirty, files.written)
        };
        // Lookups continue during this.
        for (file, path) in dirty {
            file.sync()
                .map_err(StoreError::io(&path, "sync"))
                .inspect_err(|error| self.give_up(&mut self.files.lock(), error))?;
        }
        let mut files = self.files.lock();
        files.list.iter_mut().for_each(IndexFile::was_synced);
        files.durable = written;
        files.is_complete = !files.is_stuck && self.waiting.lock().skipped().is_none();
        Ok(())
    }

    fn trim(&self, log_begin: u64) -> Result<bool, StoreError> {
        let mut files = self.files.lock();
        while let [oldest, _, ..] = files.list.as_slice() {
            if oldest.end_physical() >= log_begin {
                break;
            }
            self.disk.remove_durably(oldest.path())?;
            files.list.remove(0);
        }
        Ok(true)
    }

    fn digest(&self) -> u64 {
        let files = self.files.lock();
        if files.noted != EVERYTHING {
            // The next start cuts and completes the files.
            return 1;
        }
        files
            .list
            .iter()
            .fold(0, |sum, file| u64::wrapping_add(sum.wrapping_mul(31), u64::from(file.count_in_file()) + 1))
    }
}
