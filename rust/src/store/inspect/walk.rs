//! Log walk: the log of a stopped store, as it lies on the disk.
//!
//! Reads file by file through one buffer and not through a mapping: a disk that cannot give its bytes back answers
//! with an error here, where a mapping would end the process. What is no whole record is a corrupt range, and the walk
//! goes on behind it with the next bytes that are one, wherever they begin.
//!
//! Invariants: nothing is written; every byte of every file is in a record, a blank or a corrupt range.
//! Threads: the inspecting one; `WalkProgress` may be read from any.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memchr::memchr2_iter;

use crate::message::record::{BLANK_MAGIC, MAGIC_V1, MAGIC_V2, RecordView, Scanned, scan};
use crate::store::disk::{Disk, DiskFile, Open, position_of};
use crate::store::error::StoreError;
use crate::store::log::is_whole;

/// Bytes read in one go.
const READ_BYTES: u64 = 4 << 20;
/// What is read around a place that cannot be.
const PAGE_BYTES: u64 = 4096;
/// A record that says it is larger is none: no broker takes a frame of that size.
const RECORD_BYTES_MAX: u64 = 32 << 20;
/// Size and magic of a record or a blank.
const HEAD_BYTES: usize = 8;

/// How far a walk is, for another thread to read.
#[derive(Default, Debug)]
pub(crate) struct WalkProgress {
    done: AtomicU64,
    total: AtomicU64,
}

impl WalkProgress {
    /// Bytes of the log that were read, and bytes to read in all.
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

/// The files of the log in `dir`, oldest first, whatever their sizes.
pub(super) fn log_files(disk: &dyn Disk, dir: &Path) -> Result<Vec<LogFile>, StoreError> {
    let entries = disk.entries(dir)?;
    let files = entries.into_iter().filter(|entry| !entry.is_dir).filter_map(|entry| {
        let base = position_of(&entry.name)?;
        Some(LogFile { base, size: entry.size, path: dir.join(&entry.name) })
    });
    Ok(files.collect())
}

/// A stretch of the log that holds no whole record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CorruptRange {
    pub(crate) path: PathBuf,
    pub(crate) at: u64,
    pub(crate) end: u64,
    /// What is wrong with its first bytes.
    pub(crate) reason: String,
    /// Whether it is nothing but zeros.
    pub(crate) is_zero: bool,
}

pub(crate) enum Found<'a> {
    /// A whole record, at the position it names.
    Record(&'a RecordView<'a>),
    /// A corrupt range, with records behind it.
    Corrupt(CorruptRange),
}

/// Where a log begins and ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    pub begin: u64,
    /// Position after the last whole record, where the next one would go.
    pub end: u64,
    /// What follows the end and should not: something other than zeros.
    pub tail: Option<CorruptRange>,
}

/// Calls `visit` with what `files` hold from `from` on, in the order of the log, while it says to go on. Where no record
/// begins at `from` the walk begins with its file.
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
    // Corrupt ranges with nothing behind them yet: the end of the log, or damage, as what follows decides.
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

/// What stands at `at`.
fn probe<'a>(buffer: &'a mut ScanBuffer, at: u64) -> Probe<'a> {
    let rest = buffer.limit - at;
    let front = match buffer.front(at) {
        Ok(front) => front,
        Err(error) => return Probe::Neither(format!("it cannot be read: {error}")),
    };
    match scan(front) {
        Scanned::Record(record) if is_whole(&record, at) => Probe::Record(record),
        Scanned::Record(record) => Probe::Neither(blemish(&record, at)),
        Scanned::Blank { size } if u64::from(size) == rest => Probe::Blank,
        Scanned::Blank { size } => {
            Probe::Neither(format!("a blank of {size} bytes, {rest} from the file's end"))
        }
        Scanned::End => Probe::Neither("zeros".to_owned()),
        Scanned::Broken(error) => Probe::Neither(error.to_string()),
    }
}

/// Why a record whose lengths agree is not whole.
fn blemish(record: &RecordView<'_>, at: u64) -> String {
    let name = format!(
        "{}/{} at offset {}",
        String::from_utf8_lossy(record.topic()),
        record.queue_id(),
        record.queue_offset()
    );
    if record.physical_offset().0 != at {
        return format!("a record, {name}, that says it is at {}", record.physical_offset());
    }
    if !record.body_crc_matches() {
        return format!("the body of {name} does not match its CRC");
    }
    match record.check_text() {
        Err(error) => format!("{name}: {error}"),
        Ok(()) => name,
    }
}

/// One file, seen through a buffer.
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

    /// The bytes from `at` on, at least as many as the record there says it has.
    fn front(&mut self, at: u64) -> io::Result<&[u8]> {
        let head = self.hold(at, HEAD_BYTES as u64)?;
        let size = head.first_chunk().map_or(0, |size| u32::from_be_bytes(*size));
        self.hold(at, u64::from(size).min(RECORD_BYTES_MAX))
    }

    /// The bytes from `at` on, at least `size` unless the file ends before, or a page before them cannot be read.
    fn hold(&mut self, at: u64, size: u64) -> io::Result<&[u8]> {
        let wanted = at.saturating_add(size).min(self.limit);
        if at < self.start || wanted > self.start + self.bytes.len() as u64 {
            self.read(at, size.max(READ_BYTES)).or_else(|_| {
                // Some of it is bad: up to the next page is little enough to tell what.
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

    /// Where behind `at` the next whole record or blank begins, or the file ends; and whether all before it is zero.
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
                // The file has become shorter meanwhile.
                break;
            }
            let Some(hit) = magic_in(bytes) else {
                is_zero &= bytes.iter().all(|byte| *byte == 0);
                // The last bytes may be the begin of a head, unless the file ends with them.
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

/// Where the first head with the magic of a record or a blank begins.
fn magic_in(bytes: &[u8]) -> Option<usize> {
    let is_magic = |at: usize| {
        let magic =
            bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|magic| u32::from_be_bytes(*magic));
        matches!(magic, Some(MAGIC_V1 | MAGIC_V2 | BLANK_MAGIC))
    };
    let behind_size = bytes.get(4..)?;
    memchr2_iter(0xDA, 0xCB, behind_size).find(|hit| is_magic(hit + 4))
}
