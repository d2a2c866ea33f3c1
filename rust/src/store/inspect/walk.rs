//! Log walk: the records of a stopped store's log, read from disk.
//!
//! Reads file by file through one buffer, not through a mapping: a failing disk returns an error here, where a
//! mapping would kill the process. Bytes that are not a whole record form a corrupt range, and the walk continues at
//! the next whole record, wherever it begins.
//!
//! *Invariant*: nothing is written; every byte of every file is in a record, a blank or a corrupt range.
//! Threads: the caller's; `WalkProgress` may be read from any.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memchr::memchr2_iter;

use crate::message::record::{BLANK_MAGIC, MAGIC_V1, MAGIC_V2, RecordView, Scanned, scan};
use crate::store::disk::{Disk, DiskFile, Open, position_of};
use crate::store::error::StoreError;
use crate::store::log::is_whole;

/// Bytes per read.
const READ_BYTES: u64 = 4 << 20;
/// Bytes per read near an unreadable place.
const PAGE_BYTES: u64 = 4096;
/// The maximum size of a record; no broker accepts a larger frame.
const RECORD_BYTES_MAX: u64 = 32 << 20;
/// Size and magic of a record or a blank.
const HEAD_BYTES: usize = 8;

/// Progress of a walk, for other threads.
#[derive(Default, Debug)]
pub(crate) struct WalkProgress {
    done: AtomicU64,
    total: AtomicU64,
}

impl WalkProgress {
    /// Returns the bytes of the log read so far, and bytes to read in all.
    pub(crate) fn now(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LogFile {
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) path: PathBuf,
}

impl LogFile {
    pub(super) fn limit(&self) -> u64 {
        self.base + self.size
    }
}

/// Lists the files of the log in `dir`, oldest first, whatever their sizes.
pub(super) fn log_files(disk: &dyn Disk, dir: &Path) -> Result<Vec<LogFile>, StoreError> {
    let entries = disk.entries(dir)?;
    let files = entries.into_iter().filter(|entry| !entry.is_dir).filter_map(|entry| {
        let base = position_of(&entry.name)?;
        Some(LogFile { base, size: entry.size, path: dir.join(&entry.name) })
    });
    Ok(files.collect())
}

/// A range of the log without a whole record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CorruptRange {
    pub(crate) path: PathBuf,
    pub(crate) at: u64,
    pub(crate) end: u64,
    /// The error of its first bytes.
    pub(crate) reason: String,
    /// Whether all its bytes are zero.
    pub(crate) is_zero: bool,
}

pub(crate) enum Found<'a> {
    /// A whole record, at the position it names.
    Record(&'a RecordView<'a>),
    /// A corrupt range that is followed by records.
    Corrupt(CorruptRange),
}

/// The beginning and the end of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    pub begin: u64,
    /// Position after the last whole record, where the next one would go.
    pub end: u64,
    /// Bytes after the end that are not zero.
    pub tail: Option<CorruptRange>,
}

/// Calls `visit` with each item of `files` from `from` on, in log order, until it returns false. If no record begins
/// at `from`, the walk begins with its file.
pub(super) fn walk(
    disk: &dyn Disk,
    files: &[LogFile],
    from: u64,
    progress: &WalkProgress,
    mut visit: impl FnMut(Found<'_>) -> Result<bool, StoreError>,
) -> Result<Extent, StoreError> {
    progress.done.store(0, Ordering::Relaxed);
    progress.total.store(files.iter().map(|file| file.size).sum(), Ordering::Relaxed);
    let begin = files.first().map_or(0, |file| file.base);
    let mut extent = Extent { begin, end: begin, tail: None };
    // Corrupt ranges at the end so far: damage if a record follows, else the end of the log.
    let mut pending: Vec<CorruptRange> = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let mut buffer = ScanBuffer::open(disk, file)?;
        let is_record = (file.base + 1..file.limit()).contains(&from)
            && matches!(probe(&mut buffer, from), Probe::Record(_));
        let mut at = if is_record { from } else { file.base };
        while at < file.limit() {
            at = match probe(&mut buffer, at) {
                Probe::Record(record) => {
                    for range in pending.drain(..) {
                        visit(Found::Corrupt(range))?;
                    }
                    extent.end = at + record.total_size() as u64;
                    if !visit(Found::Record(&record))? {
                        return Ok(extent);
                    }
                    extent.end
                }
                Probe::Blank => {
                    let is_last = index + 1 == files.len();
                    extent.end = if is_last { at } else { file.limit() };
                    file.limit()
                }
                Probe::Neither(reason) => {
                    let (next, is_zero) = buffer.next_whole(at);
                    pending.push(CorruptRange { path: file.path.clone(), at, end: next, reason, is_zero });
                    next
                }
            };
            progress.done.fetch_max(at - begin, Ordering::Relaxed);
        }
    }
    extent.tail = pending.into_iter().find(|range| !range.is_zero);
    Ok(extent)
}

enum Probe<'a> {
    Record(RecordView<'a>),
    Blank,
    Neither(String),
}

/// Identifies the bytes at `at`.
fn probe<'a>(buffer: &'a mut ScanBuffer, at: u64) -> Probe<'a> {
    let rest = buffer.limit - at;
    let front = match buffer.front(at) {
        Ok(front) => front,
        Err(error) => return Probe::Neither(format!("cannot be read: {error}")),
    };
    match scan(front) {
        Scanned::Record(record) if is_whole(&record, at) => Probe::Record(record),
        Scanned::Record(record) => Probe::Neither(blemish(&record, at)),
        Scanned::Blank { size } if u64::from(size) == rest => Probe::Blank,
        Scanned::Blank { size } => {
            Probe::Neither(format!("a blank of {size} bytes, but the file ends in {rest}"))
        }
        Scanned::End => Probe::Neither("zeros".to_owned()),
        Scanned::Broken(error) => Probe::Neither(error.to_string()),
    }
}

/// Explains why a record with matching lengths is not whole.
fn blemish(record: &RecordView<'_>, at: u64) -> String {
    let name = format!(
        "{}/{} at offset {}",
        String::from_utf8_lossy(record.topic()),
        record.queue_id(),
        record.queue_offset()
    );
    if record.physical_offset().0 != at {
        return format!("a record, {name}, of position {}", record.physical_offset());
    }
    if !record.body_crc_matches() {
        return format!("the body of {name} does not match its CRC");
    }
    match record.check_text() {
        Err(error) => format!("{name}: {error}"),
        Ok(()) => name,
    }
}

/// A file, read through a buffer.
struct ScanBuffer {
    file: Arc<dyn DiskFile>,
    base: u64,
    limit: u64,
    /// Position of the first byte of `bytes`.
    start: u64,
    bytes: Vec<u8>,
}

impl ScanBuffer {
    fn open(disk: &dyn Disk, file: &LogFile) -> Result<Self, StoreError> {
        let opened = disk.open(&file.path, Open::Read).map_err(StoreError::io(&file.path, "open"))?;
        Ok(Self { file: opened, base: file.base, limit: file.limit(), start: file.base, bytes: Vec::new() })
    }

    /// Returns the bytes from `at` on, at least as many as the size in the record there.
    fn front(&mut self, at: u64) -> io::Result<&[u8]> {
        let head = self.hold(at, HEAD_BYTES as u64)?;
        let size = head.first_chunk().map_or(0, |size| u32::from_be_bytes(*size));
        self.hold(at, u64::from(size).min(RECORD_BYTES_MAX))
    }

    /// Returns the bytes from `at` on, at least `size` unless the file ends before or a later page cannot be read.
    fn hold(&mut self, at: u64, size: u64) -> io::Result<&[u8]> {
        let wanted = at.saturating_add(size).min(self.limit);
        if at < self.start || wanted > self.start + self.bytes.len() as u64 {
            self.read(at, size.max(READ_BYTES)).or_else(|_| {
                // Part of it is unreadable: the rest of the page is enough to identify the bytes.
                self.read(at, PAGE_BYTES - at % PAGE_BYTES)
            })?;
        }
        Ok(self.bytes.get((at - self.start) as usize..).unwrap_or_default())
    }

    fn read(&mut self, at: u64, size: u64) -> io::Result<()> {
        self.start = at;
        self.bytes.resize(size.min(self.limit.saturating_sub(at)) as usize, 0);
        let read = self.file.read_at(&mut self.bytes, at - self.base).inspect_err(|_| self.bytes.clear())?;
        self.bytes.truncate(read);
        Ok(())
    }

    /// Finds the next whole record or blank after `at`, or the end of the file. Also returns whether all bytes
    /// before it are zero.
    fn next_whole(&mut self, at: u64) -> (u64, bool) {
        let limit = self.limit;
        let mut is_zero = self.hold(at, 1).is_ok_and(|bytes| bytes.first() == Some(&0));
        let mut search = at + 1;
        while search < limit {
            let Ok(bytes) = self.hold(search, HEAD_BYTES as u64) else {
                is_zero = false;
                search = (search / PAGE_BYTES + 1) * PAGE_BYTES;
                continue;
            };
            if bytes.is_empty() {
                // The file was truncated during the walk.
                break;
            }
            let Some(hit) = magic_in(bytes) else {
                is_zero &= bytes.iter().all(|byte| *byte == 0);
                // The last bytes may be the start of a head, unless the file ends with them.
                let is_last = search + bytes.len() as u64 >= limit;
                let passed = if is_last { bytes.len() } else { bytes.len() - (HEAD_BYTES - 1) };
                search += passed as u64;
                continue;
            };
            is_zero &= bytes.iter().take(hit).all(|byte| *byte == 0);
            let candidate = search + hit as u64;
            if !matches!(probe(self, candidate), Probe::Neither(_)) {
                return (candidate, is_zero);
            }
            is_zero = false;
            search = candidate + 1;
        }
        (limit, is_zero)
    }
}

/// Finds the first head with the magic of a record or a blank.
fn magic_in(bytes: &[u8]) -> Option<usize> {
    let is_magic = |at: usize| {
        let magic =
            bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|magic| u32::from_be_bytes(*magic));
        matches!(magic, Some(MAGIC_V1 | MAGIC_V2 | BLANK_MAGIC))
    };
    let behind_size = bytes.get(4..)?;
    memchr2_iter(0xDA, 0xCB, behind_size).find(|hit| is_magic(hit + 4))
}
