//! Where the bytes of the newest segment live between append and disk.
//!
//! A medium is the writing half of one segment and belongs to whoever holds the put lock. The reading half and
//! the way to the disk are the segment's (`segments`): what a medium commits can be read and synced there.
//!
//! Invariant: bytes become readable in the order they were appended, and only whole.

use super::region::Appender;

/// The end of the log, as the holder of the put lock sees it. Neither method may block or allocate.
pub trait Medium: Send {
    /// Bytes that still fit.
    fn room(&self) -> usize;
    /// Room for the next `size` bytes, to be filled before the next call; `None` when they do not fit.
    fn append(&mut self, size: usize) -> Option<&mut [u8]>;
    /// Hands everything appended so far to readers and to the flush thread.
    fn commit(&mut self);
}

/// The mapping of the file itself: a message is copied once, into the page cache, and a killed process loses nothing.
impl Medium for Appender {
    fn room(&self) -> usize {
        Appender::room(self)
    }

    fn append(&mut self, size: usize) -> Option<&mut [u8]> {
        Appender::append(self, size)
    }

    fn commit(&mut self) {
        self.publish();
    }
}
