//! The file of the wheel: the ends of the chains.
//!
//! ```text
//! slot n lies at (n mod 1,209,600) * 32:  0 i64 n   8 i64 first   16 i64 last   24 i32 count   28 i32 0
//! ```
//!
//! A slot stays until another one of its place has units. What is read of it may be older or newer than a save: the
//! digest tells (`recovery`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::disk::{Disk, DiskFile, Open};
use crate::store::error::StoreError;

use super::wheel::Slot;

const SLOT_BYTES: usize = 32;
/// What is read at once: whole slots.
const READ_BYTES: usize = 8_192 * SLOT_BYTES;

pub(crate) struct WheelFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    slots: u64,
    file: Option<Arc<dyn DiskFile>>,
    is_fresh: bool,
}

impl WheelFile {
    /// The file, which is made with the first slot, and anew where it `is_fresh` or has another size.
    pub(crate) fn new(disk: &Arc<dyn Disk>, path: PathBuf, slots: u64, is_fresh: bool) -> Self {
        Self { disk: Arc::clone(disk), path, slots: slots.max(1), file: None, is_fresh }
    }

    fn bytes(&self) -> u64 {
        self.slots * SLOT_BYTES as u64
    }

    /// Where a slot lies, in slots.
    fn place(&self, number: i64) -> u64 {
        number.rem_euclid(self.slots.cast_signed()).cast_unsigned()
    }

    fn open(&self) -> std::io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(&self.path, Open::Create)?;
        if self.is_fresh || file.size()? != self.bytes() {
            file.resize(0)?;
            file.resize(self.bytes())?;
            file.sync()?;
            self.disk.sync_dir(self.path.parent().unwrap_or(Path::new("/")))?;
        }
        Ok(file)
    }

    /// The slots from `first` on; `None` where there is no file of the wheel's size.
    pub(crate) fn read(&self, first: i64) -> Result<Option<Vec<(i64, Slot)>>, StoreError> {
        let read = || -> std::io::Result<Option<Vec<(i64, Slot)>>> {
            let file = self.disk.open(&self.path, Open::Read)?;
            if file.size()? != self.bytes() {
                return Ok(None);
            }
            let (mut found, mut bytes) = (Vec::new(), vec![0; READ_BYTES]);
            for at in (0..self.bytes()).step_by(READ_BYTES) {
                let read = file.read_at(&mut bytes, at)?;
                let slots = bytes.get(..read).unwrap_or_default().chunks_exact(SLOT_BYTES);
                let here = (at / SLOT_BYTES as u64..).zip(slots);
                found.extend(here.filter_map(|(place, slot)| {
                    let (number, slot) = decode(slot)?;
                    (number >= first && self.place(number) == place).then_some((number, slot))
                }));
            }
            Ok(Some(found))
        };
        match read() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            read => read.map_err(StoreError::io(&self.path, "read")),
        }
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
                file.write_at(&bytes, self.place(*number) * SLOT_BYTES as u64)?;
            }
            file.sync()
        };
        write().map_err(StoreError::io(&self.path, "write"))
    }
}

/// Number and ends of a slot; `None` for one without units.
fn decode(bytes: &[u8]) -> Option<(i64, Slot)> {
    let long = |at: usize| bytes.get(at..)?.first_chunk().copied().map(i64::from_be_bytes);
    let count = bytes.get(24..)?.first_chunk().copied().map(i32::from_be_bytes)?;
    let (number, first, last) = (long(0)?, u64::try_from(long(8)?).ok()?, u64::try_from(long(16)?).ok()?);
    // Zeros were never written.
    (number > 0).then_some((number, Slot { first, last, count }))
}
