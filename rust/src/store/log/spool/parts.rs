//! Parts of a spool: what they hold, who reads them, and how they reach the log's files.
//!
//! Owns the files of the spool and their mappings. A part is free, active (the writer has its appender), or full; what is
//! active or full can be read. When the last free one is taken the oldest full one is to begin anew, once it is in the log's
//! file and nobody reads from it.
//!
//! Invariants: bytes that can be read never change while a [`Part`] is held; what is in no part any more is readable in the
//! log's file; the blocks of a file are written in order, and what of a file can be read is not written again.
//! Threads: reading from any; `activate` and `retire` by the holder of the put lock; `write` by one at a time, the holder of the
//! flush. The lock of the list is the innermost.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::store::disk::{DIRECT_BYTES, Disk, DiskFile, MARKS_BYTES, Open, SpoolAppender, SpoolReader};
use crate::store::error::StoreError;
use crate::store::log::segment::Segment;
use crate::store::log::write_path::BLANK_BYTES_MIN;

use super::marks::{Marks, set_end};

/// Files of a spool: one is appended to, one is free, and two can still be read.
const PARTS: u64 = 4;
/// Larger ones that are made for records which those do not take, at most: each is twice as large as the one before.
const LARGE_PARTS_MAX: usize = 16;
/// Bytes written in one piece.
const WRITE_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = DIRECT_BYTES as u64;

/// A stretch of the log that can be read.
pub(crate) struct Part {
    reader: SpoolReader,
    /// Where its file of the log begins.
    file_base: u64,
    /// Position of its first byte, and of its first record.
    base: u64,
    first: u64,
    /// Whether nothing will follow it in its file of the log. Set after its last byte.
    ends_file: AtomicBool,
}

impl Part {
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Position after its last readable byte.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.reader.published() as u64
    }

    /// Readable bytes from `at` to its end.
    pub(crate) fn bytes_from(&self, at: u64) -> &[u8] {
        self.bytes(at, self.end())
    }

    fn bytes(&self, from: u64, until: u64) -> &[u8] {
        let inside = |at: u64| at.saturating_sub(self.base) as usize;
        self.reader.bytes(inside(from)..inside(until)).unwrap_or_default()
    }

    /// What it holds of the block that its end lies in: what the next part begins with.
    pub(super) fn last_block(&self) -> &[u8] {
        self.bytes(block_begin(self.file_base, self.end()), self.end())
    }
}

/// The right to write to a part; with the writer while it is active.
struct Entry {
    appender: Option<SpoolAppender>,
    part: Arc<Part>,
}

impl Entry {
    /// Whether records of `size` bytes fit into the part, which is free, behind the begin of their block.
    fn takes(&self, size: usize) -> bool {
        let room = self.appender.as_ref().map_or(0, SpoolAppender::room);
        fits(size, room.saturating_sub(DIRECT_BYTES))
    }
}

struct State {
    /// Oldest first.
    readable: VecDeque<Entry>,
    free: Vec<Entry>,
    /// Files that were made, and what the largest takes.
    made: u64,
    largest: usize,
}

impl State {
    /// The smallest free part that takes records of `size` bytes.
    fn free_for(&self, size: usize) -> Option<usize> {
        let taking = self.free.iter().enumerate().rev().filter(|(_, entry)| entry.takes(size));
        let room = |entry: &Entry| entry.appender.as_ref().map_or(0, SpoolAppender::room);
        taking.min_by_key(|(_, entry)| room(entry)).map(|(index, _)| index)
    }
}

/// How far the flush is.
struct Written {
    end: u64,
    /// What is not written again.
    settled: u64,
    /// The file of the log that was written last.
    file: Option<(u64, Arc<dyn DiskFile>)>,
}

pub(crate) struct Spool {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    boot: u128,
    /// Largest group of records that a part takes in any case.
    group_bytes: u64,
    state: Mutex<State>,
    free: AtomicUsize,
    /// Everything from here on can be read from a part.
    begin: AtomicU64,
    /// Everything before is durable, and can be read, in the log's files.
    in_files: AtomicU64,
    written: Mutex<Written>,
    /// Whether a part has filled up since somebody asked.
    is_due: AtomicBool,
}

impl Spool {
    /// Makes the files of a spool of some `bytes` in `dir`, for log files of `segment_bytes`.
    pub(crate) fn make(
        disk: &Arc<dyn Disk>,
        dir: PathBuf,
        bytes: u64,
        segment_bytes: u64,
    ) -> Result<Self, StoreError> {
        let boot = disk.boot().map_err(StoreError::io(&dir, "learn when the machine was started, for"))?;
        if !segment_bytes.is_multiple_of(BLOCK_BYTES) {
            let expected =
                format!("expected log files of a multiple of {BLOCK_BYTES} bytes, not {segment_bytes}");
            return Err(StoreError::Layout { path: dir, expected });
        }
        disk.make_dir(&dir)?;
        // Beside a group a part holds the begin of its first block, and the head of a blank.
        let group_bytes = (bytes / PARTS).min(segment_bytes);
        let size = MARKS_BYTES as u64 + group_bytes + 2 * BLOCK_BYTES;
        let free = (0..PARTS).map(|index| make_part(&**disk, &dir.join(index.to_string()), size));
        let mut free = free.collect::<Result<Vec<_>, _>>()?;
        free.reserve_exact(LARGE_PARTS_MAX);
        Ok(Self {
            disk: Arc::clone(disk),
            dir,
            boot,
            group_bytes,
            free: AtomicUsize::new(free.len()),
            state: Mutex::new(State {
                readable: VecDeque::with_capacity(LARGE_PARTS_MAX + free.len()),
                free,
                made: PARTS,
                largest: group_bytes as usize,
            }),
            begin: AtomicU64::new(u64::MAX),
            in_files: AtomicU64::new(0),
            written: Mutex::new(Written { end: 0, settled: 0, file: None }),
            is_due: AtomicBool::new(false),
        })
    }

    pub(crate) fn group_bytes(&self) -> u64 {
        self.group_bytes
    }

    /// Removes the files, once everything in them is durable in the log. What is mapped can be read further on.
    pub(crate) fn remove(&self) -> Result<(), StoreError> {
        remove_parts(&*self.disk, &self.dir)
    }

    /// Everything from here on is in memory.
    pub(crate) fn begin(&self) -> u64 {
        self.begin.load(Ordering::Acquire)
    }

    /// Everything before this position is durable, and can be read, in the log's files.
    pub(crate) fn in_files(&self) -> u64 {
        self.in_files.load(Ordering::Acquire)
    }

    /// Whether a part has filled up since the last call: the flush need not wait for its time.
    pub(crate) fn take_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed) && self.is_due.swap(false, Ordering::Relaxed)
    }

    /// The part that holds position `at`.
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

    /// Whether a free part takes records of `size` bytes, which may be more than every part does.
    pub(super) fn has_free_for(&self, size: usize) -> bool {
        match size as u64 <= self.group_bytes {
            true => self.has_free(),
            false => self.state.lock().free_for(size).is_some(),
        }
    }

    /// Sees to a free part that takes `size` bytes in one piece, which is more than every part does; makes one where there
    /// is none. Whether it is free: else it waits for the flush or a reader. For a replica, whose master's spool may be
    /// larger; one at a time.
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
        // Readers go on meanwhile.
        let bytes = MARKS_BYTES + largest + 2 * DIRECT_BYTES;
        let part = make_part(&*self.disk, &self.dir.join(made.to_string()), bytes as u64)?;
        let mut state = self.state.lock();
        state.free.push(part);
        (state.made, state.largest) = (made + 1, largest);
        self.free.store(state.free.len(), Ordering::Release);
        Ok(true)
    }

    /// Takes a free part for the log from `first` on, in the file that begins at `file_base`, with room for `size` bytes.
    /// `carry` are the bytes before it in its block.
    pub(super) fn activate(
        &self,
        file_base: u64,
        first: u64,
        carry: &[u8],
        size: usize,
    ) -> Option<(SpoolAppender, Arc<Part>)> {
        let mut state = self.state.lock();
        let index = state.free_for(size)?;
        let Entry { appender, mut part } = state.free.swap_remove(index);
        self.free.store(state.free.len(), Ordering::Release);
        let mut appender = appender?;
        let base = first - carry.len() as u64;
        let fresh = Arc::get_mut(&mut part)?;
        (fresh.file_base, fresh.base, fresh.first) = (file_base, base, first);
        *fresh.ends_file.get_mut() = false;
        Marks::begin(&appender, self.boot, base, first);
        appender.append(carry.len())?.copy_from_slice(carry);
        appender.publish();
        if state.readable.is_empty() {
            self.begin.store(first, Ordering::Release);
        }
        state.readable.push_back(Entry { appender: None, part: Arc::clone(&part) });
        Some((appender, part))
    }

    /// Takes back the right to write to the newest part.
    pub(super) fn retire(&self, appender: SpoolAppender, ends_file: bool) {
        let mut state = self.state.lock();
        if let Some(newest) = state.readable.back_mut() {
            newest.part.ends_file.store(ends_file, Ordering::Release);
            newest.appender = Some(appender);
        }
        self.is_due.store(true, Ordering::Relaxed);
    }

    /// Sees to a free part: the oldest one begins anew if it may. Whether there is one.
    pub(crate) fn recycle(&self) -> bool {
        let mut state = self.state.lock();
        if state.free.is_empty() {
            self.recycle_oldest(&mut state);
        }
        self.free.store(state.free.len(), Ordering::Release);
        !state.free.is_empty()
    }

    /// Lets the oldest part begin anew if it may; whether it did.
    fn recycle_oldest(&self, state: &mut State) -> bool {
        let Some(Entry { appender: Some(appender), part }) = state.readable.front_mut() else { return false };
        let part = if part.end() <= self.in_files() { Arc::get_mut(part) } else { None };
        let Some(part) = part else { return false };
        set_end(appender, 0);
        // Nobody can come to hold it meanwhile: it is found under the lock alone.
        if !appender.restart(&mut part.reader) {
            return false;
        }
        state.free.extend(state.readable.pop_front());
        let begin = state.readable.front().map_or(u64::MAX, |entry| entry.part.first);
        self.begin.store(begin, Ordering::Release);
        true
    }

    /// Clears the marks of the parts that lie before `end` and are in the log's files: what is deleted there is not to be
    /// missed by a drain.
    pub(crate) fn forget_before(&self, end: u64) {
        let in_files = self.in_files();
        let state = self.state.lock();
        for Entry { appender, part } in &state.readable {
            if let Some(appender) = appender.as_ref().filter(|_| part.end() <= end.min(in_files)) {
                set_end(appender, 0);
            }
        }
    }

    /// The log is readable in its files, and durable, before `end`.
    pub(super) fn start(&self, end: u64) {
        let mut written = self.written.lock();
        (written.end, written.settled) = (end, end);
        self.in_files.store(end, Ordering::Release);
    }

    /// Writes what the parts hold to the files of the log, which `find` finds by their begin, and reveals it there. `note` is
    /// told each whole block, with its position.
    pub(crate) fn write(
        &self,
        find: impl Fn(u64) -> Option<Arc<Segment>>,
        mut note: impl FnMut(u64, &[u8]),
    ) -> Result<(), StoreError> {
        let mut written = self.written.lock();
        let parts: Vec<_> = self.state.lock().readable.iter().map(|entry| Arc::clone(&entry.part)).collect();
        for part in parts {
            // Before its end: where it ends the file, that end is its last.
            let ends_file = part.ends_file.load(Ordering::Acquire);
            let end = part.end();
            if end > written.end {
                let Some(segment) = find(part.file_base) else {
                    let expected = format!("expected a file for position {}", part.file_base);
                    return Err(StoreError::Layout { path: self.dir.clone(), expected });
                };
                let file = self.open(&mut written, &segment)?;
                let whole = write_part(&*file, &part, written.end, end, &mut note)
                    .map_err(StoreError::io(segment.path(), "write"))?;
                written.end = end;
                // The last block is written once more, with what follows, and is not read from the file before.
                written.settled = if ends_file { end } else { whole };
                segment.reveal(written.settled);
            } else if ends_file && end == written.end {
                // It was written before it was said to be the last.
                written.settled = end;
                if let Some(segment) = find(part.file_base) {
                    segment.reveal(end);
                }
            }
        }
        Ok(())
    }

    /// What was written is durable: a part may begin anew.
    pub(crate) fn synced(&self) {
        self.in_files.fetch_max(self.written.lock().settled, Ordering::AcqRel);
        self.recycle();
    }

    fn open(&self, written: &mut Written, segment: &Segment) -> Result<Arc<dyn DiskFile>, StoreError> {
        match &written.file {
            Some((base, file)) if *base == segment.base() => Ok(Arc::clone(file)),
            _ => {
                let path = segment.path();
                let file = self.disk.open(path, Open::Direct).map_err(StoreError::io(path, "open"))?;
                written.file = Some((segment.base(), Arc::clone(&file)));
                Ok(file)
            }
        }
    }
}

fn make_part(disk: &dyn Disk, path: &Path, size: u64) -> Result<Entry, StoreError> {
    let make = || {
        let file = disk.open(path, Open::Create)?;
        // What a write through the mapping must not be the first to miss.
        file.allocate(size)?;
        let region = file.map(size as usize, true)?;
        // Where there are no large pages small ones do, and where none can be brought the first appends are a little slower.
        let _ = region.use_large_pages(true);
        let _ = region.populate(0..size as usize);
        Ok(region.claim_spool())
    };
    let Some((appender, reader)) = make().map_err(StoreError::io(path, "make"))? else {
        let expected = "expected a mapping that has not been claimed".to_owned();
        return Err(StoreError::Layout { path: path.to_owned(), expected });
    };
    let part = Part { reader, file_base: 0, base: 0, first: 0, ends_file: AtomicBool::new(false) };
    Ok(Entry { appender: Some(appender), part: Arc::new(part) })
}

/// Removes the files of a spool, durably, if there are any.
pub(crate) fn remove_parts(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    let entries = disk.entries(dir)?;
    for entry in &entries {
        disk.remove_file(&dir.join(&entry.name))?;
    }
    if entries.is_empty() { Ok(()) } else { disk.sync_entries(dir) }
}

/// Writes blocks of a part, from that which `from` lies in up to `end`; returns where the last whole one ends.
fn write_part(
    file: &dyn DiskFile,
    part: &Part,
    from: u64,
    end: u64,
    note: &mut impl FnMut(u64, &[u8]),
) -> std::io::Result<u64> {
    let whole = block_begin(part.file_base, end);
    let mut at = block_begin(part.file_base, from.max(part.base));
    while at < whole {
        let until = whole.min(at + WRITE_BYTES);
        let bytes = part.bytes(at, until);
        file.write_at(bytes, at - part.file_base)?;
        for (index, block) in bytes.chunks_exact(DIRECT_BYTES).enumerate() {
            note(at + index as u64 * BLOCK_BYTES, block);
        }
        at = until;
    }
    if whole < end {
        // The rest of the block is the appender's; in the file it is zeros until it is written once more.
        let mut block = vec![0; 2 * DIRECT_BYTES];
        let start = block.as_ptr().align_offset(DIRECT_BYTES).min(DIRECT_BYTES);
        let bytes = part.bytes(whole, end);
        if let Some(block) = block.get_mut(start..start + DIRECT_BYTES) {
            let (head, _) = block.split_at_mut(bytes.len());
            head.copy_from_slice(bytes);
            file.write_at(block, whole - part.file_base)?;
        }
    }
    Ok(whole)
}

/// Begin of the block that `at` lies in, in the file that begins at `file_base`.
pub(super) fn block_begin(file_base: u64, at: u64) -> u64 {
    at - (at - file_base) % BLOCK_BYTES
}

/// Whether records of `size` bytes fit into `room`, with the head of a blank behind them.
pub(super) fn fits(size: usize, room: usize) -> bool {
    size + BLANK_BYTES_MIN <= room
}
