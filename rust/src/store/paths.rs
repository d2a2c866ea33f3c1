//! Paths of a store: its root, and the folders of log, queues and index, which may lie elsewhere, on other file systems.
//!
//! Owns `rmqpy/paths`, the record of a store that has a folder elsewhere: where the last start had them. A start that is
//! told other places refuses, rather than to begin a new log beside the one that is there. What was moved together with its
//! setting is taken as it is.
//!
//! Threads: the opening one, or the inspecting one; paths never change.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::disk::{Disk, Entry, FileLock, position_of};
use crate::store::error::StoreError;
use crate::store::own_file::replace;

const RECORD_NAME: &str = "paths";

/// Where the files of a store lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorePaths {
    /// The folder of everything else, and of `lock`.
    pub root: PathBuf,
    pub log: PathBuf,
    pub queues: PathBuf,
    pub index: PathBuf,
}

/// One of the folders that may lie elsewhere.
struct Folder<'a> {
    /// The key in `broker.conf`, by which an error names it.
    key: &'static str,
    what: &'static str,
    path: &'a Path,
    /// Whether a file or folder in it is one of the store's.
    is_of_store: fn(&Entry) -> bool,
}

impl StorePaths {
    /// Every folder below the root, as Apache's broker has them unless it is told otherwise.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let [log, queues, index] = ["commitlog", "consumequeue", "index"].map(|name| root.join(name));
        Self { root, log, queues, index }
    }

    /// As the last start of the store in `root` had them.
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

    /// Our own folder.
    pub(crate) fn own(&self) -> PathBuf {
        self.root.join("rmqpy")
    }

    fn record(&self) -> PathBuf {
        self.own().join(RECORD_NAME)
    }

    /// Files that hold the end of the log until it is written.
    pub(crate) fn spool(&self) -> PathBuf {
        self.own().join("spool")
    }

    /// Files of earlier spools that did not continue the log.
    pub(crate) fn spool_aside(&self) -> PathBuf {
        self.own().join("spool-aside")
    }

    /// The next file of the log while it is made: on the log's file system, and outside of what an Apache broker takes for
    /// segments.
    pub(crate) fn segment_scratch(&self) -> PathBuf {
        let dir = if self.log.starts_with(&self.root) { self.own() } else { self.log.join("rmqpy") };
        dir.join("segment")
    }

    /// A file of a moment on the log's file system.
    pub(crate) fn direct_scratch(&self) -> PathBuf {
        self.segment_scratch().with_extension("direct")
    }

    /// The folder of an index that is made anew: on the index's file system.
    pub(crate) fn index_scratch(&self) -> PathBuf {
        if self.index.starts_with(&self.root) { self.root.join("index.new") } else { self.index.join("new") }
    }

    /// Whether the log has files, or at least its folder is there.
    pub(crate) fn has_log(&self, disk: &dyn Disk) -> Result<bool, StoreError> {
        let is_log = |entry: Entry| entry.is_dir && Some(OsStr::new(&entry.name)) == self.log.file_name();
        let beside = disk.entries(self.log.parent().unwrap_or(Path::new("/")))?;
        Ok(beside.into_iter().any(is_log) || !disk.entries(&self.log)?.is_empty())
    }

    /// Makes the folders, and locks those that lie elsewhere, where two stores could meet.
    /// `has_messages`: what is in the root says that there should be a log.
    ///
    /// # Errors
    /// Where a folder is not where the files are, names both places.
    pub(super) fn prepare(
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
                    "{key} says that the {what} of the store {} lies here, but it lies in {there}: set {key}={there}, or \
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

    /// Records the paths, durably, where they are not what the next start would take them to be. Once there is a log.
    pub(super) fn remember(&self, disk: &Arc<dyn Disk>) -> Result<(), StoreError> {
        if *self == Self::recorded(&self.root, disk)? {
            return Ok(());
        }
        let (mut text, below) = (Vec::new(), Self::below(&self.root));
        // Those below the root are named by nobody: a copy of the root has its own.
        for (folder, _) in
            self.folders().into_iter().zip(below.folders()).filter(|(now, at)| now.path != at.path)
        {
            text.extend_from_slice(folder.key.as_bytes());
            text.push(b'=');
            text.extend_from_slice(folder.path.as_os_str().as_bytes());
            text.push(b'\n');
        }
        replace(disk, &self.own(), RECORD_NAME, &text)
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
