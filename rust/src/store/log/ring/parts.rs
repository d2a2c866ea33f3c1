//! Parts of a write ring: the mapped files and their readers.
//!
//! Owns the files of the write ring and their mappings. A part is free, active (the writer has its appender), or full.
//! Active and full parts can be read. When the last free part is taken, the oldest full one is recycled as soon as
//! its bytes are in the log's file and no reader holds it.
//!
//! *Invariant*: readable bytes never change while a [`Part`] is held. Bytes of recycled parts are readable in the
//! log's file.
//! Threads: any may read; `activate` and `retire` are for the holder of the put lock, `write` for the holder of the
//! flush lock. The lock of the list is the innermost.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::store::disk::{DIRECT_BYTES, Disk, Open, Region, RingAppender};
use crate::store::error::StoreError;
use crate::store::log::segment::Segment;
use crate::store::log::write_path::BLANK_BYTES_MIN;

use super::blocks::{Blocks, Way};
use super::checksums::BlockChecksums;
use super::marks::{Marks, set_end};
use super::memory::Memory;
use super::part::{BLOCK_BYTES, Part};

/// The files of a write ring: one is appended to, one is free, and two can still be read.
const PARTS: u64 = 4;
/// A larger flush is behind the appends. At a common rate, 80 MB/s, this is what one interval brings.
const CACHED_BYTES_MAX: u64 = 4 << 20;
/// Maximum number of larger files, created for records that do not fit the others. Each is twice as large as the
/// last.
const LARGE_PARTS_MAX: usize = 16;

/// The part that the writer appends to.
pub(super) struct Active {
    pub(super) appender: RingAppender,
    pub(super) part: Arc<Part>,
    checksums: BlockChecksums,
}

impl Active {
    /// Makes everything appended so far readable, whose end is `end`; it is whole after a killed process.
    pub(super) fn commit(&mut self, end: u64) {
        self.publish();
        set_end(&self.appender, end);
    }

    fn publish(&mut self) {
        self.checksums.cover(&self.appender, self.part.base);
        self.appender.publish();
    }
}

/// A part and the permission to write to it, which the writer takes while the part is active.
struct Entry {
    appender: Option<RingAppender>,
    part: Arc<Part>,
    region: Region,
}

impl Entry {
    /// Returns whether records of `size` bytes fit into the part, which is free, after the start of their block.
    fn takes(&self, size: usize) -> bool {
        let room = self.appender.as_ref().map_or(0, RingAppender::room);
        fits(size, room.saturating_sub(DIRECT_BYTES))
    }
}

struct State {
    /// Oldest first.
    readable: VecDeque<Entry>,
    free: Vec<Entry>,
    /// Number of files created, and the capacity of the largest.
    made: u64,
    largest: usize,
}

impl State {
    /// Returns the smallest free part that takes records of `size` bytes.
    fn free_for(&self, size: usize) -> Option<usize> {
        let taking = self.free.iter().enumerate().rev().filter(|(_, entry)| entry.takes(size));
        let room = |entry: &Entry| entry.appender.as_ref().map_or(0, RingAppender::room);
        taking.min_by_key(|(_, entry)| room(entry)).map(|(index, _)| index)
    }
}

pub(crate) struct WriteRing {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    boot: u128,
    /// The largest group of records that fits into every part.
    group_bytes: u64,
    memory: Memory,
    state: Mutex<State>,
    free: AtomicUsize,
    /// Everything from here on is readable in a part.
    begin: AtomicU64,
    /// Everything before is durable, and readable, in the log's files.
    in_files: AtomicU64,
    written: Mutex<Blocks>,
    /// The end of what was last written directly: it is not in the page cache until it is read.
    direct_end: AtomicU64,
    /// Whether a part has filled up since the last `take_due`.
    is_due: AtomicBool,
}

impl WriteRing {
    /// Creates the files of a write ring with a total of `bytes` in `dir`, for log files of `segment_bytes`. `is_awaited` says
    /// whether senders wait for the flush.
    pub(crate) fn make(
        disk: &Arc<dyn Disk>,
        dir: PathBuf,
        bytes: u64,
        segment_bytes: u64,
        is_awaited: bool,
    ) -> Result<Self, StoreError> {
        let boot = disk.boot().map_err(StoreError::io(&dir, "read the boot id for"))?;
        if !segment_bytes.is_multiple_of(BLOCK_BYTES) {
            let expected =
                format!("expected log files of a multiple of {BLOCK_BYTES} bytes, not {segment_bytes}");
            return Err(StoreError::Layout { path: dir, expected });
        }
        disk.make_dir(&dir)?;
        // In addition to a group, a part holds the start of its first block and the head of a blank.
        let group_bytes = (bytes / PARTS).min(segment_bytes);
        let size = group_bytes as usize + 2 * DIRECT_BYTES;
        let memory = Memory::new(size);
        let make = |index: u64| make_part(&**disk, &dir.join(index.to_string()), size, memory.share());
        let free = (0..PARTS).map(make);
        let mut free = free.collect::<Result<Vec<_>, _>>()?;
        free.reserve_exact(LARGE_PARTS_MAX);
        Ok(Self {
            disk: Arc::clone(disk),
            dir,
            boot,
            group_bytes,
            memory,
            free: AtomicUsize::new(free.len()),
            state: Mutex::new(State {
                readable: VecDeque::with_capacity(LARGE_PARTS_MAX + free.len()),
                free,
                made: PARTS,
                largest: group_bytes as usize,
            }),
            begin: AtomicU64::new(u64::MAX),
            in_files: AtomicU64::new(0),
            written: Mutex::new(Blocks::new(is_awaited)),
            direct_end: AtomicU64::new(0),
            is_due: AtomicBool::new(false),
        })
    }

    pub(crate) fn group_bytes(&self) -> u64 {
        self.group_bytes
    }

    /// Removes the files once all their bytes are durable in the log. Their mappings remain readable.
    pub(crate) fn remove(&self) -> Result<(), StoreError> {
        remove_parts(&*self.disk, &self.dir)
    }

    /// Returns the position from which everything is in memory.
    pub(crate) fn begin(&self) -> u64 {
        self.begin.load(Ordering::Acquire)
    }

    /// Returns the position before which everything is durable, and readable, in the log's files.
    pub(crate) fn in_files(&self) -> u64 {
        self.in_files.load(Ordering::Acquire)
    }

    /// Returns the position from which everything is in a part, or was written into the page cache.
    pub(crate) fn in_memory_from(&self) -> u64 {
        self.begin().min(self.direct_end.load(Ordering::Relaxed))
    }

    /// Returns whether a part has filled up since the last call, so that the flush need not wait for its time.
    pub(crate) fn take_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed) && self.is_due.swap(false, Ordering::Relaxed)
    }

    /// Returns the part that holds position `at`.
    pub(crate) fn find(&self, at: u64) -> Option<Arc<Part>> {
        if at < self.begin() {
            return None;
        }
        let state = self.state.lock();
        let found = state.readable.iter().rev().find(|entry| entry.part.base <= at)?;
        (at < found.part.end()).then(|| Arc::clone(&found.part))
    }

    pub(super) fn has_free(&self) -> bool {
        self.free.load(Ordering::Acquire) > 0
    }

    /// Returns whether a free part has room for records of `size` bytes, which may exceed the common size of parts.
    pub(super) fn has_free_for(&self, size: usize) -> bool {
        match size as u64 <= self.group_bytes {
            true => self.has_free(),
            false => self.state.lock().free_for(size).is_some(),
        }
    }

    /// Requests a free part for `size` contiguous bytes, more than the common size of parts, and creates one if none
    /// is large enough. Returns whether it is free; otherwise it waits for the flush or a reader. For a replica
    /// whose master has a larger write ring; one caller at a time.
    pub(crate) fn provide(&self, size: usize) -> Result<bool, StoreError> {
        let (made, largest) = {
            let mut state = self.state.lock();
            while state.free_for(size).is_none() && self.recycle_oldest(&mut state) {}
            self.free.store(state.free.len(), Ordering::Release);
            if state.free_for(size).is_some() || size <= state.largest {
                return Ok(state.free_for(size).is_some());
            }
            (state.made, size.next_power_of_two())
        };
        // Readers continue during this.
        let path = self.dir.join(made.to_string());
        let part = make_part(&*self.disk, &path, largest + 2 * DIRECT_BYTES, 0)?;
        let mut state = self.state.lock();
        state.free.push(part);
        (state.made, state.largest) = (made + 1, largest);
        self.free.store(state.free.len(), Ordering::Release);
        Ok(true)
    }

    /// Takes a free part for the log from `first` on, in the file that begins at `file_base`, with room for `size` bytes.
    /// `carry` holds the preceding bytes of its block.
    pub(super) fn activate(&self, file_base: u64, first: u64, carry: &[u8], size: usize) -> Option<Active> {
        let mut state = self.state.lock();
        let index = state.free_for(size)?;
        let Entry { appender, mut part, region } = state.free.swap_remove(index);
        self.free.store(state.free.len(), Ordering::Release);
        let mut appender = appender?;
        let base = first - carry.len() as u64;
        let fresh = Arc::get_mut(&mut part)?;
        (fresh.file_base, fresh.base, fresh.first) = (file_base, base, first);
        *fresh.ends_file.get_mut() = false;
        let size = part.reader.marks_bytes() as u64;
        Marks { boot: self.boot, size, base, first, end: 0 }.begin(&appender);
        appender.append(carry.len())?.copy_from_slice(carry);
        let mut active = Active { appender, part: Arc::clone(&part), checksums: BlockChecksums::default() };
        active.publish();
        if state.readable.is_empty() {
            self.begin.store(first, Ordering::Release);
        }
        state.readable.push_back(Entry { appender: None, part, region });
        Some(active)
    }

    /// Returns the appender of the newest part.
    pub(super) fn retire(&self, appender: RingAppender, ends_file: bool) {
        let mut state = self.state.lock();
        if let Some(newest) = state.readable.back_mut() {
            newest.part.ends_file.store(ends_file, Ordering::Release);
            newest.appender = Some(appender);
        }
        self.is_due.store(true, Ordering::Relaxed);
    }

    /// Recycles the oldest part if none is free. Returns whether one is free now.
    pub(crate) fn recycle(&self) -> bool {
        let mut state = self.state.lock();
        if state.free.is_empty() {
            self.recycle_oldest(&mut state);
        }
        self.free.store(state.free.len(), Ordering::Release);
        !state.free.is_empty()
    }

    /// Recycles the oldest part if it is unused. Returns whether it did.
    fn recycle_oldest(&self, state: &mut State) -> bool {
        let Some(Entry { appender: Some(appender), part, .. }) = state.readable.front_mut() else {
            return false;
        };
        let part = if part.end() <= self.in_files() { Arc::get_mut(part) } else { None };
        let Some(part) = part else { return false };
        set_end(appender, 0);
        // Readers cannot take hold of it meanwhile: parts are found only under the lock.
        if !appender.restart(&mut part.reader) {
            return false;
        }
        state.free.extend(state.readable.pop_front());
        let begin = state.readable.front().map_or(u64::MAX, |entry| entry.part.first);
        self.begin.store(begin, Ordering::Release);
        true
    }

    /// Clears the marks of parts before `end` that are in the log's files, so that a drain does not miss the deleted
    /// files.
    pub(crate) fn forget_before(&self, end: u64) {
        let in_files = self.in_files();
        let state = self.state.lock();
        for Entry { appender, part, .. } in &state.readable {
            if let Some(appender) = appender.as_ref().filter(|_| part.end() <= end.min(in_files)) {
                set_end(appender, 0);
            }
        }
    }

    /// Returns whether the writer should continue in another part, although this one has room.
    pub(super) fn is_used_up(&self, active: &Active) -> bool {
        active.part.used() >= self.memory.share() && self.has_free()
    }

    /// Fits the resident memory to the rate of appends, at the end of each round of maintenance. `is_due` releases what
    /// the rounds since the last release did not need.
    pub(crate) fn fit_memory(&self, end: u64, is_due: bool) {
        // Without more memory appends are slower, and memory that cannot be released is only used.
        if let Some(range) = self.memory.grown(end) {
            self.each_region(|region, marks| region.populate(marks + range.start..marks + range.end));
            self.memory.set(range.end);
        }
        if let Some(range) = is_due.then(|| self.memory.shrunk()).flatten() {
            self.memory.set(range.start);
            self.each_region(|region, marks| region.release(marks + range.start..region.len()));
        }
    }

    /// Calls `work` for the mapping of each part and the bytes of its marks, without a lock.
    fn each_region(&self, work: impl Fn(&Region, usize) -> std::io::Result<()>) {
        let regions: Vec<_> = {
            let state = self.state.lock();
            let all = state.readable.iter().chain(&state.free);
            all.map(|entry| (entry.region.clone(), entry.part.reader.marks_bytes())).collect()
        };
        regions.iter().for_each(|(region, marks)| drop(work(region, *marks)));
    }

    /// Starts with a log that is durable, and readable in its files, before `end`.
    pub(super) fn start(&self, end: u64) {
        self.written.lock().start(end);
        self.in_files.store(end, Ordering::Release);
    }

    /// Writes the parts to the files of the log, which `find` looks up by their start, and reveals the bytes there. `note`
    /// receives the position of each whole block and its CRC-32.
    pub(crate) fn write(
        &self,
        find: impl Fn(u64) -> Option<Arc<Segment>>,
        mut note: impl FnMut(u64, u32),
    ) -> Result<(), StoreError> {
        let mut written = self.written.lock();
        let parts: Vec<_> = self.state.lock().readable.iter().map(|entry| Arc::clone(&entry.part)).collect();
        let behind = parts.last().map_or(0, |newest| newest.end().saturating_sub(written.end));
        let way = if written.is_awaited || behind > CACHED_BYTES_MAX { Way::Direct } else { Way::Cached };
        for part in parts {
            // Read before the end: if it is set, that end is final.
            let ends_file = part.ends_file.load(Ordering::Acquire);
            let end = part.end();
            if end > written.end {
                let Some(segment) = find(part.file_base) else {
                    let expected = format!("expected a file for position {}", part.file_base);
                    return Err(StoreError::Layout { path: self.dir.clone(), expected });
                };
                if way == Way::Direct {
                    self.direct_end.store(end, Ordering::Relaxed);
                }
                written.write(&*self.disk, (&part, end, ends_file), (&segment, way), &mut note)?;
            } else if ends_file && end == written.end {
                // The part was written before it was marked as the last.
                written.settled = end;
                if let Some(segment) = find(part.file_base) {
                    segment.reveal(end);
                }
            }
        }
        Ok(())
    }

    /// Marks the written bytes as durable, so that a part may be recycled.
    pub(crate) fn synced(&self) {
        self.in_files.fetch_max(self.written.lock().settled, Ordering::AcqRel);
        self.recycle();
    }
}

/// Creates a part for `bytes` bytes of the log, the first `resident` of which are prefaulted.
fn make_part(disk: &dyn Disk, path: &Path, bytes: usize, resident: usize) -> Result<Entry, StoreError> {
    let marks = Marks::size_for(bytes);
    let size = marks + bytes;
    let make = || {
        let file = disk.open(path, Open::Create)?;
        // A write through the mapping must not be the first to run out of space.
        file.allocate(size as u64)?;
        let region = file.map(size, true)?;
        // Without prefaulting only the first appends are slower.
        let _ = region.populate(0..marks + resident);
        Ok(region.claim_ring(marks).map(|claimed| (claimed, region)))
    };
    let Some(((appender, reader), region)) = make().map_err(StoreError::io(path, "make"))? else {
        let expected = "expected a mapping that has not been claimed".to_owned();
        return Err(StoreError::Layout { path: path.to_owned(), expected });
    };
    let part = Part { reader, file_base: 0, base: 0, first: 0, ends_file: AtomicBool::new(false) };
    Ok(Entry { appender: Some(appender), part: Arc::new(part), region })
}

/// Removes the files of a write ring, if any, durably.
pub(crate) fn remove_parts(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    let entries = disk.entries(dir)?;
    for entry in &entries {
        disk.remove_file(&dir.join(&entry.name))?;
    }
    if entries.is_empty() { Ok(()) } else { disk.sync_entries(dir) }
}

/// Returns whether records of `size` bytes, and the head of a blank after them, fit into `room`.
pub(super) fn fits(size: usize, room: usize) -> bool {
    size + BLANK_BYTES_MIN <= room
}
