//! Loading: the files of a compacted queue, as a list of their valid content.
//!
//! A replacement that was certain is finished, another one discarded. Only the last pair of files may have been written
//! without a sync: each of its records is checked, and the first torn one ends it. The ordinary queue has the
//! missing ones.
//!
//! *Invariant*: offsets of the list ascend; a unit of the last pair points to a whole record.
//! Threads: the opener of the store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::store::disk::{Disk, Open, name_of, position_of};
use crate::store::error::StoreError;

use super::layout::{FileBytes, FilePair, Folders, UNIT_BYTES};
use super::scan::{UnitReader, read_record};
use super::swap::{Swap, discard};

/// The files of a queue.
pub(super) struct Loaded {
    pub(super) bytes: FileBytes,
    pub(super) files: Vec<FilePair>,
}

/// Loads the files in `folders`; `wanted` are the sizes of new files if there is none.
pub(super) fn load(disk: &Arc<dyn Disk>, folders: &Folders, wanted: FileBytes) -> Result<Loaded, StoreError> {
    match Swap::pending(&**disk, folders)? {
        Some(swap) => swap.finish(&**disk, folders)?,
        None => discard(&**disk, folders)?,
    }
    let (logs, queues) = (sizes(&**disk, &folders.log)?, sizes(&**disk, &folders.queue)?);
    // A crash between creating and extending a file leaves it empty.
    let first =
        |sizes: &BTreeMap<u64, u64>, wanted| sizes.values().copied().find(|size| *size > 0).unwrap_or(wanted);
    let bytes = FileBytes { log: first(&logs, wanted.log), queue: first(&queues, wanted.queue) };
    let mut files: Vec<FilePair> = Vec::new();
    for base in logs.keys() {
        if !queues.contains_key(base) {
            // A crash left half of a new pair.
            disk.remove_durably(&folders.log.join(name_of(*base)))?;
            continue;
        }
        let pair = scan_units(disk, folders, bytes, *base)?;
        let last = files.iter().rev().find(|pair| pair.units > 0).map(|pair| pair.last);
        // Files of an interrupted replacement by another broker: their messages are in the others, too.
        if pair.units == 0 || last.is_none_or(|last| last < pair.first) {
            files.push(pair);
        }
    }
    for base in queues.keys().filter(|base| !logs.contains_key(base)) {
        disk.remove_durably(&folders.queue.join(name_of(*base)))?;
    }
    if let Some(last) = files.last_mut() {
        let whole = whole_units(disk, folders, last)?;
        cut(disk, folders, bytes, &whole)?;
        *last = whole;
    }
    Ok(Loaded { bytes, files })
}

/// Returns sizes of files by position.
fn sizes(disk: &dyn Disk, dir: &Path) -> Result<BTreeMap<u64, u64>, StoreError> {
    let entries = disk.entries(dir)?.into_iter().filter(|entry| !entry.is_dir);
    Ok(entries.filter_map(|entry| Some((position_of(&entry.name)?, entry.size))).collect())
}

/// Finds the valid units of a file: those that follow one another from the beginning.
fn scan_units(
    disk: &Arc<dyn Disk>,
    folders: &Folders,
    bytes: FileBytes,
    base: u64,
) -> Result<FilePair, StoreError> {
    let mut pair = FilePair::empty(base);
    let mut reader = UnitReader::open(disk, folders, base)?;
    while let Some(unit) = reader.unit(pair.units)? {
        let follows = unit.position == base + pair.end
            && pair.end + u64::from(unit.size) <= bytes.log
            && (pair.units == 0 || unit.offset > pair.last);
        if !follows {
            break;
        }
        pair.add(&unit);
    }
    Ok(pair)
}

/// Returns the pair up to its first unit without a whole record.
fn whole_units(disk: &Arc<dyn Disk>, folders: &Folders, pair: &FilePair) -> Result<FilePair, StoreError> {
    let path = folders.log.join(name_of(pair.base));
    let file = disk.open(&path, Open::Read).map_err(StoreError::io(&path, "open"))?;
    let mut units = UnitReader::open(disk, folders, pair.base)?;
    let (mut whole, mut record) = (FilePair::empty(pair.base), Vec::new());
    for index in 0..pair.units {
        let Some(unit) = units.unit(index)? else { break };
        if !read_record(&*file, pair.base, &unit, &mut record).map_err(StoreError::io(&path, "read"))? {
            break;
        }
        whole.add(&unit);
    }
    Ok(whole)
}

/// Removes bytes behind the content of a pair, restores the sizes of its files, and makes them durable: a killed
/// process may have left bytes that are only in memory.
pub(super) fn cut(
    disk: &Arc<dyn Disk>,
    folders: &Folders,
    bytes: FileBytes,
    pair: &FilePair,
) -> Result<(), StoreError> {
    let units = pair.units * UNIT_BYTES as u64;
    for (dir, end, size) in [(&folders.queue, units, bytes.queue), (&folders.log, pair.end, bytes.log)] {
        let path = dir.join(name_of(pair.base));
        let cut = || {
            let file = disk.open(&path, Open::Write)?;
            if file.size()? != size {
                file.resize(size)?;
            }
            file.clear(end..size)?;
            file.sync()
        };
        cut().map_err(StoreError::io(&path, "cut"))?;
    }
    Ok(())
}
