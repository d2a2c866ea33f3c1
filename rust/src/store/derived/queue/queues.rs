//! Queues: the table of all ConsumeQueues.
//!
//! Owns the set of queues, and the list of dirty ones. Deleting a topic removes its queues from the table and
//! removes their files; the messages stay in the log until their segment is deleted.
//!
//! *Invariant*: a queue that is not in the table is never written, so a deleted topic stays deleted.
//! Threads: lookups from any; `write` and `delete` exclude each other.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use parking_lot::RwLock;

use crate::message::topic::{SCHEDULE_TOPIC, is_light};
use crate::positions::{QueueKey, QueueOffset};
use crate::store::derived::dispatch::{Derived, DispatchRequest, LightPlace};
use crate::store::derived::pace;
use crate::store::error::StoreError;
use crate::store::sync::{AtomicU64, Mutex};

use super::consume_queue::{ArrivedByType, ConsumeQueue, Pushed};
use super::queue_files::QueueFiles;
use super::unit::{UNIT_BYTES, Unit};

/// Maximum number of unwritten units of a queue. Beyond it the dispatching thread writes them itself: backpressure.
/// At two million messages a second it covers the rounds of maintenance and a slow disk.
const UNWRITTEN_UNITS_MAX: usize = 1 << 18;
/// Units per write: a thread that adds units meanwhile waits until they are copied.
const WRITE_UNITS: usize = 1 << 14;
/// The number of units from which on memory is preallocated for a queue.
const PACE_UNITS_MIN: usize = 64;
/// The longest time without a write of units, unless the disk blocks: a checkpoint does not delay them.
const WRITE_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of units over all queues for which memory is preallocated between two cool-downs: 20 MiB.
const ROOM_UNITS_MAX: usize = 1 << 20;
/// Queues trimmed per call: a few milliseconds of work.
const QUEUES_PER_PIECE: usize = 256;
/// The most light queues, with any settings: each takes about half a kilobyte of memory, and three inodes.
pub(crate) const LIGHT_QUEUES_MAX: u64 = 1 << 20;
/// Longest name of a topic in bytes, limited by a directory entry.
const TOPIC_BYTES_MAX: usize = 255;

type Topics = HashMap<Arc<str>, BTreeMap<u32, Arc<ConsumeQueue>>>;

/// Memory that is reused for each write.
#[derive(Default)]
struct Writing {
    dirty: Vec<Arc<ConsumeQueue>>,
    units: Vec<u8>,
}

/// Queues that must still be trimmed to a beginning of the log.
#[derive(Default)]
struct Trimming {
    log_begin: Option<u64>,
    queues: Vec<Arc<ConsumeQueue>>,
}

pub(crate) struct Queues {
    files: QueueFiles,
    /// Delays of the delay levels, from level 1 on.
    delay_levels_ms: Box<[u64]>,
    topics: RwLock<Topics>,
    /// The topics whose queues are marked as compacted. Locked after `topics`.
    compacted: RwLock<HashSet<Box<str>>>,
    /// The number of light queues in the table.
    lights: AtomicUsize,
    /// The queues of lite topics, those of one parent adjacent. Locked after `topics`.
    lites: RwLock<BTreeMap<Arc<str>, Arc<ConsumeQueue>>>,
    /// What clients sent to light queues themselves since the last `take_light_arrivals`.
    light_arrivals: Mutex<ArrivedByType>,
    serials: AtomicU64,
    /// Sum over all queues of weight times max, kept up to date under the dispatch lock.
    pub(super) digest: AtomicU64,
    /// Queues with unwritten units.
    dirty: Mutex<Vec<Arc<ConsumeQueue>>>,
    /// Held while queue files are written or removed.
    writing: Mutex<Writing>,
    /// Units for which memory exists: of all queues at the last cool-down, plus what was preallocated since.
    room_units: AtomicUsize,
    trimming: Mutex<Trimming>,
}

impl Queues {
    /// Creates an empty table over `files`.
    pub(crate) fn new(files: QueueFiles, delay_levels_ms: &[u64]) -> Self {
        Self {
            files,
            delay_levels_ms: delay_levels_ms.into(),
            topics: RwLock::default(),
            compacted: RwLock::default(),
            lights: AtomicUsize::new(0),
            lites: RwLock::default(),
            light_arrivals: Mutex::default(),
            serials: AtomicU64::new(0),
            digest: AtomicU64::new(0),
            dirty: Mutex::default(),
            writing: Mutex::default(),
            room_units: AtomicUsize::new(0),
            trimming: Mutex::default(),
        }
    }

    pub(crate) fn files(&self) -> &QueueFiles {
        &self.files
    }

    pub(crate) fn get(&self, topic: &str, queue_id: u32) -> Option<Arc<ConsumeQueue>> {
        self.topics.read().get(topic)?.get(&queue_id).cloned()
    }

    /// Returns the queue, created empty if necessary.
    pub(crate) fn get_or_create(&self, topic: &str, queue_id: u32) -> Result<Arc<ConsumeQueue>, StoreError> {
        match self.get(topic, queue_id) {
            Some(queue) => Ok(queue),
            None => self.insert(topic, queue_id, 0, 0),
        }
    }

    /// Returns the queue, but does not create one of a deleted topic, so that a message in flight does not restore
    /// the topic.
    pub(crate) fn get_or_create_unless(
        &self,
        topic: &str,
        queue_id: u32,
        is_gone: impl Fn() -> bool,
    ) -> Result<Arc<ConsumeQueue>, StoreError> {
        match self.get(topic, queue_id) {
            Some(queue) => Ok(queue),
            None if is_light(topic) && self.lights() as u64 >= LIGHT_QUEUES_MAX => {
                Err(StoreError::LightQueues { topic: topic.to_owned(), count: self.lights() })
            }
            None => self.insert_unless(topic, queue_id, (0, 0), is_gone),
        }
    }

    /// Adds a queue whose files hold the units `min..max`, unless one of that name exists.
    pub(crate) fn insert(
        &self,
        topic: &str,
        queue_id: u32,
        min: u64,
        max: u64,
    ) -> Result<Arc<ConsumeQueue>, StoreError> {
        self.insert_unless(topic, queue_id, (min, max), || false)
    }

    fn insert_unless(
        &self,
        topic: &str,
        queue_id: u32,
        (min, max): (u64, u64),
        is_gone: impl Fn() -> bool,
    ) -> Result<Arc<ConsumeQueue>, StoreError> {
        let is_directory_name = !matches!(topic, "" | "." | "..")
            && topic.len() <= TOPIC_BYTES_MAX
            && !topic.contains(['/', '\0']);
        // Apache's queue ids are signed.
        if !is_directory_name || queue_id > i32::MAX as u32 {
            return Err(StoreError::Topic { topic: topic.to_owned() });
        }
        let mut topics = self.topics.write();
        // Checked under the lock: a removal comes either before and is seen, or after and removes the queue.
        if is_gone() {
            return Err(StoreError::TopicDeleted { topic: topic.to_owned() });
        }
        let name = match topics.get_key_value(topic) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(topic),
        };
        let queues = topics.entry(Arc::clone(&name)).or_default();
        let queue = queues.entry(queue_id).or_insert_with(|| {
            let serial = self.serials.fetch_add(1, Ordering::Relaxed);
            let delay_ms = self.delay_ms(&name, queue_id);
            let queue = ConsumeQueue::new(QueueKey { topic: name, queue_id }, serial, min, max);
            queue.set_compacted(self.compacted.read().contains(topic));
            self.lights.fetch_add(usize::from(queue.is_light()), Ordering::Relaxed);
            let queue = Arc::new(queue.delayed_by(delay_ms));
            if queue.is_lite() {
                self.lites.write().insert(Arc::clone(&queue.key().topic), Arc::clone(&queue));
            }
            queue
        });
        Ok(Arc::clone(queue))
    }

    /// Returns the delay of messages of a queue; `None` for queues of other topics.
    fn delay_ms(&self, topic: &str, queue_id: u32) -> Option<u64> {
        if topic != SCHEDULE_TOPIC {
            return None;
        }
        // A level that is not in the list any more has the delay of the last one.
        self.delay_levels_ms.get(queue_id as usize).or(self.delay_levels_ms.last()).copied()
    }

    /// Returns the number of light queues.
    pub(crate) fn lights(&self) -> usize {
        self.lights.load(Ordering::Relaxed)
    }

    /// Returns some queues of lite topics, by name, from the first name after `after` on.
    pub(crate) fn lites_after(&self, after: &str, limit: usize) -> Vec<Arc<ConsumeQueue>> {
        let range = (Bound::Excluded(after), Bound::Unbounded);
        self.lites.read().range::<str, _>(range).take(limit).map(|(_, queue)| Arc::clone(queue)).collect()
    }

    /// Takes the counts of messages sent to light queues themselves since the last call, by type.
    pub(crate) fn take_light_arrivals(&self) -> ArrivedByType {
        std::mem::take(&mut *self.light_arrivals.lock())
    }

    /// Returns the number of queues.
    pub(crate) fn count(&self) -> usize {
        self.topics.read().values().map(BTreeMap::len).sum()
    }

    /// Returns the queues that are not light. There may be many times more light ones.
    pub(crate) fn ordinary(&self) -> Vec<Arc<ConsumeQueue>> {
        let topics = self.topics.read();
        topics.values().flat_map(BTreeMap::values).filter(|queue| !queue.is_light()).cloned().collect()
    }

    /// Returns all queues, by topic and id.
    pub(crate) fn all(&self) -> Vec<Arc<ConsumeQueue>> {
        self.topics.read().values().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Returns the queues of a topic, by id.
    pub(crate) fn of_topic(&self, topic: &str) -> Vec<Arc<ConsumeQueue>> {
        self.topics.read().get(topic).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Marks the queues of a topic, also those created later, as compacted or not.
    pub(crate) fn set_compacted(&self, topic: &str, is_compacted: bool) {
        let topics = self.topics.write();
        match is_compacted {
            true => self.compacted.write().insert(topic.into()),
            false => self.compacted.write().remove(topic),
        };
        let queues = topics.get(topic).into_iter().flat_map(BTreeMap::values);
        queues.for_each(|queue| queue.set_compacted(is_compacted));
    }

    /// Returns the topics with the ids of their queues, sorted.
    pub(crate) fn topics(&self) -> Vec<(Arc<str>, Vec<u32>)> {
        let topics = self.topics.read();
        let mut list: Vec<_> = topics
            .iter()
            .map(|(topic, queues)| (Arc::clone(topic), queues.keys().copied().collect()))
            .collect();
        list.sort();
        list
    }

    /// Recomputes the digest after recovery has changed queues without dispatching.
    pub(crate) fn recount(&self) {
        let sum = self.all().iter().fold(0_u64, |sum, queue| sum.wrapping_add(digest_of(queue)));
        self.digest.store(sum, Ordering::Release);
    }

    /// Removes a topic's queues from the table. Under the dispatch lock and the put lock, so that no message for
    /// them is in flight.
    pub(crate) fn remove(&self, topic: &str) -> Vec<Arc<ConsumeQueue>> {
        let removed = self.topics.write().remove(topic).unwrap_or_default();
        for queue in removed.values() {
            queue.delete();
            self.lights.fetch_sub(usize::from(queue.is_light()), Ordering::Relaxed);
            if queue.is_lite() {
                self.lites.write().remove(&queue.key().topic);
            }
            self.digest.fetch_sub(digest_of(queue), Ordering::AcqRel);
        }
        removed.into_values().collect()
    }

    /// Removes the files of queues that were removed from the table.
    pub(crate) fn remove_files(&self, topic: &str, removed: &[Arc<ConsumeQueue>]) -> Result<(), StoreError> {
        let _writing = self.writing.lock();
        removed.iter().for_each(|queue| self.files.close(queue));
        // A topic created again under the same name may have files by now; they are newer and stay.
        if self.topics.read().contains_key(topic) {
            return removed
                .iter()
                .filter(|queue| self.get(topic, queue.key().queue_id).is_none())
                .try_for_each(|queue| self.files.remove_queue(topic, queue.key().queue_id));
        }
        self.files.remove_topic(topic)
    }

    /// Restarts a queue at `offset`, during recovery, with files that hold only fillers before it.
    pub(crate) fn restart(&self, queue: &ConsumeQueue, offset: u64) -> Result<(), StoreError> {
        let _writing = self.writing.lock();
        self.files.close(queue);
        self.files.remove_queue(&queue.key().topic, queue.key().queue_id)?;
        let fillers = offset % self.files.file_units();
        let bytes = Unit::FILLER.encode().repeat(fillers as usize);
        self.files.write(queue, offset - fillers, &bytes)?;
        queue.restart(QueueOffset(offset));
        Ok(())
    }

    /// Adds a unit in recovery; returns false, with nothing done, unless it is the queue's next one.
    pub(crate) fn restore(&self, queue: &Arc<ConsumeQueue>, offset: QueueOffset, unit: Unit) -> bool {
        let is_next = queue.restore(offset, unit);
        if is_next && queue.list() {
            self.dirty.lock().push(Arc::clone(queue));
        }
        is_next
    }

    /// Reads units from `offset` on, from memory or file. May return fewer than fit, and 0 only at the end of the
    /// queue. An unreadable file is an error.
    pub(crate) fn read(
        &self,
        queue: &ConsumeQueue,
        offset: u64,
        into: &mut [[u8; UNIT_BYTES]],
    ) -> Result<usize, StoreError> {
        if let Some(count) = queue.read_tail(offset, into) {
            return Ok(count);
        }
        // All units below the tail are in files. Units after them in a file may be older than the tail.
        let in_files = queue.written().saturating_sub(offset).min(into.len() as u64) as usize;
        match into.get_mut(..in_files) {
            Some(into) if !into.is_empty() => self.files.read(queue, offset, into),
            _ => Ok(0),
        }
    }

    /// Reads the unit at `offset`, which must be below the queue's max.
    pub(crate) fn unit(&self, queue: &ConsumeQueue, offset: u64) -> Result<Option<Unit>, StoreError> {
        let mut unit = [[0; UNIT_BYTES]];
        let count = self.read(queue, offset, &mut unit)?;
        let [unit] = unit;
        Ok(Some(Unit::decode(&unit)).filter(|unit| count == 1 && unit.is_plausible()))
    }

    /// Raises a queue's min to its first unit whose record is still in the log.
    pub(crate) fn correct_min(&self, queue: &ConsumeQueue, log_begin: u64) -> Result<(), StoreError> {
        queue.raise_min(self.first_from(queue, log_begin)?);
        Ok(())
    }

    /// Returns the offset of a queue's first unit whose record is at `position` or later.
    pub(crate) fn first_from(&self, queue: &ConsumeQueue, position: u64) -> Result<u64, StoreError> {
        let is_before = |offset: u64| -> Result<bool, StoreError> {
            let unit = self.unit(queue, offset)?;
            Ok(unit.is_none_or(|unit| unit == Unit::FILLER || unit.physical < position))
        };
        let (mut low, mut high) = (queue.min().0, queue.max().0);
        if low < high && !is_before(low)? {
            return Ok(low);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(middle)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Returns what a topic's records before a position of the log add to the digest.
    pub(crate) fn digest_before(&self, topic: &str, position: u64) -> Result<u64, StoreError> {
        let queues = self.of_topic(topic);
        queues.iter().try_fold(0, |sum: u64, queue| {
            Ok(sum.wrapping_add(queue.weight().wrapping_mul(self.first_from(queue, position)?)))
        })
    }

    /// Removes the files of a queue that end before its min, oldest first. The newest stays: it holds the next
    /// offset.
    fn remove_expired(&self, queue: &ConsumeQueue) -> Result<(), StoreError> {
        let _writing = self.writing.lock();
        let file_units = self.files.file_units();
        let newest = queue.max().0.min(queue.written()).saturating_sub(1) / file_units;
        for file in queue.first() / file_units..newest.min(queue.min().0 / file_units) {
            // Deleting a topic removes all its files.
            if queue.is_deleted() {
                break;
            }
            self.files.remove_first(queue, file * self.files.file_bytes())?;
            queue.removed_before((file + 1) * file_units);
        }
        Ok(())
    }

    /// Writes the units of the time `since` the last call, and preallocates memory for the same rate.
    pub(crate) fn write_and_make_room(&self, since: Duration) -> Result<(), StoreError> {
        self.write_all(|queue, units| {
            if units < PACE_UNITS_MIN {
                return;
            }
            let pace = pace::until_written(units, since, WRITE_PAUSE);
            let room = pace.min(UNWRITTEN_UNITS_MAX).next_power_of_two();
            // If many queues are due, the first units of each allocate their own memory.
            if self.room_units.load(Ordering::Relaxed) + room <= ROOM_UNITS_MAX {
                let (made, given_back) = queue.make_room(room);
                self.room_units.fetch_add(made, Ordering::Relaxed);
                self.room_units.fetch_sub(given_back, Ordering::Relaxed);
            }
        })
    }

    /// Frees the memory of idle queues.
    pub(crate) fn cool_down(&self) {
        let kept =
            self.topics.read().values().flat_map(BTreeMap::values).map(|queue| queue.cool_down()).sum();
        self.room_units.store(kept, Ordering::Relaxed);
    }

    /// Takes records of one queue.
    fn take_run(&self, queue: &Arc<ConsumeQueue>, records: &[DispatchRequest]) {
        let queued = records.iter().filter(|record| record.is_queued());
        let pushed = queue
            .push_all(queued.clone().map(|record| (record.queue_offset, record.unit(), record.message_type)));
        debug_assert_eq!(pushed.count, queued.count() as u64, "records of a queue arrive in order");
        if queue.is_light() {
            // Counted together, because there may be too many of these queues to ask each.
            let arrivals = queue.take_arrivals();
            for (sum, arrived) in self.light_arrivals.lock().iter_mut().zip(arrivals) {
                sum.messages += arrived.messages;
                sum.bytes += arrived.bytes;
            }
        }
        self.note_pushed(queue, pushed);
    }

    /// Takes a record into its light queues.
    fn take_lights(&self, record: &DispatchRequest) {
        for LightPlace { queue, offset } in record.lights() {
            if !queue.is_deleted() {
                let pushed = queue.push_light(*offset, record.unit());
                queue.note_stored(record.store_timestamp_ms);
                debug_assert_eq!(pushed.count, 1, "records of a light queue arrive in order");
                self.note_pushed(queue, pushed);
            }
        }
    }

    fn note_pushed(&self, queue: &Arc<ConsumeQueue>, pushed: Pushed) {
        if pushed.count == 0 {
            return;
        }
        self.digest.fetch_add(queue.weight().wrapping_mul(pushed.count), Ordering::AcqRel);
        if queue.list() {
            self.dirty.lock().push(Arc::clone(queue));
        }
        if pushed.unwritten >= UNWRITTEN_UNITS_MAX {
            // Maintenance is behind. It reports any error, because the queue stays on the list.
            let mut writing = self.writing.lock();
            let _ = self.write_queue(queue, &mut writing.units);
        }
    }

    /// Writes all unwritten units; `written` receives each queue and the number of its units.
    fn write_all(&self, written: impl Fn(&ConsumeQueue, usize)) -> Result<(), StoreError> {
        let mut writing = self.writing.lock();
        let Writing { dirty, units } = &mut *writing;
        std::mem::swap(dirty, &mut *self.dirty.lock());
        while let Some(queue) = dirty.pop() {
            // Unlisted before its units are copied: a later unit lists it again.
            queue.unlist();
            match self.write_queue(&queue, units) {
                Ok(count) => written(&queue, count),
                Err(error) => {
                    let mut list = self.dirty.lock();
                    list.append(dirty);
                    if queue.list() {
                        list.push(queue);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Writes the units that exist at the start and returns their number.
    fn write_queue(&self, queue: &ConsumeQueue, buffer: &mut Vec<u8>) -> Result<usize, StoreError> {
        let (end, mut count) = (queue.max().0, 0);
        while queue.written() < end && !queue.is_deleted() {
            buffer.clear();
            let offset = queue.copy_unwritten(WRITE_UNITS, buffer);
            self.files.write(queue, offset, buffer)?;
            let units = buffer.len() / UNIT_BYTES;
            debug_assert!(units > 0, "unwritten units are in memory");
            queue.wrote(offset + units as u64);
            count += units;
        }
        Ok(count)
    }
}

/// Returns what a queue adds to the digest of all.
pub(super) fn digest_of(queue: &ConsumeQueue) -> u64 {
    queue.weight().wrapping_mul(queue.max().0)
}

impl Derived for Queues {
    fn take(&self, records: &[DispatchRequest]) {
        // The messages of a batch, and most of a pipelined producer's, are adjacent in their queue, too.
        // A run ends with a record in light queues, because later records may belong to those.
        for run in records.chunk_by(|one, next| Arc::ptr_eq(&one.queue, &next.queue) && one.lights.is_none())
        {
            if let Some(first) = run.first().filter(|first| !first.queue.is_deleted()) {
                self.take_run(&first.queue, run);
            }
            if let Some(last) = run.last() {
                self.take_lights(last);
            }
        }
    }

    fn write(&self) -> Result<(), StoreError> {
        self.write_all(|_, _| {})
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.files.sync()
    }

    fn trim(&self, log_begin: u64) -> Result<bool, StoreError> {
        let mut trimming = self.trimming.lock();
        if trimming.log_begin != Some(log_begin) {
            *trimming = Trimming { log_begin: Some(log_begin), queues: self.all() };
        }
        for _ in 0..QUEUES_PER_PIECE {
            let Some(queue) = trimming.queues.last() else { break };
            self.correct_min(queue, log_begin)?;
            self.remove_expired(queue)?;
            trimming.queues.pop();
        }
        Ok(trimming.queues.is_empty())
    }

    fn digest(&self) -> u64 {
        self.digest.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::store::disk::simulated::{Fault, SimDisk};

    /// With more unsynced files than may stay open, the writer syncs them itself.
    #[test]
    fn a_sync_that_fails_while_units_are_written_leaves_every_later_sync_in_doubt() {
        let disk = SimDisk::new();
        let files = QueueFiles::new(disk.shared(), PathBuf::from("/queues"), 1000 * UNIT_BYTES as u64);
        let queues = Queues::new(files, &[]);
        let grow = |queue_id: u32| {
            let queue = queues.get_or_create("t", queue_id).expect("a valid name");
            let unit = Unit { physical: u64::from(queue_id), size: 1, tags_code: 0 };
            assert!(queues.restore(&queue, queue.max(), unit));
        };
        (0..255).for_each(grow);
        queues.write().expect("a working disk");
        grow(255);
        // Creating the last file takes a few operations; then all are synced.
        let operation = disk.operations() + 100;
        disk.set_fault(Fault { operation, is_lasting: false, kind: std::io::ErrorKind::Other });
        assert!(queues.write().is_err());
        queues.write().expect("the disk works again");
        assert!(queues.sync().is_err(), "the units dropped then are still not on the disk");
        assert!(queues.sync().is_err());
    }
}
