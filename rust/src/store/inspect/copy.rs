//! Copy: the whole records of a store in a new store.
//!
//! The copy has a log without gaps, from position 0 on. A record keeps every byte except its position: its queue,
//! its offset there, its times, keys, tag and body. So a group continues at its offset, even if damaged messages
//! before it were left out. Message ids, which clients derive from positions, change. Opening the copy once builds
//! its queues and index.
//!
//! *Invariant*: the source is never written; a target that is not empty is refused.
//! Threads: the caller's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashSet;

use crate::clock::SharedClock;
use crate::message::record::{BLANK_BYTES_MIN, RecordView, encode_blank};
use crate::store::Store;
use crate::store::disk::{Disk, DiskFile, Open, name_of};
use crate::store::error::StoreError;
use crate::store::recovery::{DeletedTopics, RecoveryProgress};
use crate::store::settings::options::Options;

use super::StoppedStore;
use super::walk::{Found, log_files};

/// Bytes per write.
const WRITE_BYTES: usize = 4 << 20;
/// Place of the position in a record.
const PHYSICAL_AT: usize = 28;

/// The result of copying a store.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Copied {
    pub records: u64,
    pub(crate) bytes: u64,
    /// Records of topics that were deleted or not selected.
    pub left_out: u64,
    /// Ranges of the log without a whole record, and their bytes.
    pub corrupt_ranges: u64,
    pub(crate) corrupt_bytes: u64,
}

impl StoppedStore {
    /// Copies whole records, of `topics` or of all, to a store in `options.paths`, which must be empty or missing.
    /// The folder `config` is copied unchanged.
    pub fn copy(
        &self,
        mut options: Options,
        topics: Option<&HashSet<String>>,
        clock: SharedClock,
    ) -> Result<Copied, StoreError> {
        let (disk, root) = (&self.disk, options.paths.root.clone());
        if !disk.entries(&root)?.is_empty() {
            let expected = "expected the target to be missing or an empty folder".to_owned();
            return Err(StoreError::Layout { path: root, expected });
        }
        let files = log_files(&**disk, &self.paths.log)?;
        if let Some(first) = files.first() {
            options.segment_bytes = first.size;
        }
        let deleted = DeletedTopics::load(disk, &self.paths.root, files.first().map_or(0, |file| file.base))?;
        let dir = options.paths.log.clone();
        disk.make_dir(&dir)?;
        let mut log = LogWriter::new(Arc::clone(disk), dir, options.segment_bytes);
        let mut copied = Copied::default();
        self.walk(|found| {
            let record = match found {
                Found::Record(record) => record,
                Found::Corrupt(range) => {
                    copied.corrupt_ranges += 1;
                    copied.corrupt_bytes += range.end - range.at;
                    return Ok(());
                }
            };
            let is_asked = topics.is_none_or(|topics| {
                std::str::from_utf8(record.topic()).is_ok_and(|topic| topics.contains(topic))
            });
            if !is_asked || deleted.covers(record.topic(), record.physical_offset().0) {
                copied.left_out += 1;
                return Ok(());
            }
            copied.records += 1;
            copied.bytes += record.total_size() as u64;
            log.append(record)
        })?;
        log.finish()?;
        self.copy_folder(Path::new("config"), &root)?;
        options.threads = false;
        let (disk, lost_bytes) = (Arc::clone(disk), copied.corrupt_bytes);
        Store::open_copy(options, disk, clock, &RecoveryProgress::default(), lost_bytes)?.close()?;
        Ok(copied)
    }

    fn copy_folder(&self, name: &Path, target: &Path) -> Result<(), StoreError> {
        for entry in self.list(name)? {
            let name = name.join(&entry.name);
            if entry.is_dir {
                self.copy_folder(&name, target)?;
                continue;
            }
            let bytes = self.disk.read_front(&self.paths.root.join(&name), entry.size as usize)?;
            let path = target.join(&name);
            if let Some(dir) = path.parent() {
                self.disk.make_dir(dir)?;
            }
            let file = self.disk.open(&path, Open::Create).map_err(StoreError::io(&path, "create"))?;
            file.write_at(&bytes, 0).and_then(|()| file.sync()).map_err(StoreError::io(&path, "write"))?;
        }
        Ok(())
    }
}

/// Writes records without gaps, in files that end with a blank.
struct LogWriter {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segment_bytes: u64,
    /// Position of the next record.
    at: u64,
    file: Option<(Arc<dyn DiskFile>, PathBuf)>,
    /// Bytes that are not in the file yet.
    unwritten: Vec<u8>,
}

impl LogWriter {
    fn new(disk: Arc<dyn Disk>, dir: PathBuf, segment_bytes: u64) -> Self {
        Self { disk, dir, segment_bytes, at: 0, file: None, unwritten: Vec::new() }
    }

    fn append(&mut self, record: &RecordView<'_>) -> Result<(), StoreError> {
        let room = self.segment_bytes - self.at % self.segment_bytes;
        if (record.total_size() + BLANK_BYTES_MIN) as u64 > room {
            let mut blank = [0; BLANK_BYTES_MIN];
            encode_blank(&mut blank, room as u32);
            self.unwritten.extend_from_slice(&blank);
            self.write(self.at + BLANK_BYTES_MIN as u64)?;
            self.end_file()?;
            self.at += room;
        }
        let start = self.unwritten.len();
        self.unwritten.extend_from_slice(record.bytes());
        let position = self.unwritten.get_mut(start + PHYSICAL_AT..).and_then(|rest| rest.first_chunk_mut());
        if let Some(position) = position {
            *position = self.at.to_be_bytes();
        }
        self.at += record.total_size() as u64;
        if self.unwritten.len() >= WRITE_BYTES { self.write(self.at) } else { Ok(()) }
    }

    /// Writes the buffered bytes, which end at `end`, to their file.
    fn write(&mut self, end: u64) -> Result<(), StoreError> {
        let start = end - self.unwritten.len() as u64;
        let within = start % self.segment_bytes;
        let path = self.dir.join(name_of(start - within));
        if self.file.is_none() {
            let file = self.disk.open(&path, Open::Create).map_err(StoreError::io(&path, "create"))?;
            file.allocate(self.segment_bytes).map_err(StoreError::io(&path, "allocate"))?;
            self.file = Some((file, path.clone()));
        }
        if let Some((file, path)) = &self.file {
            file.write_at(&self.unwritten, within).map_err(StoreError::io(path, "write"))?;
        }
        self.unwritten.clear();
        Ok(())
    }

    fn end_file(&mut self) -> Result<(), StoreError> {
        match self.file.take() {
            Some((file, path)) => file.sync().map_err(StoreError::io(&path, "sync")),
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<(), StoreError> {
        if !self.unwritten.is_empty() {
            self.write(self.at)?;
        }
        self.end_file()?;
        self.disk.sync_entries(&self.dir)
    }
}
