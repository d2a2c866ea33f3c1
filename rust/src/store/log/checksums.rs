//! Checksums of the log, block by block, for the CRC of a record covers its body alone.
//!
//! Owns `rmqpy/checksums/`: for each file of the log one of the same name, with 8 bytes for every block of 4 KiB: CRC-32 of
//! the block, and CRC-32 of that and the block's position. Entries come with each checkpoint, at the latest. A block of an
//! earlier run is compared with its entry before anything of it is served for the first time; what does not match is
//! reported once and never served. An entry that does not match itself says nothing, so the files can be lost without harm.
//!
//! Invariants: an entry is written when its whole block is durable, after which neither changes; an answer about a block
//! stays the same until the store is closed.
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
use crate::store::events::{Event, Events};

use super::segment::Segment;
use super::segments::Segments;

/// Bytes of a block: a page, which is also what a disk loses at least.
pub(crate) const BLOCK_BYTES: u64 = 4096;
const ENTRY_BYTES: usize = 8;
/// Checksums that wait for their entries, at most: those of 1 GiB. Others are computed from the file.
const NOTED_MAX: usize = 1 << 18;
/// So many are not left waiting for the next checkpoint.
const NOTED_MANY: usize = NOTED_MAX / 8;
/// Entries written in one piece.
const CHUNK_ENTRIES: usize = 1 << 12;

pub(crate) struct Checksums {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    events: Arc<Events>,
    /// Blocks from here on were written or read whole in this run.
    known_from: u64,
    /// What is known about earlier ones, by the begin of their file; found out when a first read comes by.
    files: HashMap<u64, OnceLock<Option<Checked>>>,
    /// Where the next entry goes.
    written: Mutex<u64>,
    /// Checksums of blocks that were told when they were written, for they may be in no memory when their entries are.
    noted: Mutex<VecDeque<(u64, u32)>>,
    damaged: AtomicU64,
}

/// What is known about the blocks of a file.
struct Checked {
    entries: Arc<dyn DiskFile>,
    /// Two bits a block: looked at, and damaged.
    bits: Box<[AtomicU64]>,
}

const BLOCKS_PER_WORD: u64 = 32;

impl Checksums {
    /// The checksums of `segments`, of which everything from `known_from` on is read by recovery, or still to be written.
    /// `are_ours`: no other broker has written to the log since.
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
            // Durably, or they would be believed again when a manifest of ours is there.
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

    /// The log ends at `end` now: what is known of blocks behind it is about bytes that are gone.
    pub(crate) fn cut(&mut self, segments: &Segments, end: u64) {
        let end = block_begin(segments, end);
        self.known_from = self.known_from.min(end);
        let written = self.written.get_mut();
        *written = (*written).min(end);
    }

    /// A log in which nothing was written begins at `at` now: the first entry is for the block there.
    pub(crate) fn begin_at(&self, at: u64) {
        *self.written.lock() = at;
    }

    /// Whether nothing is known against the bytes of `range`, which lie in `segment`.
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

    /// Blocks that were found damaged in this run.
    pub(crate) fn damaged(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Keeps the checksum of the whole block at `at` until its entry is written. Blocks come in the order of the log.
    pub(crate) fn note(&self, at: u64, block: &[u8]) {
        let crc = crc32fast::hash(block);
        let mut noted = self.noted.lock();
        if noted.len() >= NOTED_MAX {
            noted.pop_front();
        }
        noted.push_back((at, crc));
    }

    /// Whether their entries should be written before long.
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

    /// Notes the checksums of all whole blocks before `durable`, durably.
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

    /// Forgets the file of the log that began at `base`.
    pub(crate) fn remove(&self, base: u64) -> Result<(), StoreError> {
        let path = self.dir.join(name_of(base));
        self.disk.remove_file(&path)
    }
}

/// Begin of the block that `at` lies in. Blocks are counted from the begin of each file.
fn block_begin(segments: &Segments, at: u64) -> u64 {
    segments.find(at).map_or(at, |segment| at - (at - segment.base()) % BLOCK_BYTES)
}

/// CRC-32 of the whole block at `at`; the last one of a file may be shorter.
fn crc_of(segment: &Segment, at: u64) -> u32 {
    const ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
    let size = BLOCK_BYTES.min(segment.limit().saturating_sub(at)) as usize;
    let bytes = segment.bytes_from(at);
    let (bytes, _) = bytes.split_at(size.min(bytes.len()));
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(bytes);
    // With a write buffer what follows the blank of a full file cannot be read before the next start; it is zeros.
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

/// What an entry says, if it is one.
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
