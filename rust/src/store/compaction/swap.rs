//! Swap: replaces files of a queue by the result of a round.
//!
//! The new files are complete and durable in `compacting/`. A note there, `swap`, which appears atomically, begins the
//! replacement: it names the files to remove and the files to move. From then on every start finishes it; before, every
//! start discards the new files.
//!
//! *Invariant*: whatever stops when, the old or the new files are valid after the next start.
//! Threads: one at a time for a queue; readers of the queue wait.

use crate::store::disk::{Disk, name_of};
use crate::store::error::StoreError;

use super::layout::Folders;

const NOTE: &str = "swap";
const OLD: &str = "old";
const NEW: &str = "new";

/// A replacement, by the positions of the files.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Swap {
    pub(super) old: Vec<u64>,
    pub(super) new: Vec<u64>,
}

impl Swap {
    /// Makes the replacement certain, durably. It fails or succeeds as a whole.
    pub(super) fn begin(&self, disk: &dyn Disk, folders: &Folders) -> Result<(), StoreError> {
        let line = |kind: &'static str| move |base: &u64| format!("{kind} {base}\n");
        let text: String = self.old.iter().map(line(OLD)).chain(self.new.iter().map(line(NEW))).collect();
        disk.replace_file(&folders.compacting().log, NOTE, text.as_bytes())
    }

    /// Moves and removes the files. May be repeated after an error or a crash.
    pub(super) fn finish(&self, disk: &dyn Disk, folders: &Folders) -> Result<(), StoreError> {
        let compacting = folders.compacting();
        for (dir, from) in folders.both().into_iter().zip(compacting.both()) {
            let waiting = disk.entries(from)?;
            for name in self.new.iter().map(|base| name_of(*base)) {
                if waiting.iter().any(|entry| entry.name == name) {
                    let path = dir.join(&name);
                    disk.rename(&from.join(&name), &path)
                        .map_err(StoreError::io(&path, "rename into place"))?;
                }
            }
            for base in self.old.iter().filter(|base| !self.new.contains(base)) {
                disk.remove_file(&dir.join(name_of(*base)))?;
            }
            disk.sync_entries(dir)?;
        }
        discard(disk, folders)
    }

    /// Returns the replacement that was certain when the queue was closed.
    pub(super) fn pending(disk: &dyn Disk, folders: &Folders) -> Result<Option<Self>, StoreError> {
        let note = disk.read_front(&folders.compacting().log.join(NOTE), usize::MAX)?;
        let text = String::from_utf8(note).unwrap_or_default();
        let mut swap = Self::default();
        for (kind, base) in text.lines().filter_map(|line| line.split_once(' ')) {
            let Ok(base) = base.parse() else { continue };
            match kind {
                OLD => swap.old.push(base),
                NEW => swap.new.push(base),
                _ => {}
            }
        }
        Ok((swap != Self::default()).then_some(swap))
    }
}

/// Removes the folders for new files.
pub(super) fn discard(disk: &dyn Disk, folders: &Folders) -> Result<(), StoreError> {
    let dir = folders.compacting().log;
    if disk.entries(&dir)?.iter().any(|entry| entry.name == NOTE) {
        // First, so that no start moves files of a later round.
        disk.remove_durably(&dir.join(NOTE))?;
    }
    for dir in folders.compacting().both() {
        disk.remove_dir(dir).map_err(StoreError::io(dir, "remove"))?;
    }
    Ok(())
}
