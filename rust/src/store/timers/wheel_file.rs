//! The file of the wheel: the ends of the chains, for Apache's broker. Ours reads the timer log.
//!
//! ```text
//! slot n lies at (n mod 1,209,600) * 32:  0 i64 n   8 i64 first   16 i64 last   24 i32 count   28 i32 0
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use crate::store::disk::{Disk, DiskFile, Open};
use crate::store::error::StoreError;

use super::wheel::Slot;

/// Two turns of a week of seconds, so that a slot never stands for two times that both matter.
const SLOTS: i64 = 604_800 * 2;
const SLOT_BYTES: usize = 32;

pub(crate) struct WheelFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Option<Arc<dyn DiskFile>>,
    is_fresh: bool,
}

impl WheelFile {
    /// The file, which is made with the first slot, and anew where it `is_fresh` or has another size.
    pub(crate) fn new(disk: &Arc<dyn Disk>, path: PathBuf, is_fresh: bool) -> Self {
        Self { disk: Arc::clone(disk), path, file: None, is_fresh }
    }

    fn open(&self) -> std::io::Result<Arc<dyn DiskFile>> {
        let size = SLOTS as u64 * SLOT_BYTES as u64;
        let file = self.disk.open(&self.path, Open::Create)?;
        if self.is_fresh || file.size()? != size {
            file.resize(0)?;
            file.resize(size)?;
            file.sync()?;
        }
        Ok(file)
    }

    /// Writes these slots, durably.
    pub(crate) fn write(&mut self, slots: &[(i64, Slot)]) -> Result<(), StoreError> {
        if slots.is_empty() {
            return Ok(());
        }
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => self.open().map_err(StoreError::io(&self.path, "create"))?,
        };
        (self.file, self.is_fresh) = (Some(Arc::clone(&file)), false);
        let write = || -> std::io::Result<()> {
            for (number, slot) in slots {
                let mut bytes = Vec::with_capacity(SLOT_BYTES);
                bytes.extend_from_slice(&number.to_be_bytes());
                bytes.extend_from_slice(&slot.first.to_be_bytes());
                bytes.extend_from_slice(&slot.last.to_be_bytes());
                bytes.extend_from_slice(&slot.count.to_be_bytes());
                bytes.resize(SLOT_BYTES, 0);
                file.write_at(&bytes, number.rem_euclid(SLOTS) as u64 * SLOT_BYTES as u64)?;
            }
            file.sync()
        };
        write().map_err(StoreError::io(&self.path, "write"))
    }
}
