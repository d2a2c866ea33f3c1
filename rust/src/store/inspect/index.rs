//! Index check: comparison of the index with the keys of all records, in both directions.
//!
//! Entries are in log order, so log and index are read once, side by side. Chains are checked by rebuilding the
//! slots: each entry must name the number in its slot as the previous one.
//!
//! Apache's brokers before 5.4 index no tags, and the index may have been enabled later than the log began:
//! neither is damage.
//!
//! Threads: that of the verification.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::message::properties::{self, name};
use crate::message::record::RecordView;
use crate::message::{sysflag, tag};
use crate::store::derived::{ENTRY_BYTES, HEADER_BYTES, KeyHashes, SLOT_BYTES, Shape};
use crate::store::disk::{Disk, DiskFile, Open};
use crate::store::error::StoreError;

use super::findings::{FindingKind, Findings};

/// Entries in memory.
const CHUNK_ENTRIES: usize = 1 << 12;
/// Slots in memory.
const CHUNK_SLOTS: usize = 1 << 16;

/// A comparison, at the next entry.
pub(super) struct IndexCheck<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    shape: Shape,
    /// Files still to be read, newest first.
    paths: Vec<PathBuf>,
    file: Option<File>,
    /// Position of the first record that any entry names; `None` without entries.
    begin: Option<u64>,
    /// Position of the last entry that was read.
    last: u64,
    hashes: Vec<i32>,
    /// Records whose keys are not all in the index, and those older than the whole index.
    missing: Run,
    older: u64,
    /// Entries without a record, and entries whose record lacks their key.
    stray: Run,
    foreign: Run,
    keys: u64,
}

/// A number of problems and the position of the first.
#[derive(Default)]
struct Run {
    count: u64,
    first: u64,
}

impl Run {
    fn add(&mut self, physical: u64) {
        self.first = if self.count == 0 { physical } else { self.first };
        self.count += 1;
    }
}

struct File {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    /// Number of entries, including the unused first one.
    count: u32,
    number: u32,
    chunk_at: u32,
    chunk: Vec<[u8; ENTRY_BYTES]>,
    /// The number that each slot would hold after the entries so far.
    heads: Vec<u32>,
    end_physical: u64,
    broken_chains: u64,
}

struct Entry {
    hash: i32,
    physical: u64,
    previous: u32,
}

impl<'a> IndexCheck<'a> {
    /// Creates a comparison with the index in `dir`, whose files have `shape`.
    pub(super) fn new(
        disk: &'a dyn Disk,
        dir: &'a Path,
        shape: Shape,
        findings: &mut Findings,
    ) -> Result<Self, StoreError> {
        let mut paths = Vec::new();
        for entry in disk.entries(dir)?.into_iter().rev() {
            let is_index = entry.name.len() == 17 && entry.name.bytes().all(|byte| byte.is_ascii_digit());
            let path = dir.join(&entry.name);
            match entry.size == shape.file_bytes() as u64 {
                _ if !is_index || entry.is_dir => {}
                true => paths.push(path),
                false => {
                    let (Shape { slots, entries }, size) = (shape, entry.size);
                    let text = format!(
                        "{size} bytes do not fit {slots} slots (maxHashSlotNum) and {entries} entries (maxIndexNum)"
                    );
                    findings.add(FindingKind::Key, &path, u64::MAX, text);
                }
            }
        }
        let mut check = Self {
            disk,
            dir,
            shape,
            paths,
            file: None,
            begin: None,
            last: 0,
            hashes: Vec::new(),
            missing: Run::default(),
            older: 0,
            stray: Run::default(),
            foreign: Run::default(),
            keys: 0,
        };
        check.begin = check.peek(findings)?.map(|entry| entry.physical);
        Ok(check)
    }

    /// Compares the keys of a record with the entries that point to it.
    pub(super) fn take(
        &mut self,
        record: &RecordView<'_>,
        findings: &mut Findings,
    ) -> Result<(), StoreError> {
        let physical = record.physical_offset().0;
        self.skip_to(physical, findings)?;
        if !sysflag::is_indexed(record.sys_flag()) {
            return Ok(());
        }
        self.hashes.clear();
        self.hashes.extend(KeyHashes::of(record.topic(), record.properties()).iter());
        let mut found = 0_u64;
        while let Some(entry) = self.peek(findings)?.filter(|entry| entry.physical == physical) {
            self.pass(findings);
            match self.hashes.iter().position(|hash| *hash == entry.hash) {
                // As bits: a key may occur twice, and a crash may have indexed the last record twice.
                Some(at) => found |= 1 << at.min(63),
                None => self.foreign.add(physical),
            }
        }
        let tag = properties::get(record.properties(), name::TAGS)
            .map(|tag| tag::tag_key_hash(record.topic(), tag));
        let is_missing = |(at, hash): (usize, &i32)| found & 1 << at.min(63) == 0 && Some(*hash) != tag;
        let first_at = |hash: &i32| self.hashes.iter().position(|other| other == hash).unwrap_or(0);
        // Brokers differ in whether they index inner batches.
        let is_batch = record.sys_flag() & sysflag::INNER_BATCH != 0;
        if !is_batch && self.hashes.iter().map(|hash| (first_at(hash), hash)).any(is_missing) {
            if self.begin.is_none_or(|begin| physical < begin) {
                self.older += 1;
            } else {
                self.missing.add(physical);
            }
        }
        Ok(())
    }

    /// Skips the entries before `physical`, which are expired or wrong.
    fn skip_to(&mut self, physical: u64, findings: &mut Findings) -> Result<(), StoreError> {
        while let Some(entry) = self.peek(findings)?.filter(|entry| entry.physical < physical) {
            self.pass(findings);
            if entry.physical >= findings.log_begin() {
                // An entry not yet on disk reads as zeros, so the one before it decides.
                self.stray.add(entry.physical.max(self.last));
            }
        }
        Ok(())
    }

    /// Reads the rest and reports the problems. Returns the number of entries.
    pub(super) fn finish(mut self, findings: &mut Findings) -> Result<u64, StoreError> {
        self.skip_to(u64::MAX, findings)?;
        let dir = self.dir;
        for (run, what) in [
            (&self.missing, "records are not indexed under all their keys"),
            (&self.stray, "entries point to positions without a record"),
            (&self.foreign, "entries point to a record without their key"),
        ] {
            if run.count > 0 {
                let text = format!("{} {what}, the first at {}", run.count, run.first);
                findings.add(FindingKind::Key, dir, run.first, text);
            }
        }
        if self.older > 0 {
            let since = self
                .begin
                .map_or("the index is empty".to_owned(), |begin| format!("the index begins at {begin}"));
            let text = format!("{} records are not indexed, because {since}; run index-rebuild", self.older);
            findings.note(FindingKind::Key, dir, text);
        }
        Ok(self.keys)
    }

    /// Returns the next entry; `None` after the last.
    fn peek(&mut self, findings: &mut Findings) -> Result<Option<Entry>, StoreError> {
        loop {
            if let Some(file) = &mut self.file {
                match file.entry(self.shape) {
                    Ok(Some(entry)) => return Ok(Some(entry)),
                    Ok(None) => file.finish(findings),
                    Err(error) => {
                        findings.add(
                            FindingKind::Key,
                            &file.path,
                            u64::MAX,
                            format!("cannot be read: {error}"),
                        );
                    }
                }
            }
            let Some(path) = self.paths.pop() else {
                self.file = None;
                return Ok(None);
            };
            let file = File::open(self.disk, path.clone(), self.shape);
            self.file = Some(file.map_err(StoreError::io(&path, "open"))?);
        }
    }

    /// Skips the next entry.
    fn pass(&mut self, findings: &mut Findings) {
        let Some(file) = &mut self.file else { return };
        let Ok(Some(entry)) = file.entry(self.shape) else { return };
        file.pass(&entry);
        self.keys += 1;
        if entry.physical < self.last {
            let text = format!("entries out of order: {} follows {}", entry.physical, self.last);
            findings.add(FindingKind::Key, &file.path, self.last, text);
        }
        self.last = self.last.max(entry.physical);
    }
}

impl File {
    fn open(disk: &dyn Disk, path: PathBuf, shape: Shape) -> io::Result<Self> {
        let file = disk.open(&path, Open::Read)?;
        let mut header = [0; HEADER_BYTES];
        file.read_at(&mut header, 0)?;
        let long = |at: usize| {
            header.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |long| u64::from_be_bytes(*long))
        };
        let count = long(32) as u32;
        Ok(Self {
            path,
            file,
            // If the header is wrong, the entries after its count are reported as missing.
            count: count.clamp(1, shape.entries as u32),
            number: 1,
            chunk_at: 0,
            chunk: Vec::new(),
            heads: vec![0; shape.slots],
            end_physical: long(24),
            broken_chains: 0,
        })
    }

    fn entry(&mut self, shape: Shape) -> io::Result<Option<Entry>> {
        if self.number >= self.count {
            return Ok(None);
        }
        if self.number < self.chunk_at || (self.number - self.chunk_at) as usize >= self.chunk.len() {
            let count = (self.count - self.number) as usize;
            self.chunk.resize(count.min(CHUNK_ENTRIES), [0; ENTRY_BYTES]);
            let at = shape.entry_at(self.number as usize) as u64;
            self.file.read_at(self.chunk.as_flattened_mut(), at)?;
            self.chunk_at = self.number;
        }
        Ok(self.chunk.get((self.number - self.chunk_at) as usize).map(|bytes| {
            let [h0, h1, h2, h3, p0, p1, p2, p3, p4, p5, p6, p7, _, _, _, _, b0, b1, b2, b3] = *bytes;
            Entry {
                hash: i32::from_be_bytes([h0, h1, h2, h3]),
                physical: u64::from_be_bytes([p0, p1, p2, p3, p4, p5, p6, p7]),
                previous: u32::from_be_bytes([b0, b1, b2, b3]),
            }
        }))
    }

    fn pass(&mut self, entry: &Entry) {
        let slot = entry.hash.unsigned_abs() as usize % self.heads.len().max(1);
        if let Some(head) = self.heads.get_mut(slot) {
            self.broken_chains += u64::from(*head != entry.previous);
            *head = self.number;
        }
        self.number += 1;
    }

    /// Compares slots and header with the entries, after the last of them.
    fn finish(&mut self, findings: &mut Findings) {
        let last = self.end_physical;
        match self.lost_slots() {
            Ok(lost) => self.broken_chains += lost,
            Err(error) => {
                findings.add(FindingKind::Key, &self.path, last, format!("cannot be read: {error}"))
            }
        }
        if self.broken_chains > 0 {
            let text = format!(
                "{} chains of entries are broken: lookups miss some of their keys",
                self.broken_chains
            );
            findings.add(FindingKind::Key, &self.path, last, text);
        }
        self.broken_chains = 0;
    }

    /// Counts the slots that do not name the newest entry of their chain.
    fn lost_slots(&self) -> io::Result<u64> {
        let (mut lost, mut at) = (0, HEADER_BYTES);
        let mut bytes = vec![[0; SLOT_BYTES]; CHUNK_SLOTS];
        for heads in self.heads.chunks(CHUNK_SLOTS) {
            let Some(slots) = bytes.get_mut(..heads.len()) else { break };
            self.file.read_at(slots.as_flattened_mut(), at as u64)?;
            for (slot, head) in slots.iter().zip(heads) {
                let slot = u32::from_be_bytes(*slot);
                // A slot that names an entry beyond the count is empty; a crash may leave such slots.
                let slot = if slot < self.count { slot } else { 0 };
                lost += u64::from(slot != *head);
            }
            at += heads.len() * SLOT_BYTES;
        }
        Ok(lost)
    }
}
