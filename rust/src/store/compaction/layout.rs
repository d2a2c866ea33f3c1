//! Layout: folders, file sizes and units of a compacted queue, as in Apache's broker.
//!
//! Records are in `compactionLog/TOPIC/QUEUE`, their units in `compactionCq/TOPIC/QUEUE`. The files come in pairs with
//! the same name: the position of the log file's first byte. A unit does not tell its offset by its place, because
//! offsets have gaps.

use std::path::{Path, PathBuf};

use crate::message::record::RecordView;
use crate::message::tag;
use crate::store::disk::Disk;
use crate::store::error::StoreError;

pub(super) const UNIT_BYTES: usize = 46;
/// Bytes of a blank's head, for which every log file has room.
pub(super) const BLANK_BYTES: u64 = 8;
/// The fewest queue files that fit into a log file.
const QUEUE_FILES_MIN: u64 = 5;

/// The folder of all compacted queues.
pub(super) fn folder(root: &Path) -> PathBuf {
    root.join("compaction")
}

/// The folders with a folder for each topic: of records, and of units.
pub(super) fn topic_folders(root: &Path) -> [PathBuf; 2] {
    ["compactionLog", "compactionCq"].map(|name| folder(root).join(name))
}

/// Removes the copies of a topic's queues, durably.
pub(crate) fn remove_topic(disk: &dyn Disk, root: &Path, topic: &str) -> Result<(), StoreError> {
    for parent in topic_folders(root) {
        if disk.entries(&parent)?.iter().any(|entry| entry.name == topic) {
            let dir = parent.join(topic);
            disk.remove_dir(&dir).map_err(StoreError::io(&dir, "remove"))?;
            disk.sync_entries(&parent)?;
        }
    }
    Ok(())
}

/// The folders of a queue's files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Folders {
    /// Of the records.
    pub(super) log: PathBuf,
    /// Of the units.
    pub(super) queue: PathBuf,
}

impl Folders {
    pub(super) fn of(root: &Path, topic: &str, queue_id: u32) -> Self {
        let [log, queue] = topic_folders(root).map(|dir| dir.join(topic).join(queue_id.to_string()));
        Self { log, queue }
    }

    /// The folders of new files that are not valid yet.
    pub(super) fn compacting(&self) -> Self {
        Self { log: self.log.join("compacting"), queue: self.queue.join("compacting") }
    }

    pub(super) fn both(&self) -> [&Path; 2] {
        [&self.log, &self.queue]
    }
}

/// Sizes of the files of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileBytes {
    pub(super) log: u64,
    pub(super) queue: u64,
}

impl FileBytes {
    /// Rounds like Apache's broker, so that the sizes of its files are equal: whole units, and whole queue files in a
    /// log file.
    pub(super) fn of(log: u64, queue: u64) -> Self {
        let queue = (queue / UNIT_BYTES as u64).max(2) * UNIT_BYTES as u64;
        let (count, rest) = (log / queue, log % queue);
        let count = if count < QUEUE_FILES_MIN {
            QUEUE_FILES_MIN
        } else if rest > 0 && rest < queue / 2 {
            count
        } else {
            count + 1
        };
        Self { log: count * queue, queue }
    }

    /// The most units of a file; one more place marks the end.
    pub(super) fn units_max(self) -> u64 {
        (self.queue / UNIT_BYTES as u64).saturating_sub(1)
    }
}

/// An entry of a compacted queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SparseUnit {
    /// Position of the record in the compacted log.
    pub(super) position: u64,
    pub(super) size: u32,
    pub(super) tags_code: i64,
    pub(super) store_timestamp_ms: i64,
    /// The offset in the ordinary queue.
    pub(super) offset: u64,
}

impl SparseUnit {
    /// Marks the end of a file.
    pub(super) const END: [u8; UNIT_BYTES] = encoded(u64::MAX, 0, 0, 0, 0, 0);

    pub(super) fn of(record: &RecordView<'_>, position: u64) -> Self {
        Self {
            position,
            size: record.total_size() as u32,
            tags_code: tag::tags_code(record.properties()),
            store_timestamp_ms: record.store_timestamp_ms(),
            offset: record.queue_offset().0,
        }
    }

    pub(super) fn encode(&self) -> [u8; UNIT_BYTES] {
        encoded(self.position, self.size, self.tags_code, self.store_timestamp_ms, self.offset, 1)
    }

    /// Decodes a unit; `None` for the mark of an end, for zeros, and for anything else that is not a unit.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let long = |at: usize| bytes.get(at..)?.first_chunk().copied().map(i64::from_be_bytes);
        let size = bytes.get(8..)?.first_chunk().copied().map(i32::from_be_bytes)?;
        let count = bytes.get(36..)?.first_chunk().copied().map(i16::from_be_bytes)?;
        let unit = Self {
            position: u64::try_from(long(0)?).ok()?,
            size: u32::try_from(size).ok()?,
            tags_code: long(12)?,
            store_timestamp_ms: long(20)?,
            offset: u64::try_from(long(28)?).ok()?,
        };
        (unit.size > 0 && count > 0).then_some(unit)
    }
}

const fn encoded(
    position: u64,
    size: u32,
    tags_code: i64,
    store_timestamp_ms: i64,
    offset: u64,
    count: u16,
) -> [u8; UNIT_BYTES] {
    let mut bytes = [0; UNIT_BYTES];
    let (head, rest) = bytes.split_at_mut(8);
    head.copy_from_slice(&position.to_be_bytes());
    let (head, rest) = rest.split_at_mut(4);
    head.copy_from_slice(&size.to_be_bytes());
    let (head, rest) = rest.split_at_mut(8);
    head.copy_from_slice(&tags_code.to_be_bytes());
    let (head, rest) = rest.split_at_mut(8);
    head.copy_from_slice(&store_timestamp_ms.to_be_bytes());
    let (head, rest) = rest.split_at_mut(8);
    head.copy_from_slice(&offset.to_be_bytes());
    let (head, rest) = rest.split_at_mut(2);
    head.copy_from_slice(&count.to_be_bytes());
    // The position in another compacted log: unused.
    let (head, _) = rest.split_at_mut(4);
    head.copy_from_slice(&(-1_i32).to_be_bytes());
    bytes
}

/// A pair of files, and their content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FilePair {
    /// Position of the log file's first byte.
    pub(super) base: u64,
    pub(super) units: u64,
    /// Offsets of the first and the last unit; meaningless without units.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Bytes of the records.
    pub(super) end: u64,
}

impl FilePair {
    pub(super) const fn empty(base: u64) -> Self {
        Self { base, units: 0, first: 0, last: 0, end: 0 }
    }

    pub(super) fn add(&mut self, unit: &SparseUnit) {
        if self.units == 0 {
            self.first = unit.offset;
        }
        self.last = unit.offset;
        self.units += 1;
        self.end = unit.position - self.base + u64::from(unit.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_sizes_are_those_of_apaches_files() {
        let bytes = FileBytes::of(104_857_600, 10_485_760);
        assert_eq!(bytes, FileBytes { log: 104_857_460, queue: 10_485_746 });
        assert_eq!(FileBytes::of(1, 1), FileBytes { log: 5 * 92, queue: 92 });
        assert_eq!(FileBytes::of(92 * 7, 92).log, 92 * 8, "also where nothing is left over");
        assert_eq!(FileBytes::of(92 * 7 + 50, 92).log, 92 * 8);
    }

    #[test]
    fn a_unit_reads_back_and_neither_zeros_nor_an_end_is_one() {
        let unit =
            SparseUnit { position: 1 << 40, size: 300, tags_code: -7, store_timestamp_ms: 9, offset: 5 };
        let bytes = unit.encode();
        assert_eq!(SparseUnit::decode(&bytes), Some(unit));
        assert_eq!(bytes[36..46], [0, 1, 255, 255, 255, 255, 0, 0, 0, 0]);
        assert_eq!(SparseUnit::decode(&[0; UNIT_BYTES]), None);
        assert_eq!(SparseUnit::decode(&SparseUnit::END), None);
        assert_eq!(SparseUnit::END[..8], [255; 8]);
        assert_eq!(SparseUnit::decode(&bytes[..45]), Some(unit), "the last bytes are reserved");
    }
}
