//! Drain: brings what a killed process has left in the spool into the log, before anything else is done with that.
//!
//! A part counts only where its marks are sound and name this boot of the machine. It is *finished* where the log begins
//! behind it, or our checkpoint vouches for all of it: then the log has, or has deleted, what it holds. The records of the
//! others go on from a log that is whole up to them, or are in it with the same bytes. What follows the log's end is written
//! there, synced, and only then are the files removed. What does not continue the log, because another broker has gone on
//! in it or another log lies here, is moved to `rmqpy/spool-aside` and reported.
//!
//! Invariants: bytes of the log that are a whole record never change; messages that are in no log stay in some file; running
//! it twice, or again after it was cut short, changes nothing.
//! Threads: the opening one, or one that holds the stopped store exclusively.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::message::record::{Scanned, scan};
use crate::store::disk::{Disk, MARKS_BYTES, Open};
use crate::store::error::StoreError;
use crate::store::events::{Event, SpoolMismatch};
use crate::store::log::{
    FoundMarks, MARKED_BYTES, Marks, Segment, Segments, WritePathKind, is_whole, record_at, remove_parts,
};
use crate::store::paths::StorePaths;

use super::checkpoint::CheckpointFiles;

/// Folder for the files of another boot; those of the one before make room.
const OTHER_BOOT_DIR: &str = "boot";

/// A stretch of the log that a killed process has left.
struct Leftover {
    name: String,
    marks: Marks,
    /// The bytes between first and end.
    bytes: Vec<u8>,
}

/// The files of a spool by what their marks say.
#[derive(Default)]
struct Leftovers {
    /// Those of this boot, oldest first.
    parts: Vec<Leftover>,
    other_boot: Vec<Leftover>,
    /// Names of those with marks that contradict themselves, or their size.
    damaged: Vec<String>,
}

/// A log as it stands before the drain.
struct Target {
    segments: Segments,
    /// Position of a record up to which the log is whole.
    whole_to: u64,
    /// Everything before is in the log, or was until it was deleted.
    finished_to: u64,
}

/// Bytes in the spool that the log may not have yet; 0 after an orderly stop.
pub(crate) fn spooled_bytes(disk: &dyn Disk, paths: &StorePaths) -> Result<u64, StoreError> {
    let found = leftovers(disk, &paths.spool())?.parts;
    Ok(found.iter().map(|left| left.bytes.len() as u64).sum())
}

/// Brings what is in the spool into the log, and removes its files; returns the outcome, if there was something.
/// `segment_bytes` is the size of the log's files where there are none.
pub(crate) fn drain(
    disk: &Arc<dyn Disk>,
    paths: &StorePaths,
    segment_bytes: u64,
    checkpoint_files: &CheckpointFiles,
) -> Result<Option<Event>, StoreError> {
    let dir = paths.spool();
    let Leftovers { parts, other_boot, damaged } = leftovers(&**disk, &dir)?;
    let mut event = None;
    if !(parts.is_empty() && other_boot.is_empty() && damaged.is_empty()) {
        let target = Target::load(disk, paths, segment_bytes, checkpoint_files)?;
        let (written, taken) = target.write(&parts)?;
        if written > 0 {
            event = Some(Event::SpoolDrained { bytes: written });
        }
        let is_lacking = |left: &&Leftover| !target.has(left);
        let old: Vec<_> = other_boot.iter().filter(is_lacking).map(|left| &*left.name).collect();
        let unfit =
            parts.iter().skip(taken).map(|left| &*left.name).chain(damaged.iter().map(|name| &**name));
        for (names, reason) in [(old, SpoolMismatch::OtherBoot), (unfit.collect(), SpoolMismatch::OtherLog)] {
            if !names.is_empty() {
                let path = set_aside(&**disk, paths, &names, reason)?;
                event = Some(Event::SpoolSetAside { path, reason });
            }
        }
    }
    remove_parts(&**disk, &dir)?;
    Ok(event)
}

/// Reads the files of a spool.
fn leftovers(disk: &dyn Disk, dir: &Path) -> Result<Leftovers, StoreError> {
    let mut found = Leftovers::default();
    for entry in disk.entries(dir)?.into_iter().filter(|entry| !entry.is_dir) {
        let path = dir.join(&entry.name);
        let room = entry.size.saturating_sub(MARKS_BYTES as u64);
        let marks = match Marks::decode(&disk.read_front(&path, MARKED_BYTES)?) {
            FoundMarks::Empty => continue,
            FoundMarks::Sound(marks) if marks.end - marks.base <= room => marks,
            FoundMarks::Sound(_) | FoundMarks::Damaged => {
                found.damaged.push(entry.name);
                continue;
            }
        };
        let mut bytes = vec![0; (marks.end - marks.first) as usize];
        let from = MARKS_BYTES as u64 + (marks.first - marks.base);
        let read = disk.open(&path, Open::Read).and_then(|file| file.read_at(&mut bytes, from));
        read.map_err(StoreError::io(&path, "read"))?;
        let is_of_this_boot = disk.boot().ok() == Some(marks.boot);
        let list = if is_of_this_boot { &mut found.parts } else { &mut found.other_boot };
        list.push(Leftover { name: entry.name, marks, bytes });
    }
    found.parts.sort_by_key(|left| left.marks.first);
    Ok(found)
}

/// Moves files of the spool to a folder where they stay; returns it. The newest goes first, so that after a crash the oldest
/// of the others is judged as before.
fn set_aside(
    disk: &dyn Disk,
    paths: &StorePaths,
    names: &[&str],
    reason: SpoolMismatch,
) -> Result<PathBuf, StoreError> {
    let (from, aside) = (paths.spool(), paths.spool_aside());
    let into = match reason {
        SpoolMismatch::OtherBoot => aside.join(OTHER_BOOT_DIR),
        SpoolMismatch::OtherLog => {
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
    disk.sync_entries(&from)?;
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
        let segments =
            Segments::load(Arc::clone(disk), dir, scratch, segment_bytes, WritePathKind::WriteBuffer)?;
        let (checkpoint, manifest) = checkpoint_files.load()?;
        let named = checkpoint.record.max(0) as u64;
        let is_there = record_at(&segments, named, |record| is_whole(record, named)) == Some(true);
        let begin = segments.begin();
        let whole_to = if is_there { named } else { begin };
        // A checkpoint of another broker speaks of what that has written.
        let vouched_to = manifest.map_or(0, |_| named);
        Ok(Self { whole_to, finished_to: begin.max(vouched_to), segments })
    }

    fn is_finished(&self, left: &Leftover) -> bool {
        left.marks.end <= self.finished_to
    }

    /// Whether the log has, or had, everything in a part.
    fn has(&self, left: &Leftover) -> bool {
        let is_there = |segment: Arc<Segment>| segment.bytes_from(left.marks.first).starts_with(&left.bytes);
        self.is_finished(left) || self.segments.find(left.marks.first).is_some_and(is_there)
    }

    /// Whether the log consists of whole records up to a position.
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

    /// Writes what the log lacks of `parts`, durably, up to the first that does not continue it. Returns the bytes written,
    /// and how many parts the log has now.
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

/// How many of `bytes`, which belong to position `from`, are whole records or the head of a blank, and the position at which
/// the log goes on behind them.
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

/// The part of `bytes`, whole records from position `from` on, that the log lacks; `None` where it has another record in its
/// place.
fn lacking(segments: &Segments, segment: &Segment, from: u64, bytes: &[u8]) -> Option<Range<usize>> {
    let there = segment.bytes_from(from);
    let same = there.iter().zip(bytes).take_while(|(there, ours)| there == ours).count();
    if same == bytes.len() {
        return Some(same..same);
    }
    // The record that differs: the log has not got it, or it has another one.
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
