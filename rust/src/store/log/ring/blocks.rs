//! Blocks: the way from the parts of a write ring into the log's files, in whole blocks.
//!
//! A flush that keeps up writes into the page cache, where readers that lag behind the write ring find the bytes. A flush
//! that is behind, or that senders wait for, writes directly to the disk, which costs less.
//!
//! The last block is padded with zeros, and written again together with the bytes that follow; until then it is not read
//! from the file. Behind a small flush that senders wait for, zeros are written ahead of the end: a sync of blocks that are
//! written for the first time also has to record in the file system that they are.
//!
//! *Invariant*: the blocks of a file are written in order, and readable bytes of a file are not written again.
//! Threads: the holder of the flush lock.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::store::disk::{DIRECT_BYTES, Disk, DiskFile, Open};
use crate::store::error::StoreError;
use crate::store::log::segment::Segment;

use super::checksums::of_block;
use super::part::{BLOCK_BYTES, Part, block_begin};

/// Bytes per write.
const WRITE_BYTES: u64 = 1 << 20;
/// Zeros per step ahead of the end, and the size from which a flush needs none: its own bytes dominate.
const AHEAD_BYTES: u64 = 1 << 20;
const LARGE_FLUSH_BYTES: u64 = 256 << 10;

/// Way of writes into a log file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Cached,
    Direct,
}

/// A log file, opened for both ways.
struct LogFile {
    base: u64,
    cached: Arc<dyn DiskFile>,
    direct: Arc<dyn DiskFile>,
}

/// Progress of the flush.
pub(super) struct Blocks {
    pub(super) end: u64,
    /// Bytes before this are not written again.
    pub(super) settled: u64,
    /// The log file that was written last.
    file: Option<LogFile>,
    /// Whether senders wait for the flush.
    pub(super) is_awaited: bool,
    /// The end of the zeros in that file.
    zeros_end: u64,
}

impl Blocks {
    pub(super) fn new(is_awaited: bool) -> Self {
        Self { end: 0, settled: 0, file: None, is_awaited, zeros_end: 0 }
    }

    /// Starts with a log that is durable, and readable in its files, before `end`.
    pub(super) fn start(&mut self, end: u64) {
        (self.end, self.settled, self.zeros_end) = (end, end, end);
    }

    /// Writes a part up to `end` to its file, and reveals the bytes there that are not written again. If the part `ends_file`,
    /// these are all. `note` receives the position of each whole block and its CRC-32.
    pub(super) fn write(
        &mut self,
        disk: &dyn Disk,
        (part, end, ends_file): (&Part, u64, bool),
        (segment, way): (&Segment, Way),
        note: &mut impl FnMut(u64, u32),
    ) -> Result<(), StoreError> {
        let file = self.open(disk, segment, way)?;
        let mut write = || {
            let ahead = self.ahead(end, segment);
            write_zeros(&*file, segment.base(), ahead.clone())?;
            Ok((ahead.end, write_part(&*file, part, self.end, end, note)?))
        };
        let (zeros_end, whole) = write().map_err(StoreError::io(segment.path(), "write"))?;
        self.zeros_end = self.zeros_end.max(zeros_end);
        self.end = end;
        self.settled = if ends_file { end } else { whole };
        segment.reveal(self.settled);
        Ok(())
    }

    /// Returns the range of whole blocks, behind all that was ever written, in which zeros are needed.
    fn ahead(&self, end: u64, segment: &Segment) -> Range<u64> {
        if !self.is_awaited || end <= self.zeros_end || end - self.end >= LARGE_FLUSH_BYTES {
            return end..end;
        }
        let from = segment.base() + (end - segment.base()).next_multiple_of(BLOCK_BYTES);
        from..segment.limit().min(from + AHEAD_BYTES)
    }

    fn open(
        &mut self,
        disk: &dyn Disk,
        segment: &Segment,
        way: Way,
    ) -> Result<Arc<dyn DiskFile>, StoreError> {
        let file = match self.file.take() {
            Some(file) if file.base == segment.base() => file,
            _ => {
                let path = segment.path();
                let open = |how| disk.open(path, how).map_err(StoreError::io(path, "open"));
                LogFile { base: segment.base(), cached: open(Open::Write)?, direct: open(Open::Direct)? }
            }
        };
        let file = self.file.insert(file);
        Ok(Arc::clone(match way {
            Way::Cached => &file.cached,
            Way::Direct => &file.direct,
        }))
    }
}

/// Writes the blocks of a part from the block of `from` up to `end`. Returns the end of the last whole block.
fn write_part(
    file: &dyn DiskFile,
    part: &Part,
    from: u64,
    end: u64,
    note: &mut impl FnMut(u64, u32),
) -> io::Result<u64> {
    let whole = block_begin(part.file_base, end);
    let mut at = block_begin(part.file_base, from.max(part.base));
    while at < whole {
        let until = whole.min(at + WRITE_BYTES);
        let bytes = part.bytes(at, until);
        file.write_at(bytes, at - part.file_base)?;
        while at < until {
            note(at, of_block(&part.reader, ((at - part.base) / BLOCK_BYTES) as usize));
            at += BLOCK_BYTES;
        }
    }
    if whole < end {
        // The appender writes to the rest of the block; the file gets zeros there until the block is written again.
        let bytes = part.bytes(whole, end);
        with_zeros(DIRECT_BYTES, |block| {
            let (head, _) = block.split_at_mut(bytes.len());
            head.copy_from_slice(bytes);
            file.write_at(block, whole - part.file_base)
        })?;
    }
    Ok(whole)
}

fn write_zeros(file: &dyn DiskFile, file_base: u64, range: Range<u64>) -> io::Result<()> {
    match range.end.saturating_sub(range.start) {
        0 => Ok(()),
        size => with_zeros(size as usize, |zeros| file.write_at(zeros, range.start - file_base)),
    }
}

/// Calls `write` with zeros that are aligned for a direct write.
fn with_zeros(size: usize, write: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<()> {
    let mut memory = vec![0; size + DIRECT_BYTES];
    let start = memory.as_ptr().align_offset(DIRECT_BYTES).min(DIRECT_BYTES);
    write(memory.get_mut(start..start + size).unwrap_or_default())
}
