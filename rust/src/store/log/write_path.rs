//! Write path: new bytes of the log between append and disk.
//!
//! The holder of the put lock uses one of three:
//!
//! - the **mapping** of the log file: a message is copied once, into the page cache. It is readable immediately and
//!   survives a killed process, but a flush is slow because it has to find the dirty pages. For `ASYNC_FLUSH`;
//! - the **write buffer**, memory of this process, which the flush writes to the file and syncs. A full or broken
//!   disk returns an error, and a flush takes a third of the time. For `SYNC_FLUSH`, where nothing may be read
//!   before it anyway;
//! - the **write ring** (`ring`), mapped files outside the log, which the flush writes to the log bypassing the page
//!   cache. Messages survive a killed process, and no append waits for a new page. For `ASYNC_FLUSH`.
//!
//! *Invariant*: bytes become readable whole, and in the order they were appended.

use crate::message::record::encode_blank;
use crate::store::disk::Appender;

/// The size of the smallest blank, kept free after each record: every file but the newest ends with one.
pub(crate) const BLANK_BYTES_MIN: usize = 8;
/// The capacity of a write buffer. An append beyond it waits for the flush, but an empty buffer accepts a batch of
/// any size.
const WRITE_BUFFER_BYTES: usize = 4 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WritePathKind {
    /// The mapping of the newest file.
    Mapping,
    /// Memory of the process, written and synced by the flush.
    WriteBuffer,
    /// Mapped files outside the log; the flush writes them to the log and syncs it.
    Ring,
}

/// Returns the head of a blank of `size` bytes.
pub(crate) fn blank_head(size: usize) -> [u8; BLANK_BYTES_MIN] {
    let mut head = [0; BLANK_BYTES_MIN];
    encode_blank(&mut head, size as u32);
    head
}

/// Bytes in flight from a write buffer to their file, and their position in the log. They lie in one file.
#[derive(Default, Debug)]
pub(crate) struct Unwritten {
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
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
    /// Passes everything appended so far to readers, or to the next flush.
    fn commit(&mut self);
    /// Ends the file with a blank and continues in the next one, which begins at `base`.
    fn enter(&mut self, blank: Blank<'_>, base: u64, next: Option<Appender>);
    /// Continues in a file that begins at `base`, in an empty log.
    fn begin(&mut self, base: u64, file: Option<Appender>);
    /// Takes the bytes to be written to a file. `into` must be empty; its memory is reused.
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
    /// The beginning of the next file, once the blank of this one is in the buffer: no flush spans two files.
    entering: Option<u64>,
}

impl WriteBuffer {
    /// Returns a write buffer of a log that ends at `end`.
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
        debug_assert!(into.bytes.is_empty(), "the bytes taken before were written");
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
    fn a_write_buffer_returns_bytes_appended_since_the_last_take() {
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
        buffer.append(1).expect("the rest of the batch");
        assert_eq!(taken(&mut buffer).1.len(), WRITE_BUFFER_BYTES + 1);
        assert!(buffer.has_room(1));
    }

    #[test]
    fn a_write_buffer_at_the_end_of_a_file_is_full_until_the_flush() {
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
