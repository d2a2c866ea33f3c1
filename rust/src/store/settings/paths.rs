//! Store paths: the root, and the folders of log, queues and index, which may be on other file systems.
//!
//! Owns `rmqpy/paths`, which records the folders outside the root as of the last start. A start with other paths
//! fails if the files are still in the old place, so that it does not begin a new log. Files that were moved
//! together with the setting are accepted.
//!
//! Threads: the opener or inspector of the store; paths never change.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::disk::{Disk, Entry, FileLock, position_of};
use crate::store::error::StoreError;

const RECORD_NAME: &str = "paths";

/// The paths of a store's files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorePaths {
    /// The folder of all other files, including `lock`.
    pub root: PathBuf,
    pub log: PathBuf,
    pub queues: PathBuf,
    pub index: PathBuf,
}

/// A folder that may lie outside the root.
struct Folder<'a> {
    /// The key in `broker.conf`, which errors name.
    key: &'static str,
    what: &'static str,
    path: &'a Path,
    /// Returns whether a file or folder in it belongs to the store.
    is_of_store: fn(&Entry) -> bool,
}

impl StorePaths {
    /// Creates paths with every folder below the root, Apache's default.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let [log, queues, index] = ["commitlog", "consumequeue", "index"].map(|name| root.join(name));
        Self { root, log, queues, index }
    }

    /// Loads the paths as of the last start of the store in `root`.
    pub fn recorded(root: &Path, disk: &Arc<dyn Disk>) -> Result<Self, StoreError> {
        let mut paths = Self::below(root);
        let record = disk.read_front(&paths.record(), usize::MAX)?;
        for line in record.split(|byte| *byte == b'\n') {
            let Some(at) = line.iter().position(|byte| *byte == b'=') else { continue };
            let (key, value) = (&line[..at], PathBuf::from(OsStr::from_bytes(&line[at + 1..])));
            match key {
                b"storePathCommitLog" => paths.log = value,
                b"storePathConsumeQueue" => paths.queues = value,
                b"storePathIndex" => paths.index = value,
                _ => {}
            }
        }
        Ok(paths)
    }

    /// Returns the folder of rmqpy's own files.
    pub(crate) fn own(&self) -> PathBuf {
        self.root.join("rmqpy")
    }

    fn record(&self) -> PathBuf {
        self.own().join(RECORD_NAME)
    }

    /// Files that hold the end of the log until it is written.
    pub(crate) fn write_ring(&self) -> PathBuf {
        self.own().join("ring")
    }

    /// The folder in which earlier versions had the write ring.
    pub(crate) fn old_write_ring(&self) -> PathBuf {
        self.own().join("spool")
    }

    /// Files of earlier write rings that did not continue the log.
    pub(crate) fn ring_aside(&self) -> PathBuf {
        self.own().join("ring-aside")
    }

    /// Returns the next file of the log while it is created: on the log's file system, but outside the folder in
    /// which an Apache broker would take it for a segment.
    pub(crate) fn segment_scratch(&self) -> PathBuf {
        let dir = if self.log.starts_with(&self.root) { self.own() } else { self.log.join("rmqpy") };
        dir.join("segment")
    }

    /// Returns a temporary file on the log's file system.
    pub(crate) fn direct_scratch(&self) -> PathBuf {
        self.segment_scratch().with_extension("direct")
    }

    /// Returns the folder of an index that is being rebuilt: on the index's file system.
    pub(crate) fn index_scratch(&self) -> PathBuf {
        if self.index.starts_with(&self.root) { self.root.join("index.new") } else { self.index.join("new") }
    }

    /// Returns whether the log has files, or at least a folder.
    pub(crate) fn has_log(&self, disk: &dyn Disk) -> Result<bool, StoreError> {
        let is_log = |entry: Entry| entry.is_dir && Some(OsStr::new(&entry.name)) == self.log.file_name();
        let siblings = disk.entries(self.log.parent().unwrap_or(Path::new("/")))?;
        Ok(siblings.into_iter().any(is_log) || !disk.entries(&self.log)?.is_empty())
    }

    /// Creates the folders, and locks those outside the root, which two stores might share. `has_messages` means
    /// that files in the root show that there should be a log.
    ///
    /// # Errors
    /// A folder is not where the files are; the error names both places.
    pub(in crate::store) fn prepare(
        &self,
        disk: &Arc<dyn Disk>,
        has_messages: bool,
    ) -> Result<Vec<Arc<dyn FileLock>>, StoreError> {
        let before = Self::recorded(&self.root, disk)?;
        let is_same = |now: &Path, before: &Path| now == before || disk.resolve(now) == disk.resolve(before);
        for (now, before) in self.folders().iter().zip(before.folders()) {
            if !is_same(now.path, before.path) && has_files(&**disk, &before)? {
                let (key, what, there) = (now.key, now.what, before.path.display());
                let expected = format!(
                    "{key} puts the {what} of the store {} here, but the files are in {there}: set {key}={there}, or \
                     move the files here",
                    self.root.display()
                );
                return Err(StoreError::Layout { path: now.path.to_owned(), expected });
            }
        }
        let below = Self::below(&self.root);
        let [log, ..] = self.folders();
        let is_log_elsewhere = !is_same(&self.log, &below.log);
        if is_log_elsewhere && (has_messages || self.log == before.log) && !has_files(&**disk, &log)? {
            let expected = format!(
                "the commit log of the store {} should be here and has no file: is its disk mounted? To begin without its \
                 messages remove {} and {}",
                self.root.display(),
                self.record().display(),
                self.root.join("checkpoint").display()
            );
            return Err(StoreError::Layout { path: self.log.clone(), expected });
        }
        let mut locks = Vec::new();
        for (now, below) in self.folders().iter().zip(below.folders()) {
            disk.make_dir(now.path)?;
            if !is_same(now.path, below.path) {
                let lock = disk.lock_dir(now.path).map_err(StoreError::io(now.path, "lock"))?;
                locks.push(lock.ok_or_else(|| StoreError::Locked { path: now.path.to_owned() })?);
            }
        }
        if is_log_elsewhere {
            let scratch = self.segment_scratch();
            disk.make_dir(scratch.parent().unwrap_or(&self.log))?;
        }
        Ok(locks)
    }

    /// Durably records the paths, if the next start would not derive them from the root. Called once a log exists.
    pub(in crate::store) fn remember(&self, disk: &Arc<dyn Disk>) -> Result<(), StoreError> {
        if *self == Self::recorded(&self.root, disk)? {
            return Ok(());
        }
        let (mut text, below) = (Vec::new(), Self::below(&self.root));
        // Folders below the root are not recorded: a copy of the root has its own.
        for (folder, _) in
            self.folders().into_iter().zip(below.folders()).filter(|(now, at)| now.path != at.path)
        {
            text.extend_from_slice(folder.key.as_bytes());
            text.push(b'=');
            text.extend_from_slice(folder.path.as_os_str().as_bytes());
            text.push(b'\n');
        }
        disk.replace_file(&self.own(), RECORD_NAME, &text)
    }

    fn folders(&self) -> [Folder<'_>; 3] {
        [
            Folder {
                key: "storePathCommitLog",
                what: "commit log",
                path: &self.log,
                is_of_store: |entry| !entry.is_dir && position_of(&entry.name).is_some(),
            },
            Folder {
                key: "storePathConsumeQueue",
                what: "consume queues",
                path: &self.queues,
                is_of_store: |entry| entry.is_dir && entry.name != "lost+found",
            },
            Folder {
                key: "storePathIndex",
                what: "index",
                path: &self.index,
                is_of_store: |entry| !entry.is_dir && entry.name.bytes().all(|byte| byte.is_ascii_digit()),
            },
        ]
    }
}

fn has_files(disk: &dyn Disk, folder: &Folder<'_>) -> Result<bool, StoreError> {
    Ok(disk.entries(folder.path)?.iter().any(folder.is_of_store))
}
