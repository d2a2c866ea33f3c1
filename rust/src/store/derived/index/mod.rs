//! Index: records by the hash of a key, in Apache's file format.
//!
//! Owns `index/`, a list of files (`index_file`) in log order. Keys of new records wait in memory; maintenance inserts
//! them, and so does a lookup before it reads, so that whatever is visible can be found.
//!
//! Invariant: a hit is a record that was there when the entry was made, and is checked again when it is read.
//! Threads: `take` under the dispatch lock; the rest from any, one at a time under the files' lock.

pub(crate) mod index_file;
pub(crate) mod key_hashes;

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::SharedClock;
use crate::store::disk::Disk;
use crate::store::error::StoreError;
use index_file::{IndexFile, KEYS_AHEAD, Key, Shape, file_name};

use super::dispatch::Derived;
use super::dispatch::DispatchRequest;

/// Keys that wait in memory; beyond, the dispatching thread inserts them itself.
const PENDING_KEYS_MAX: usize = 1 << 18;

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
    clock: SharedClock,
    shape: Shape,
    pending: Mutex<Vec<Key>>,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    list: Vec<IndexFile>,
    inserting: Vec<Key>,
}

impl Index {
    /// An index over `dir`, with no files loaded.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        clock: SharedClock,
        slots: u32,
        entries: u32,
    ) -> Self {
        let shape = Shape { slots: slots as usize, entries: entries as usize };
        Self { disk, dir, clock, shape, pending: Mutex::default(), files: Mutex::default() }
    }

    pub(crate) fn load(&self) -> Result<(), StoreError> {
        let mut files = self.files.lock();
        files.list.clear();
        for path in self.paths()? {
            files.list.push(IndexFile::open(&*self.disk, &path, self.shape)?);
        }
        Ok(())
    }

    /// Loads the files and keeps only entries of records before `position`; chains are made anew where a crash may
    /// have torn them. Returns whether there was nothing to load.
    pub(crate) fn load_cut(&self, position: u64) -> Result<bool, StoreError> {
        let mut files = self.files.lock();
        files.list.clear();
        for path in self.paths()? {
            match IndexFile::cut(&*self.disk, &path, self.shape, position)? {
                Some(file) => files.list.push(file),
                None => self.disk.remove_file(&path)?,
            }
        }
        Ok(files.list.is_empty())
    }

    /// Files of the right name and size, oldest first; what only looks like one is removed.
    fn paths(&self) -> Result<Vec<PathBuf>, StoreError> {
        let mut paths = Vec::new();
        for entry in self.disk.entries(&self.dir)? {
            let is_index = entry.name.len() == 17 && entry.name.bytes().all(|byte| byte.is_ascii_digit());
            let path = self.dir.join(&entry.name);
            if is_index && !entry.is_dir && entry.size == self.shape.file_bytes() as u64 {
                paths.push(path);
            } else if is_index && !entry.is_dir {
                self.disk.remove_file(&path)?;
            }
        }
        Ok(paths)
    }

    /// Inserts what waits in memory.
    fn insert_pending(&self, files: &mut Files) -> Result<(), StoreError> {
        let mut keys = std::mem::take(&mut files.inserting);
        if keys.is_empty() {
            std::mem::swap(&mut keys, &mut *self.pending.lock());
        }
        let mut done = 0;
        let inserted = keys.chunks(KEYS_AHEAD).try_for_each(|next| {
            if let Some(file) = files.list.last() {
                file.prefetch_slots(next.iter().map(|key| key.hash));
            }
            next.iter().try_for_each(|key| {
                self.insert(files, key)?;
                done += 1;
                Ok(())
            })
        });
        keys.drain(..done);
        files.inserting = keys;
        inserted
    }

    fn insert(&self, files: &mut Files, key: &Key) -> Result<(), StoreError> {
        if files.list.last().is_none_or(IndexFile::is_full) {
            let file = self.create(files)?;
            files.list.push(file);
        }
        if let Some(file) = files.list.last_mut() {
            file.insert(key);
        }
        Ok(())
    }

    fn create(&self, files: &Files) -> Result<IndexFile, StoreError> {
        // Files are ordered by name, so a clock that went back must not give a smaller one.
        let newest = files.list.last().and_then(|file| file.path().file_name()?.to_str()?.parse().ok());
        let name = file_name(self.clock.wall_ms()).max(newest.map_or(0, |newest: u64| newest + 1));
        IndexFile::create(&*self.disk, &self.dir.join(format!("{name:017}")), self.shape)
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
        self.insert_pending(&mut files)?;
        let mut hits = Hits::default();
        if let Some(newest) = files.list.last() {
            hits.last_timestamp_ms = newest.times().1;
            hits.last_physical = newest.end_physical();
        }
        for file in files.list.iter().rev() {
            let (file_begin, file_end) = file.times();
            if file_begin <= end_ms && file_end >= begin_ms {
                file.find(hash, hits_max, begin_ms..=end_ms, &mut hits.physical);
            }
            if file_begin < begin_ms || hits.physical.len() >= hits_max {
                break;
            }
        }
        Ok(hits)
    }

    /// Time of the newest key of the newest file that is full, as Apache's checkpoint has it.
    pub(crate) fn full_timestamp_ms(&self) -> i64 {
        let files = self.files.lock();
        files.list.iter().rev().find(|file| file.is_full()).map_or(0, |file| file.times().1)
    }
}

impl Derived for Index {
    fn take(&self, records: &[DispatchRequest]) {
        let waiting = {
            let mut pending = self.pending.lock();
            for record in records.iter().filter(|record| record.is_indexed()) {
                pending.extend(record.keys.iter().map(|hash| Key {
                    hash,
                    physical: record.physical.0,
                    store_timestamp_ms: record.store_timestamp_ms,
                }));
            }
            pending.len()
        };
        if waiting >= PENDING_KEYS_MAX {
            // Maintenance is behind. An error is its to report: the keys stay.
            let _ = self.write();
        }
    }

    fn write(&self) -> Result<(), StoreError> {
        let mut files = self.files.lock();
        // Twice: keys left over by an earlier failure come first.
        self.insert_pending(&mut files)?;
        self.insert_pending(&mut files)
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.files.lock().list.iter_mut().filter(|file| file.is_dirty()).try_for_each(IndexFile::sync)
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
        files
            .list
            .iter()
            .fold(0, |sum, file| u64::wrapping_add(sum.wrapping_mul(31), u64::from(file.count()) + 1))
    }
}
