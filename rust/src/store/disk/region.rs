//! Mapped memory: the only unsafe file of the store.
//!
//! Owns a shared mapping of one file and decides which of its bytes may be read and written. A region is claimed once,
//! in one of three ways:
//!
//! - **as a log** ([`Region::claim_log`]): one [`Appender`] owns every byte from the published length on, and moves
//!   that length forward with a release store; any number of [`RegionReader`]s and [`Slice`]s see only bytes before it. A
//!   byte is written before it is published and never after, so a shared reference never meets a write;
//! - **as a file** ([`Region::claim_file`]): the region is read-only, and what is written goes to the file.
//!   [`RegionReader::reveal`] moves the length forward over bytes that are in the file;
//! - **as a spool** ([`Region::claim_spool`]): a log that may begin anew. There is one [`SpoolReader`], which cannot be cloned
//!   and lends bytes only as long as it is borrowed: who has it for himself knows that nobody reads. Its first page holds
//!   marks, numbers that are accessed as atomics alone and never as bytes.
//!
//! Invariants: the published length only grows, but for a spool that begins anew; the mapping lives as long as anything that
//! can see into it.
//! Threads: all, as the types allow.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use super::pages::Pages;

/// Bytes at the front of a spool that are for its marks: a page, so that what follows lies as direct writes want it.
pub(crate) const MARKS_BYTES: usize = 4096;

/// A mapping of the first `len` bytes of a file, or of plain memory.
#[derive(Clone, Debug)]
pub struct Region {
    map: Arc<Map>,
}

#[derive(Debug)]
struct Map {
    memory: MmapRaw,
    is_writable: bool,
    pages: Pages,
    is_claimed: AtomicBool,
    published: AtomicUsize,
}

impl Region {
    /// Maps the first `len` bytes of `file` for reading and writing, shared with the page cache.
    pub(crate) fn writable(file: &File, len: usize) -> io::Result<Self> {
        Ok(Self::of(MmapOptions::new().len(len).map_raw(file)?, true))
    }

    /// Maps the first `len` bytes of `file` for reading.
    pub(crate) fn read_only(file: &File, len: usize) -> io::Result<Self> {
        Ok(Self::of(MmapOptions::new().len(len).map_raw_read_only(file)?, false))
    }

    fn of(memory: MmapRaw, is_writable: bool) -> Self {
        let map = Map {
            memory,
            is_writable,
            pages: Pages::default(),
            is_claimed: AtomicBool::new(false),
            published: AtomicUsize::new(0),
        };
        Self { map: Arc::new(map) }
    }

    pub(crate) fn len(&self) -> usize {
        self.map.memory.len()
    }

    /// Claims the region as a log whose first `published` bytes may be read and are never written again.
    ///
    /// `None` when the region was claimed before, is shorter than that, or is read-only and not full.
    pub(crate) fn claim_log(&self, published: usize) -> Option<(Appender, RegionReader)> {
        let fits = published == self.len() || (published < self.len() && self.map.is_writable);
        if !fits || self.map.is_claimed.swap(true, Ordering::AcqRel) {
            return None;
        }
        self.map.published.store(published, Ordering::Release);
        Some((
            Appender { map: Arc::clone(&self.map), end: published },
            RegionReader { map: Arc::clone(&self.map) },
        ))
    }

    /// Claims a read-only region as a file whose first `published` bytes may be read and are never written again.
    ///
    /// `None` when the region was claimed before, is shorter than that, or can be written.
    pub(crate) fn claim_file(&self, published: usize) -> Option<RegionReader> {
        let fits = published <= self.len() && !self.map.is_writable;
        if !fits || self.map.is_claimed.swap(true, Ordering::AcqRel) {
            return None;
        }
        self.map.published.store(published, Ordering::Release);
        Some(RegionReader { map: Arc::clone(&self.map) })
    }

    /// Claims a writable region as a spool, empty.
    ///
    /// `None` when the region was claimed before, is read-only or has no room behind the marks.
    pub(crate) fn claim_spool(&self) -> Option<(SpoolAppender, SpoolReader)> {
        let fits = self.len() > MARKS_BYTES && self.map.is_writable;
        if !fits || self.map.is_claimed.swap(true, Ordering::AcqRel) {
            return None;
        }
        self.map.published.store(MARKS_BYTES, Ordering::Release);
        let appender = Appender { map: Arc::clone(&self.map), end: MARKS_BYTES };
        Some((SpoolAppender { appender }, SpoolReader { map: Arc::clone(&self.map) }))
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.map.is_writable
    }

    /// Writes the pages of `range` to the disk and waits for them (`msync`, of whole pages).
    pub(crate) fn flush(&self, range: Range<usize>) -> io::Result<()> {
        self.map.memory.flush_range(range.start, range.len())
    }

    /// Makes the pages of `range` present and writable, so that the appender takes no fault on them.
    pub(crate) fn populate(&self, range: Range<usize>) -> io::Result<()> {
        self.map.pages.populate(&self.map.memory, range)
    }

    /// Has the kernel bring pages of 2 MiB, or small ones: see [`Pages::use_large`].
    pub(crate) fn use_large_pages(&self, large: bool) -> io::Result<()> {
        self.map.pages.use_large(&self.map.memory, large)
    }
}

/// Memory of the simulated disk.
#[cfg(feature = "simulation")]
impl Region {
    /// A copy of `bytes` with no file behind it, read-only but for [`write_through`](Self::write_through), for the
    /// simulated disk.
    pub(crate) fn copy_of(bytes: &[u8]) -> io::Result<Self> {
        let mut memory = memmap2::MmapMut::map_anon(bytes.len())?;
        memory.copy_from_slice(bytes);
        Ok(Self::of(memory.into(), false))
    }

    /// Zeroed memory with no file behind it, for the simulated disk.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        Ok(Self::of(memmap2::MmapMut::map_anon(len)?.into(), true))
    }

    /// The bytes as a device would see them at this moment. Only the simulated disk reads memory this way.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let mut picture = vec![0; self.len()];
        // SAFETY: source and destination are live and `len` bytes long, and do not overlap: one is a fresh vector.
        // Like a kernel that writes back a page in use, this may catch a write half done; the simulation wants that,
        // and its tests stand still while they take a picture.
        unsafe { std::ptr::copy_nonoverlapping(self.map.start(), picture.as_mut_ptr(), picture.len()) };
        picture
    }

    /// Puts `bytes` at `at` of a [copy](Self::copy_of), as a page cache shows in a mapping what was written to the file.
    /// Bytes that are readable already stay as they are.
    pub(crate) fn write_through(&self, at: usize, bytes: &[u8]) {
        let start = at.max(self.map.published.load(Ordering::Acquire));
        let Some(bytes) = start.checked_sub(at).and_then(|skipped| bytes.get(skipped..)) else { return };
        if self.map.is_writable || start + bytes.len() > self.len() {
            return;
        }
        // SAFETY: the range lies in the memory and above the published length, where no reference exists: readers
        // see bytes below it only, and nothing is appended to a read-only region. The simulated disk, the only caller, has
        // made the memory itself (anonymous, so it can be written) and calls one at a time, under its lock.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.start().add(start), bytes.len()) };
    }

    /// Puts `bytes` at the start of a region that is not claimed yet. `false` when it is, or they do not fit.
    pub(crate) fn fill(&self, bytes: &[u8]) -> bool {
        if bytes.len() > self.len() || !self.map.is_writable || self.map.is_claimed.load(Ordering::Acquire) {
            return false;
        }
        // SAFETY: the bytes fit; nothing has been claimed, so no reference into the region exists, and the simulated
        // disk, the only caller, fills a region before it hands it out.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.start(), bytes.len()) };
        true
    }
}

impl Map {
    fn start(&self) -> *mut u8 {
        self.memory.as_mut_ptr()
    }

    fn published_bytes(&self, range: &Range<usize>) -> Option<&[u8]> {
        if range.start > range.end || range.end > self.published.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the range lies below the published length, which is at most the length of the mapping. Bytes below
        // it are not written again while the slice lives: the appender owns those above it alone, and the length only
        // shrinks in `SpoolAppender::restart`, which has the only reader of the map for itself.
        Some(unsafe { slice::from_raw_parts(self.start().add(range.start), range.len()) })
    }
}

/// The right to write the bytes of a log region that may not be read yet. There is one per region.
#[derive(Debug)]
pub(crate) struct Appender {
    map: Arc<Map>,
    end: usize,
}

impl Appender {
    pub(crate) fn room(&self) -> usize {
        self.map.memory.len() - self.end
    }

    /// The next `size` bytes, to be filled before they are published; `None` when they do not fit.
    pub(crate) fn append(&mut self, size: usize) -> Option<&mut [u8]> {
        if size > self.room() {
            return None;
        }
        let at = self.end;
        self.end += size;
        // SAFETY: the range lies in the mapping and at or above the published length, since `end` never falls below
        // it. Only this appender hands out such bytes, and the borrow of `self` keeps it from doing so twice.
        Some(unsafe { slice::from_raw_parts_mut(self.map.start().add(at), size) })
    }

    /// Lets readers see everything appended so far.
    pub(crate) fn publish(&mut self) {
        self.map.published.store(self.end, Ordering::Release);
    }
}

/// The right to write a spool, and to begin anew in it.
#[derive(Debug)]
pub(crate) struct SpoolAppender {
    appender: Appender,
}

impl SpoolAppender {
    pub(crate) fn room(&self) -> usize {
        self.appender.room()
    }

    /// The next `size` bytes, to be filled before they are published; `None` when they do not fit.
    pub(crate) fn append(&mut self, size: usize) -> Option<&mut [u8]> {
        self.appender.append(size)
    }

    /// Lets the reader see everything appended so far.
    pub(crate) fn publish(&mut self) {
        self.appender.publish();
    }

    /// Sets a mark, after everything that was written before. A killed process leaves them in the order they were set.
    pub(crate) fn mark(&self, index: usize, value: u64) {
        if index >= MARKS_BYTES / size_of::<u64>() {
            return;
        }
        // SAFETY: the word lies in the first page of the mapping, which is longer than that page and aligned to one. That
        // page is never handed out as bytes, since appender and reader begin behind it, so that it is accessed as atomics
        // alone; it lives as long as `self` has its share of the map.
        let word = unsafe { AtomicU64::from_ptr(self.appender.map.start().cast::<u64>().add(index)) };
        word.store(value, Ordering::Release);
    }

    /// Makes the spool empty. `false`, and nothing done, when the reader is that of another.
    pub(crate) fn restart(&mut self, reader: &mut SpoolReader) -> bool {
        let is_ours = Arc::ptr_eq(&self.appender.map, &reader.map);
        if is_ours {
            self.appender.end = MARKS_BYTES;
            reader.map.published.store(MARKS_BYTES, Ordering::Release);
        }
        is_ours
    }
}

/// The one reader of a spool. Positions are counted from behind the marks.
#[derive(Debug)]
pub(crate) struct SpoolReader {
    map: Arc<Map>,
}

impl SpoolReader {
    pub(crate) fn published(&self) -> usize {
        self.map.published.load(Ordering::Acquire) - MARKS_BYTES
    }

    /// Borrows published bytes; `None` when part of the range is not published.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        let end = range.end.checked_add(MARKS_BYTES)?;
        self.map.published_bytes(&(range.start + MARKS_BYTES..end))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RegionReader {
    map: Arc<Map>,
}

impl RegionReader {
    pub(crate) fn published(&self) -> usize {
        self.map.published.load(Ordering::Acquire)
    }

    /// Lets readers see everything before `end`, which has been written to the file behind the region. Does nothing for
    /// a region that is written by its appender.
    pub(crate) fn reveal(&self, end: usize) {
        if !self.map.is_writable && end <= self.map.memory.len() {
            self.map.published.fetch_max(end, Ordering::AcqRel);
        }
    }

    /// Borrows published bytes; `None` when part of the range is not published.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        self.map.published_bytes(&range)
    }

    /// Published bytes that keep the mapping alive on their own.
    pub(crate) fn slice(&self, range: Range<usize>) -> Option<Slice> {
        self.map.published_bytes(&range)?;
        Some(Slice { map: Arc::clone(&self.map), range })
    }
}

/// A piece of a log region, with a share of its mapping.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    map: Arc<Map>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        // Checked when the slice was made, and the published length only grows.
        self.map.published_bytes(&self.range).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_what_is_published_and_nothing_else() {
        let region = Region::anonymous(4096).expect("memory");
        let (mut appender, reader) = region.claim_log(0).expect("first claim");
        appender.append(5).expect("room").copy_from_slice(b"hello");
        assert!(reader.bytes(0..5).is_none());
        appender.publish();
        assert_eq!(reader.bytes(0..5), Some(&b"hello"[..]));
        assert!(reader.slice(0..6).is_none());
    }

    #[test]
    fn a_region_is_claimed_once() {
        let region = Region::anonymous(4096).expect("memory");
        assert!(region.claim_log(4097).is_none());
        assert!(region.claim_log(0).is_some());
        assert!(region.claim_log(0).is_none());
        assert!(!region.fill(b"late"));
    }

    #[test]
    fn a_slice_outlives_region_and_appender() {
        let region = Region::anonymous(4096).expect("memory");
        let (mut appender, reader) = region.claim_log(0).expect("first claim");
        appender.append(3).expect("room").copy_from_slice(b"abc");
        appender.publish();
        let slice = reader.slice(1..3).expect("published");
        drop((region, appender, reader));
        assert_eq!(slice.as_ref(), b"bc");
    }

    #[test]
    fn a_spool_begins_anew_when_nobody_reads_it_and_keeps_its_marks() {
        let region = Region::anonymous(2 * MARKS_BYTES).expect("memory");
        let (mut appender, mut reader) = region.claim_spool().expect("first claim");
        assert!(region.claim_spool().is_none() && region.claim_log(0).is_none());
        appender.append(5).expect("room").copy_from_slice(b"hello");
        appender.mark(1, u64::MAX);
        assert!(reader.bytes(0..5).is_none());
        appender.publish();
        assert_eq!(reader.bytes(0..5), Some(&b"hello"[..]));
        assert!(reader.bytes(0..6).is_none() && reader.bytes(0..usize::MAX).is_none());
        assert!(appender.restart(&mut reader));
        assert_eq!((reader.published(), appender.room()), (0, MARKS_BYTES));
        assert_eq!(region.snapshot()[8..16], [0xFF; 8]);
        let other = Region::anonymous(2 * MARKS_BYTES).expect("memory");
        let (_, mut other) = other.claim_spool().expect("first claim");
        assert!(!appender.restart(&mut other));
    }

    #[test]
    fn an_append_that_does_not_fit_changes_nothing() {
        let region = Region::anonymous(4096).expect("memory");
        let (mut appender, _reader) = region.claim_log(4090).expect("first claim");
        assert!(appender.append(7).is_none());
        assert_eq!(appender.room(), 6);
    }
}
