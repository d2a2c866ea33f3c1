//! Indexed note: the end of the index, in `rmqpy/indexed`, for the next start.
//!
//! A checkpoint covers log, queues and index. If the index lacks entries, the note has the position from which they
//! are missing. It is durable before a checkpoint goes further and before recovery removes anything from the index.
//! It has its full size from the start and is overwritten in place, which needs no space on a full disk.
//!
//! Threads: recovery, then maintenance.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::disk::{Disk, Open};
use crate::store::error::StoreError;

/// The index has all keys that the checkpoint covers.
pub(crate) const EVERYTHING: u64 = u64::MAX;

/// The position and its CRC-32.
const NOTE_BYTES: usize = 12;

pub(crate) struct IndexedNote {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl IndexedNote {
    /// Returns the note of the store in `root`.
    pub(crate) fn of(disk: &Arc<dyn Disk>, root: &Path) -> Self {
        Self { disk: Arc::clone(disk), path: root.join("rmqpy").join("indexed") }
    }

    /// Loads the position from which the index lacks entries. An unreadable file counts as missing, because a broker
    /// that does not know the note leaves a complete index.
    pub(crate) fn load(&self) -> Result<u64, StoreError> {
        let bytes = self.disk.read_front(&self.path, NOTE_BYTES)?;
        let position = bytes.first_chunk().map_or(EVERYTHING, |position| u64::from_be_bytes(*position));
        Ok(if bytes == encode(position) { position } else { EVERYTHING })
    }

    /// Durably replaces the note.
    pub(crate) fn save(&self, position: u64) -> Result<(), StoreError> {
        let path = &self.path;
        let file = self.disk.open(path, Open::Create).map_err(StoreError::io(path, "create"))?;
        file.write_at(&encode(position), 0)
            .and_then(|()| file.sync())
            .map_err(StoreError::io(path, "write"))?;
        // Every time, because an earlier start may have been interrupted before this.
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
