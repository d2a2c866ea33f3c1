//! Region: mapped memory, the only unsafe file of the store.
//!
//! Owns a shared mapping of one file and decides which of its bytes may be read and written. A region is claimed
//! once, in one of three ways:
//!
//! - **as a log** ([`Region::claim_log`]): one [`Appender`] owns every byte from the published length on, and moves
//!   that length forward with a release store; any number of [`RegionReader`]s and [`Slice`]s see only bytes before it. A
//!   byte is written before it is published and never after, so a shared reference never meets a write;
//! - **as a file** ([`Region::claim_file`]): the region is read-only, and bytes are written to the file.
//!   [`RegionReader::reveal`] moves the length forward over bytes that are in the file;
//! - **as a write ring** ([`Region::claim_ring`]): a log that can be restarted. It has one [`RingReader`], which cannot be cloned
//!   and lends bytes only while it is borrowed, so that exclusive access to it proves the absence of readers. The pages at its
//!   front hold marks, numbers that are accessed only as atomics and never as bytes.
//!
//! Invariants: the published length only grows, except when a write ring restarts; the mapping lives as long as anything
//! that can see into it.
//! Threads: all, as the types allow.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};

/// The marks at the front of a write ring fill whole pages, so that the bytes behind them are aligned for direct writes.
pub(crate) const MARKS_PAGE_BYTES: usize = 4096;
const PAGE_BYTES: usize = 4096;
/// Pages of one question whether they are in memory: 256 KiB, as much as most pulls read.
const RESIDENT_PAGES_MAX: usize = 64;
/// Bytes prefaulted per step.
const POPULATE_BYTES: usize = 64 << 10;

/// A mapping of the first `len` bytes of a file, or of plain memory.
#[derive(Clone, Debug)]
pub struct Region {
    map: Arc<Map>,
}

#[derive(Debug)]
struct Map {
    memory: MmapRaw,
    is_writable: bool,
    /// Whether a file holds the bytes of pages that are not resident. Simulated disks map plain memory.
    has_file: bool,
    is_claimed: AtomicBool,
    published: AtomicUsize,
}

impl Region {
    /// Maps the first `len` bytes of `file` for reading and writing, shared with the page cache.
    pub(crate) fn writable(file: &File, len: usize) -> io::Result<Self> {
        Ok(Self::of(MmapOptions::new().len(len).map_raw(file)?, true, true))
    }

    /// Maps the first `len` bytes of `file` for reading.
    pub(crate) fn read_only(file: &File, len: usize) -> io::Result<Self> {
        Ok(Self::of(MmapOptions::new().len(len).map_raw_read_only(file)?, false, true))
    }

    fn of(memory: MmapRaw, is_writable: bool, has_file: bool) -> Self {
        let map = Map {
            memory,
            is_writable,
            has_file,
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

    /// Claims a writable region as a write ring, empty, with `marks` bytes of marks at its front.
    ///
    /// `None` when the region was claimed before, is read-only or has no room behind the marks, or these are not whole pages.
    pub(crate) fn claim_ring(&self, marks: usize) -> Option<(RingAppender, RingReader)> {
        let fits = marks.is_multiple_of(MARKS_PAGE_BYTES) && self.len() > marks && self.map.is_writable;
        if !fits || self.map.is_claimed.swap(true, Ordering::AcqRel) {
            return None;
        }
        self.map.published.store(marks, Ordering::Release);
        let appender = Appender { map: Arc::clone(&self.map), end: marks };
        Some((RingAppender { appender, marks }, RingReader { map: Arc::clone(&self.map), marks }))
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.map.is_writable
    }

    /// Writes the pages of `range` to the disk and waits for them (`msync`, of whole pages).
    pub(crate) fn flush(&self, range: Range<usize>) -> io::Result<()> {
        self.map.memory.flush_range(range.start, range.len())
    }

    /// Prefaults the pages of `range` for writing, so that the appender takes no page fault there. In small steps: each holds
    /// the lock of the address space, which threads that allocate memory may wait for.
    pub(crate) fn populate(&self, range: Range<usize>) -> io::Result<()> {
        let memory = &self.map.memory;
        // Otherwise a missing page loads as many as the device reads ahead, up to 8 MiB.
        memory.advise(Advice::Random)?;
        let mut steps = range.clone().step_by(POPULATE_BYTES);
        steps.try_for_each(|at| {
            memory.advise_range(Advice::PopulateWrite, at, POPULATE_BYTES.min(range.end - at))
        })
    }

    /// Releases the memory of `range`, of whole pages. Its bytes stay in the page cache or the file; the next access maps
    /// them again.
    pub(crate) fn release(&self, range: Range<usize>) -> io::Result<()> {
        if !self.map.has_file || range.is_empty() {
            return Ok(());
        }
        // SAFETY: the mapping is shared with a file (`map_raw`), so that the pages, also changed ones, belong to the page
        // cache of the file: unmapping them loses no byte, and an access at any time maps the same bytes again.
        unsafe { self.map.memory.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len()) }
    }
}

/// Memory of the simulated disk.
#[cfg(feature = "simulation")]
impl Region {
    /// Returns a copy of `bytes` with no file behind it, read-only except for [`write_through`](Self::write_through).
    pub(crate) fn copy_of(bytes: &[u8]) -> io::Result<Self> {
        let mut memory = memmap2::MmapMut::map_anon(bytes.len())?;
        memory.copy_from_slice(bytes);
        Ok(Self::of(memory.into(), false, false))
    }

    /// Returns zeroed memory with no file behind it.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        Ok(Self::of(memmap2::MmapMut::map_anon(len)?.into(), true, false))
    }

    /// Returns the bytes as a device would see them at this moment. Only the simulated disk reads memory this way.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let mut picture = vec![0; self.len()];
        // SAFETY: source and destination are live and `len` bytes long, and do not overlap: one is a fresh vector.
        // Like a kernel that writes back a page in use, this may catch a half-done write; the simulation wants that,
        // and its tests pause while they take a snapshot.
        unsafe { std::ptr::copy_nonoverlapping(self.map.start(), picture.as_mut_ptr(), picture.len()) };
        picture
    }

    /// Writes `bytes` at `at` of a [copy](Self::copy_of), as a page cache shows writes to the file in a mapping.
    /// Readable bytes are not changed.
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

    /// Writes `bytes` to the start of an unclaimed region. Returns `false` if it is claimed, or they do not fit.
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
        // it are not written again while the slice lives: the appender owns only those above it, and the length only
        // shrinks in `RingAppender::restart`, which has exclusive access to the only reader of the map.
        Some(unsafe { slice::from_raw_parts(self.start().add(range.start), range.len()) })
    }

    /// Returns a mark of a write ring with `marks` bytes of them.
    fn mark(&self, marks: usize, index: usize) -> Option<&AtomicU64> {
        if index >= marks / size_of::<u64>() {
            return None;
        }
        // SAFETY: the word lies in the marks at the front of the mapping, which is longer than they are and aligned to a page.
        // They are never handed out as bytes, since appender and reader begin behind them, so that they are accessed as
        // atomics alone; the mapping lives as long as `self`.
        Some(unsafe { AtomicU64::from_ptr(self.start().cast::<u64>().add(index)) })
    }
}

/// The right to write the bytes of a log region that are not readable yet. There is one per region.
#[derive(Debug)]
pub(crate) struct Appender {
    map: Arc<Map>,
    end: usize,
}

impl Appender {
    pub(crate) fn room(&self) -> usize {
        self.map.memory.len() - self.end
    }

    /// Returns the next `size` bytes, to be filled before they are published; `None` when they do not fit.
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

    /// Makes everything appended so far readable.
    pub(crate) fn publish(&mut self) {
        self.map.published.store(self.end, Ordering::Release);
    }
}

/// The right to write a write ring, and to restart it.
#[derive(Debug)]
pub(crate) struct RingAppender {
    appender: Appender,
    /// Bytes of its marks.
    marks: usize,
}

impl RingAppender {
    pub(crate) fn room(&self) -> usize {
        self.appender.room()
    }

    /// Returns the next `size` bytes, to be filled before they are published; `None` when they do not fit.
    pub(crate) fn append(&mut self, size: usize) -> Option<&mut [u8]> {
        self.appender.append(size)
    }

    /// Makes everything appended so far readable.
    pub(crate) fn publish(&mut self) {
        self.appender.publish();
    }

    /// Borrows what has been appended and is not readable yet.
    pub(crate) fn unpublished(&self) -> &[u8] {
        let map = &self.appender.map;
        let from = map.published.load(Ordering::Relaxed);
        // SAFETY: the range lies in the mapping, between the published length and the end of what was appended. Only this
        // appender writes there and moves either limit, and the borrow of `self` keeps it from both while the slice lives.
        unsafe { slice::from_raw_parts(map.start().add(from), self.appender.end - from) }
    }

    /// Sets a mark, after all earlier writes. A killed process leaves marks in the order they were set.
    pub(crate) fn mark(&self, index: usize, value: u64) {
        if let Some(word) = self.appender.map.mark(self.marks, index) {
            word.store(value, Ordering::Release);
        }
    }

    /// Empties the write ring. Returns `false`, with nothing done, when the reader belongs to another.
    pub(crate) fn restart(&mut self, reader: &mut RingReader) -> bool {
        let is_ours = Arc::ptr_eq(&self.appender.map, &reader.map);
        if is_ours {
            self.appender.end = self.marks;
            reader.map.published.store(self.marks, Ordering::Release);
        }
        is_ours
    }
}

/// The only reader of a write ring. Positions count from behind the marks.
#[derive(Debug)]
pub(crate) struct RingReader {
    map: Arc<Map>,
    /// Bytes of its marks.
    marks: usize,
}

impl RingReader {
    pub(crate) fn published(&self) -> usize {
        self.map.published.load(Ordering::Acquire) - self.marks
    }

    /// Borrows published bytes; `None` when part of the range is not published.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        let end = range.end.checked_add(self.marks)?;
        self.map.published_bytes(&(range.start + self.marks..end))
    }

    pub(crate) fn marks_bytes(&self) -> usize {
        self.marks
    }

    /// Returns a mark, 0 where there is none.
    pub(crate) fn mark(&self, index: usize) -> u64 {
        self.map.mark(self.marks, index).map_or(0, |word| word.load(Ordering::Acquire))
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

    /// Makes everything before `end` readable, which has been written to the file behind the region. Does nothing for
    /// a region with an appender.
    pub(crate) fn reveal(&self, end: usize) {
        if !self.map.is_writable && end <= self.map.memory.len() {
            self.map.published.fetch_max(end, Ordering::AcqRel);
        }
    }

    /// Returns whether the published bytes of `range` are in the page cache, as far as the first `RESIDENT_PAGES_MAX` pages
    /// show.
    pub(crate) fn is_resident(&self, range: Range<usize>) -> bool {
        let from = range.start / PAGE_BYTES * PAGE_BYTES;
        let until = range.end.min(from + RESIDENT_PAGES_MAX * PAGE_BYTES);
        if range.is_empty() || self.map.published_bytes(&(from..until)).is_none() {
            return false;
        }
        let mut found = [0; RESIDENT_PAGES_MAX];
        // SAFETY: the range lies in the mapping, and `found` has a byte for each of its pages, which are at least as
        // large as PAGE_BYTES. The call reads no memory of the mapping. With larger pages it may fail, which is the answer no.
        let status =
            unsafe { libc::mincore(self.map.start().add(from).cast(), until - from, found.as_mut_ptr()) };
        status == 0 && found.iter().take((until - from).div_ceil(PAGE_BYTES)).all(|page| page & 1 == 1)
    }

    /// Borrows published bytes; `None` when part of the range is not published.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        self.map.published_bytes(&range)
    }

    /// Returns published bytes that keep the mapping alive.
    pub(crate) fn slice(&self, range: Range<usize>) -> Option<Slice> {
        self.map.published_bytes(&range)?;
        Some(Slice { map: Arc::clone(&self.map), range })
    }
}

/// A range of a log region, with a share of its mapping.
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
    fn readers_see_only_published_bytes() {
        let region = Region::anonymous(4096).expect("memory");
        let (mut appender, reader) = region.claim_log(0).expect("first claim");
        appender.append(5).expect("room").copy_from_slice(b"hello");
        assert!(reader.bytes(0..5).is_none());
        appender.publish();
        assert_eq!(reader.bytes(0..5), Some(&b"hello"[..]));
        assert!(reader.slice(0..6).is_none());
    }

    #[test]
    fn only_published_pages_that_were_touched_are_resident() {
        let region = Region::anonymous(4 * PAGE_BYTES).expect("memory");
        let (mut appender, reader) = region.claim_log(0).expect("first claim");
        appender.append(PAGE_BYTES + 1).expect("room").fill(7);
        appender.append(2 * PAGE_BYTES).expect("room");
        assert!(!reader.is_resident(0..1), "it is not published");
        appender.publish();
        assert!(reader.is_resident(0..1));
        assert!(reader.is_resident(PAGE_BYTES - 1..PAGE_BYTES + 1));
        assert!(!reader.is_resident(0..2 * PAGE_BYTES + 1), "the third page was never touched");
        assert!(!reader.is_resident(1..1));
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
    fn a_write_ring_restarts_without_a_reader_and_keeps_its_marks() {
        let region = Region::anonymous(2 * MARKS_PAGE_BYTES).expect("memory");
        let (mut appender, mut reader) = region.claim_ring(MARKS_PAGE_BYTES).expect("first claim");
        assert!(region.claim_ring(MARKS_PAGE_BYTES).is_none() && region.claim_log(0).is_none());
        appender.append(5).expect("room").copy_from_slice(b"hello");
        appender.mark(1, u64::MAX);
        assert!(reader.bytes(0..5).is_none() && reader.mark(1) == u64::MAX && reader.mark(usize::MAX) == 0);
        assert_eq!(appender.unpublished(), b"hello");
        appender.publish();
        assert_eq!(appender.unpublished(), b"");
        assert_eq!(reader.bytes(0..5), Some(&b"hello"[..]));
        assert!(reader.bytes(0..6).is_none() && reader.bytes(0..usize::MAX).is_none());
        assert!(appender.restart(&mut reader));
        assert_eq!((reader.published(), appender.room()), (0, MARKS_PAGE_BYTES));
        assert_eq!(region.snapshot()[8..16], [0xFF; 8]);
        let other = Region::anonymous(2 * MARKS_PAGE_BYTES).expect("memory");
        let (_, mut other) = other.claim_ring(MARKS_PAGE_BYTES).expect("first claim");
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
