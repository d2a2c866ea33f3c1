//! Copied: messages of a queue in copies of the log's files, found by copies of the queue's entries.
//!
//! Both come from outside of the store, so every entry and record is checked before it is used.

use std::ops::Range;

use crate::message::record::RECORD_BYTES_MIN;
use crate::store::Unit;
use crate::store::derived::UNIT_BYTES;

/// Records are read together up to this gap between two, and up to this total length.
const GAP_BYTES_MAX: u64 = 16 << 10;
const GROUP_BYTES_MAX: u64 = 1 << 20;
/// Where a record has its position.
const POSITION_AT: usize = 28;

/// A copy that does not have what its description promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CopyError {
    #[error("the entry of offset {offset} points to {physical}")]
    Unit { offset: u64, physical: u64 },
    #[error("no record begins at {physical}")]
    Record { physical: u64 },
}

/// What may still be added to a page: a message more is taken if the page is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    pub count: usize,
    pub bytes: usize,
    pub is_empty: bool,
}

/// The records that a group added to a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selected {
    pub count: usize,
    /// Ranges of the part that was read, joined where they touch.
    pub parts: Vec<Range<usize>>,
    /// The offset of the first message without room.
    pub refused: Option<u64>,
}

/// Entries of one queue whose records are close together, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitGroup {
    entries: Vec<(u64, Unit)>,
}

/// Splits encoded entries, the first of which has the offset `first`, into groups of `count_max` records at most that
/// can be read together. `file` is the copied range of the log; entries without a record, and those that `wanted`
/// refuses by the hash of their tag, are left out.
pub fn group_units(
    encoded: &[u8],
    first: u64,
    file: &Range<u64>,
    count_max: usize,
    bytes_max: u64,
    wanted: impl Fn(i64) -> bool,
) -> Result<Vec<UnitGroup>, CopyError> {
    let bytes_max = bytes_max.min(GROUP_BYTES_MAX);
    let mut groups: Vec<UnitGroup> = Vec::new();
    for (offset, bytes) in (first..).zip(encoded.as_chunks::<UNIT_BYTES>().0) {
        let unit = Unit::decode(bytes);
        if unit.is_lost() || unit.size == Unit::FILLER.size {
            continue;
        }
        let is_inside = unit.is_plausible() && unit.physical >= file.start && unit.end() <= file.end;
        if !is_inside || (unit.size as usize) < RECORD_BYTES_MIN {
            return Err(CopyError::Unit { offset, physical: unit.physical });
        }
        if !wanted(unit.tags_code) {
            continue;
        }
        match groups.last_mut() {
            Some(group) if group.has_room_for(&unit, count_max, bytes_max) => {
                group.entries.push((offset, unit))
            }
            _ => groups.push(UnitGroup { entries: vec![(offset, unit)] }),
        }
    }
    Ok(groups)
}

impl UnitGroup {
    /// Returns the offset of the first message.
    pub fn first(&self) -> u64 {
        self.entries.first().map_or(0, |(offset, _)| *offset)
    }

    /// Returns the part of the log to read.
    pub fn range(&self) -> Range<u64> {
        match (self.entries.first(), self.entries.last()) {
            (Some((_, first)), Some((_, last))) => first.physical..last.end(),
            _ => 0..0,
        }
    }

    /// Selects the records of `part`, the bytes of `range`, that `takes` accepts and that have room.
    pub fn select(
        &self,
        part: &[u8],
        mut room: Room,
        takes: impl Fn(&[u8]) -> bool,
    ) -> Result<Selected, CopyError> {
        let begin = self.range().start;
        let mut selected = Selected { count: 0, parts: Vec::new(), refused: None };
        for &(offset, unit) in &self.entries {
            let at = (unit.physical - begin) as usize;
            let end = at + unit.size as usize;
            let record = part.get(at..end).filter(|record| is_record(record, &unit));
            let record = record.ok_or(CopyError::Record { physical: unit.physical })?;
            if !takes(record) {
                continue;
            }
            if !room.is_empty && (room.count == 0 || record.len() > room.bytes) {
                selected.refused = Some(offset);
                break;
            }
            room = Room {
                count: room.count.saturating_sub(1),
                bytes: room.bytes.saturating_sub(record.len()),
                is_empty: false,
            };
            selected.count += 1;
            match selected.parts.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => selected.parts.push(at..end),
            }
        }
        Ok(selected)
    }

    fn has_room_for(&self, unit: &Unit, count_max: usize, bytes_max: u64) -> bool {
        let range = self.range();
        let is_near = unit.physical.checked_sub(range.end).is_some_and(|gap| gap <= GAP_BYTES_MAX);
        is_near && self.entries.len() < count_max && unit.end() - range.start <= bytes_max
    }
}

/// Returns whether these bytes have the size and the position of the unit's record.
fn is_record(bytes: &[u8], unit: &Unit) -> bool {
    let size = bytes.first_chunk().map(|size| u32::from_be_bytes(*size));
    let position = bytes.get(POSITION_AT..).and_then(|rest| rest.first_chunk());
    size == Some(unit.size) && position.map(|position| u64::from_be_bytes(*position)) == Some(unit.physical)
}
