//! Timer log: units in files of one size, addressed as one file.
//!
//! A filler ends a file that has no room for another unit. Units are collected and written together; due units are
//! read backwards along a chain, a block at a time.
//!
//! *Invariant*: bytes after the end are zero.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::store::StoreError;
use crate::store::disk::{Disk, DiskFile, Open, name_of, position_of};

use super::unit::{TimerUnit, UNIT_BYTES};

/// The size of a filler's head, for which every file has room.
const FILLER_BYTES: u64 = 16;
const FILLER_MAGIC: u32 = 0xCBD4_3194;
/// Bytes per read: whole units.
const BLOCK_BYTES: u64 = UNIT_BYTES as u64 * 1_260;

/// A file with unsynced bytes.
pub(crate) struct Unsynced {
    begin: u64,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
}

impl Unsynced {
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.file.sync().map_err(StoreError::io(&self.path, "sync"))
    }
}

pub(crate) struct TimerLog {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    file_bytes: u64,
    /// Files by their first position.
    files: BTreeMap<u64, Arc<dyn DiskFile>>,
    /// Position after the last written unit.
    written: u64,
    unwritten: Vec<u8>,
    /// Files with unsynced bytes.
    unsynced: Vec<u64>,
    block: (u64, Vec<u8>),
}

impl TimerLog {
    /// Loads the log up to `end`; returns `None` if the files are shorter. Bytes after `end` are readable until
    /// `cut`. The size of existing files takes precedence over `file_bytes`.
    pub(crate) fn load(
        disk: &Arc<dyn Disk>,
        dir: PathBuf,
        file_bytes: u64,
        end: u64,
    ) -> Result<Option<Self>, StoreError> {
        let mut sizes = BTreeMap::new();
        for entry in disk.entries(&dir)?.into_iter().filter(|entry| !entry.is_dir) {
            sizes.extend(position_of(&entry.name).map(|position| (position, entry.size)));
        }
        let Some((&begin, &file_bytes)) = sizes.first_key_value() else {
            disk.make_dir(&dir)?;
            return Ok((end == 0).then(|| Self::empty(disk, dir, file_bytes)));
        };
        let is_row = (0..)
            .zip(&sizes)
            .all(|(index, (position, size))| *size == file_bytes && *position == begin + index * file_bytes);
        let ends = begin + file_bytes * sizes.len() as u64;
        if !is_row || file_bytes <= UNIT_BYTES as u64 + FILLER_BYTES || end < begin || end > ends {
            return Ok(None);
        }
        let mut log = Self::empty(disk, dir, file_bytes);
        log.written = end;
        for position in sizes.into_keys() {
            let path = log.path(position);
            let file = log.disk.open(&path, Open::Write).map_err(StoreError::io(&path, "open"))?;
            log.files.insert(position, file);
        }
        Ok(Some(log))
    }

    /// Removes bytes after the end.
    pub(crate) fn cut(&mut self) -> Result<(), StoreError> {
        let (begin, end) = (self.files.keys().next().copied(), self.written);
        while let Some((&position, file)) = self.files.last_key_value()
            && end < position + self.file_bytes
        {
            let path = self.path(position);
            if Some(position) == begin || position < end {
                file.resize(end.saturating_sub(position))
                    .and_then(|()| file.resize(self.file_bytes))
                    .map_err(StoreError::io(&path, "cut"))?;
                break;
            }
            self.disk.remove_file(&path)?;
            self.files.remove(&position);
        }
        self.block.1.clear();
        Ok(())
    }

    /// Creates a log without units, replacing an existing one.
    pub(crate) fn create(disk: &Arc<dyn Disk>, dir: PathBuf, file_bytes: u64) -> Result<Self, StoreError> {
        disk.remove_dir(&dir).map_err(StoreError::io(&dir, "remove"))?;
        disk.make_dir(&dir)?;
        Ok(Self::empty(disk, dir, file_bytes))
    }

    fn empty(disk: &Arc<dyn Disk>, dir: PathBuf, file_bytes: u64) -> Self {
        Self {
            disk: Arc::clone(disk),
            dir,
            file_bytes,
            files: BTreeMap::new(),
            written: 0,
            unwritten: Vec::new(),
            unsynced: Vec::new(),
            block: (0, Vec::new()),
        }
    }

    /// Returns a reader of the written units, which stays valid while units are added and files removed.
    pub(crate) fn reader(&self) -> Self {
        let (files, written) = (self.files.clone(), self.written);
        Self { files, written, ..Self::empty(&self.disk, self.dir.clone(), self.file_bytes) }
    }

    fn path(&self, position: u64) -> PathBuf {
        self.dir.join(name_of(position))
    }

    /// Returns the position after the last unit.
    pub(crate) fn end(&self) -> u64 {
        self.written + self.unwritten.len() as u64
    }

    /// Appends a unit and returns its position. The unit is in the file after `write`.
    pub(crate) fn push(&mut self, unit: &TimerUnit) -> u64 {
        let room = self.file_bytes - self.end() % self.file_bytes;
        if room < UNIT_BYTES as u64 + FILLER_BYTES {
            let filled = self.unwritten.len() + room as usize;
            self.unwritten.extend_from_slice(&(room as u32).to_be_bytes());
            self.unwritten.extend_from_slice(&[0; 8]);
            self.unwritten.extend_from_slice(&FILLER_MAGIC.to_be_bytes());
            self.unwritten.resize(filled, 0);
        }
        let position = self.end();
        self.unwritten.extend_from_slice(&unit.encode());
        position
    }

    /// Writes the pushed units. After an error the next call writes the rest.
    pub(crate) fn write(&mut self) -> Result<(), StoreError> {
        while !self.unwritten.is_empty() {
            let begin = self.written - self.written % self.file_bytes;
            let room = (begin + self.file_bytes - self.written) as usize;
            let size = self.unwritten.len().min(room);
            let path = self.path(begin);
            let file = match self.files.get(&begin) {
                Some(file) => Arc::clone(file),
                None => self.make(begin)?,
            };
            let bytes = self.unwritten.get(..size).unwrap_or_default();
            file.write_at(bytes, self.written - begin).map_err(StoreError::io(&path, "write"))?;
            self.unwritten.drain(..size);
            self.written += size as u64;
            if self.unsynced.last() != Some(&begin) {
                self.unsynced.push(begin);
            }
            self.block.1.clear();
        }
        Ok(())
    }

    fn make(&mut self, begin: u64) -> Result<Arc<dyn DiskFile>, StoreError> {
        let path = self.path(begin);
        let make = || -> io::Result<Arc<dyn DiskFile>> {
            let file = self.disk.open(&path, Open::Create)?;
            file.resize(self.file_bytes)?;
            self.disk.sync_dir(&self.dir)?;
            Ok(file)
        };
        let file = make().map_err(StoreError::io(&path, "create"))?;
        self.files.insert(begin, Arc::clone(&file));
        Ok(file)
    }

    /// Returns the files to sync.
    pub(crate) fn take_unsynced(&mut self) -> Vec<Unsynced> {
        let unsynced = std::mem::take(&mut self.unsynced);
        let file = |begin: u64| {
            Some(Unsynced { begin, path: self.path(begin), file: Arc::clone(self.files.get(&begin)?) })
        };
        unsynced.into_iter().filter_map(file).collect()
    }

    /// Marks files as unsynced again after a failed sync.
    pub(crate) fn give_back(&mut self, unsynced: &[Unsynced]) {
        let before: Vec<u64> = unsynced.iter().map(|file| file.begin).collect();
        self.unsynced.splice(0..0, before);
    }

    /// Reads the unit at `position`, before the end; returns `None` if there is none.
    pub(crate) fn read(&mut self, position: u64) -> Result<Option<TimerUnit>, StoreError> {
        Ok(self.read_behind(position)?.filter(|_| position < self.written))
    }

    /// Reads a unit, also after the end of a log that was loaded and not cut.
    pub(super) fn read_behind(&mut self, position: u64) -> Result<Option<TimerUnit>, StoreError> {
        let begin = position - position % self.file_bytes;
        let block = begin + (position - begin) / BLOCK_BYTES * BLOCK_BYTES;
        if self.block.1.is_empty() || self.block.0 != block {
            let Some(file) = self.files.get(&begin) else { return Ok(None) };
            let size = BLOCK_BYTES.min(begin + self.file_bytes - block);
            let path = self.path(begin);
            self.block.1.resize(size as usize, 0);
            let read = file.read_at(&mut self.block.1, block - begin);
            self.block.1.truncate(*read.as_ref().unwrap_or(&0));
            read.map_err(StoreError::io(&path, "read"))?;
            self.block.0 = block;
        }
        Ok(self.block.1.get((position - block) as usize..).and_then(TimerUnit::decode))
    }

    /// Calls `take` with each unit of a chain and its position, newest first; returns `false` if one is missing.
    pub(crate) fn chain(
        &mut self,
        last: u64,
        mut take: impl FnMut(u64, &TimerUnit),
    ) -> Result<bool, StoreError> {
        let mut next = Some(last);
        while let Some(position) = next {
            let Some(unit) = self.read(position)? else { return Ok(false) };
            take(position, &unit);
            // A chain leads backwards only; anything else is damage.
            next = unit.previous.filter(|previous| *previous < position);
        }
        Ok(true)
    }

    /// Calls `take` with each unit and its position, oldest first; returns `false` if anything else is among them.
    pub(crate) fn scan(&mut self, mut take: impl FnMut(u64, &TimerUnit)) -> Result<bool, StoreError> {
        let Some(&first) = self.files.keys().next() else { return Ok(self.written == 0) };
        let mut position = first;
        while position < self.written {
            let room = self.file_bytes - position % self.file_bytes;
            if room < UNIT_BYTES as u64 + FILLER_BYTES {
                position += room;
                continue;
            }
            let Some(unit) = self.read(position)? else { return Ok(false) };
            take(position, &unit);
            position += UNIT_BYTES as u64;
        }
        Ok(true)
    }

    /// Removes files whose units are all before `position`.
    pub(crate) fn trim(&mut self, position: u64) -> Result<(), StoreError> {
        while let Some(&begin) = self.files.keys().next() {
            if begin + self.file_bytes > position.min(self.written) {
                break;
            }
            self.disk.remove_durably(&self.path(begin))?;
            self.files.remove(&begin);
        }
        Ok(())
    }

    /// Returns whether a file may be removed soon.
    pub(crate) fn has_old_files(&self) -> bool {
        self.files.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataplane::delivery::timers::files::unit::DEFAULT;
    use crate::store::disk::simulated::SimDisk;

    const FILE_BYTES: u64 = 3 * UNIT_BYTES as u64 + FILLER_BYTES + 10;

    fn unit(number: u64) -> TimerUnit {
        TimerUnit {
            previous: number.checked_sub(1),
            kind: DEFAULT,
            stored_ms: 7,
            due_ms: 9,
            physical: number,
            size: 100,
            topic_hash: 1,
        }
    }

    fn numbers(log: &mut TimerLog) -> Vec<u64> {
        let mut found = Vec::new();
        assert!(log.scan(|_, unit| found.push(unit.physical)).expect("a working disk"));
        found
    }

    #[test]
    fn units_are_read_in_order_across_files_and_cut_at_the_saved_end() {
        let disk = SimDisk::new().shared();
        let dir = PathBuf::from("/store/timerlog");
        let mut log = TimerLog::create(&disk, dir.clone(), FILE_BYTES).expect("a log");
        let positions: Vec<u64> = (0..8).map(|number| log.push(&unit(number))).collect();
        log.write().expect("written");
        assert_eq!(positions[3], FILE_BYTES, "the fourth unit did not fit into the first file");
        for (number, position) in (0..).zip(&positions) {
            assert_eq!(log.read(*position).expect("read"), Some(unit(number)));
        }
        drop(log);
        let mut again = TimerLog::load(&disk, dir.clone(), 1, positions[5]).expect("read").expect("whole");
        assert_eq!(again.read_behind(positions[7]).expect("read"), Some(unit(7)));
        again.cut().expect("cut");
        assert_eq!(again.read_behind(positions[7]).expect("read"), None);
        assert_eq!(numbers(&mut again), [0, 1, 2, 3, 4]);
        assert_eq!(again.push(&unit(50)), positions[5]);
        again.write().expect("written");
        again.trim(positions[4]).expect("trimmed");
        assert_eq!(numbers(&mut again), [3, 4, 50]);
        assert!(TimerLog::load(&disk, dir.clone(), 1, 0).expect("read").is_none(), "its beginning is gone");
        assert!(TimerLog::load(&disk, dir, 1, 9_999).expect("read").is_none(), "the log is shorter");
    }
}
