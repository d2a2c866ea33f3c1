//! Write path: new bytes of the log between append and disk.
//!
//! The holder of the put lock uses one of two:
//!
//! - the **write ring** (`ring`), mapped files outside the log, which the flush writes to the log. No append waits
//!   for a new page;
//! - the **mapping** of the log file: a message is copied into the page cache. A choice, and the fallback where a write ring
//!   is impossible. An append waits for each new page, and a flush has to find the dirty ones.
//!
//! With both a message is readable immediately and survives a killed process.
//!
//! *Invariant*: bytes become readable whole, and in the order they were appended.

use crate::message::record::encode_blank;
use crate::store::disk::Appender;

/// The size of the smallest blank, kept free after each record: every file but the newest ends with one.
pub(crate) const BLANK_BYTES_MIN: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WritePathKind {
    /// Mapped files outside the log; the flush writes them to the log and syncs it.
    Ring,
    /// The mapping of the newest file.
    Mapping,
}

/// Returns the head of a blank of `size` bytes.
pub(crate) fn blank_head(size: usize) -> [u8; BLANK_BYTES_MIN] {
    let mut head = [0; BLANK_BYTES_MIN];
    encode_blank(&mut head, size as u32);
    head
}

/// The blank that ends a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blank<'a> {
    /// The rest of the file.
    pub(crate) size: usize,
    /// Its first bytes, the head at least. Zeros follow, which are in the file already.
    pub(crate) bytes: &'a [u8],
}

/// The end of the log, as the holder of the put lock sees it. No method blocks; none allocates in steady state.
pub(crate) trait WritePath: Send {
    /// Returns whether records of `size` bytes in all can be taken now, without a flush. The caller ensures that
    /// they fit into the file.
    fn has_room(&self, size: usize) -> bool;
    /// Returns room for the next `size` bytes, to be filled before the next call, or `None`.
    fn append(&mut self, size: usize) -> Option<&mut [u8]>;
    /// Passes everything appended so far to readers.
    fn commit(&mut self);
    /// Ends the file with a blank and continues in the next one, which begins at `base`.
    fn enter(&mut self, blank: Blank<'_>, base: u64, next: Option<Appender>);
    /// Continues in a file that begins at `base`, in an empty log.
    fn begin(&mut self, base: u64, file: Option<Appender>);
}

impl WritePath for Appender {
    fn has_room(&self, size: usize) -> bool {
        size <= self.room()
    }

    fn append(&mut self, size: usize) -> Option<&mut [u8]> {
        Appender::append(self, size)
    }

    fn commit(&mut self) {
        self.publish();
    }

    fn enter(&mut self, blank: Blank<'_>, _base: u64, next: Option<Appender>) {
        if let Some(rest) = Appender::append(self, blank.size)
            && let Some(front) = rest.get_mut(..blank.bytes.len())
        {
            front.copy_from_slice(blank.bytes);
        }
        self.publish();
        if let Some(next) = next {
            *self = next;
        }
    }

    fn begin(&mut self, _base: u64, file: Option<Appender>) {
        if let Some(file) = file {
            *self = file;
        }
    }
}
