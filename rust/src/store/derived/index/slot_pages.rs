//! Slot pages: the slots of an index file in memory, by page of the file.
//!
//! Slots are scattered, so writing each one immediately would cost a system call per key. A page is read when it is
//! first needed, and written when the file is synced.
//!
//! Invariant: a page that is not in memory is up to date in the file.
//! Threads: any, under the lock of the index.

use std::io;
use std::ops::Range;

use crate::store::disk::DiskFile;

use super::layout::SLOT_BYTES;

const PAGE_BYTES: usize = 4096;

struct Page {
    bytes: [u8; PAGE_BYTES],
    is_dirty: bool,
}

/// Pages by their place in the file. Places are byte offsets in the file.
pub(super) struct SlotPages {
    pages: Vec<Option<Box<Page>>>,
    /// Range of the slots.
    slots: Range<usize>,
}

impl SlotPages {
    /// Creates a set with no page in memory.
    pub(super) fn new(slots: Range<usize>) -> Self {
        Self { pages: Vec::new(), slots }
    }

    fn page(&self, at: usize) -> Option<&Page> {
        self.pages.get(at / PAGE_BYTES)?.as_deref()
    }

    /// Returns the page of a slot, loaded with `fill` if necessary.
    fn page_or(
        &mut self,
        at: usize,
        fill: impl FnOnce(&mut [u8; PAGE_BYTES]) -> io::Result<()>,
    ) -> io::Result<&mut Page> {
        if self.pages.is_empty() {
            self.pages.resize_with(self.slots.end.div_ceil(PAGE_BYTES), || None);
        }
        let Some(page) = self.pages.get_mut(at / PAGE_BYTES) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        match page {
            Some(page) => Ok(page),
            None => {
                let mut made = Box::new(Page { bytes: [0; PAGE_BYTES], is_dirty: false });
                fill(&mut made.bytes)?;
                Ok(page.insert(made))
            }
        }
    }

    /// Sets a slot and returns its old number.
    pub(super) fn replace(&mut self, file: &dyn DiskFile, at: usize, number: u32) -> io::Result<u32> {
        let begin = at - at % PAGE_BYTES;
        let page = self.page_or(at, |bytes| file.read_at(bytes, begin as u64).map(drop))?;
        Ok(page.replace(at, number))
    }

    /// Sets a slot without reading the file: pages not in memory count as zeros.
    pub(super) fn replace_unread(&mut self, at: usize, number: u32) -> io::Result<u32> {
        Ok(self.page_or(at, |_| Ok(()))?.replace(at, number))
    }

    /// Returns the number in a slot.
    pub(super) fn get(&self, file: &dyn DiskFile, at: usize) -> io::Result<u32> {
        if let Some(page) = self.page(at) {
            return Ok(page.get(at));
        }
        let mut bytes = [0; SLOT_BYTES];
        file.read_at(&mut bytes, at as u64)?;
        Ok(u32::from_be_bytes(bytes))
    }

    /// Loads the slots of the next keys into the CPU cache together: separate inserts would each wait for memory.
    pub(super) fn prefetch(&self, places: impl Iterator<Item = usize>) {
        let slots = places.map(|at| self.page(at).map_or(0, |page| page.get(at)));
        // `black_box` keeps the loads from being optimized away.
        std::hint::black_box(slots.fold(0, u32::wrapping_add));
    }

    /// Zeroes pages of the file that are not in memory and have any content.
    pub(super) fn supersede(&mut self, file: &dyn DiskFile) -> io::Result<()> {
        let mut bytes = [0; PAGE_BYTES];
        for begin in (0..self.slots.end).step_by(PAGE_BYTES) {
            let range = self.part(begin / PAGE_BYTES);
            let Some(part) = bytes.get_mut(..range.len()) else { continue };
            if self.page(begin).is_none() {
                file.read_at(part, range.start as u64)?;
                if part.iter().any(|byte| *byte != 0) {
                    self.page_or(begin, |_| Ok(()))?.is_dirty = true;
                }
            }
        }
        Ok(())
    }

    /// Returns the range of the slots on a page.
    fn part(&self, index: usize) -> Range<usize> {
        let begin = index * PAGE_BYTES;
        begin.max(self.slots.start)..(begin + PAGE_BYTES).min(self.slots.end)
    }

    /// Writes the dirty pages.
    pub(super) fn write(&mut self, file: &dyn DiskFile) -> io::Result<()> {
        for index in 0..self.pages.len() {
            let range = self.part(index);
            let Some(page) = self.pages.get_mut(index).and_then(Option::as_deref_mut) else { continue };
            if page.is_dirty {
                let begin = index * PAGE_BYTES;
                let part = page.bytes.get(range.start - begin..range.end - begin).unwrap_or_default();
                file.write_at(part, range.start as u64)?;
                page.is_dirty = false;
            }
        }
        Ok(())
    }

    /// Frees the memory, unless a page is not written yet.
    pub(super) fn release(&mut self) {
        if !self.pages.iter().flatten().any(|page| page.is_dirty) {
            self.pages = Vec::new();
        }
    }
}

impl Page {
    fn get(&self, at: usize) -> u32 {
        let slot = self.bytes.get(at % PAGE_BYTES..).and_then(|rest| rest.first_chunk());
        slot.map_or(0, |slot| u32::from_be_bytes(*slot))
    }

    fn replace(&mut self, at: usize, number: u32) -> u32 {
        let Some(slot) = self.bytes.get_mut(at % PAGE_BYTES..).and_then(|rest| rest.first_chunk_mut()) else {
            return 0;
        };
        self.is_dirty = true;
        u32::from_be_bytes(std::mem::replace(slot, number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::store::disk::simulated::SimDisk;
    use crate::store::disk::{Disk, Open};

    #[test]
    fn released_pages_are_read_again_and_unwritten_ones_stay() {
        let disk = SimDisk::new();
        let file = disk.open(Path::new("/slots"), Open::Create).expect("a disk");
        file.resize(4 * PAGE_BYTES as u64).expect("room");
        let mut slots = SlotPages::new(40..3 * PAGE_BYTES);
        assert_eq!(slots.replace(&*file, 5000, 7).expect("a slot"), 0);
        slots.release();
        assert_eq!(slots.pages.len(), 3, "the number is only in memory");
        slots.write(&*file).expect("a disk");
        slots.release();
        assert!(slots.pages.is_empty());
        assert_eq!(slots.get(&*file, 5000).expect("a slot"), 7);
        assert_eq!(slots.replace(&*file, 5000, 8).expect("a slot"), 7);
        slots.write(&*file).expect("a disk");
        slots.release();
        assert_eq!(slots.get(&*file, 5000).expect("a slot"), 8);
    }
}
