//! Walks the records of the log.
//!
//! Reads what is on disk with no faith in it: a record counts only when its lengths agree, it says it is where it is,
//! its body has the CRC it claims and its text is text. The first thing that does not is where the log ends.
//!
//! Threads: recovery.

use std::sync::Arc;

use crate::message::record::{MAGIC_V1, MAGIC_V2, RecordView, Scanned, scan};

use super::consume_queue::Unit;
use super::segments::{Segment, Segments};

/// Why a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkEnd {
    /// Nothing follows.
    End,
    /// Something follows that is no whole record.
    Torn,
}

/// Calls `visit` with every record from `from` on, which must be where a record or a file begins, up to `limit`.
/// Returns where the log ends, and why.
pub fn walk<E>(
    segments: &Segments,
    from: u64,
    limit: u64,
    mut visit: impl FnMut(u64, &RecordView<'_>) -> Result<(), E>,
) -> Result<(u64, WalkEnd), E> {
    let mut at = from;
    while at < limit {
        let Some(segment) = segments.find(at) else { break };
        if let Some(end) = walk_segment(&segment, &mut at, limit, &mut visit)? {
            return Ok((at, end));
        }
        // A blank with no file behind it is written over by the next message that fits.
        if segments.find(segment.limit()).is_none() {
            break;
        }
        at = segment.limit();
    }
    Ok((at, WalkEnd::End))
}

/// Walks one file and moves `at`; `None` when it ends with a blank, at which `at` stays.
fn walk_segment<E>(
    segment: &Arc<Segment>,
    at: &mut u64,
    limit: u64,
    visit: &mut impl FnMut(u64, &RecordView<'_>) -> Result<(), E>,
) -> Result<Option<WalkEnd>, E> {
    while *at < limit {
        let bytes = segment.bytes_from(*at);
        match scan(bytes) {
            Scanned::Record(record) if is_whole(&record, *at) => {
                visit(*at, &record)?;
                *at += record.total_size() as u64;
            }
            Scanned::Blank { size } if size as usize == bytes.len() => return Ok(None),
            Scanned::End => return Ok(Some(WalkEnd::End)),
            Scanned::Record(_) | Scanned::Blank { .. } | Scanned::Broken(_) => {
                return Ok(Some(WalkEnd::Torn));
            }
        }
    }
    Ok(Some(WalkEnd::End))
}

/// Whether a record at `at` is what was written there.
pub fn is_whole(record: &RecordView<'_>, at: u64) -> bool {
    record.physical_offset().0 == at && record.body_crc_matches() && record.check_text().is_ok()
}

/// Whether the head of a record at the front of `bytes` says what the queue entry that led there says. Cheap enough for
/// every message of every read; entries and log are synced apart, and disks rot.
pub fn is_entry_of(bytes: &[u8], at: u64, unit: &Unit, offset: u64) -> bool {
    let Some(head) = bytes.first_chunk::<36>() else { return false };
    let int = |from: usize| {
        head.get(from..).and_then(|rest| rest.first_chunk()).map(|int| u32::from_be_bytes(*int))
    };
    let long = |from: usize| {
        head.get(from..).and_then(|rest| rest.first_chunk()).map(|long| u64::from_be_bytes(*long))
    };
    int(0) == Some(unit.size)
        && matches!(int(4), Some(MAGIC_V1 | MAGIC_V2))
        && long(20) == Some(offset)
        && long(28) == Some(at)
}

/// The record at `at`, if there is one that lies in one file and says it is there; its CRC is not checked.
pub fn record_at<T>(segments: &Segments, at: u64, read: impl FnOnce(&RecordView<'_>) -> T) -> Option<T> {
    let segment = segments.find(at)?;
    let record = RecordView::parse(segment.bytes_from(at)).ok()?;
    (record.physical_offset().0 == at).then(|| read(&record))
}
