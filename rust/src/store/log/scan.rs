//! Scan: a walk along the records of the log.
//!
//! Trusts nothing on disk: a record counts only if its lengths agree, its position is right, its body matches its
//! CRC and its text is valid. The log ends at the first record that does not count, unless it was durable once: then
//! it is damage, and the log continues at the next whole record.
//!
//! Threads: recovery.

use std::sync::Arc;

use crate::message::record::{MAGIC_V1, MAGIC_V2, RecordView, Scanned, scan};
use crate::store::derived::Unit;

use super::checksums::Checksums;
use super::segment::Segment;
use super::segments::Segments;

/// The common first bytes of the magic of both kinds of records.
const MAGIC_HEAD: &[u8] = &[0xDA, 0xA3, 0x20];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WalkEnd {
    End,
    /// The bytes that follow are not a whole record.
    Torn,
}

pub(crate) enum Found<'a> {
    Record(&'a RecordView<'a>),
    /// Bytes up to this position that were whole records once.
    Damage(u64),
}

/// The trusted range of a log.
#[derive(Clone, Copy)]
pub(crate) struct TrustBoundary<'a> {
    /// Everything before was durable once: a broken record there is damaged, not torn, and does not end the log.
    pub(crate) durable: u64,
    pub(crate) checksums: &'a Checksums,
}

/// Calls `visit` for everything from `from`, which must be the start of a record or a file, up to `limit`. Returns
/// where the log ends, and why.
pub(crate) fn walk<E>(
    segments: &Segments,
    from: u64,
    limit: u64,
    trust: TrustBoundary<'_>,
    mut visit: impl FnMut(u64, Found<'_>) -> Result<(), E>,
) -> Result<(u64, WalkEnd), E> {
    let mut at = from;
    while at < limit {
        let Some(segment) = segments.find(at) else { break };
        let Some(end) = walk_segment(&segment, &mut at, limit, trust.checksums, &mut visit)? else {
            // The next message that fits overwrites a blank that no file follows.
            if segments.find(segment.limit()).is_none() {
                break;
            }
            at = segment.limit();
            continue;
        };
        let next = if at < trust.durable { next_whole(segments, &segment, at) } else { None };
        let Some(next) = next else { return Ok((at, end)) };
        visit(at, Found::Damage(next))?;
        at = next;
    }
    Ok((at, WalkEnd::End))
}

/// Walks one file and moves `at`; returns `None` when it ends with a blank, where `at` stays.
fn walk_segment<E>(
    segment: &Arc<Segment>,
    at: &mut u64,
    limit: u64,
    checksums: &Checksums,
    visit: &mut impl FnMut(u64, Found<'_>) -> Result<(), E>,
) -> Result<Option<WalkEnd>, E> {
    while *at < limit {
        let bytes = segment.bytes_from(*at);
        match scan(bytes) {
            Scanned::Record(record) if is_whole(&record, *at) => {
                let next = *at + record.total_size() as u64;
                let is_sound = checksums.is_sound(segment, *at..next);
                visit(*at, if is_sound { Found::Record(&record) } else { Found::Damage(next) })?;
                *at = next;
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

/// Finds the first whole record after `at`, in the same file or at the start of the next one.
fn next_whole(segments: &Segments, segment: &Segment, at: u64) -> Option<u64> {
    let bytes = segment.bytes_from(at);
    // A record holds its own position, so nothing inside a message passes for one.
    let in_file = memchr::memmem::find_iter(bytes, MAGIC_HEAD).filter_map(|magic| magic.checked_sub(4));
    let is_record = |start: &usize| {
        let at = at + *start as u64;
        let rest = bytes.get(*start..).unwrap_or_default();
        *start > 0 && RecordView::parse(rest).is_ok_and(|record| is_whole(&record, at))
    };
    let next = in_file.into_iter().find(is_record).map(|start| at + start as u64);
    let in_next_file = || {
        let next = segments.find(segment.limit())?;
        let is_record = record_at(segments, next.base(), |record| is_whole(record, next.base()));
        (is_record == Some(true)).then(|| next.base())
    };
    next.or_else(in_next_file)
}

/// Returns whether a record is what was written at `at`.
pub(crate) fn is_whole(record: &RecordView<'_>, at: u64) -> bool {
    record.physical_offset().0 == at && record.body_crc_matches() && record.check_text().is_ok()
}

/// Returns whether the head of a record at the front of `bytes` matches the queue entry for it. Cheap enough for
/// every message of every read. Entries and log are synced separately, and disks lose bits. Records of a light queue
/// have their `offset` in a property, so it is `None`.
pub(crate) fn is_entry_of(bytes: &[u8], at: u64, unit: &Unit, offset: Option<u64>) -> bool {
    let Some(head) = bytes.first_chunk::<36>() else { return false };
    let int = |from: usize| {
        head.get(from..).and_then(|rest| rest.first_chunk()).map(|int| u32::from_be_bytes(*int))
    };
    let long = |from: usize| {
        head.get(from..).and_then(|rest| rest.first_chunk()).map(|long| u64::from_be_bytes(*long))
    };
    int(0) == Some(unit.size)
        && matches!(int(4), Some(MAGIC_V1 | MAGIC_V2))
        && offset.is_none_or(|offset| long(20) == Some(offset))
        && long(28) == Some(at)
}

/// Reads the record at `at`, if one lies there within a file; its CRC is not checked.
pub(crate) fn record_at<T>(
    segments: &Segments,
    at: u64,
    read: impl FnOnce(&RecordView<'_>) -> T,
) -> Option<T> {
    let (part, segment);
    let bytes = match segments.part_at(at) {
        Some(found) => {
            part = found;
            part.bytes_from(at)
        }
        None => {
            segment = segments.find(at)?;
            segment.bytes_from(at)
        }
    };
    let record = RecordView::parse(bytes).ok()?;
    (record.physical_offset().0 == at).then(|| read(&record))
}
