//! Writer of a spool: the write path of a log whose end is in one.
//!
//! Owns the appender of the active part. A part that is full, or that ends a file of the log, is given back, and the next
//! free one goes on.
//!
//! Threads: the holder of the put lock.

use std::sync::Arc;

use crate::store::disk::{Appender, SpoolAppender};
use crate::store::log::write_path::{BLANK_BYTES_MIN, Blank, Unwritten, WritePath};

use super::marks::set_end;
use super::parts::{Part, Spool, block_begin, fits};

pub(crate) struct SpoolWriter {
    spool: Arc<Spool>,
    /// `None` at the begin of a file until a part is free.
    active: Option<(SpoolAppender, Arc<Part>)>,
    /// Where the file begins that is written, and where the next record goes.
    file_base: u64,
    end: u64,
}

impl SpoolWriter {
    /// The writer of a log that ends at `end`, in the file that begins at `file_base`; `carry` are the bytes before, from the
    /// begin of their block.
    pub(crate) fn new(spool: Arc<Spool>, file_base: u64, end: u64, carry: &[u8]) -> Self {
        spool.start(end);
        let active = spool.activate(file_base, end, carry, 0);
        Self { spool, active, file_base, end }
    }

    /// Begin of the block that position `at` lies in.
    pub(crate) fn block_begin(file_base: u64, at: u64) -> u64 {
        block_begin(file_base, at)
    }

    /// Goes on in the next free part that takes `size` bytes.
    fn go_on(&mut self, size: usize) {
        if !self.spool.has_free_for(size) {
            return;
        }
        self.commit();
        let before = self.active.take().map(|(appender, part)| {
            self.spool.retire(appender, false);
            part
        });
        let carry = before.as_ref().map_or(&[][..], |part| part.last_block());
        self.active = self.spool.activate(self.file_base, self.end, carry, size);
    }
}

impl WritePath for SpoolWriter {
    fn has_room(&self, size: usize) -> bool {
        let is_in_active = self.active.as_ref().is_some_and(|(active, _)| fits(size, active.room()));
        is_in_active || self.spool.has_free_for(size)
    }

    fn append(&mut self, size: usize) -> Option<&mut [u8]> {
        let is_in_active = self.active.as_ref().is_some_and(|(active, _)| fits(size, active.room()));
        if !is_in_active {
            self.go_on(size);
        }
        let (active, _) = self.active.as_mut()?;
        if !fits(size, active.room()) {
            return None;
        }
        self.end += size as u64;
        active.append(size)
    }

    fn commit(&mut self) {
        if let Some((active, _)) = &mut self.active {
            active.publish();
            set_end(active, self.end);
        }
    }

    fn enter(&mut self, blank: Blank<'_>, base: u64, _next: Option<Appender>) {
        match blank.bytes.first_chunk::<BLANK_BYTES_MIN>() {
            // There is always room for the head, and mostly nothing follows it.
            Some(head) if blank.bytes.len() == BLANK_BYTES_MIN => {
                if let Some((active, _)) = &mut self.active
                    && let Some(into) = active.append(BLANK_BYTES_MIN)
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
        if let Some((appender, _)) = self.active.take() {
            self.spool.retire(appender, true);
        }
        (self.file_base, self.end) = (base, base);
    }

    fn begin(&mut self, base: u64, _file: Option<Appender>) {
        if let Some((appender, _)) = self.active.take() {
            self.spool.retire(appender, false);
        }
        (self.file_base, self.end) = (base, base);
        self.spool.start(base);
        self.active = self.spool.activate(base, base, &[], 0);
    }

    fn take(&mut self, _into: &mut Unwritten) {}
}
