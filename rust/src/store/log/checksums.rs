//! Checksums: detection of damaged blocks of the log before they are served. The CRC of a record covers only its
//! body.
//!
//! Owns `rmqpy/checksums/`: one file per log file, of the same name, with 8 bytes per 4 KiB block: the CRC-32 of the
//! block, and the CRC-32 of that and the block's position. Entries are written at each checkpoint at the latest. A
//! block of an earlier run is verified before its first read; a damaged block is reported once and never served. An
//! entry whose own CRC is wrong is ignored, so losing these files does no harm.
//!
//! *Invariant*: an entry is written when its whole block is durable, after which neither changes; the result for a
//! block stays the same until the store is closed.
//! Threads: `is_sound` from any; `write`, `remove` from maintenance, or recovery.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::store::disk::{Disk, DiskFile, Open, name_of, position_of};
use crate::store::error::StoreError;
use crate::store::reports::events::{Event, Events};

use super::segment::Segment;
use super::segments::Segments;

/// The size of a block: a page, the least that a disk loses.
pub(crate) const BLOCK_BYTES: u64 = 4096;
const ENTRY_BYTES: usize = 8;
/// Maximum number of checksums noted before their entries are written: those of 1 GiB. Others are computed from the
/// file.
const NOTED_MAX: usize = 1 << 18;
/// The number of noted checksums that are written without waiting for the next checkpoint.
const NOTED_MANY: usize = NOTED_MAX / 8;
/// Entries per write.
const CHUNK_ENTRIES: usize = 1 << 12;

pub(crate) struct Checksums {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    events: Arc<Events>,
    /// The position from which blocks were written, or read whole, in this run.
    known_from: u64,
    /// Results for earlier blocks, by the beginning of their file; loaded at the first read.
    files: HashMap<u64, OnceLock<Option<Checked>>>,
    /// The end of the blocks with entries.
    written: Mutex<u64>,
    /// Checksums noted when the blocks were written, because their bytes may have left memory when the entries are
    /// written.
    noted: Mutex<VecDeque<(u64, u32)>>,
    damaged: AtomicU64,
}

/// Results for the blocks of a file.
struct Checked {
    entries: Arc<dyn DiskFile>,
    /// Two bits per block: verified, and damaged.
    bits: Box<[AtomicU64]>,
}

const BLOCKS_PER_WORD: u64 = 32;

impl Checksums {
    /// Loads the checksums of `segments`. Everything from `known_from` on is read by recovery, or still to be
    /// written. `are_ours` means that no other broker has written to the log since.
    pub(crate) fn load(
        disk: &Arc<dyn Disk>,
        root: &Path,
        segments: &Segments,
        known_from: u64,
        are_ours: bool,
        events: &Arc<Events>,
    ) -> Result<Self, StoreError> {
        let dir = root.join("rmqpy").join("checksums");
        if !are_ours && !disk.entries(&dir)?.is_empty() {
            // Durably: a later manifest of rmqpy would make them look valid again.
            let own = root.join("rmqpy");
            disk.remove_dir(&dir).map_err(StoreError::io(&dir, "remove"))?;
            disk.sync_entries(&own)?;
        }
        disk.make_dir(&dir)?;
        let mut files = HashMap::new();
        for entry in disk.entries(&dir)? {
            let path = dir.join(&entry.name);
            let base = position_of(&entry.name)
                .filter(|base| segments.find(*base).is_some_and(|segment| segment.base() == *base));
            match base {
                Some(base) => drop(files.insert(base, OnceLock::new())),
                None if entry.is_dir => {}
                None => disk.remove_file(&path)?,
            }
        }
        let known_from = block_begin(segments, known_from);
        Ok(Self {
            disk: Arc::clone(disk),
            dir,
            events: Arc::clone(events),
            known_from,
            files,
            written: Mutex::new(known_from),
            noted: Mutex::default(),
            damaged: AtomicU64::new(0),
        })
    }

    /// Forgets the blocks after `end`, the new end of the log.
    pub(crate) fn cut(&mut self, segments: &Segments, end: u64) {
        let end = block_begin(segments, end);
        self.known_from = self.known_from.min(end);
        let written = self.written.get_mut();
        *written = (*written).min(end);
    }

    /// Starts with the block at `at`, the beginning of an empty log.
    pub(crate) fn begin_at(&self, at: u64) {
        *self.written.lock() = at;
    }

    /// Returns whether no block of `range`, which lies in `segment`, was found damaged.
    pub(crate) fn is_sound(&self, segment: &Segment, range: Range<u64>) -> bool {
        if range.start >= self.known_from {
            return true;
        }
        let Some(file) = self.files.get(&segment.base()) else { return true };
        let Some(checked) = file.get_or_init(|| self.open(segment)) else { return true };
        let first = (range.start - segment.base()) / BLOCK_BYTES;
        let end = (range.end.min(self.known_from) - segment.base()).div_ceil(BLOCK_BYTES);
        (first..end).all(|block| self.is_block_sound(segment, checked, block))
    }

    fn open(&self, segment: &Segment) -> Option<Checked> {
        let entries = self.disk.open(&self.dir.join(name_of(segment.base())), Open::Read).ok()?;
        let words = (segment.size() as u64).div_ceil(BLOCK_BYTES * BLOCKS_PER_WORD);
        Some(Checked { entries, bits: (0..words).map(|_| AtomicU64::new(0)).collect() })
    }

    fn is_block_sound(&self, segment: &Segment, checked: &Checked, block: u64) -> bool {
        let Some(word) = checked.bits.get((block / BLOCKS_PER_WORD) as usize) else { return true };
        let looked_at = 1 << (block % BLOCKS_PER_WORD * 2);
        let is_damaged = looked_at << 1;
        let known = word.load(Ordering::Acquire);
        if known & looked_at != 0 {
            return known & is_damaged == 0;
        }
        let at = segment.base() + block * BLOCK_BYTES;
        let entry = read_entry(&*checked.entries, block, at);
        let is_sound = entry.is_none_or(|crc| crc == crc_of(segment, at));
        let found = looked_at | if is_sound { 0 } else { is_damaged };
        if word.fetch_or(found, Ordering::AcqRel) & looked_at == 0 && !is_sound {
            self.damaged.fetch_add(1, Ordering::Relaxed);
            let path = segment.path().to_owned();
            self.events.add(Event::Damaged { path, from: at, until: at + BLOCK_BYTES });
        }
        is_sound
    }

    /// Returns the number of blocks found damaged in this run.
    pub(crate) fn damaged(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Keeps the CRC-32 of the whole block at `at` until its entry is written. Blocks come in log order.
    pub(crate) fn note(&self, at: u64, crc: u32) {
        let mut noted = self.noted.lock();
        if noted.len() >= NOTED_MAX {
            noted.pop_front();
        }
        noted.push_back((at, crc));
    }

    /// Returns whether the noted checksums should be written soon.
    pub(crate) fn has_many_noted(&self) -> bool {
        self.noted.lock().len() >= NOTED_MANY
    }

    fn take_noted(&self, at: u64) -> Option<u32> {
        let mut noted = self.noted.lock();
        while noted.front().is_some_and(|(before, _)| *before < at) {
            noted.pop_front();
        }
        noted.pop_front_if(|(found, _)| *found == at).map(|(_, crc)| crc)
    }

    /// Durably writes the entries of all whole blocks before `durable`.
    pub(crate) fn write(&self, segments: &Segments, durable: u64) -> Result<(), StoreError> {
        let mut written = self.written.lock();
        while let Some(segment) = segments.find(*written) {
            // The last block of a file may be shorter.
            let end =
                if durable >= segment.limit() { segment.limit() } else { block_begin(segments, durable) };
            if *written >= end {
                break;
            }
            self.write_file(&segment, *written..end)?;
            *written = end;
        }
        Ok(())
    }

    fn write_file(&self, segment: &Segment, range: Range<u64>) -> Result<(), StoreError> {
        let path = self.dir.join(name_of(segment.base()));
        let file = self.disk.open(&path, Open::Create).map_err(StoreError::io(&path, "create"))?;
        let is_new = range.start == segment.base();
        let mut at = range.start;
        let mut chunk = Vec::with_capacity(CHUNK_ENTRIES * ENTRY_BYTES);
        while at < range.end {
            let place = (at - segment.base()) / BLOCK_BYTES * ENTRY_BYTES as u64;
            chunk.clear();
            while at < range.end && chunk.len() < CHUNK_ENTRIES * ENTRY_BYTES {
                let crc = self.take_noted(at).unwrap_or_else(|| crc_of(segment, at));
                chunk.extend_from_slice(&entry_of(crc, at));
                at += BLOCK_BYTES;
            }
            file.write_at(&chunk, place).map_err(StoreError::io(&path, "write"))?;
        }
        file.sync().map_err(StoreError::io(&path, "sync"))?;
        match is_new {
            true => self.disk.sync_entries(&self.dir),
            false => Ok(()),
        }
    }

    /// Removes the entries of the log file that began at `base`.
    pub(crate) fn remove(&self, base: u64) -> Result<(), StoreError> {
        let path = self.dir.join(name_of(base));
        self.disk.remove_file(&path)
    }
}

/// Returns the start of the block that holds `at`. Blocks count from the beginning of each file.
fn block_begin(segments: &Segments, at: u64) -> u64 {
    segments.find(at).map_or(at, |segment| at - (at - segment.base()) % BLOCK_BYTES)
}

/// Returns the CRC-32 of the whole block at `at`. The last block of a file may be shorter.
fn crc_of(segment: &Segment, at: u64) -> u32 {
    const ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
    let size = BLOCK_BYTES.min(segment.limit().saturating_sub(at)) as usize;
    let bytes = segment.bytes_from(at);
    let (bytes, _) = bytes.split_at(size.min(bytes.len()));
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(bytes);
    // With a write ring, bytes after the blank of a full file are unreadable until the next start; they are zeros.
    hasher.update(ZEROS.get(..size - bytes.len()).unwrap_or_default());
    hasher.finalize()
}

fn entry_of(crc: u32, at: u64) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    let (first, second) = entry.split_at_mut(4);
    first.copy_from_slice(&crc.to_be_bytes());
    second.copy_from_slice(&check_of(crc, at).to_be_bytes());
    entry
}

/// Returns the CRC of an entry, if the entry is valid.
fn read_entry(file: &dyn DiskFile, block: u64, at: u64) -> Option<u32> {
    let mut entry = [0; ENTRY_BYTES];
    let read: io::Result<usize> = file.read_at(&mut entry, block * ENTRY_BYTES as u64);
    let [c0, c1, c2, c3, k0, k1, k2, k3] = entry;
    let crc = u32::from_be_bytes([c0, c1, c2, c3]);
    let is_entry = read.is_ok_and(|read| read == ENTRY_BYTES)
        && u32::from_be_bytes([k0, k1, k2, k3]) == check_of(crc, at);
    is_entry.then_some(crc)
}

fn check_of(crc: u32, at: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&crc.to_be_bytes());
    hasher.update(&at.to_be_bytes());
    hasher.finalize()
}
