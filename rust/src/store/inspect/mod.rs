//! Inspection of a store that no broker has open: verified, counted, read, compared, copied, and its index made anew.
//!
//! Works on the folders of Apache's broker and of ours. An inspection holds the store's lock, shared, so that no broker starts
//! meanwhile and one that runs is told from one that does not; it opens files for reading and nothing else. What writes
//! says so: `copy` to another folder, `rebuild_index` to the index, `drain` and `cut` to the log.
//!
//! Reads the files as they are. What the next start would mend by itself after a crash is a note, what it would not is
//! damage: see [`Severity`].
//!
//! Threads: one per [`StoppedStore`]; [`WalkProgress`] may be read from any.

mod compare;
mod copy;
mod cut;
mod findings;
mod index;
mod queues;
mod rebuild;
mod stats;
mod verify;
mod walk;

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::store::disk::{Disk, Entry, FileLock};
use crate::store::error::StoreError;
use crate::store::events::Event;
use crate::store::paths::StorePaths;
use crate::store::recovery::{CheckpointFiles, drain, spooled_bytes};

pub use crate::store::derived::Shape;
pub use compare::Comparison;
pub use findings::{FindingKind, Report, Severity};

pub(crate) use findings::Finding;
pub(crate) use stats::TopicStats;
pub(crate) use walk::{Extent, Found, WalkProgress};

/// A store that no broker has open, and that none can open while this exists.
pub struct StoppedStore {
    disk: Arc<dyn Disk>,
    paths: StorePaths,
    progress: WalkProgress,
    /// `None` for a folder without a lock file, which no broker has ever opened.
    lock: Option<Arc<dyn FileLock>>,
}

impl StoppedStore {
    /// Holds a store for reading, as others may, too. Fails when a broker has it open, and when there is no
    /// store.
    pub fn hold(paths: StorePaths, disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        let mut store = Self::find(paths, disk)?;
        let path = store.paths.root.join("lock");
        store.lock = match store.disk.lock_shared(&path) {
            Ok(None) => return Err(StoreError::Locked { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            lock => lock.map_err(StoreError::io(&path, "lock"))?,
        };
        Ok(store)
    }

    /// Holds a store for writing, alone.
    pub fn hold_exclusively(paths: StorePaths, disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        let mut store = Self::find(paths, disk)?;
        let path = store.paths.root.join("lock");
        store.lock = store.disk.lock(&path).map_err(StoreError::io(&path, "lock"))?;
        if store.lock.is_none() { Err(StoreError::Locked { path }) } else { Ok(store) }
    }

    fn find(paths: StorePaths, disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        if !paths.has_log(&*disk)? {
            let is_below = paths.log.parent() == Some(&paths.root);
            let expected = match is_below {
                true => "expected a store: a folder with a folder commitlog in it".to_owned(),
                false => format!("expected a store with its commit log in {}", paths.log.display()),
            };
            return Err(StoreError::Layout { path: paths.root, expected });
        }
        Ok(Self { disk, paths, progress: WalkProgress::default(), lock: None })
    }

    /// How far the work is that another thread does.
    pub(crate) fn progress(&self) -> &WalkProgress {
        &self.progress
    }

    /// Lets brokers open the store again.
    pub fn release(self) {
        drop(self.lock);
    }

    /// Bytes of records in the spool, which may not be in the log yet; 0 after an orderly stop.
    pub fn spooled_bytes(&self) -> Result<u64, StoreError> {
        spooled_bytes(&*self.disk, &self.paths)
    }

    /// Brings what a killed process has left in the spool into the log, as the next start would; tells what came of it, if
    /// there was something. For one that holds the store exclusively.
    pub fn drain(&self) -> Result<Option<Event>, StoreError> {
        let checkpoint_files = CheckpointFiles::open(Arc::clone(&self.disk), &self.paths.root)?;
        drain(&self.disk, &self.paths, u64::from(u32::MAX), &checkpoint_files)
    }

    /// Calls `visit` with every record and every corrupt range of the log, in order.
    pub(crate) fn walk(
        &self,
        mut visit: impl FnMut(Found<'_>) -> Result<(), StoreError>,
    ) -> Result<Extent, StoreError> {
        self.walk_while(0, |found| visit(found).map(|()| true))
    }

    /// Calls `visit` with what lies at `from` and behind it, while it says to go on.
    pub(crate) fn walk_while(
        &self,
        from: u64,
        mut visit: impl FnMut(Found<'_>) -> Result<bool, StoreError>,
    ) -> Result<Extent, StoreError> {
        let mut files = walk::log_files(&*self.disk, &self.paths.log)?;
        files.retain(|file| file.limit() > from);
        walk::walk(&*self.disk, &files, from, &self.progress, |found| match &found {
            Found::Record(record) if record.physical_offset().0 < from => Ok(true),
            Found::Corrupt(range) if range.end <= from => Ok(true),
            _ => visit(found),
        })
    }

    /// What is in a folder below the root; nothing where there is none.
    fn list(&self, dir: impl AsRef<Path>) -> Result<Vec<Entry>, StoreError> {
        let dir = self.paths.root.join(dir);
        self.disk.entries(&dir)
    }
}
