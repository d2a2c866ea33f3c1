//! Index file: a header, hash slots, and entries that are chained by slot.
//!
//! Entries are written in order, some thousands per write; slots and header follow when the file is synced. Nothing
//! is written through a mapping: most of a file is a hole, and on a full disk a write to it would kill the process.
//!
//! *Invariant*: entries are in log order. A slot names the newest entry of its chain; a number beyond the count
//! means an empty slot. The numbers of a chain decrease. Numbers in a damaged file are never followed out of bounds.
//! Threads: any, one at a time under the lock of the index.

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::message::record::RecordView;
use crate::message::sysflag;
use crate::store::disk::{Disk, DiskFile, Open};
use crate::store::error::StoreError;

use super::key_hashes::KeyHashes;
use super::layout::{ENTRY_BYTES, Entry, HEADER_BYTES, Header, Shape};
use super::slot_pages::SlotPages;

/// Keys whose slots are prefetched together before they are inserted.
pub(crate) const KEYS_AHEAD: usize = 32;
/// Bytes of entries per write.
const WRITE_BYTES: usize = 4096 * ENTRY_BYTES;
/// Entries per read.
const CHUNK_ENTRIES: usize = 1 << 12;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) hash: i32,
    pub(crate) physical: u64,
    pub(crate) store_timestamp_ms: i64,
}

impl Key {
    /// Returns the keys of a record read from the log, if it is indexed.
    pub(crate) fn of(record: &RecordView<'_>) -> impl Iterator<Item = Self> + use<> {
        let sys_flag = record.sys_flag();
        let is_indexed = sysflag::is_indexed(sys_flag) && sys_flag & sysflag::INNER_BATCH == 0;
        let hashes = is_indexed.then(|| KeyHashes::of(record.topic(), record.properties()));
        let (physical, store_timestamp_ms) = (record.physical_offset().0, record.store_timestamp_ms());
        hashes.into_iter().flat_map(KeyHashes::into_iter).map(move |hash| Self {
            hash,
            physical,
            store_timestamp_ms,
        })
    }
}

pub(crate) struct IndexFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    shape: Shape,
    header: Header,
    /// The count in the header on disk.
    count_in_file: u32,
    slots: SlotPages,
    /// The newest entries, not yet in the file.
    tail: Vec<u8>,
    is_dirty: bool,
    /// The count of entries at the last `cool_down`.
    count_before: u32,
}

impl IndexFile {
    /// Creates a file that is one hole. On an error no file is left.
    pub(crate) fn create(disk: &dyn Disk, path: &Path, shape: Shape) -> Result<Self, StoreError> {
        let make = || {
            let file = disk.open(path, Open::Create).map_err(StoreError::io(path, "create"))?;
            file.resize(shape.file_bytes() as u64).map_err(StoreError::io(path, "extend"))?;
            disk.sync_entries(path.parent().unwrap_or(Path::new(".")))?;
            Self::of(file, path, shape)
        };
        make().inspect_err(|_| drop(disk.remove_file(path)))
    }

    /// Opens a file of the right size without changing it.
    pub(crate) fn open(disk: &dyn Disk, path: &Path, shape: Shape) -> Result<Self, StoreError> {
        let file = disk.open(path, Open::Write).map_err(StoreError::io(path, "open"))?;
        Self::of(file, path, shape)
    }

    fn of(file: Arc<dyn DiskFile>, path: &Path, shape: Shape) -> Result<Self, StoreError> {
        let mut bytes = [0; HEADER_BYTES];
        file.read_at(&mut bytes, 0).map_err(StoreError::io(path, "read"))?;
        let header = Header::decode(&bytes, shape.entries);
        Ok(Self {
            path: path.to_owned(),
            file,
            shape,
            header,
            count_in_file: header.count,
            slots: SlotPages::new(shape.slots()),
            tail: Vec::new(),
            is_dirty: false,
            count_before: header.count,
        })
    }

    /// Opens a file of the right size and keeps only entries of records before `position`, all of which have been
    /// durable. Returns `None` if no entry is left, and an error if entries are not chained correctly.
    ///
    /// The kept entries and the time of the beginning, which only the header has, are unchanged, so that repeating an
    /// interrupted cut has the same result.
    pub(crate) fn cut(
        disk: &dyn Disk,
        path: &Path,
        shape: Shape,
        position: u64,
    ) -> Result<Option<Self>, StoreError> {
        let mut file = Self::open(disk, path, shape)?;
        let before = file.header;
        if file.is_whole_before(position).map_err(StoreError::io(path, "read"))? {
            return Ok(Some(file));
        }
        let is_sound = file.rebuild_chains(position).map_err(StoreError::io(path, "read"))?;
        // The header's count of entries before `position` was durable with them.
        let is_sound = is_sound && (before.end_physical >= position || before.count == file.header.count);
        if is_sound && file.header.count == 1 {
            return Ok(None);
        }
        if !is_sound || file.header.begin_timestamp_ms <= 0 {
            let expected = "expected a begin time, and all entries, chained by slot".to_owned();
            return Err(StoreError::Layout { path: path.to_owned(), expected });
        }
        let rest = shape.entry_at(file.header.count as usize) as u64..shape.file_bytes() as u64;
        let clear = || if rest.is_empty() { Ok(false) } else { file.file.clear(rest) };
        clear().map_err(StoreError::io(path, "clear the rest of"))?;
        Ok(Some(file))
    }

    /// Returns whether the file was full before the record at `position`, so that nothing was written since it was
    /// durable.
    fn is_whole_before(&self, position: u64) -> io::Result<bool> {
        let Header { begin_timestamp_ms, end_physical, count, .. } = self.header;
        Ok(self.is_full()
            && begin_timestamp_ms > 0
            && end_physical < position
            && self.entry(count - 1)?.physical == end_physical)
    }

    /// Rebuilds slots and header from the entries before `position`, up to the first empty or misplaced one. Returns
    /// false if an entry does not continue its chain.
    fn rebuild_chains(&mut self, position: u64) -> io::Result<bool> {
        let begin_timestamp_ms = self.header.begin_timestamp_ms;
        self.header = Header { begin_timestamp_ms, count: 1, ..Header::default() };
        self.is_dirty = true;
        let mut chunk = vec![[0; ENTRY_BYTES]; CHUNK_ENTRIES];
        while !self.is_full() {
            let from = self.shape.entry_at(self.header.count as usize) as u64;
            let read = self.file.read_at(chunk.as_flattened_mut(), from)? / ENTRY_BYTES;
            let room = read.min(self.shape.entries - self.header.count as usize);
            for bytes in chunk.iter().take(room) {
                let entry = Entry::decode(bytes);
                let is_empty = bytes.iter().all(|byte| *byte == 0);
                if is_empty || entry.physical < self.header.end_physical || entry.physical >= position {
                    self.slots.supersede(&*self.file)?;
                    return Ok(true);
                }
                let at = self.shape.slot_at(entry.hash);
                let previous = self.slots.replace_unread(at, self.header.count)?;
                if previous != entry.previous {
                    return Ok(false);
                }
                self.count_in(&entry);
            }
            if room == 0 {
                break;
            }
        }
        self.slots.supersede(&*self.file)?;
        Ok(true)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    pub(crate) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    /// Returns the count in the file, which other processes see.
    pub(crate) fn count_in_file(&self) -> u32 {
        self.count_in_file
    }

    pub(crate) fn is_full(&self) -> bool {
        self.header.count as usize >= self.shape.entries
    }

    /// Returns whether a key is older than the first one, from which times count. This happens after the clock was
    /// set back.
    pub(crate) fn begins_after(&self, key: &Key) -> bool {
        self.header.count > 1 && key.store_timestamp_ms < self.header.begin_timestamp_ms
    }

    /// Returns the store times of the oldest and the newest key.
    pub(crate) fn times(&self) -> (i64, i64) {
        (self.header.begin_timestamp_ms, self.header.end_timestamp_ms)
    }

    pub(crate) fn end_physical(&self) -> u64 {
        self.header.end_physical
    }

    /// Prefetches the slots of these keys.
    pub(crate) fn prefetch(&self, hashes: impl Iterator<Item = i32>) {
        self.slots.prefetch(hashes.map(|hash| self.shape.slot_at(hash)));
    }

    /// Adds a key, unless its record is before the last one. The file must not be full. An error changes nothing.
    pub(crate) fn insert(&mut self, key: &Key) -> Result<(), StoreError> {
        if key.physical < self.header.end_physical {
            return Ok(());
        }
        if self.tail.len() >= WRITE_BYTES {
            self.write_tail()?;
        }
        let at = self.shape.slot_at(key.hash);
        let number = self.header.count;
        let previous =
            self.slots.replace(&*self.file, at, number).map_err(StoreError::io(&self.path, "read"))?;
        if number == 1 {
            self.header.begin_timestamp_ms = key.store_timestamp_ms;
        }
        let begin = self.header.begin_timestamp_ms;
        let seconds = key.store_timestamp_ms.saturating_sub(begin) / 1000;
        let entry = Entry {
            hash: key.hash,
            physical: key.physical,
            seconds: if begin <= 0 { 0 } else { seconds.clamp(0, i64::from(i32::MAX)) as u32 },
            // A number beyond the count is stale.
            previous: if previous < number { previous } else { 0 },
        };
        self.tail.extend_from_slice(&entry.encode());
        self.count_in(&entry);
        self.header.end_timestamp_ms = self.header.end_timestamp_ms.max(key.store_timestamp_ms);
        self.is_dirty = true;
        Ok(())
    }

    /// Adds an entry to the header.
    fn count_in(&mut self, entry: &Entry) {
        let header = &mut self.header;
        if header.count == 1 {
            header.begin_physical = entry.physical;
        }
        header.end_physical = entry.physical;
        let stored = header.begin_timestamp_ms.saturating_add(i64::from(entry.seconds) * 1000);
        header.end_timestamp_ms = header.end_timestamp_ms.max(stored);
        header.slots_used += u32::from(entry.previous == 0);
        header.count += 1;
    }

    fn entry(&self, number: u32) -> io::Result<Entry> {
        let in_memory = (self.header.count - number) as usize * ENTRY_BYTES;
        let from = self.tail.len().checked_sub(in_memory).and_then(|from| self.tail.get(from..));
        if let Some(bytes) = from.and_then(|rest| rest.first_chunk()) {
            return Ok(Entry::decode(bytes));
        }
        let mut bytes = [0; ENTRY_BYTES];
        self.file.read_at(&mut bytes, self.shape.entry_at(number as usize) as u64)?;
        Ok(Entry::decode(&bytes))
    }

    /// Adds positions of records whose key hashes to `hash`, newest first, up to `hits_max` in all.
    pub(crate) fn find(
        &self,
        hash: i32,
        hits_max: usize,
        times: RangeInclusive<i64>,
        hits: &mut Vec<u64>,
    ) -> io::Result<()> {
        let mut number = self.slots.get(&*self.file, self.shape.slot_at(hash))?;
        let mut newer = self.header.count;
        // Numbers decrease along a chain; any other number is damage and ends it.
        while number > 0 && number < newer && hits.len() < hits_max {
            let entry = self.entry(number)?;
            let seconds = i64::from(entry.seconds as i32);
            let stored = self.header.begin_timestamp_ms.saturating_add(seconds * 1000);
            // Times are whole seconds after the first, but a query for the exact millisecond must match.
            if stored.saturating_add(999) < *times.start() {
                break;
            }
            if entry.hash == hash && stored <= *times.end() {
                hits.push(entry.physical);
            }
            newer = number;
            number = entry.previous;
        }
        Ok(())
    }

    /// Writes the entries that are only in memory. After an error they stay there.
    pub(crate) fn write_tail(&mut self) -> Result<(), StoreError> {
        if !self.tail.is_empty() {
            let first = self.header.count as usize - self.tail.len() / ENTRY_BYTES;
            let at = self.shape.entry_at(first) as u64;
            self.file.write_at(&self.tail, at).map_err(StoreError::io(&self.path, "write"))?;
            self.tail.clear();
        }
        Ok(())
    }

    /// Writes everything that is only in memory: entries, then their slots, then the header.
    pub(crate) fn write(&mut self) -> Result<(), StoreError> {
        self.write_tail()?;
        let header = self.header.encode();
        self.slots
            .write(&*self.file)
            .and_then(|()| self.file.write_at(&header, 0))
            .map_err(StoreError::io(&self.path, "write"))?;
        self.count_in_file = self.header.count;
        if self.is_full() {
            self.slots.release();
        }
        Ok(())
    }

    /// Frees the memory of the slots if no entry was added since the last call: 20 MB in a broker's file. The next
    /// entries read the pages that they need.
    pub(crate) fn cool_down(&mut self) {
        if std::mem::replace(&mut self.count_before, self.header.count) == self.header.count && !self.is_dirty
        {
            self.slots.release();
        }
    }

    /// Clears the dirty flag: everything written is synced.
    pub(crate) fn was_synced(&mut self) {
        self.is_dirty = false;
    }
}
