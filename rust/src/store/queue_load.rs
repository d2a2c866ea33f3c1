//! Finds out what the files of queues hold, after a stop of either kind.
//!
//! After an orderly stop a queue ends at its last unit. After a crash only units of records before the position that
//! the checkpoint vouches for are kept; the rest is zeroed, and comes again from the log. Files of the wrong shape,
//! gaps between them, or a last unit that does not point at its record make a queue *damaged*: to be rebuilt.
//!
//! Threads: recovery.

use std::collections::HashMap;
use std::sync::Arc;

use crate::positions::QueueKey;

use super::consume_queue::{UNIT_BYTES, Unit};
use super::disk::{Disk, DiskFile, Open};
use super::error::StoreError;
use super::options::Options;
use super::queue_files::QueueFiles;
use super::queues::Queues;
use super::scan::record_at;
use super::segments::{Segments, name_of, position_of};

/// Units read in one go.
const CHUNK_UNITS: usize = 1 << 12;

/// Size of the queue files in `files`' folder, the most frequent one; `wanted` where there are none.
pub fn folder_file_bytes(disk: &dyn Disk, root: &std::path::Path, wanted: u64) -> Result<u64, StoreError> {
    let list = |path: &std::path::Path| disk.list(path).map_err(StoreError::io(path, "list"));
    let mut sizes: HashMap<u64, usize> = HashMap::new();
    for topic in list(root)?.iter().filter(|entry| entry.is_dir) {
        let topic = root.join(&topic.name);
        for queue in list(&topic)?.iter().filter(|entry| entry.is_dir) {
            for file in list(&topic.join(&queue.name))? {
                let is_whole = file.size > 0 && file.size.is_multiple_of(UNIT_BYTES as u64);
                if !file.is_dir && is_whole && file.size <= 1 << 30 {
                    *sizes.entry(file.size).or_default() += 1;
                }
            }
        }
    }
    Ok(sizes.into_iter().max_by_key(|(size, count)| (*count, *size)).map_or(wanted, |(size, _)| size))
}

/// Puts every queue that has files into the table. Returns those that are damaged, which are in it, too, as empty, and the
/// offset that each had reached as far as its files say.
///
/// `cut` is the position from which on the log is read again; `None` after an orderly stop.
pub fn load(
    queues: &Queues,
    disk: &dyn Disk,
    log: &Segments,
    cut: Option<u64>,
) -> Result<HashMap<QueueKey, u64>, StoreError> {
    let root = queues.files().root().to_owned();
    let mut damaged = HashMap::new();
    for topic in disk.list(&root).map_err(StoreError::io(&root, "list"))? {
        let dir = root.join(&topic.name);
        for entry in disk.list(&dir).map_err(StoreError::io(&dir, "list"))? {
            let Some(queue_id) = entry.name.parse().ok().filter(|_| entry.is_dir && topic.is_dir) else {
                continue;
            };
            let key = QueueKey::new(&topic.name, queue_id);
            match measure(queues.files(), disk, log, &key, cut)? {
                Measured::Sound { first, max } => {
                    queues.insert(&key.topic, queue_id, first, max)?;
                }
                Measured::Damaged { max } => {
                    queues.insert(&key.topic, queue_id, 0, 0)?;
                    damaged.insert(key, max);
                }
            }
        }
    }
    Ok(damaged)
}

/// What the files of a queue hold.
enum Measured {
    /// Units from `first` up to `max`.
    Sound { first: u64, max: u64 },
    /// Something else. As far as they say at all, the offset after the last unit is `max`.
    Damaged { max: u64 },
}

fn measure(
    files: &QueueFiles,
    disk: &dyn Disk,
    log: &Segments,
    key: &QueueKey,
    cut: Option<u64>,
) -> Result<Measured, StoreError> {
    let dir = files.dir(&key.topic, key.queue_id);
    let mut found = Vec::new();
    for entry in disk.list(&dir).map_err(StoreError::io(&dir, "list"))? {
        match position_of(&entry.name) {
            Some(base) if !entry.is_dir => found.push((base, entry.size)),
            _ => {}
        }
    }
    // Made and not yet extended when the crash came.
    if let Some((base, 0)) = found.last() {
        let path = dir.join(name_of(*base));
        disk.remove(&path).map_err(StoreError::io(&path, "remove"))?;
        found.pop();
    }
    let Some((first, _)) = found.first().copied() else { return Ok(Measured::Sound { first: 0, max: 0 }) };
    let is_sound = found.iter().zip(0..).all(|((base, size), index)| {
        *size == files.file_bytes()
            && base.is_multiple_of(files.file_bytes())
            && *base == first + index * files.file_bytes()
    });
    if !is_sound {
        return Ok(Measured::Damaged { max: 0 });
    }
    let offset_of = |base: u64| base / UNIT_BYTES as u64;
    while let Some((base, _)) = found.pop() {
        let path = dir.join(name_of(base));
        let file = disk.open(&path, Open::Write).map_err(StoreError::io(&path, "open"))?;
        let units = units_before(&*file, files.file_units(), cut).map_err(StoreError::io(&path, "read"))?;
        if cut.is_some() {
            let rest = units.count * UNIT_BYTES as u64..files.file_bytes();
            file.zero(rest).and_then(|()| file.sync()).map_err(StoreError::io(&path, "zero the rest"))?;
        }
        let max = offset_of(base) + units.count;
        let leads_nowhere = |last: &Unit| *last == Unit::FILLER || last.is_lost();
        match units.last {
            Some(last) if !leads_nowhere(&last) && !points_at_its_record(log, key, max - 1, &last) => {
                return Ok(Measured::Damaged { max });
            }
            // Nothing in this file: a queue made and not yet written, or one whose end was cut.
            last if last.is_some() || found.is_empty() => {
                return Ok(Measured::Sound { first: offset_of(first), max });
            }
            _ => disk.remove(&path).map_err(StoreError::io(&path, "remove"))?,
        }
    }
    Ok(Measured::Sound { first: 0, max: 0 })
}

struct Units {
    count: u64,
    last: Option<Unit>,
}

/// Units at the front of a file that make sense and point before `cut`, in the order of the log.
fn units_before(file: &dyn DiskFile, file_units: u64, cut: Option<u64>) -> std::io::Result<Units> {
    let limit = cut.unwrap_or(u64::MAX);
    let mut units = Units { count: 0, last: None };
    let mut chunk = vec![[0; UNIT_BYTES]; CHUNK_UNITS];
    while units.count < file_units {
        let read = file.read_at(chunk.as_flattened_mut(), units.count * UNIT_BYTES as u64)? / UNIT_BYTES;
        for bytes in chunk.iter().take(read) {
            let unit = Unit::decode(bytes);
            let follows = match units.last {
                Some(Unit::FILLER) | None => true,
                Some(last) => unit.physical >= last.end() || (unit.is_lost() && unit.end() >= last.end()),
            };
            if !(unit.is_plausible() && follows && (unit.physical < limit || unit == Unit::FILLER)) {
                return Ok(units);
            }
            units.count += 1;
            units.last = Some(unit);
        }
        if read == 0 {
            break;
        }
    }
    units.count = units.count.min(file_units);
    Ok(units)
}

/// Whether the record of a unit belongs to that place of that queue. Records before the log's begin cannot be asked.
fn points_at_its_record(log: &Segments, key: &QueueKey, offset: u64, unit: &Unit) -> bool {
    if unit.physical < log.begin() {
        return true;
    }
    let matches = record_at(log, unit.physical, |record| {
        record.topic() == key.topic.as_bytes()
            && record.queue_id() == key.queue_id
            && record.queue_offset().0 == offset
            && record.total_size() == unit.size as usize
    });
    matches == Some(true)
}

/// Raises every queue's min to its first unit whose record is still in the log.
pub fn correct_min_offsets(queues: &Queues, log_begin: u64) -> Result<(), StoreError> {
    queues.all().iter().try_for_each(|queue| queues.correct_min(queue, log_begin))
}

/// Shares the disk of a store with its queues.
pub fn open(disk: &Arc<dyn Disk>, options: &Options) -> Result<Queues, StoreError> {
    let root = options.root.join("consumequeue");
    let file_bytes = folder_file_bytes(&**disk, &root, options.queue_file_bytes)?;
    Ok(Queues::new(QueueFiles::new(Arc::clone(disk), root, file_bytes), &options.delay_levels_ms))
}
