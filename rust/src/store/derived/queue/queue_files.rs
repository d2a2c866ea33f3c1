//! Queue files: the files of all queues, through few descriptors.
//!
//! Owns `consumequeue/TOPIC/ID/`: files of one size, named by the byte position of their first unit, with their full
//! length from the start (and sparse). A bounded cache keeps the most recently used ones open.
//!
//! Invariant: a file in the cache is the one of that name on the disk; deleting a queue empties its part of the
//! cache.
//! Threads: reading from any; writing from one at a time (recovery, maintenance, or a dispatcher with a full tail).

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::disk::{Disk, DiskFile, Open, name_of};
use crate::store::error::StoreError;

use super::consume_queue::ConsumeQueue;
use super::unit::UNIT_BYTES;

/// Maximum number of open files: a fraction of the 1,024 descriptors that a process usually has.
const OPEN_FILES_MAX: usize = 256;

/// A file of a queue: the queue's serial and the file's first byte position.
type FileKey = (u64, u64);

pub(crate) struct QueueFiles {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    file_bytes: u64,
    open: Mutex<OpenFiles>,
}

type UnsyncedFiles = HashMap<FileKey, (Arc<dyn DiskFile>, PathBuf)>;

#[derive(Default)]
struct OpenFiles {
    files: HashMap<FileKey, (Arc<dyn DiskFile>, u64)>,
    uses: u64,
    /// Files written since the last sync, kept open so that no error is lost.
    unsynced: UnsyncedFiles,
    /// Directories with new files.
    unsynced_dirs: Vec<PathBuf>,
    /// Whether a sync has failed: the next one might succeed without having written anything.
    is_in_doubt: bool,
}

impl QueueFiles {
    pub(crate) fn new(disk: Arc<dyn Disk>, root: PathBuf, file_bytes: u64) -> Self {
        Self { disk, root, file_bytes, open: Mutex::default() }
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub(crate) fn file_units(&self) -> u64 {
        self.file_bytes / UNIT_BYTES as u64
    }

    pub(crate) fn dir(&self, topic: &str, queue_id: u32) -> PathBuf {
        self.root.join(topic).join(queue_id.to_string())
    }

    /// Reads units from `offset` on, as many as fit and one file holds.
    pub(crate) fn read(
        &self,
        queue: &ConsumeQueue,
        offset: u64,
        into: &mut [[u8; UNIT_BYTES]],
    ) -> Result<usize, StoreError> {
        let (base, within) = self.place(offset);
        // The path of a file that is open already is needed only for an error.
        let failed = |action| move |source| self.failed(queue, base, action, source);
        let Some(file) = self.file(queue, base).map_err(failed("open"))? else {
            return Ok(0);
        };
        let count = into.len().min(((self.file_bytes - within) / UNIT_BYTES as u64) as usize);
        let Some(into) = into.get_mut(..count) else { return Ok(0) };
        Ok(file.read_at(into.as_flattened_mut(), within).map_err(failed("read"))? / UNIT_BYTES)
    }

    fn failed(&self, queue: &ConsumeQueue, base: u64, action: &'static str, source: io::Error) -> StoreError {
        StoreError::Io { path: self.path(queue, base), action, source }
    }

    fn path(&self, queue: &ConsumeQueue, base: u64) -> PathBuf {
        self.dir(&queue.key().topic, queue.key().queue_id).join(name_of(base))
    }

    /// Writes encoded units from `offset` on and creates files as needed.
    pub(crate) fn write(
        &self,
        queue: &ConsumeQueue,
        mut offset: u64,
        mut units: &[u8],
    ) -> Result<(), StoreError> {
        while !units.is_empty() {
            let (base, within) = self.place(offset);
            let size = units.len().min((self.file_bytes - within) as usize);
            let (now, later) = units.split_at(size);
            let path = self.path(queue, base);
            let file = self.file_for_writing(queue, base, &path)?;
            file.write_at(now, within).map_err(StoreError::io(&path, "write"))?;
            let unsynced = {
                let mut open = self.open.lock();
                open.unsynced.entry((queue.serial(), base)).or_insert((file, path));
                open.unsynced.len()
            };
            if unsynced >= OPEN_FILES_MAX || self.disk.is_short_of_descriptors() {
                self.sync()?;
            }
            units = later;
            offset += (size / UNIT_BYTES) as u64;
        }
        Ok(())
    }

    /// Makes everything written so far durable. After an error the state is in doubt until the store is reopened,
    /// and every later sync fails, too.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let (files, dirs) = {
            let mut open = self.open.lock();
            if open.is_in_doubt {
                let expected = "expected its earlier sync to succeed: open the store again".to_owned();
                return Err(StoreError::Layout { path: self.root.clone(), expected });
            }
            (std::mem::take(&mut open.unsynced), std::mem::take(&mut open.unsynced_dirs))
        };
        let synced = self.sync_all(files, &dirs);
        self.open.lock().is_in_doubt |= synced.is_err();
        synced
    }

    fn sync_all(&self, files: UnsyncedFiles, dirs: &[PathBuf]) -> Result<(), StoreError> {
        for (file, path) in files.into_values() {
            file.sync().map_err(StoreError::io(&path, "sync"))?;
        }
        for dir in dirs {
            match self.disk.sync_dir(dir) {
                // The topic was deleted since, so its files need not be synced.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                synced => synced.map_err(StoreError::io(dir, "sync"))?,
            }
        }
        Ok(())
    }

    /// Removes the files of one queue; close it first.
    pub(crate) fn remove_queue(&self, topic: &str, queue_id: u32) -> Result<(), StoreError> {
        self.remove_dir(&self.dir(topic, queue_id))
    }

    /// Durably removes the first of a queue's files: a crash must not leave a gap.
    pub(crate) fn remove_first(&self, queue: &ConsumeQueue, base: u64) -> Result<(), StoreError> {
        {
            let mut open = self.open.lock();
            open.files.remove(&(queue.serial(), base));
            open.unsynced.remove(&(queue.serial(), base));
        }
        self.disk.remove_durably(&self.dir(&queue.key().topic, queue.key().queue_id).join(name_of(base)))
    }

    /// Removes the files of all queues of a topic; close them first.
    pub(crate) fn remove_topic(&self, topic: &str) -> Result<(), StoreError> {
        self.remove_dir(&self.root.join(topic))
    }

    fn remove_dir(&self, dir: &Path) -> Result<(), StoreError> {
        let parent = dir.parent().unwrap_or(&self.root);
        if self.disk.entries(parent)?.is_empty() {
            return Ok(());
        }
        self.disk.remove_dir(dir).map_err(StoreError::io(dir, "remove"))?;
        self.disk.sync_entries(parent)
    }

    /// Closes the open files of a queue.
    pub(crate) fn close(&self, queue: &ConsumeQueue) {
        let mut open = self.open.lock();
        open.files.retain(|(serial, _), _| *serial != queue.serial());
        open.unsynced.retain(|(serial, _), _| *serial != queue.serial());
        let dir = self.dir(&queue.key().topic, queue.key().queue_id);
        open.unsynced_dirs.retain(|unsynced| *unsynced != dir);
    }

    /// Returns the position of the file that holds the unit at `offset`, and the unit's place in it.
    fn place(&self, offset: u64) -> (u64, u64) {
        let at = offset * UNIT_BYTES as u64;
        let within = at % self.file_bytes;
        (at - within, within)
    }

    fn file_for_writing(
        &self,
        queue: &ConsumeQueue,
        base: u64,
        path: &Path,
    ) -> Result<Arc<dyn DiskFile>, StoreError> {
        if let Some(file) = self.cached(queue, base) {
            return Ok(file);
        }
        let dir = path.parent().unwrap_or(&self.root);
        self.disk.make_dir(dir)?;
        let file = self.disk.open(path, Open::Create).map_err(StoreError::io(path, "open"))?;
        if file.size().map_err(StoreError::io(path, "measure"))? != self.file_bytes {
            // At full length from the start, as Apache's broker expects of any file it finds.
            file.resize(self.file_bytes).map_err(StoreError::io(path, "extend"))?;
        }
        // The file may be new, and so may the directories of its queue and its topic.
        {
            let mut open = self.open.lock();
            for dir in path.ancestors().skip(1).take(3) {
                if !open.unsynced_dirs.iter().any(|unsynced| unsynced == dir) {
                    open.unsynced_dirs.push(dir.to_owned());
                }
            }
        }
        self.keep((queue.serial(), base), &file);
        Ok(file)
    }

    /// Returns the file, from the cache or opened; `None` if it does not exist.
    fn file(&self, queue: &ConsumeQueue, base: u64) -> io::Result<Option<Arc<dyn DiskFile>>> {
        if let Some(file) = self.cached(queue, base) {
            return Ok(Some(file));
        }
        // Opened for writing, too, because a cached file may be written next.
        let file = match self.disk.open(&self.path(queue, base), Open::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        if file.size()? == self.file_bytes {
            self.keep((queue.serial(), base), &file);
        }
        Ok(Some(file))
    }

    /// Adds a file to the cache, which shrinks when the process runs out of descriptors.
    fn keep(&self, key: FileKey, file: &Arc<dyn DiskFile>) {
        self.open.lock().keep(key, file);
        while self.disk.is_short_of_descriptors() && self.open.lock().close_oldest() {}
    }

    fn cached(&self, queue: &ConsumeQueue, base: u64) -> Option<Arc<dyn DiskFile>> {
        let mut open = self.open.lock();
        open.uses += 1;
        let uses = open.uses;
        let (file, used) = open.files.get_mut(&(queue.serial(), base))?;
        *used = uses;
        Some(Arc::clone(file))
    }
}

impl OpenFiles {
    /// Adds a file to the cache; evicts the least recently used one when the cache is full.
    fn keep(&mut self, key: FileKey, file: &Arc<dyn DiskFile>) {
        if self.files.len() >= OPEN_FILES_MAX {
            self.close_oldest();
        }
        self.files.insert(key, (Arc::clone(file), self.uses));
    }

    /// Evicts the least recently used file; returns `false` when the cache is empty.
    fn close_oldest(&mut self) -> bool {
        let oldest = self.files.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key);
        oldest.and_then(|key| self.files.remove(&key)).is_some()
    }
}
