//! Scan: units and records of a pair of files in their order, in blocks.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::message::record::RecordView;
use crate::store::disk::{Disk, DiskFile, Open, name_of};
use crate::store::error::StoreError;

use super::layout::{FilePair, Folders, SparseUnit, UNIT_BYTES};

/// Units per read.
const BLOCK_UNITS: u64 = 1_000;
/// Bytes of records per read; a larger record is read alone.
const BLOCK_BYTES: u64 = 1 << 20;

/// Reads units of a file by their index; the next ones are read ahead.
pub(super) struct UnitReader {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    /// Index of the first unit in `block`.
    first: u64,
    block: Vec<u8>,
}

impl UnitReader {
    pub(super) fn open(disk: &Arc<dyn Disk>, folders: &Folders, base: u64) -> Result<Self, StoreError> {
        let path = folders.queue.join(name_of(base));
        let file = disk.open(&path, Open::Read).map_err(StoreError::io(&path, "open"))?;
        Ok(Self { file, path, first: 0, block: Vec::new() })
    }

    /// Returns the unit at `index`; `None` if there is none.
    pub(super) fn unit(&mut self, index: u64) -> Result<Option<SparseUnit>, StoreError> {
        let units = (self.block.len() / UNIT_BYTES) as u64;
        if !(self.first..self.first + units).contains(&index) {
            self.read(index, BLOCK_UNITS)?;
        }
        Ok(self.at(index))
    }

    /// Returns the unit at `index` without reading ahead, for searches.
    fn probe(&mut self, index: u64) -> Result<Option<SparseUnit>, StoreError> {
        self.read(index, 1)?;
        Ok(self.at(index))
    }

    fn at(&self, index: u64) -> Option<SparseUnit> {
        let start = (index.checked_sub(self.first)? as usize) * UNIT_BYTES;
        SparseUnit::decode(self.block.get(start..start + UNIT_BYTES)?)
    }

    fn read(&mut self, index: u64, count: u64) -> Result<(), StoreError> {
        self.block.resize(count as usize * UNIT_BYTES, 0);
        let read = self.file.read_at(&mut self.block, index * UNIT_BYTES as u64);
        let read = read.map_err(StoreError::io(&self.path, "read"))?;
        self.block.truncate(read);
        self.first = index;
        Ok(())
    }

    /// Returns the index of the first unit with this offset or a later one; the number of units if there is none.
    pub(super) fn first_from(&mut self, pair: &FilePair, offset: u64) -> Result<u64, StoreError> {
        let (mut low, mut high) = (0, pair.units);
        if pair.units == 0 || offset <= pair.first {
            return Ok(0);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match self.probe(middle)? {
                Some(unit) if unit.offset < offset => low = middle + 1,
                _ => high = middle,
            }
        }
        self.block.clear();
        Ok(low)
    }
}

/// Calls `visit` with each whole record of a pair, and its index among the units; damaged ones are passed. `spend`
/// gets the bytes of each read, and ends the scan with false. Returns whether the scan came to the end.
pub(super) fn scan_records(
    disk: &Arc<dyn Disk>,
    folders: &Folders,
    pair: &FilePair,
    spend: &mut dyn FnMut(u64) -> bool,
    visit: &mut dyn FnMut(u64, &RecordView<'_>) -> Result<(), StoreError>,
) -> Result<bool, StoreError> {
    if pair.units == 0 {
        return Ok(true);
    }
    let path = folders.log.join(name_of(pair.base));
    let file = disk.open(&path, Open::Read).map_err(StoreError::io(&path, "open"))?;
    let mut units = UnitReader::open(disk, folders, pair.base)?;
    let (mut index, mut block) = (0, Vec::new());
    let mut run: Vec<SparseUnit> = Vec::new();
    while index < pair.units {
        run.clear();
        while let Some(unit) = units.unit(index + run.len() as u64)? {
            let end = unit.position + u64::from(unit.size);
            let begin = run.first().map_or(unit.position, |first| first.position);
            let is_full = !run.is_empty() && end - begin > BLOCK_BYTES;
            if is_full || index + run.len() as u64 >= pair.units {
                break;
            }
            run.push(unit);
        }
        let (Some(first), Some(last)) = (run.first(), run.last()) else { break };
        let size = last.position + u64::from(last.size) - first.position;
        if !spend(size + (run.len() * UNIT_BYTES) as u64) {
            return Ok(false);
        }
        block.resize(size as usize, 0);
        let read = file.read_at(&mut block, first.position - pair.base);
        let read = read.map_err(StoreError::io(&path, "read"))?;
        let begin = first.position;
        for unit in &run {
            let start = (unit.position - begin) as usize;
            let bytes = block.get(start..(start + unit.size as usize).min(read)).unwrap_or_default();
            if is_record_of(bytes, unit)
                && let Ok(record) = RecordView::parse(bytes)
            {
                visit(index, &record)?;
            }
            index += 1;
        }
    }
    Ok(true)
}

/// Reads the record of a unit; false if it is not whole.
pub(super) fn read_record(
    file: &dyn DiskFile,
    base: u64,
    unit: &SparseUnit,
    into: &mut Vec<u8>,
) -> io::Result<bool> {
    into.resize(unit.size as usize, 0);
    let read = file.read_at(into, unit.position.saturating_sub(base))?;
    Ok(read == into.len() && is_record_of(into, unit))
}

/// Returns whether `bytes` are the record of a unit.
fn is_record_of(bytes: &[u8], unit: &SparseUnit) -> bool {
    RecordView::parse(bytes).is_ok_and(|record| {
        record.total_size() == unit.size as usize
            && record.physical_offset().0 == unit.position
            && record.queue_offset().0 == unit.offset
            && record.body_crc_matches()
            && record.check_text().is_ok()
    })
}
