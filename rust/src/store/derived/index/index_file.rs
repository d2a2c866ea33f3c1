//! Index file: a header, hash slots, and entries that are chained by slot.
//!
//! Invariants: entries are in log order; a slot names the newest entry of its chain, or one beyond the count, which
//! means none; the numbers of a chain fall. What a damaged file says beside that is never followed out of bounds.
//! Threads: any, one at a time under the lock of the index.

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::disk::{Cells, Disk, DiskFile, Open, Region};
use crate::store::error::StoreError;

pub(crate) const HEADER_BYTES: usize = 40;
pub(crate) const SLOT_BYTES: usize = 4;
pub(crate) const ENTRY_BYTES: usize = 20;

/// Places of the header's fields.
const BEGIN_TIMESTAMP: usize = 0;
const END_TIMESTAMP: usize = 8;
const BEGIN_PHYSICAL: usize = 16;
const END_PHYSICAL: usize = 24;
const SLOTS_USED: usize = 32;
const COUNT: usize = 36;

/// Keys whose slots are fetched together before they are inserted.
pub(crate) const KEYS_AHEAD: usize = 32;

/// How many slots and entries the files of an index have.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub slots: usize,
    /// Entries, the unused first one included.
    pub entries: usize,
}

impl Shape {
    pub(crate) fn file_bytes(self) -> usize {
        self.entry_at(self.entries)
    }

    fn slot_at(self, hash: i32) -> usize {
        HEADER_BYTES + (hash.unsigned_abs() as usize % self.slots) * SLOT_BYTES
    }

    pub(crate) fn entry_at(self, number: usize) -> usize {
        HEADER_BYTES + self.slots * SLOT_BYTES + number * ENTRY_BYTES
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) hash: i32,
    pub(crate) physical: u64,
    pub(crate) store_timestamp_ms: i64,
}

pub(crate) struct IndexFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    region: Region,
    cells: Cells,
    shape: Shape,
    is_dirty: bool,
}

impl IndexFile {
    pub(crate) fn create(disk: &dyn Disk, path: &Path, shape: Shape) -> Result<Self, StoreError> {
        let file = disk.open(path, Open::Create).map_err(StoreError::io(path, "create"))?;
        file.resize(shape.file_bytes() as u64).map_err(StoreError::io(path, "extend"))?;
        let dir = path.parent().unwrap_or(Path::new("."));
        disk.sync_entries(dir)?;
        let file = Self::map(file, path, shape)?;
        file.cells.store(COUNT, 1);
        Ok(file)
    }

    /// Opens a file of the right size as it is.
    pub(crate) fn open(disk: &dyn Disk, path: &Path, shape: Shape) -> Result<Self, StoreError> {
        let file = disk.open(path, Open::Write).map_err(StoreError::io(path, "open"))?;
        Self::map(file, path, shape)
    }

    /// Cuts a file of the right size to the entries of records before `position`, and makes its chains anew. `None` when
    /// nothing of it is left.
    pub(crate) fn cut(
        disk: &dyn Disk,
        path: &Path,
        shape: Shape,
        position: u64,
    ) -> Result<Option<Self>, StoreError> {
        let file = disk.open(path, Open::Write).map_err(StoreError::io(path, "open"))?;
        let entries = read_entries(&*file, shape, position).map_err(StoreError::io(path, "read"))?;
        let Some(first) = entries.first() else { return Ok(None) };
        let mut header = [0; HEADER_BYTES];
        file.read_at(&mut header, 0).map_err(StoreError::io(path, "read"))?;
        // The first entry's time is in the header alone. It was synced with that entry.
        let begin_timestamp = long_at(&header, BEGIN_TIMESTAMP);
        let slots = 0..shape.entry_at(0) as u64;
        let rest = shape.entry_at(entries.len() + 1) as u64..shape.file_bytes() as u64;
        file.zero(slots).and_then(|()| file.zero(rest)).map_err(StoreError::io(path, "zero"))?;
        let mut index_file = Self::map(file, path, shape)?;
        index_file.cells.store_long(BEGIN_TIMESTAMP, begin_timestamp);
        index_file.cells.store_long(BEGIN_PHYSICAL, first.physical as i64);
        index_file.cells.store(COUNT, 1);
        for next in entries.chunks(KEYS_AHEAD) {
            index_file.prefetch_slots(next.iter().map(|entry| entry.hash));
            next.iter().for_each(|entry| index_file.chain(entry));
        }
        index_file.sync()?;
        Ok(Some(index_file))
    }

    fn map(file: Arc<dyn DiskFile>, path: &Path, shape: Shape) -> Result<Self, StoreError> {
        let region = file.map(shape.file_bytes(), true).map_err(StoreError::io(path, "map into memory"))?;
        let Some(cells) = region.claim_cells() else {
            let expected = "expected a mapping that has not been claimed".to_owned();
            return Err(StoreError::Layout { path: path.to_owned(), expected });
        };
        Ok(Self { path: path.to_owned(), file, region, cells, shape, is_dirty: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// Number of the next entry; they are counted from 1.
    pub(crate) fn count(&self) -> u32 {
        self.cells.load(COUNT).max(1)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count() as usize >= self.shape.entries
    }

    pub(crate) fn times(&self) -> (i64, i64) {
        (self.cells.load_long(BEGIN_TIMESTAMP), self.cells.load_long(END_TIMESTAMP))
    }

    pub(crate) fn end_physical(&self) -> u64 {
        self.cells.load_long(END_PHYSICAL) as u64
    }

    /// Fetches the slots of keys that come next into the cache, all at once: they lie anywhere, and one by one each
    /// insert would wait for memory.
    pub(crate) fn prefetch_slots(&self, hashes: impl Iterator<Item = i32>) {
        let slots = hashes.map(|hash| self.cells.load(self.shape.slot_at(hash)));
        // A sum that may not be optimised away keeps the loads.
        std::hint::black_box(slots.fold(0, u32::wrapping_add));
    }

    /// Adds a key, unless its record comes before the last one. The file must not be full.
    pub(crate) fn insert(&mut self, key: &Key) {
        if key.physical < self.end_physical() {
            return;
        }
        if self.count() == 1 {
            self.cells.store_long(BEGIN_TIMESTAMP, key.store_timestamp_ms);
            self.cells.store_long(BEGIN_PHYSICAL, key.physical as i64);
        }
        let begin = self.cells.load_long(BEGIN_TIMESTAMP);
        let seconds = key.store_timestamp_ms.saturating_sub(begin) / 1000;
        let seconds = if begin <= 0 { 0 } else { seconds.clamp(0, i64::from(i32::MAX)) as u32 };
        let entry = Entry { hash: key.hash, physical: key.physical, seconds };
        self.chain(&entry);
        self.cells.store_long(END_TIMESTAMP, key.store_timestamp_ms);
        self.is_dirty = true;
    }

    /// Writes an entry behind the others, then its slot, then the header.
    fn chain(&mut self, entry: &Entry) {
        let number = self.count();
        let slot_at = self.shape.slot_at(entry.hash);
        let previous = match self.cells.load(slot_at) {
            previous if previous < number => previous,
            _ => 0,
        };
        let at = self.shape.entry_at(number as usize);
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
        let end = self.times().0.saturating_add(i64::from(entry.seconds) * 1000);
        self.cells.store_long(END_TIMESTAMP, end);
        self.is_dirty = true;
    }

    /// Adds positions of records whose key hashes to `hash`, newest first, until there are `hits_max`.
    pub(crate) fn find(&self, hash: i32, hits_max: usize, times: RangeInclusive<i64>, hits: &mut Vec<u64>) {
        let begin = self.cells.load_long(BEGIN_TIMESTAMP);
        let mut number = self.cells.load(self.shape.slot_at(hash));
        let mut newer = self.count();
        // Numbers fall along a chain; whatever does not is damage, and ends it.
        while number > 0 && number < newer && hits.len() < hits_max {
            let at = self.shape.entry_at(number as usize);
            if at + ENTRY_BYTES > self.cells.len() {
                break;
            }
            let stored = begin.saturating_add(i64::from(self.cells.load(at + 12) as i32) * 1000);
            // Times are whole seconds after the first; a query for the very millisecond must still hit.
            if stored.saturating_add(999) < *times.start() {
                break;
            }
            if self.cells.load(at) as i32 == hash && stored <= *times.end() {
                hits.push(self.cells.load_long(at + 4) as u64);
            }
            newer = number;
            number = self.cells.load(at + 16);
        }
    }

    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
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
fn read_entries(file: &dyn DiskFile, shape: Shape, position: u64) -> io::Result<Vec<Entry>> {
    const CHUNK_ENTRIES: usize = 1 << 12;
    let mut entries: Vec<Entry> = Vec::new();
    let mut chunk = vec![[0; ENTRY_BYTES]; CHUNK_ENTRIES];
    let mut newest = 0;
    while entries.len() + 1 < shape.entries {
        let from = shape.entry_at(entries.len() + 1) as u64;
        let read = file.read_at(chunk.as_flattened_mut(), from)? / ENTRY_BYTES;
        let room = read.min(shape.entries - 1 - entries.len());
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

/// The time as `yyyyMMddHHmmssSSS`, in UTC: Apache takes the local zone, and the name is read to sort by it alone.
pub(crate) fn file_name(wall_ms: u64) -> u64 {
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
