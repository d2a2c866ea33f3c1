//! Part: a readable range of the log in a file of the write ring.
//!
//! Threads: any may read.

use std::sync::atomic::AtomicBool;

use crate::store::disk::{DIRECT_BYTES, RingReader};

pub(super) const BLOCK_BYTES: u64 = DIRECT_BYTES as u64;

/// A readable range of the log.
pub(crate) struct Part {
    pub(super) reader: RingReader,
    /// The beginning of the log file that the range belongs to.
    pub(super) file_base: u64,
    /// Position of its first byte, and of its first record.
    pub(super) base: u64,
    pub(super) first: u64,
    /// Whether the part ends its log file. Set after its last byte.
    pub(super) ends_file: AtomicBool,
}

impl Part {
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Returns the position after its last readable byte.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.reader.published() as u64
    }

    /// Returns the number of its readable bytes.
    pub(super) fn used(&self) -> usize {
        self.reader.published()
    }

    /// Readable bytes from `at` to its end.
    pub(crate) fn bytes_from(&self, at: u64) -> &[u8] {
        self.bytes(at, self.end())
    }

    pub(super) fn bytes(&self, from: u64, until: u64) -> &[u8] {
        let inside = |at: u64| at.saturating_sub(self.base) as usize;
        self.reader.bytes(inside(from)..inside(until)).unwrap_or_default()
    }

    /// Returns its bytes of the block that its end lies in, with which the next part begins.
    pub(super) fn last_block(&self) -> &[u8] {
        self.bytes(block_begin(self.file_base, self.end()), self.end())
    }
}

/// Returns the start of the block that holds `at`, in the file that begins at `file_base`.
pub(super) fn block_begin(file_base: u64, at: u64) -> u64 {
    at - (at - file_base) % BLOCK_BYTES
}
