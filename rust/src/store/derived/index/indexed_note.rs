//! The note of how far the index goes, `rmqpy/indexed`: ours, for the next start.
//!
//! A checkpoint speaks for log, queues and index. Where the index lacks something, the note says from where on, durably
//! before a checkpoint goes further and before recovery takes anything out of the index. It has a size of its own from
//! the start and is overwritten in place, which takes no space on a disk that has none.
//!
//! Threads: recovery, then maintenance.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::disk::{Disk, Open};
use crate::store::error::StoreError;

/// Says that the index has everything that the checkpoint speaks for.
pub(crate) const EVERYTHING: u64 = u64::MAX;

/// The position, and its CRC-32.
const NOTE_BYTES: usize = 12;

pub(crate) struct IndexedNote {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl IndexedNote {
    /// The note of the store in `root`.
    pub(crate) fn of(disk: &Arc<dyn Disk>, root: &Path) -> Self {
        Self { disk: Arc::clone(disk), path: root.join("rmqpy").join("indexed") }
    }

    /// The position from which the index lacks something. A file that cannot be read as one is as good as none: brokers
    /// that do not know it leave an index that has everything.
    pub(crate) fn load(&self) -> Result<u64, StoreError> {
        let bytes = self.disk.read_front(&self.path, NOTE_BYTES)?;
        let position = bytes.first_chunk().map_or(EVERYTHING, |position| u64::from_be_bytes(*position));
        Ok(if bytes == encode(position) { position } else { EVERYTHING })
    }

    /// Replaces it, durably.
    pub(crate) fn save(&self, position: u64) -> Result<(), StoreError> {
        let path = &self.path;
        let file = self.disk.open(path, Open::Create).map_err(StoreError::io(path, "create"))?;
        file.write_at(&encode(position), 0)
            .and_then(|()| file.sync())
            .map_err(StoreError::io(path, "write"))?;
        // Each time: an earlier start may have been cut short before this.
        self.disk.sync_entries(path.parent().unwrap_or(Path::new(".")))
    }
}

fn encode(position: u64) -> [u8; NOTE_BYTES] {
    let mut note = [0; NOTE_BYTES];
    let (number, crc) = note.split_at_mut(8);
    number.copy_from_slice(&position.to_be_bytes());
    crc.copy_from_slice(&crc32fast::hash(&position.to_be_bytes()).to_be_bytes());
    note
}
