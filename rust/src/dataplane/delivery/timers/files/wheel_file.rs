//! Wheel file: the ends of the chains on disk.
//!
//! ```text
//! slot n lies at (n mod 1,209,600) * 32:  0 i64 n   8 i64 first   16 i64 last   24 i32 count   28 i32 0
//! ```
//!
//! A slot stays until another slot at its place has units. A slot read may be older or newer than the save; the
//! digest detects that (`recovery`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::StoreError;
use crate::store::disk::{Disk, DiskFile, Open};

use super::wheel::Slot;

const SLOT_BYTES: usize = 32;
/// Bytes per read: whole slots.
const READ_BYTES: usize = 8_192 * SLOT_BYTES;

pub(crate) struct WheelFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    slots: u64,
    file: Option<Arc<dyn DiskFile>>,
    is_fresh: bool,
}

impl WheelFile {
    /// Creates the handle. The file is created with the first slot, and replaced if it `is_fresh` or has another
    /// size.
    pub(crate) fn new(disk: &Arc<dyn Disk>, path: PathBuf, slots: u64, is_fresh: bool) -> Self {
        Self { disk: Arc::clone(disk), path, slots: slots.max(1), file: None, is_fresh }
    }

    fn bytes(&self) -> u64 {
        self.slots * SLOT_BYTES as u64
    }

    /// Returns the index of a slot in the file.
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

    /// Reads the slots from `first` on; returns `None` if the file is missing or has another size.
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

/// Decodes the number and the ends of a slot; returns `None` for a slot without units.
fn decode(bytes: &[u8]) -> Option<(i64, Slot)> {
    let long = |at: usize| bytes.get(at..)?.first_chunk().copied().map(i64::from_be_bytes);
    let count = bytes.get(24..)?.first_chunk().copied().map(i32::from_be_bytes)?;
    let (number, first, last) = (long(0)?, u64::try_from(long(8)?).ok()?, u64::try_from(long(16)?).ok()?);
    // An unwritten slot is zero.
    (number > 0).then_some((number, Slot { first, last, count }))
}
