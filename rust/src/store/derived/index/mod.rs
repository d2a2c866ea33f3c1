//! Index: records by the hash of a key, in Apache's file format.
//!
//! Owns `index/`, a list of files (`index_file`) in log order. Keys of new records wait in memory (`waiting`), where a lookup
//! finds them too; maintenance writes them. No message waits for the index, and no error of it is anybody else's: keys
//! that could not be written stay where they are, those that have no room are read again from the log later, and
//! the next start is told from where on (`indexed_note`).
//!
//! Invariants: a hit is a record that was there when the entry was made, and is checked again when it is read; a checkpoint
//! goes no further than the index, or the note says where that ends.
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
use crate::store::events::{Event, Events};
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
    /// How many come, of late, and when they were taken last.
    pace: KeyPace,
    collected_at: Duration,
    /// Keys of records before are in the files; and durably so.
    written: u64,
    durable: u64,
    /// Whether the files have, durably, all that was to be written.
    is_complete: bool,
    /// What the note says.
    noted: u64,
    /// Whether the last write failed.
    is_stuck: bool,
    /// How a sync has failed: what the files hold is not known before the next start.
    doubt: Option<String>,
    /// Whether it was told that something is missing.
    is_told: bool,
}

impl Files {
    /// Writes what is in memory alone.
    fn write_dirty(&mut self) -> Result<(), StoreError> {
        let mut dirty = self.list.iter_mut().filter(|file| file.is_dirty());
        dirty.try_for_each(IndexFile::write)
    }
}

impl Index {
    /// An index over `dir` of the store in `root`, with no files loaded.
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
            is_told: false,
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

    /// Says once that something is missing, and why.
    fn tell(&self, files: &mut Files, reason: &str) {
        if !std::mem::replace(&mut files.is_told, true) {
            self.events.add(Event::IndexIncomplete { from: files.durable, reason: reason.to_owned() });
        }
    }

    /// Leaves the files as they are until the next start.
    fn give_up(&self, files: &mut Files, error: &StoreError) {
        files.doubt = Some(error.to_string());
        files.is_complete = false;
        files.inserting = Vec::new();
        self.waiting.lock().close(files.durable);
    }

    /// Takes the keys that wait.
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
        // Files are ordered by name, so a clock that went back must not give a smaller one.
        let newest = list.last().and_then(|file| file.path().file_name()?.to_str()?.parse().ok());
        let name = file_name(self.clock.wall_ms()).max(newest.map_or(0, |newest: u64| newest + 1));
        IndexFile::create(&*self.disk, &self.dir.join(format!("{name:017}")), self.shape)
    }

    /// Says, durably, how far the index goes: before a checkpoint, which may go further.
    pub(crate) fn note(&self) -> Result<(), StoreError> {
        let mut files = self.files.lock();
        let position = if files.is_complete { EVERYTHING } else { files.durable };
        self.save_note(&mut files, position)?;
        if files.is_complete && std::mem::take(&mut files.is_told) {
            self.events.add(Event::IndexComplete);
        }
        Ok(())
    }

    /// Whether the note is to say that nothing is missing any more.
    pub(crate) fn has_caught_up(&self) -> bool {
        let files = self.files.lock();
        let is_whole = !files.is_stuck && files.doubt.is_none() && self.waiting.lock().skipped().is_none();
        files.noted != EVERYTHING && is_whole
    }

    /// Records that have to be read again, once everything before them is in the files.
    pub(crate) fn skipped(&self) -> Option<Range<u64>> {
        let files = self.files.lock();
        let is_ready = files.inserting.is_empty() && !files.is_stuck && files.doubt.is_none();
        self.waiting.lock().skipped().filter(|_| is_ready)
    }

    /// Bytes of the log whose records nothing was kept of.
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

    /// Positions of at most `hits_max` records whose key hashes to `hash`, stored within `begin_ms..=end_ms`.
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

    /// Time of the newest key of the newest file that is full and durable, as Apache's checkpoint has it.
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

    /// After an error everything is tried again by the next call.
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
            self.tell(&mut files, "there were more keys than could be written");
        }
        written
    }

    /// After an error of a sync nothing is written any more.
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
        // Lookups go on meanwhile.
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
            // Whatever is there is cut and completed by the next start.
            return 1;
        }
        files
            .list
            .iter()
            .fold(0, |sum, file| u64::wrapping_add(sum.wrapping_mul(31), u64::from(file.count_in_file()) + 1))
    }
}
