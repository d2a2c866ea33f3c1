//! Inspection: verification, counts, comparison and copies of a stopped store, and repair of its log and index.
//!
//! Works on the folders of Apache's broker and of rmqpy. An inspection takes a shared lock on the store: it
//! fails while a broker runs, and no broker can start meanwhile. It opens files for reading only, except for `copy`,
//! which writes another folder, `rebuild_index`, which writes the index, and `drain` and `cut`, which write the log.
//!
//! Reads the files unchanged. A deviation that the next start would repair after a crash is a note, any other is
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
use crate::store::recovery::{CheckpointFiles, drain, undrained_bytes};
use crate::store::reports::events::Event;
use crate::store::settings::paths::StorePaths;

pub use crate::store::derived::Shape;
pub use compare::Comparison;
pub use findings::{FindingKind, Report, Severity};

pub(crate) use findings::Finding;
pub(crate) use stats::TopicStats;
pub(crate) use walk::{Extent, Found, WalkProgress};

/// A store that no broker has open, and none can open while this exists.
pub struct StoppedStore {
    disk: Arc<dyn Disk>,
    paths: StorePaths,
    progress: WalkProgress,
    /// `None` for a folder without a lock file, which no broker has ever opened.
    lock: Option<Arc<dyn FileLock>>,
}

impl StoppedStore {
    /// Locks a store for reading, together with other readers. Fails if a broker has it open, or if it does not
    /// exist.
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

    /// Locks a store for writing, exclusively.
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
                true => "expected a store: a folder that contains commitlog".to_owned(),
                false => format!("expected a store with its commit log in {}", paths.log.display()),
            };
            return Err(StoreError::Layout { path: paths.root, expected });
        }
        Ok(Self { disk, paths, progress: WalkProgress::default(), lock: None })
    }

    /// Progress of the work, for other threads.
    pub(crate) fn progress(&self) -> &WalkProgress {
        &self.progress
    }

    /// Releases the store, so that brokers can open it.
    pub fn release(self) {
        drop(self.lock);
    }

    /// Returns the bytes of records in the write ring, which may not be in the log yet; 0 after an orderly stop.
    pub fn undrained_bytes(&self) -> Result<u64, StoreError> {
        undrained_bytes(&*self.disk, &self.paths)
    }

    /// Moves the write ring of a killed process into the log, as the next start would. Returns the outcome, if a write ring
    /// was left. The store must be locked exclusively.
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

    /// Calls `visit` with each item from `from` on, while it returns `true`.
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

    /// Lists a folder below the root; empty if there is none.
    fn list(&self, dir: impl AsRef<Path>) -> Result<Vec<Entry>, StoreError> {
        let dir = self.paths.root.join(dir);
        self.disk.entries(&dir)
    }
}
