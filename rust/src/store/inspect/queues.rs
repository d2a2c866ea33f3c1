//! Queue check: comparison of every record with its unit in its ConsumeQueue, in both directions.
//!
//! Owns the state of each queue while the log is read: the next offset, and a few units around it. The offsets of a
//! queue increase by one along the log, so its files are read once, in order, a chunk at a time.
//!
//! Threads: that of the verification.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use hashbrown::{HashMap, HashSet};

use crate::message::record::RecordView;
use crate::message::topic::{SCHEDULE_TOPIC, is_light};
use crate::message::{multi_dispatch, sysflag, tag};
use crate::store::derived::{UNIT_BYTES, Unit};
use crate::store::disk::{Disk, Open, name_of, position_of};
use crate::store::error::StoreError;

use super::findings::{FindingKind, Findings};

/// Units of one queue in memory.
const CHUNK_UNITS: usize = 256;
/// The maximum of third fields that are positions in an extension file.
const EXTENSION_MAX: i64 = i32::MIN as i64 - 1;

/// The queues with records in the log so far.
pub(super) struct QueueCheck<'a> {
    disk: &'a dyn Disk,
    root: PathBuf,
    topics: HashMap<Vec<u8>, BTreeMap<u32, Queue>>,
}

/// A queue with records in the log.
struct Queue {
    units: Units,
    /// The offset of the first record, and the one after the last.
    first: u64,
    next: u64,
    records: u64,
    missing: Run,
    wrong: Run,
}

/// A number of wrong units, and the first one.
#[derive(Default)]
struct Run {
    count: u64,
    first: Option<First>,
}

struct First {
    offset: u64,
    physical: u64,
    found: String,
}

impl Run {
    fn add(&mut self, offset: u64, physical: u64, found: impl FnOnce() -> String) {
        self.count += 1;
        self.first.get_or_insert_with(|| First { offset, physical, found: found() });
    }
}

impl<'a> QueueCheck<'a> {
    /// Creates a comparison with the queues below `root`.
    pub(super) fn new(disk: &'a dyn Disk, root: PathBuf) -> Self {
        Self { disk, root, topics: HashMap::new() }
    }

    /// Compares a record with its unit in each queue. `is_deleted` returns whether a topic was deleted after the record.
    pub(super) fn take(
        &mut self,
        record: &RecordView<'_>,
        is_deleted: impl Fn(&[u8]) -> bool,
        findings: &mut Findings,
    ) -> Result<(), StoreError> {
        if sysflag::is_queued(record.sys_flag()) && !is_deleted(record.topic()) {
            let (topic, queue_id) = (record.topic(), record.queue_id());
            self.compare(record, (topic, queue_id, record.queue_offset().0), findings)?;
        }
        for (name, offset) in multi_dispatch::places(record.topic(), record.properties()) {
            if !is_deleted(name.as_bytes()) {
                self.compare(record, (name.as_bytes(), 0, offset.0), findings)?;
            }
        }
        Ok(())
    }

    /// Compares a record with its unit at an offset of a queue.
    fn compare(
        &mut self,
        record: &RecordView<'_>,
        (topic, queue_id, offset): (&[u8], u32, u64),
        findings: &mut Findings,
    ) -> Result<(), StoreError> {
        let physical = record.physical_offset().0;
        let disk = self.disk;
        let queue = self.queue(topic, queue_id, offset)?;
        if offset > queue.next {
            let range = queue.next..offset;
            let text = format!("the log has no records for the offsets {} to {}", range.start, range.end - 1);
            findings.add(FindingKind::Hole, &queue.units.dir, physical, text);
        } else if offset < queue.next {
            // The topic was deleted and created again: earlier records are not part of the queue.
            (queue.missing, queue.wrong, queue.records) = (Run::default(), Run::default(), 0);
            queue.first = offset;
        }
        queue.next = offset + 1;
        queue.records += 1;
        let tags_code = tag::tags_code(record.properties());
        match queue.units.at(disk, offset) {
            Ok(None) => queue.missing.add(offset, physical, String::new),
            Err(error) => queue.wrong.add(offset, physical, || format!("cannot be read: {error}")),
            Ok(Some(unit)) if unit.physical != physical || unit.size as usize != record.total_size() => {
                let found = || format!("points to {} bytes at {}", unit.size, unit.physical);
                queue.wrong.add(offset, physical, found);
            }
            Ok(Some(unit)) if unit.tags_code != tags_code && has_tags(topic, &unit) => {
                let found = || format!("tag hash {} differs from {tags_code} of the record", unit.tags_code);
                queue.wrong.add(offset, physical, found);
            }
            Ok(Some(_)) => {}
        }
        Ok(())
    }

    fn queue(&mut self, topic: &[u8], id: u32, offset: u64) -> Result<&mut Queue, StoreError> {
        let queues = self.topics.entry_ref(topic).or_default();
        match queues.entry(id) {
            std::collections::btree_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let name = String::from_utf8_lossy(topic);
                let units = Units::list(self.disk, self.root.join(&*name).join(id.to_string()))?;
                let (missing, wrong) = (Run::default(), Run::default());
                Ok(entry.insert(Queue { units, first: offset, next: offset, records: 0, missing, wrong }))
            }
        }
    }

    /// Reports the problems found, and compares the ends of the queues with that of the log. Returns the number of
    /// queues.
    pub(super) fn finish(
        mut self,
        log: Range<u64>,
        topics: Option<&HashSet<String>>,
        findings: &mut Findings,
    ) -> Result<u64, StoreError> {
        let mut count = 0;
        for (name, id) in self.on_disk()? {
            let queue = self.topics.get_mut(name.as_bytes()).and_then(|queues| queues.remove(&id));
            count += 1;
            let units = match queue {
                Some(queue) => {
                    queue.add_to(findings);
                    let Queue { mut units, first, next, .. } = queue;
                    let before = units.surplus(self.disk, units.first()..first, &log, findings);
                    before.and_then(|()| units.surplus(self.disk, next..u64::MAX, &log, findings))
                }
                None => {
                    let mut units = Units::list(self.disk, self.root.join(&name).join(id.to_string()))?;
                    units.surplus(self.disk, units.first()..u64::MAX, &log, findings)
                }
            };
            if let Err(error) = units {
                let dir = self.root.join(&name).join(id.to_string());
                findings.add(FindingKind::Unit, &dir, log.start, format!("cannot be read: {error}"));
            }
        }
        for (topic, queues) in self.topics {
            let name = String::from_utf8_lossy(&topic);
            for queue in queues.into_values() {
                if !is_light(&name) && topics.is_some_and(|topics| !topics.contains(&*name)) {
                    let text =
                        format!("the topic was deleted; the log still has {} records of it", queue.records);
                    findings.note(FindingKind::Unit, &queue.units.dir, text);
                } else {
                    queue.add_to(findings);
                }
            }
        }
        Ok(count)
    }

    /// Returns topic and id of every queue that has a folder.
    fn on_disk(&self) -> Result<Vec<(String, u32)>, StoreError> {
        let mut queues = Vec::new();
        for topic in self.disk.entries(&self.root)?.into_iter().filter(|entry| entry.is_dir) {
            let ids =
                self.disk.entries(&self.root.join(&topic.name))?.into_iter().filter(|entry| entry.is_dir);
            queues.extend(ids.filter_map(|id| Some((topic.name.clone(), id.name.parse().ok()?))));
        }
        Ok(queues)
    }
}

impl Queue {
    fn add_to(&self, findings: &mut Findings) {
        if let Some(first) = &self.missing.first {
            let text =
                format!("{} entries are missing, the first at offset {}", self.missing.count, first.offset);
            findings.add(FindingKind::Unit, &self.units.dir, first.physical, text);
        }
        if let Some(first) = &self.wrong.first {
            let (count, offset, found) = (self.wrong.count, first.offset, &first.found);
            let text = format!("{count} entries are wrong, the first at offset {offset}: {found}");
            findings.add(FindingKind::Unit, &self.units.dir, first.physical, text);
        }
    }
}

fn has_tags(topic: &[u8], unit: &Unit) -> bool {
    topic != SCHEDULE_TOPIC.as_bytes() && unit.tags_code > EXTENSION_MAX
}

/// The units of one queue, read in order.
struct Units {
    dir: PathBuf,
    /// First byte and size of each file.
    files: Vec<(u64, u64)>,
    /// The offset of the first unit in `chunk`.
    chunk_at: u64,
    chunk: Vec<[u8; UNIT_BYTES]>,
}

impl Units {
    fn list(disk: &dyn Disk, dir: PathBuf) -> Result<Self, StoreError> {
        let entries = disk.entries(&dir)?;
        let files = entries.into_iter().filter(|entry| !entry.is_dir);
        let files = files.filter_map(|entry| Some((position_of(&entry.name)?, entry.size))).collect();
        Ok(Self { dir, files, chunk_at: 0, chunk: Vec::new() })
    }

    /// Returns the offset of the first unit that the files can hold.
    fn first(&self) -> u64 {
        self.files.first().map_or(0, |(base, _)| base / UNIT_BYTES as u64)
    }

    /// Returns the unit at `offset`; `None` if none was written.
    fn at(&mut self, disk: &dyn Disk, offset: u64) -> io::Result<Option<Unit>> {
        let in_chunk = |units: &Self| {
            units.chunk.get(usize::try_from(offset.checked_sub(units.chunk_at)?).ok()?).copied()
        };
        let unit = match in_chunk(self) {
            Some(unit) => Some(unit),
            None => {
                self.read(disk, offset)?;
                in_chunk(self)
            }
        };
        Ok(unit.map(|unit| Unit::decode(&unit)).filter(Unit::is_plausible))
    }

    /// Fills the chunk from `offset` on, as far as one file goes.
    fn read(&mut self, disk: &dyn Disk, offset: u64) -> io::Result<()> {
        let at = offset * UNIT_BYTES as u64;
        self.chunk.clear();
        self.chunk_at = offset;
        let holds = |(base, size): &&(u64, u64)| (*base..base + size).contains(&at);
        let Some((base, size)) = self.files.iter().find(holds).copied() else { return Ok(()) };
        let count = ((base + size - at) as usize / UNIT_BYTES).min(CHUNK_UNITS);
        self.chunk.resize(count, [0; UNIT_BYTES]);
        let file = disk.open(&self.dir.join(name_of(base)), Open::Read)?;
        let read = file.read_at(self.chunk.as_flattened_mut(), at - base)?;
        self.chunk.truncate(read / UNIT_BYTES);
        let written = |bytes: &[u8; UNIT_BYTES]| Unit::decode(bytes).is_plausible();
        let count = self.chunk.iter().position(|bytes| !written(bytes)).unwrap_or(self.chunk.len());
        self.chunk.truncate(count);
        // Most of many queues are short, and each keeps its chunk.
        self.chunk.shrink_to_fit();
        Ok(())
    }

    /// Reports units at `offsets` without a record: none should point into the log or beyond it.
    fn surplus(
        &mut self,
        disk: &dyn Disk,
        offsets: Range<u64>,
        log: &Range<u64>,
        findings: &mut Findings,
    ) -> io::Result<()> {
        let mut surplus = Run::default();
        for offset in offsets {
            let Some(unit) = self.at(disk, offset)? else { break };
            if unit != Unit::FILLER && unit.physical >= log.start {
                surplus.add(offset, unit.physical, || format!("points to {}", unit.physical));
            }
        }
        if let Some(First { offset, physical, found }) = surplus.first {
            let text =
                format!("{} entries have no record, the first at offset {offset}: {found}", surplus.count);
            findings.add(FindingKind::Unit, &self.dir, physical, text);
        }
        Ok(())
    }
}
