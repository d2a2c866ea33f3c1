//! Index rebuild: replacement of a stopped store's index, built from the log.
//!
//! The new files are complete and durable in a separate folder before the old ones are removed. A note marks the
//! index as invalid in between, so that the next start after a crash rebuilds it.
//!
//! Threads: the caller's.

use std::path::Path;
use std::sync::Arc;

use crate::clock::SharedClock;
use crate::store::derived::{Derived, EVERYTHING, Index, IndexedNote, Key, digest_with_index};
use crate::store::error::StoreError;
use crate::store::recovery::{CheckpointFiles, CleanStop};
use crate::store::reports::events::Events;

use super::walk::Found;
use super::{Shape, StoppedStore};

/// Keys between two writes, which bounds the memory.
const KEYS_BETWEEN_WRITES: usize = 1 << 16;

impl StoppedStore {
    /// Replaces the index with a complete one. Returns the number of indexed records.
    ///
    /// The store must be locked [exclusively](Self::hold_exclusively).
    pub fn rebuild_index(&self, shape: Shape, clock: &SharedClock) -> Result<u64, StoreError> {
        let (disk, root, dir) = (&self.disk, &self.paths.root, self.paths.index.clone());
        let scratch = self.paths.index_scratch();
        let index = |dir: &Path| {
            let events = Arc::new(Events::default());
            Index::new(disk, root, dir.to_owned(), Arc::clone(clock), events, shape)
        };
        disk.remove_dir(&scratch).map_err(StoreError::io(&scratch, "remove"))?;
        disk.make_dir(&scratch)?;
        let made = index(&scratch);
        let (mut records, mut keys) = (0_u64, Vec::new());
        let write = |keys: &mut Vec<Key>| {
            made.take_skipped(keys, 0);
            keys.clear();
            made.write()
        };
        self.walk(|found| {
            let Found::Record(record) = found else { return Ok(()) };
            keys.extend(Key::of(record));
            records += 1;
            if keys.len() >= KEYS_BETWEEN_WRITES { write(&mut keys) } else { Ok(()) }
        })?;
        write(&mut keys)?;
        made.sync()?;
        let digest = made.digest();
        drop(made);

        disk.make_dir(&dir)?;
        let old = index(&dir);
        old.load();
        let old_digest = old.digest();
        drop(old);
        // Only a store opened by rmqpy has a folder for the note.
        let note = self.list("")?.iter().any(|entry| entry.name == "rmqpy");
        let note = note.then(|| IndexedNote::of(disk, root));
        note.as_ref().map_or(Ok(()), |note| note.save(0))?;
        for entry in disk.entries(&dir)?.iter().filter(|entry| !entry.is_dir) {
            let path = dir.join(&entry.name);
            disk.remove_file(&path)?;
        }
        for entry in disk.entries(&scratch)? {
            let path = dir.join(&entry.name);
            disk.rename(&scratch.join(&entry.name), &path)
                .map_err(StoreError::io(&path, "rename into place"))?;
        }
        disk.sync_entries(&dir)?;
        disk.remove_dir(&scratch).map_err(StoreError::io(&scratch, "remove"))?;
        self.update_manifest(old_digest, digest)?;
        note.map_or(Ok(()), |note| note.save(EVERYTHING))?;
        Ok(records)
    }

    /// Updates a manifest that matched the old index, and leaves any other unchanged.
    fn update_manifest(&self, old: u64, new: u64) -> Result<(), StoreError> {
        if !self.list("rmqpy")?.iter().any(|entry| entry.name == "manifest") {
            return Ok(());
        }
        let checkpoint_files = CheckpointFiles::open(Arc::clone(&self.disk), &self.paths.root)?;
        let (checkpoint, Some(manifest)) = checkpoint_files.load()? else { return Ok(()) };
        let Some(stop) = manifest.clean_stop else { return Ok(()) };
        let stop = CleanStop { derived: digest_with_index(stop.derived, old, new), ..stop };
        checkpoint_files.save(&checkpoint, manifest.queues, Some(stop))
    }
}
