//! Writer of a write ring: the write path of a log with a write ring.
//!
//! Owns the appender of the active part. When the part is full, or its log file is, the writer retires it and
//! activates the next free one.
//!
//! Threads: the holder of the put lock.

use std::sync::Arc;

use crate::store::disk::Appender;
use crate::store::log::write_path::{BLANK_BYTES_MIN, Blank, WritePath};

use super::part::block_begin;
use super::parts::{Active, WriteRing, fits};

pub(crate) struct RingWriter {
    ring: Arc<WriteRing>,
    /// `None` at the start of a file until a part is free.
    active: Option<Active>,
    /// The start of the current file, and the position of the next record.
    file_base: u64,
    end: u64,
}

impl RingWriter {
    /// Creates the writer of a log that ends at `end`, in the file that begins at `file_base`. `carry` holds the
    /// preceding bytes of its block.
    pub(crate) fn new(ring: Arc<WriteRing>, file_base: u64, end: u64, carry: &[u8]) -> Self {
        ring.start(end);
        let active = ring.activate(file_base, end, carry, 0);
        Self { ring, active, file_base, end }
    }

    /// Returns the start of the block that holds position `at`.
    pub(crate) fn block_begin(file_base: u64, at: u64) -> u64 {
        block_begin(file_base, at)
    }

    /// Continues in the next free part that has room for `size` bytes.
    fn go_on(&mut self, size: usize) {
        if !self.ring.has_free_for(size) {
            return;
        }
        self.commit();
        let before = self.active.take().map(|Active { appender, part, .. }| {
            self.ring.retire(appender, false);
            part
        });
        let carry = before.as_ref().map_or(&[][..], |part| part.last_block());
        self.active = self.ring.activate(self.file_base, self.end, carry, size);
    }
}

impl WritePath for RingWriter {
    fn has_room(&self, size: usize) -> bool {
        let is_in_active = self.active.as_ref().is_some_and(|active| fits(size, active.appender.room()));
        is_in_active || self.ring.has_free_for(size)
    }

    fn append(&mut self, size: usize) -> Option<&mut [u8]> {
        let continues = |active: &Active| fits(size, active.appender.room()) && !self.ring.is_used_up(active);
        if !self.active.as_ref().is_some_and(continues) {
            self.go_on(size);
        }
        let active = self.active.as_mut()?;
        if !fits(size, active.appender.room()) {
            return None;
        }
        self.end += size as u64;
        active.appender.append(size)
    }

    fn commit(&mut self) {
        if let Some(active) = &mut self.active {
            active.commit(self.end);
        }
    }

    fn enter(&mut self, blank: Blank<'_>, base: u64, _next: Option<Appender>) {
        match blank.bytes.first_chunk::<BLANK_BYTES_MIN>() {
            // The head always fits, and usually nothing follows it.
            Some(head) if blank.bytes.len() == BLANK_BYTES_MIN => {
                if let Some(active) = &mut self.active
                    && let Some(into) = active.appender.append(BLANK_BYTES_MIN)
                {
                    into.copy_from_slice(head);
                    self.end += BLANK_BYTES_MIN as u64;
                }
            }
            _ => {
                if let Some(into) = self.append(blank.bytes.len()) {
                    into.copy_from_slice(blank.bytes);
                }
            }
        }
        self.commit();
        if let Some(Active { appender, .. }) = self.active.take() {
            self.ring.retire(appender, true);
        }
        (self.file_base, self.end) = (base, base);
    }

    fn begin(&mut self, base: u64, _file: Option<Appender>) {
        if let Some(Active { appender, .. }) = self.active.take() {
            self.ring.retire(appender, false);
        }
        (self.file_base, self.end) = (base, base);
        self.ring.start(base);
        self.active = self.ring.activate(base, base, &[], 0);
    }
}
