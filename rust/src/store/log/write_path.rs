//! Write path: where the bytes at the end of the log live between append and disk.
//!
//! A write path is the writing half of the log and belongs to the holder of the put lock. There are three:
//!
//! - the **mapping** of the file itself: a message is copied once, into the page cache. It can be read at once and a killed
//!   process loses nothing, but a flush has to find the pages it changed, which makes it slow: for `ASYNC_FLUSH`;
//! - the **write buffer**, memory of this process, which the flush takes, writes to the file and syncs. A full or broken disk
//!   answers with an error, and a flush costs a third: for `SYNC_FLUSH`, where nothing may be read before it anyway;
//! - the **spool** (`spool`), mapped files of the store's own, from which the flush writes to the file without the page cache.
//!   A killed process loses nothing, and no message waits for the kernel to find and clear a page: for `ASYNC_FLUSH`.
//!
//! Invariant: bytes become readable in the order they were appended, and only whole.

use crate::message::record::encode_blank;
use crate::store::disk::Appender;

/// Every file but the newest ends with a blank of at least this size, so this much stays free behind a record.
pub(crate) const BLANK_BYTES_MIN: usize = 8;
/// Bytes a write buffer holds before an append has to wait for the flush. An empty one takes any batch, however large.
const WRITE_BUFFER_BYTES: usize = 4 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WritePathKind {
    /// The mapping of the newest file.
    Mapping,
    /// Memory of the process, written and synced by the flush.
    WriteBuffer,
    /// Mapped files of the store's own, written to the log and synced by the flush.
    Spool,
}

/// The head of a blank of `size` bytes.
pub(crate) fn blank_head(size: usize) -> [u8; BLANK_BYTES_MIN] {
    let mut head = [0; BLANK_BYTES_MIN];
    encode_blank(&mut head, size as u32);
    head
}

/// Bytes on their way from a write buffer to their file, and their position in the log. They lie in one file.
#[derive(Default, Debug)]
pub(crate) struct Unwritten {
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
}

/// What a file ends with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blank<'a> {
    /// All of the file's rest.
    pub(crate) size: usize,
    /// Its first bytes, the head at least; what follows them is zeros, and they are in the file already.
    pub(crate) bytes: &'a [u8],
}

/// The end of the log, as the holder of the put lock sees it. No method may block; none allocates in steady state.
pub(crate) trait WritePath: Send {
    /// Whether records of `size` bytes in all can be taken now, or must wait for a flush. That they fit into the file is
    /// the caller's to know.
    fn has_room(&self, size: usize) -> bool;
    /// Room for the next `size` bytes, to be filled before the next call; `None` when there is none.
    fn append(&mut self, size: usize) -> Option<&mut [u8]>;
    /// Hands over everything appended so far: to readers, or to the next flush.
    fn commit(&mut self);
    /// Ends the file with a blank, and goes on in the next one, which begins at `base`.
    fn enter(&mut self, blank: Blank<'_>, base: u64, next: Option<Appender>);
    /// Goes on in a file that begins at `base`, of a log in which nothing was written.
    fn begin(&mut self, base: u64, file: Option<Appender>);
    /// Takes what has to be written to a file. `into` must be empty; its memory is used again.
    fn take(&mut self, into: &mut Unwritten);
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

    fn take(&mut self, _into: &mut Unwritten) {}
}

/// The end of the log in memory of this process.
#[derive(Debug)]
pub(crate) struct WriteBuffer {
    unwritten: Unwritten,
    /// Where the next file begins, once the blank of this one is in the write buffer: one flush never spans two files.
    entering: Option<u64>,
}

impl WriteBuffer {
    /// A write buffer of a log that ends at `end`.
    pub(crate) fn new(end: u64) -> Self {
        let bytes = Vec::with_capacity(WRITE_BUFFER_BYTES + BLANK_BYTES_MIN);
        Self { unwritten: Unwritten { at: end, bytes }, entering: None }
    }
}

impl WritePath for WriteBuffer {
    fn has_room(&self, size: usize) -> bool {
        let used = self.unwritten.bytes.len();
        self.entering.is_none() && (used == 0 || used + size <= WRITE_BUFFER_BYTES)
    }

    fn append(&mut self, size: usize) -> Option<&mut [u8]> {
        if self.entering.is_some() {
            return None;
        }
        let bytes = &mut self.unwritten.bytes;
        let start = bytes.len();
        bytes.resize(start + size, 0);
        bytes.get_mut(start..)
    }

    fn commit(&mut self) {}

    fn enter(&mut self, blank: Blank<'_>, base: u64, _next: Option<Appender>) {
        self.unwritten.bytes.extend_from_slice(blank.bytes);
        self.entering = Some(base);
    }

    fn begin(&mut self, base: u64, _file: Option<Appender>) {
        debug_assert!(self.unwritten.bytes.is_empty() && self.entering.is_none());
        self.unwritten.at = base;
    }

    fn take(&mut self, into: &mut Unwritten) {
        debug_assert!(into.bytes.is_empty(), "what was taken before has been written");
        into.bytes
            .reserve_exact((WRITE_BUFFER_BYTES + BLANK_BYTES_MIN).saturating_sub(into.bytes.capacity()));
        let end = self.unwritten.at + self.unwritten.bytes.len() as u64;
        into.at = self.entering.take().unwrap_or(end);
        std::mem::swap(&mut self.unwritten, into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(buffer: &mut WriteBuffer) -> (u64, Vec<u8>) {
        let mut into = Unwritten::default();
        buffer.take(&mut into);
        (into.at, into.bytes)
    }

    #[test]
    fn a_write_buffer_hands_over_what_was_appended_since_the_last_time() {
        let mut buffer = WriteBuffer::new(100);
        buffer.append(3).expect("room").copy_from_slice(b"abc");
        assert_eq!(taken(&mut buffer), (100, b"abc".to_vec()));
        assert_eq!(taken(&mut buffer), (103, Vec::new()));
        buffer.append(2).expect("room").copy_from_slice(b"de");
        assert_eq!(taken(&mut buffer), (103, b"de".to_vec()));
    }

    #[test]
    fn a_full_write_buffer_waits_for_the_flush_and_an_empty_one_takes_any_batch() {
        let mut buffer = WriteBuffer::new(0);
        assert!(buffer.has_room(WRITE_BUFFER_BYTES + 1));
        buffer.append(WRITE_BUFFER_BYTES).expect("room");
        assert!(!buffer.has_room(1));
        buffer.append(1).expect("the rest of a batch");
        assert_eq!(taken(&mut buffer).1.len(), WRITE_BUFFER_BYTES + 1);
        assert!(buffer.has_room(1));
    }

    #[test]
    fn a_write_buffer_that_ends_a_file_takes_nothing_of_the_next_one_before_the_flush() {
        let mut buffer = WriteBuffer::new(1000);
        buffer.append(4).expect("room").copy_from_slice(b"last");
        buffer.enter(Blank { size: 20, bytes: &blank_head(20) }, 1024, None);
        assert!(buffer.append(1).is_none());
        let (at, bytes) = taken(&mut buffer);
        assert_eq!((at, bytes.len()), (1000, 4 + BLANK_BYTES_MIN));
        assert!(buffer.append(1).is_some());
        assert_eq!(taken(&mut buffer).0, 1024);
    }
}
