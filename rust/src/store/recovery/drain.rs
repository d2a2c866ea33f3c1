//! Draining of the spool: what a killed process has left in it goes into the log, before anything else is done with that.
//!
//! A part counts only where its marks are sound and name this boot of the machine; of those the records, in the order of the
//! log, each whole and at its position. What the log has of them must be the same; what follows its end is written there, synced,
//! and only then are the files removed. Where the log has another record, somebody else has gone on in it: nothing from there on
//! is taken.
//!
//! Invariant: bytes of the log that are a whole record never change; running it twice, or again after it was cut short,
//! changes nothing.
//! Threads: the opening one, or one that holds the stopped store exclusively.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::message::record::{Scanned, scan};
use crate::store::disk::{Disk, MARKS_BYTES, Open};
use crate::store::error::StoreError;
use crate::store::events::Event;
use crate::store::log::{
    MARKED_BYTES, Marks, Segment, Segments, WritePathKind, is_whole, record_at, remove_parts,
};
use crate::store::paths::StorePaths;

const OTHER_BOOT: &str = "the machine was started since, and what of it reached the disk is not known";
const OTHER_LOG: &str = "it does not continue the log";

/// A stretch of the log that a killed process has left.
struct Leftover {
    marks: Marks,
    /// The bytes between first and end.
    bytes: Vec<u8>,
}

/// Bytes in the spool that the log may not have yet; 0 after an orderly stop.
pub(crate) fn spooled_bytes(disk: &dyn Disk, paths: &StorePaths) -> Result<u64, StoreError> {
    let found = leftovers(disk, &paths.spool())?.0;
    Ok(found.iter().map(|left| left.bytes.len() as u64).sum())
}

/// Brings what is in the spool into the log, and removes its files; says what came of it. `segment_bytes` is the size of the
/// log's files where there are none.
pub(crate) fn drain(
    disk: &Arc<dyn Disk>,
    paths: &StorePaths,
    segment_bytes: u64,
) -> Result<Option<Event>, StoreError> {
    let dir = paths.spool();
    let (found, is_of_other_boot) = leftovers(&**disk, &dir)?;
    let dropped = |reason| Event::SpoolDropped { path: dir.clone(), reason };
    let mut event = is_of_other_boot.then(|| dropped(OTHER_BOOT));
    if !found.is_empty() {
        let segments = Segments::load(
            Arc::clone(disk),
            paths.log.clone(),
            paths.segment_scratch(),
            segment_bytes,
            WritePathKind::WriteBuffer,
        )?;
        let (written, is_complete) = write(&segments, &found)?;
        if !is_complete {
            event = Some(dropped(OTHER_LOG));
        } else if written > 0 {
            event = Some(Event::SpoolDrained { bytes: written });
        }
    }
    remove_parts(&**disk, &dir)?;
    Ok(event)
}

/// What is in the files of a spool, oldest first, and whether there is something of another boot.
fn leftovers(disk: &dyn Disk, dir: &Path) -> Result<(Vec<Leftover>, bool), StoreError> {
    let (mut found, mut is_of_other_boot) = (Vec::new(), false);
    for entry in disk.entries(dir)?.into_iter().filter(|entry| !entry.is_dir) {
        let path = dir.join(&entry.name);
        let Some(marks) = Marks::decode(&disk.read_front(&path, MARKED_BYTES)?) else { continue };
        if disk.boot().ok() != Some(marks.boot) {
            is_of_other_boot = true;
            continue;
        }
        let room = entry.size.saturating_sub(MARKS_BYTES as u64);
        if marks.end - marks.base > room {
            continue;
        }
        let mut bytes = vec![0; (marks.end - marks.first) as usize];
        let from = MARKS_BYTES as u64 + (marks.first - marks.base);
        let read = disk.open(&path, Open::Read).and_then(|file| file.read_at(&mut bytes, from));
        read.map_err(StoreError::io(&path, "read"))?;
        found.push(Leftover { marks, bytes });
    }
    found.sort_by_key(|left| left.marks.first);
    Ok((found, is_of_other_boot))
}

/// Writes what the log lacks of `found`, durably. Returns how many bytes that were, and whether everything is in the log.
fn write(segments: &Segments, found: &[Leftover]) -> Result<(u64, bool), StoreError> {
    let (mut written, mut next) = (0, None);
    for Leftover { marks, bytes } in found {
        let Some(segment) = segments.find(marks.first) else { return Ok((written, false)) };
        if next.is_some_and(|next| next != marks.first) {
            return Ok((written, false));
        }
        let (whole, end) = whole_records(&segment, marks.first, bytes);
        let Some(lacking) = lacking(segments, &segment, marks.first, bytes.get(..whole).unwrap_or_default())
        else {
            return Ok((written, false));
        };
        if let Some(piece) = bytes.get(lacking.clone()).filter(|piece| !piece.is_empty()) {
            let at = marks.first + lacking.start as u64 - segment.base();
            let write = segment.file().write_at(piece, at).and_then(|()| segment.file().sync());
            write.map_err(StoreError::io(segment.path(), "write"))?;
            written += piece.len() as u64;
        }
        if whole < bytes.len() {
            return Ok((written, false));
        }
        next = Some(end);
    }
    Ok((written, true))
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
