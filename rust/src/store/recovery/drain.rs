//! Drain: the records that a killed process left in the write ring, moved into the log before anything else reads it.
//!
//! A part counts only if its marks are valid. If they name another boot of the machine, it counts up to the first block whose
//! checksum is wrong: that page did not reach the disk. A part is *finished* if the log begins behind it, or our checkpoint
//! covers all of it: the log has its records, or has deleted them. The records of other parts continue a log that is whole up
//! to them, or are in it with the same bytes. Missing records are written to the end of the log and synced, and only then are
//! the files removed. Records that do not continue the log, because another broker has written to it or it is another log, and
//! what a restart of the machine has torn, are moved to `rmqpy/ring-aside` and reported.
//!
//! *Invariant*: bytes of the log that are a whole record never change; messages that are in no log stay in some
//! file; repetition, also after an interruption, changes nothing.
//! Threads: the opener of the store, or the holder of a stopped store with an exclusive lock.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::message::record::{Scanned, scan};
use crate::store::disk::{Disk, Open};
use crate::store::error::StoreError;
use crate::store::log::{
    FoundMarks, MARKED_BYTES, Marks, Segment, Segments, WritePathKind, is_whole, record_at, remove_parts,
    sound_bytes,
};
use crate::store::reports::events::{Event, RingMismatch};
use crate::store::settings::paths::StorePaths;

use super::checkpoint::CheckpointFiles;

/// The folder for the files of another boot. New files replace old ones.
const OTHER_BOOT_DIR: &str = "boot";

/// A range of the log that a killed process left.
struct Leftover {
    name: String,
    /// Their end is that of the sound bytes.
    marks: Marks,
    /// The bytes between first and end.
    bytes: Vec<u8>,
    /// Set for a part of another boot, which may have held more.
    is_of_other_boot: bool,
}

/// The files of a write ring by their marks.
#[derive(Default)]
struct Leftovers {
    /// Oldest first.
    parts: Vec<Leftover>,
    /// Names of those that a restart of the machine has cut, and where they ended before.
    torn: Vec<(String, u64)>,
    /// Names of files whose marks are inconsistent, or do not fit their size.
    damaged: Vec<String>,
}

/// The log before the drain.
struct Target {
    segments: Segments,
    /// Position of a record up to which the log is whole.
    whole_to: u64,
    /// The position before which everything is in the log, or was deleted from it.
    finished_to: u64,
}

/// Returns the bytes in the write ring that the log may not have yet; 0 after an orderly stop.
pub(crate) fn undrained_bytes(disk: &dyn Disk, paths: &StorePaths) -> Result<u64, StoreError> {
    let bytes = |dir: PathBuf| -> Result<u64, StoreError> {
        let found = leftovers(disk, &dir)?.parts;
        Ok(found.iter().map(|left| left.bytes.len() as u64).sum())
    };
    Ok(bytes(paths.old_write_ring())? + bytes(paths.write_ring())?)
}

/// Moves the write ring into the log and removes its files. Returns the outcome, if a write ring was left. New files of the
/// log get `segment_bytes`.
pub(crate) fn drain(
    disk: &Arc<dyn Disk>,
    paths: &StorePaths,
    segment_bytes: u64,
    checkpoint_files: &CheckpointFiles,
) -> Result<Option<Event>, StoreError> {
    let old = drain_folder(disk, paths, &paths.old_write_ring(), segment_bytes, checkpoint_files)?;
    let event = drain_folder(disk, paths, &paths.write_ring(), segment_bytes, checkpoint_files)?;
    Ok(event.or(old))
}

fn drain_folder(
    disk: &Arc<dyn Disk>,
    paths: &StorePaths,
    dir: &Path,
    segment_bytes: u64,
    checkpoint_files: &CheckpointFiles,
) -> Result<Option<Event>, StoreError> {
    let Leftovers { parts, torn, damaged } = leftovers(&**disk, dir)?;
    let mut event = None;
    if !(parts.is_empty() && torn.is_empty() && damaged.is_empty()) {
        let target = Target::load(disk, paths, segment_bytes, checkpoint_files)?;
        let (written, taken) = target.write(&parts)?;
        if written > 0 {
            event = Some(Event::RingDrained { bytes: written });
        }
        let (old, unfit): (Vec<_>, Vec<_>) = parts.iter().skip(taken).partition(|left| left.is_of_other_boot);
        let old = old.into_iter().filter(|left| !target.has(left)).map(|left| &left.name);
        let torn = torn.iter().filter(|(_, end)| !target.reaches(*end)).map(|(name, _)| name);
        let old: BTreeSet<_> = old.chain(torn).map(String::as_str).collect();
        let unfit = unfit.into_iter().map(|left| &left.name).chain(&damaged).map(String::as_str);
        let old = old.into_iter().collect::<Vec<_>>();
        for (names, reason) in [(old, RingMismatch::OtherBoot), (unfit.collect(), RingMismatch::OtherLog)] {
            if !names.is_empty() {
                let path = set_aside(&**disk, paths, dir, &names, reason)?;
                event = Some(Event::RingSetAside { path, reason });
            }
        }
    }
    remove_parts(&**disk, dir)?;
    Ok(event)
}

/// Reads the files of a write ring.
fn leftovers(disk: &dyn Disk, dir: &Path) -> Result<Leftovers, StoreError> {
    let mut found = Leftovers::default();
    let boot = disk.boot().ok();
    for entry in disk.entries(dir)?.into_iter().filter(|entry| !entry.is_dir) {
        let path = dir.join(&entry.name);
        let mut marks = match Marks::decode(&disk.read_front(&path, MARKED_BYTES)?) {
            FoundMarks::Empty => continue,
            FoundMarks::Sound(marks) if marks.size.saturating_add(marks.end - marks.base) <= entry.size => {
                marks
            }
            FoundMarks::Sound(_) | FoundMarks::Damaged => {
                found.damaged.push(entry.name);
                continue;
            }
        };
        let read = |bytes: u64, at: u64| {
            let mut read = vec![0; bytes as usize];
            let done = disk.open(&path, Open::Read).and_then(|file| file.read_at(&mut read, at));
            done.map_err(StoreError::io(&path, "read")).map(|_| read)
        };
        let mut bytes = read(marks.end - marks.base, marks.size)?;
        let is_of_other_boot = boot != Some(marks.boot);
        if is_of_other_boot {
            let sound = sound_bytes(&read(marks.size, 0)?, marks.base, &bytes);
            if sound < bytes.len() {
                found.torn.push((entry.name.clone(), marks.end));
            }
            bytes.truncate(sound);
            marks.end = marks.first.max(marks.base + sound as u64);
        }
        let bytes = bytes.split_off(bytes.len().min((marks.first - marks.base) as usize));
        found.parts.push(Leftover { name: entry.name, marks, bytes, is_of_other_boot });
    }
    found.parts.sort_by_key(|left| left.marks.first);
    Ok(found)
}

/// Moves files of the write ring to a folder where they stay, and returns it. Moves the newest first, so that after a
/// crash the oldest of the rest is judged as before.
fn set_aside(
    disk: &dyn Disk,
    paths: &StorePaths,
    from: &Path,
    names: &[&str],
    reason: RingMismatch,
) -> Result<PathBuf, StoreError> {
    let aside = paths.ring_aside();
    let into = match reason {
        RingMismatch::OtherBoot => aside.join(OTHER_BOOT_DIR),
        RingMismatch::OtherLog => {
            let taken = disk.entries(&aside)?;
            let is_free = |number: &String| taken.iter().all(|entry| entry.name != *number);
            aside.join((1_u64..).map(|number| number.to_string()).find(is_free).unwrap_or_default())
        }
    };
    disk.make_dir(&into)?;
    for name in names.iter().rev() {
        let path = from.join(name);
        disk.rename(&path, &into.join(name)).map_err(StoreError::io(&path, "move aside"))?;
    }
    disk.sync_entries(&into)?;
    disk.sync_entries(from)?;
    Ok(into)
}

impl Target {
    fn load(
        disk: &Arc<dyn Disk>,
        paths: &StorePaths,
        segment_bytes: u64,
        checkpoint_files: &CheckpointFiles,
    ) -> Result<Self, StoreError> {
        let (dir, scratch) = (paths.log.clone(), paths.segment_scratch());
        let segments = Segments::load(Arc::clone(disk), dir, scratch, segment_bytes, WritePathKind::Ring)?;
        let (checkpoint, manifest) = checkpoint_files.load()?;
        let named = checkpoint.record.max(0) as u64;
        let is_there = record_at(&segments, named, |record| is_whole(record, named)) == Some(true);
        let begin = segments.begin();
        let whole_to = if is_there { named } else { begin };
        // A checkpoint of another broker covers only what that broker wrote.
        let covered_to = manifest.map_or(0, |_| named);
        Ok(Self { whole_to, finished_to: begin.max(covered_to), segments })
    }

    fn is_finished(&self, left: &Leftover) -> bool {
        left.marks.end <= self.finished_to
    }

    /// Returns whether the log has, or had, everything in a part.
    fn has(&self, left: &Leftover) -> bool {
        let is_there = |segment: Arc<Segment>| segment.bytes_from(left.marks.first).starts_with(&left.bytes);
        self.is_finished(left) || self.segments.find(left.marks.first).is_some_and(is_there)
    }

    /// Returns whether the log consists of whole records up to a position.
    fn reaches(&self, position: u64) -> bool {
        let mut at = self.whole_to;
        while at < position {
            let Some(segment) = self.segments.find(at) else { return false };
            at = match scan(segment.bytes_from(at)) {
                Scanned::Record(record) if is_whole(&record, at) => at + record.total_size() as u64,
                Scanned::Blank { size } if at + u64::from(size) == segment.limit() => segment.limit(),
                _ => return false,
            };
        }
        at == position || self.whole_to > position
    }

    /// Durably writes the missing records of `parts`, up to the first part that does not continue the log. Returns
    /// the bytes written, and how many parts the log has now.
    fn write(&self, parts: &[Leftover]) -> Result<(u64, usize), StoreError> {
        let segments = &self.segments;
        let (mut written, mut next) = (0, None);
        for (taken, left) in parts.iter().enumerate() {
            if self.is_finished(left) {
                continue;
            }
            let Leftover { marks, bytes, .. } = left;
            let continues = next.map_or_else(|| self.reaches(marks.first), |next| next == marks.first);
            let Some(segment) = segments.find(marks.first).filter(|_| continues) else {
                return Ok((written, taken));
            };
            let (whole, end) = whole_records(&segment, marks.first, bytes);
            let lacking = lacking(segments, &segment, marks.first, bytes.get(..whole).unwrap_or_default());
            let Some(lacking) = lacking else { return Ok((written, taken)) };
            if let Some(piece) = bytes.get(lacking.clone()).filter(|piece| !piece.is_empty()) {
                let at = marks.first + lacking.start as u64 - segment.base();
                let write = segment.file().write_at(piece, at).and_then(|()| segment.file().sync());
                write.map_err(StoreError::io(segment.path(), "write"))?;
                written += piece.len() as u64;
            }
            if whole < bytes.len() {
                return Ok((written, taken));
            }
            next = Some(end);
        }
        Ok((written, parts.len()))
    }
}

/// Returns how many of `bytes`, which belong at position `from`, are whole records or the head of a blank, and the
/// position at which the log continues after them.
fn whole_records(segment: &Segment, from: u64, bytes: &[u8]) -> (usize, u64) {
    let mut whole = 0;
    while let Some(rest) = bytes.get(whole..).filter(|rest| !rest.is_empty()) {
        let at = from + whole as u64;
        match scan(rest) {
            Scanned::Record(record) if is_whole(&record, at) && at < segment.limit() => {
                whole += record.total_size();
            }
            Scanned::Blank { size } if at + u64::from(size) == segment.limit() => {
                return (bytes.len(), segment.limit());
            }
            _ => break,
        }
    }
    (whole, from + whole as u64)
}

/// Returns the range of `bytes`, whole records from position `from` on, that the log lacks; `None` if it has another
/// record in its place.
fn lacking(segments: &Segments, segment: &Segment, from: u64, bytes: &[u8]) -> Option<Range<usize>> {
    let there = segment.bytes_from(from);
    let same = there.iter().zip(bytes).take_while(|(there, ours)| there == ours).count();
    if same == bytes.len() {
        return Some(same..same);
    }
    // The first record that differs: the log lacks it, or has another record there.
    let mut start = 0;
    while let Some(Scanned::Record(record)) = bytes.get(start..).map(scan) {
        if start + record.total_size() > same {
            break;
        }
        start += record.total_size();
    }
    let at = from + start as u64;
    let has_other = record_at(segments, at, |record| is_whole(record, at)) == Some(true);
    (!has_other).then_some(start..bytes.len())
}
