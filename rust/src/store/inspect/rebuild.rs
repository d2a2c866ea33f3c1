//! Index rebuild: made anew from the log.
//!
//! The new files are complete and durable in a folder of their own before the old ones go. A crash in between leaves
//! an index with too little in it, which a second run puts right.
//!
//! Threads: the rebuilding one.

use std::path::Path;
use std::sync::Arc;

use crate::clock::SharedClock;
use crate::positions::QueueKey;
use crate::store::derived::{ConsumeQueue, Derived, DispatchRequest, Index, digest_with_index};
use crate::store::error::StoreError;
use crate::store::recovery::{CheckpointFiles, CleanStop};

use super::walk::Found;
use super::{Shape, StoppedStore};

/// Records between two writes of their keys, which bounds the memory that those take.
const RECORDS_BETWEEN_WRITES: u64 = 1 << 16;

impl StoppedStore {
    /// Replaces the index by one that has every key of the log. Returns how many records it leads to.
    ///
    /// The store must be held [exclusively](Self::hold_exclusively).
    pub fn rebuild_index(&self, shape: Shape, clock: &SharedClock) -> Result<u64, StoreError> {
        let (disk, dir, scratch) = (&self.disk, self.root.join("index"), self.root.join("index.new"));
        let index = |dir: &Path| {
            Index::new(
                Arc::clone(disk),
                dir.to_owned(),
                Arc::clone(clock),
                shape.slots as u32,
                shape.entries as u32,
            )
        };
        disk.remove_dir(&scratch).map_err(StoreError::io(&scratch, "remove"))?;
        disk.make_dir(&scratch)?;
        let made = index(&scratch);
        // An index asks nothing of the queue of a record.
        let queue = Arc::new(ConsumeQueue::new(QueueKey::new("", 0), 0, 0, 0));
        let mut records = 0_u64;
        self.walk(|found| {
            let Found::Record(record) = found else { return Ok(()) };
            made.take(&[DispatchRequest::of(record, Arc::clone(&queue))]);
            records += 1;
            if records.is_multiple_of(RECORDS_BETWEEN_WRITES) { made.write() } else { Ok(()) }
        })?;
        made.write()?;
        made.sync()?;
        let digest = made.digest();
        drop(made);

        disk.make_dir(&dir)?;
        let old = index(&dir);
        old.load()?;
        let old_digest = old.digest();
        drop(old);
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
        self.vouch_for_index(old_digest, digest)?;
        Ok(records)
    }

    /// Lets a manifest that matched the old index match the new one. One that did not goes on not to.
    fn vouch_for_index(&self, old: u64, new: u64) -> Result<(), StoreError> {
        if !self.list("rmqpy")?.iter().any(|entry| entry.name == "manifest") {
            return Ok(());
        }
        let checkpoint_files = CheckpointFiles::open(Arc::clone(&self.disk), &self.root)?;
        let (checkpoint, Some(manifest)) = checkpoint_files.load()? else { return Ok(()) };
        let Some(stop) = manifest.clean_stop else { return Ok(()) };
        let stop = CleanStop { derived: digest_with_index(stop.derived, old, new), ..stop };
        checkpoint_files.save(&checkpoint, manifest.queues, Some(stop))
    }
}
