//! Index: records by the hash of a key, in Apache's file format.
//!
//! Owns `index/`: files of a header, hash slots and entries, each entry chained to the one before it in its slot. Keys
//! of new records wait in memory; the keeper inserts them, and so does a lookup before it reads, so that whatever is
//! visible can be found.
//!
//! Invariants: entries are in log order; a slot names the newest entry of its chain, or one beyond the count, which
//! means none; a hit is a record that was there when the entry was made, and is checked again when it is read.
//! Threads: `take` under the dispatch lock; the rest from any, one at a time under the files' lock.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrayvec::ArrayVec;
use parking_lot::Mutex;

use crate::clock::SharedClock;
use crate::message::properties::{self, name};
use crate::message::tag;

use super::derived::Derived;
use super::disk::{Disk, DiskFile, Open};
use super::dispatch::Dispatch;
use super::error::StoreError;
use super::region::{Cells, Region};

const HEADER_BYTES: usize = 40;
const SLOT_BYTES: usize = 4;
const ENTRY_BYTES: usize = 20;

/// Places of the header's fields.
const BEGIN_TIMESTAMP: usize = 0;
const END_TIMESTAMP: usize = 8;
const BEGIN_PHYSICAL: usize = 16;
const END_PHYSICAL: usize = 24;
const SLOTS_USED: usize = 32;
const COUNT: usize = 36;

/// Keys that wait in memory; beyond, the dispatching thread inserts them itself.
const PENDING_KEYS_MAX: usize = 1 << 18;
/// Keys of one message that need no memory of their own.
const KEYS_INLINE: usize = 4;

/// Hashes of the keys of one message: UNIQ_KEY, the words of KEYS, the tag.
#[derive(Clone, Default, Debug)]
pub struct KeyHashes {
    inline: ArrayVec<i32, KEYS_INLINE>,
    more: Vec<i32>,
}

impl KeyHashes {
    /// The keys of a message with these properties, in the order of the original.
    #[must_use]
    pub fn of(topic: &[u8], properties: &[u8]) -> Self {
        let (mut unique, mut words, mut tags) = (None, None, None);
        for (key, value) in properties::entries(properties) {
            match key {
                name::UNIQ_KEY => unique = Some(value),
                name::KEYS => words = Some(value),
                name::TAGS => tags = Some(value),
                _ => {}
            }
        }
        let mut hashes = Self::default();
        unique.into_iter().for_each(|key| hashes.push(tag::key_hash(topic, key)));
        words
            .into_iter()
            .flat_map(|words| words.split(|byte| *byte == b' '))
            .filter(|word| !word.is_empty())
            .for_each(|word| hashes.push(tag::key_hash(topic, word)));
        tags.into_iter().for_each(|tag| hashes.push(tag::tag_key_hash(topic, tag)));
        hashes
    }

    /// Adds a hash.
    pub fn push(&mut self, hash: i32) {
        if self.inline.try_push(hash).is_err() {
            self.more.push(hash);
        }
    }

    /// The hashes in order.
    pub fn iter(&self) -> impl Iterator<Item = i32> + '_ {
        self.inline.iter().chain(&self.more).copied()
    }
}

#[derive(Clone, Copy)]
struct Key {
    hash: i32,
    physical: u64,
    store_timestamp_ms: i64,
}

/// What a lookup found.
#[derive(Clone, Default, Debug)]
pub struct Hits {
    /// Positions of records, newest first.
    pub physical: Vec<u64>,
    /// Store time of the newest key in the index.
    pub last_timestamp_ms: i64,
    /// Position of the newest record in the index.
    pub last_physical: u64,
}

/// All index files.
pub struct Index {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    clock: SharedClock,
    slots: usize,
    entries: usize,
    pending: Mutex<Vec<Key>>,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    list: Vec<IndexFile>,
    inserting: Vec<Key>,
}

/// One index file, mapped.
struct IndexFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    region: Region,
    cells: Cells,
    is_dirty: bool,
}

impl Index {
    /// An index over `dir`, with no files loaded.
    pub fn new(disk: Arc<dyn Disk>, dir: PathBuf, clock: SharedClock, slots: u32, entries: u32) -> Self {
        let (slots, entries) = (slots as usize, entries as usize);
        Self { disk, dir, clock, slots, entries, pending: Mutex::default(), files: Mutex::default() }
    }

    fn file_bytes(&self) -> usize {
        HEADER_BYTES + self.slots * SLOT_BYTES + self.entries * ENTRY_BYTES
    }

    /// Loads the files as they are.
    pub fn load(&self) -> Result<(), StoreError> {
        let mut files = self.files.lock();
        files.list.clear();
        for path in self.paths()? {
            let file = self.open(&path)?;
            files.list.push(file);
        }
        Ok(())
    }

    /// Loads the files and keeps only entries of records before `position`; chains are made anew where a crash may
    /// have torn them. Returns whether there was nothing to load.
    pub fn load_cut(&self, position: u64) -> Result<bool, StoreError> {
        let mut files = self.files.lock();
        files.list.clear();
        for path in self.paths()? {
            if self.cut_file(&path, position)? {
                let file = self.open(&path)?;
                files.list.push(file);
            } else {
                self.disk.remove(&path).map_err(StoreError::io(&path, "remove"))?;
            }
        }
        Ok(files.list.is_empty())
    }

    /// Files of the right name and size, oldest first; what only looks like one is removed.
    fn paths(&self) -> Result<Vec<PathBuf>, StoreError> {
        let mut paths = Vec::new();
        for entry in self.disk.list(&self.dir).map_err(StoreError::io(&self.dir, "list"))? {
            let is_index = entry.name.len() == 17 && entry.name.bytes().all(|byte| byte.is_ascii_digit());
            let path = self.dir.join(&entry.name);
            if is_index && !entry.is_dir && entry.size == self.file_bytes() as u64 {
                paths.push(path);
            } else if is_index && !entry.is_dir {
                self.disk.remove(&path).map_err(StoreError::io(&path, "remove"))?;
            }
        }
        Ok(paths)
    }

    fn open(&self, path: &Path) -> Result<IndexFile, StoreError> {
        let file = self.disk.open(path, Open::Write).map_err(StoreError::io(path, "open"))?;
        self.map(file, path)
    }

    fn map(&self, file: Arc<dyn DiskFile>, path: &Path) -> Result<IndexFile, StoreError> {
        let region = file.map(self.file_bytes(), true).map_err(StoreError::io(path, "map into memory"))?;
        let Some(cells) = region.claim_cells() else {
            let expected = "expected a mapping that nobody else has claimed".to_owned();
            return Err(StoreError::Layout { path: path.to_owned(), expected });
        };
        Ok(IndexFile { path: path.to_owned(), file, region, cells, is_dirty: false })
    }

    /// Cuts a file that is not mapped; `false` when nothing of it is left.
    fn cut_file(&self, path: &Path, position: u64) -> Result<bool, StoreError> {
        let file = self.disk.open(path, Open::Write).map_err(StoreError::io(path, "open"))?;
        let entries_at = (HEADER_BYTES + self.slots * SLOT_BYTES) as u64;
        let entries =
            read_entries(&*file, entries_at, self.entries, position).map_err(StoreError::io(path, "read"))?;
        let Some(first) = entries.first() else { return Ok(false) };
        let mut header = [0; HEADER_BYTES];
        file.read_at(&mut header, 0).map_err(StoreError::io(path, "read"))?;
        // The first entry's time is in the header alone. It was synced with that entry.
        let begin_timestamp = long_at(&header, BEGIN_TIMESTAMP);
        let zero_from = entries_at + ((entries.len() + 1) * ENTRY_BYTES) as u64;
        let zeroed = file.zero(0..entries_at).and_then(|()| file.zero(zero_from..self.file_bytes() as u64));
        zeroed.map_err(StoreError::io(path, "zero"))?;
        let mut index_file = self.map(file, path)?;
        index_file.cells.store_long(BEGIN_TIMESTAMP, begin_timestamp);
        index_file.cells.store_long(BEGIN_PHYSICAL, first.physical as i64);
        index_file.cells.store(COUNT, 1);
        for entry in &entries {
            index_file.chain(self.slots, entry);
        }
        index_file.sync()?;
        Ok(true)
    }

    /// Inserts what waits in memory.
    fn insert_pending(&self, files: &mut Files) -> Result<(), StoreError> {
        let mut keys = std::mem::take(&mut files.inserting);
        if keys.is_empty() {
            std::mem::swap(&mut keys, &mut *self.pending.lock());
        }
        let mut done = 0;
        let inserted = keys.iter().try_for_each(|key| {
            self.insert(files, key)?;
            done += 1;
            Ok(())
        });
        keys.drain(..done);
        files.inserting = keys;
        inserted
    }

    fn insert(&self, files: &mut Files, key: &Key) -> Result<(), StoreError> {
        let is_full = files.list.last().is_none_or(|file| file.count() as usize >= self.entries);
        if is_full {
            let file = self.create(files)?;
            files.list.push(file);
        }
        if let Some(file) = files.list.last_mut() {
            file.insert(self.slots, key);
        }
        Ok(())
    }

    fn create(&self, files: &Files) -> Result<IndexFile, StoreError> {
        // Files are ordered by name, so a clock that went back must not give a smaller one.
        let newest = files.list.last().and_then(|file| file.path.file_name()?.to_str()?.parse().ok());
        let name = file_name(self.clock.wall_ms()).max(newest.map_or(0, |newest: u64| newest + 1));
        let path = self.dir.join(format!("{name:017}"));
        let file = self.disk.open(&path, Open::Create).map_err(StoreError::io(&path, "create"))?;
        file.resize(self.file_bytes() as u64).map_err(StoreError::io(&path, "extend"))?;
        self.disk.sync_dir(&self.dir).map_err(StoreError::io(&self.dir, "sync"))?;
        let file = self.map(file, &path)?;
        file.cells.store(COUNT, 1);
        Ok(file)
    }

    /// Positions of at most `hits_max` records whose key hashes to `hash`, stored within `begin_ms..=end_ms`.
    pub fn find(&self, hash: i32, hits_max: usize, begin_ms: i64, end_ms: i64) -> Result<Hits, StoreError> {
        let mut files = self.files.lock();
        self.insert_pending(&mut files)?;
        let mut hits = Hits::default();
        if let Some(newest) = files.list.last() {
            hits.last_timestamp_ms = newest.cells.load_long(END_TIMESTAMP);
            hits.last_physical = newest.cells.load_long(END_PHYSICAL) as u64;
        }
        for file in files.list.iter().rev() {
            let file_begin = file.cells.load_long(BEGIN_TIMESTAMP);
            let file_end = file.cells.load_long(END_TIMESTAMP);
            if file_begin <= end_ms && file_end >= begin_ms {
                file.find(self.slots, hash, hits_max, begin_ms..=end_ms, &mut hits.physical);
            }
            if file_begin < begin_ms || hits.physical.len() >= hits_max {
                break;
            }
        }
        Ok(hits)
    }

    /// Time of the newest key of the newest file that is full, as Apache's checkpoint has it.
    pub fn full_timestamp_ms(&self) -> i64 {
        let files = self.files.lock();
        let full = files.list.iter().rev().find(|file| file.count() as usize >= self.entries);
        full.map_or(0, |file| file.cells.load_long(END_TIMESTAMP))
    }
}

impl Derived for Index {
    fn take(&self, record: &Dispatch) {
        if !record.is_indexed() {
            return;
        }
        let waiting = {
            let mut pending = self.pending.lock();
            pending.extend(record.keys.iter().map(|hash| Key {
                hash,
                physical: record.physical.0,
                store_timestamp_ms: record.store_timestamp_ms,
            }));
            pending.len()
        };
        if waiting >= PENDING_KEYS_MAX {
            // The keeper is behind. An error is its to report: the keys stay.
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
        self.files.lock().list.iter_mut().filter(|file| file.is_dirty).try_for_each(IndexFile::sync)
    }

    fn digest(&self) -> u64 {
        let files = self.files.lock();
        files
            .list
            .iter()
            .fold(0, |sum, file| u64::wrapping_add(sum.wrapping_mul(31), u64::from(file.count()) + 1))
    }
}

impl IndexFile {
    /// Number of the next entry; they are counted from 1.
    fn count(&self) -> u32 {
        self.cells.load(COUNT).max(1)
    }

    fn entry_at(&self, slots: usize, number: u32) -> usize {
        HEADER_BYTES + slots * SLOT_BYTES + number as usize * ENTRY_BYTES
    }

    fn insert(&mut self, slots: usize, key: &Key) {
        if key.physical < self.cells.load_long(END_PHYSICAL) as u64 {
            return;
        }
        if self.count() == 1 {
            self.cells.store_long(BEGIN_TIMESTAMP, key.store_timestamp_ms);
            self.cells.store_long(BEGIN_PHYSICAL, key.physical as i64);
        }
        let begin = self.cells.load_long(BEGIN_TIMESTAMP);
        let seconds = (key.store_timestamp_ms - begin) / 1000;
        let seconds = if begin <= 0 { 0 } else { seconds.clamp(0, i64::from(i32::MAX)) as u32 };
        let entry = Entry { hash: key.hash, physical: key.physical, seconds };
        self.chain(slots, &entry);
        self.cells.store_long(END_TIMESTAMP, key.store_timestamp_ms);
        self.is_dirty = true;
    }

    /// Writes an entry behind the others, then its slot, then the header.
    fn chain(&mut self, slots: usize, entry: &Entry) {
        let number = self.count();
        let slot_at = HEADER_BYTES + (entry.hash.unsigned_abs() as usize % slots) * SLOT_BYTES;
        let previous = match self.cells.load(slot_at) {
            previous if previous < number => previous,
            _ => 0,
        };
        let at = self.entry_at(slots, number);
        self.cells.store(at, entry.hash as u32);
        self.cells.store_long(at + 4, entry.physical as i64);
        self.cells.store(at + 12, entry.seconds);
        self.cells.store(at + 16, previous);
        self.cells.store(slot_at, number);
        if previous == 0 {
            self.cells.store(SLOTS_USED, self.cells.load(SLOTS_USED) + 1);
        }
        self.cells.store(COUNT, number + 1);
        self.cells.store_long(END_PHYSICAL, entry.physical as i64);
        let begin = self.cells.load_long(BEGIN_TIMESTAMP);
        self.cells.store_long(END_TIMESTAMP, begin + i64::from(entry.seconds) * 1000);
        self.is_dirty = true;
    }

    fn find(
        &self,
        slots: usize,
        hash: i32,
        hits_max: usize,
        times: std::ops::RangeInclusive<i64>,
        hits: &mut Vec<u64>,
    ) {
        let begin = self.cells.load_long(BEGIN_TIMESTAMP);
        let mut number = self.cells.load(HEADER_BYTES + (hash.unsigned_abs() as usize % slots) * SLOT_BYTES);
        let mut newer = self.count();
        // Numbers fall along a chain; whatever does not is damage, and ends it.
        while number > 0 && number < newer && hits.len() < hits_max {
            let at = self.entry_at(slots, number);
            if at + ENTRY_BYTES > self.cells.len() {
                break;
            }
            let stored = begin + i64::from(self.cells.load(at + 12) as i32) * 1000;
            // Times are whole seconds after the first; a query for the very millisecond must still hit.
            if stored + 999 < *times.start() {
                break;
            }
            if self.cells.load(at) as i32 == hash && stored <= *times.end() {
                hits.push(self.cells.load_long(at + 4) as u64);
            }
            newer = number;
            number = self.cells.load(at + 16);
        }
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let whole = 0..self.region.len();
        self.file.sync_map(&self.region, whole).map_err(StoreError::io(&self.path, "sync"))?;
        self.is_dirty = false;
        Ok(())
    }
}

/// An entry without its place in a chain.
struct Entry {
    hash: i32,
    physical: u64,
    seconds: u32,
}

/// The entries of records before `position`: up to the first that is empty, out of order or not before it.
fn read_entries(file: &dyn DiskFile, at: u64, count: usize, position: u64) -> io::Result<Vec<Entry>> {
    const CHUNK_ENTRIES: usize = 1 << 12;
    let mut entries: Vec<Entry> = Vec::new();
    let mut chunk = vec![[0; ENTRY_BYTES]; CHUNK_ENTRIES];
    let mut newest = 0;
    while entries.len() + 1 < count {
        let from = at + ((entries.len() + 1) * ENTRY_BYTES) as u64;
        let read = file.read_at(chunk.as_flattened_mut(), from)? / ENTRY_BYTES;
        let room = read.min(count - 1 - entries.len());
        for bytes in chunk.iter().take(room) {
            let [h0, h1, h2, h3, p0, p1, p2, p3, p4, p5, p6, p7, s0, s1, s2, s3, ..] = *bytes;
            let physical = u64::from_be_bytes([p0, p1, p2, p3, p4, p5, p6, p7]);
            let is_empty = bytes.iter().all(|byte| *byte == 0);
            if is_empty || physical < newest || physical >= position {
                return Ok(entries);
            }
            newest = physical;
            entries.push(Entry {
                hash: i32::from_be_bytes([h0, h1, h2, h3]),
                physical,
                seconds: u32::from_be_bytes([s0, s1, s2, s3]),
            });
        }
        if room == 0 {
            break;
        }
    }
    Ok(entries)
}

fn long_at(bytes: &[u8], at: usize) -> i64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| i64::from_be_bytes(*bytes))
}

/// The time as `yyyyMMddHHmmssSSS`, in UTC: Apache takes the local zone, and nobody reads the name but to sort by it.
fn file_name(wall_ms: u64) -> u64 {
    let (days, ms) = (wall_ms / 86_400_000, wall_ms % 86_400_000);
    // Days to a date by eras of 400 years that begin in March, when the leap day comes last.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (second, milli) = (ms / 1000, ms % 1000);
    let clock = second / 3600 * 10_000 + second / 60 % 60 * 100 + second % 60;
    ((year * 10_000 + month * 100 + date) * 1_000_000 + clock) * 1000 + milli
}
