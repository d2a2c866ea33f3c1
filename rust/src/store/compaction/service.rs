//! Service: the copies of all compacted queues, and the threads that fill and compact them.
//!
//! The follower copies new messages twice a second, and makes the copies durable every few seconds; a consumer that is
//! faster copies what it asks for. Each queue has a round once in an interval, at its own time. A file of the log
//! expires only after its messages are durable in the copies (`copied`).
//!
//! *Invariant*: a deleted topic leaves no copy.
//! Threads: `rmqpy-copy`; `rmqpy-compact-N`; reads from any.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::positions::QueueKey;
use crate::store::derived::{ConsumeQueue, Queues};
use crate::store::disk::Disk;
use crate::store::error::StoreError;
use crate::store::log::{CommitLog, Dispatcher, Flush};
use crate::store::read::lookup::{Get, GetResult, GetStatus, ReadFilter};
use crate::store::reports::events::{Event, Events, Step};
use crate::store::settings::options::CompactionOptions;

use super::copied::Copied;
use super::layout::{FileBytes, remove_topic, topic_folders};
use super::pace::Pace;
use super::progress::Progress;
use super::queue::CompactedQueue;
use super::reports::Report;
use super::survivors::keys_max;

/// The pause of the follower.
const COPY_INTERVAL: Duration = Duration::from_millis(500);
/// Passes of the follower after which the copies are made durable.
const PASSES_PER_SYNC: u32 = 10;
/// Bytes that are copied of a queue before the next one, or before a consumer is answered.
const COPY_BYTES: u64 = 8 << 20;
/// The longest pause before a thread of rounds looks for a queue that is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What compaction uses of a store.
pub(crate) struct CompactionParts {
    pub(crate) log: Arc<CommitLog>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) flush: Arc<Flush>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) root: PathBuf,
    pub(crate) options: CompactionOptions,
    pub(crate) events: Arc<Events>,
    pub(crate) copied: Arc<Copied>,
}

pub(crate) struct Compaction {
    log: Arc<CommitLog>,
    dispatcher: Arc<Dispatcher>,
    flush: Arc<Flush>,
    disk: Arc<dyn Disk>,
    root: PathBuf,
    options: CompactionOptions,
    events: Arc<Events>,
    queues: RwLock<HashMap<QueueKey, Arc<CompactedQueue>>>,
    topics: RwLock<HashSet<Arc<str>>>,
    progress: Mutex<Progress>,
    copied: Arc<Copied>,
    pace: Pace,
    copying: Report,
    compacting: Report,
    is_started: AtomicBool,
    /// Whether the topics of the broker were named, so that a copy without a topic keeps nothing in the log.
    is_known: AtomicBool,
    is_stopped: Mutex<bool>,
    stopping: Condvar,
}

impl Compaction {
    /// Returns whether the folder of a store has copies.
    pub(crate) fn has_copies(disk: &dyn Disk, root: &Path) -> Result<bool, StoreError> {
        let [logs, _] = topic_folders(root);
        Ok(!disk.entries(&logs)?.is_empty())
    }

    /// Loads all copies in the folder, if compaction is enabled. Copies of lost messages are cut.
    pub(crate) fn open(parts: CompactionParts) -> Result<Self, StoreError> {
        let CompactionParts { log, dispatcher, flush, disk, root, options, events, copied } = parts;
        let compaction = Self {
            pace: Pace::new(Arc::clone(log.clock()), options.bytes_per_second),
            progress: Mutex::new(Progress::load(&disk, &root)?),
            copying: Report::new(Step::Copy, &events),
            compacting: Report::new(Step::Compact, &events),
            log,
            dispatcher,
            flush,
            disk,
            root,
            options,
            events,
            queues: RwLock::default(),
            topics: RwLock::default(),
            copied,
            is_started: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            is_stopped: Mutex::new(false),
            stopping: Condvar::new(),
        };
        if compaction.options.is_enabled {
            compaction.load_all()?;
        }
        Ok(compaction)
    }

    fn load_all(&self) -> Result<(), StoreError> {
        let [logs, _] = topic_folders(&self.root);
        for topic in self.disk.entries(&logs)?.into_iter().filter(|entry| entry.is_dir) {
            for queue in self.disk.entries(&logs.join(&topic.name))?.into_iter().filter(|entry| entry.is_dir)
            {
                let Ok(queue_id) = queue.name.parse() else { continue };
                let copy =
                    self.copy_unless(&QueueKey { topic: topic.name.as_str().into(), queue_id }, || false)?;
                let source = self.ordinary().get(&topic.name, queue_id);
                // Before anything is appended.
                source.map_or(Ok(()), |source| self.rewind(&copy, &source))?;
            }
        }
        Ok(())
    }

    fn ordinary(&self) -> &Queues {
        &self.dispatcher.derived().queues
    }

    /// Returns the copy of a queue, loaded or created empty. Fails if the queue is deleted.
    fn copy_of(&self, source: &ConsumeQueue) -> Result<Arc<CompactedQueue>, StoreError> {
        self.copy_unless(source.key(), || source.is_deleted())
    }

    fn copy_unless(
        &self,
        key: &QueueKey,
        is_deleted: impl Fn() -> bool,
    ) -> Result<Arc<CompactedQueue>, StoreError> {
        if let Some(queue) = self.queues.read().get(key) {
            return Ok(Arc::clone(queue));
        }
        let mut queues = self.queues.write();
        if let Some(queue) = queues.get(key) {
            return Ok(Arc::clone(queue));
        }
        // Checked under the lock: a deletion removes the copy, or is seen here.
        if is_deleted() {
            return Err(StoreError::TopicDeleted { topic: key.topic.to_string() });
        }
        let wanted = FileBytes::of(self.options.log_file_bytes, self.options.queue_file_bytes);
        let mut progress = self.progress.lock();
        let compacted = progress.of(key);
        let queue = CompactedQueue::open(&self.disk, &self.root, key.clone(), wanted, compacted)?;
        // The position of lost files must not survive until there are new ones.
        progress.set(key, queue.compacted())?;
        *queue.due_at.lock() = self.log.clock().elapsed() + self.until_next_round(key);
        let queue = Arc::new(queue);
        queues.insert(key.clone(), Arc::clone(&queue));
        Ok(queue)
    }

    /// Goes back if the end of the log was lost, because its offsets are given again.
    fn rewind(&self, copy: &CompactedQueue, source: &ConsumeQueue) -> Result<(), StoreError> {
        if !(1..copy.next()).contains(&source.max().0) {
            return Ok(());
        }
        copy.rewind(source.min().0)?;
        self.save_progress(copy)
    }

    /// Copies some new messages. Returns whether everything is copied that was visible at the beginning.
    fn copy(&self, copy: &CompactedQueue, source: &ConsumeQueue) -> Result<bool, StoreError> {
        self.rewind(copy, source)?;
        copy.copy(&self.log, self.ordinary(), source, COPY_BYTES)
    }

    fn save_progress(&self, queue: &CompactedQueue) -> Result<(), StoreError> {
        self.progress.lock().set(&queue.key, queue.compacted())
    }

    /// Returns the time between two rounds: the interval, and a part of it that is different for each queue.
    fn until_next_round(&self, key: &QueueKey) -> Duration {
        let interval = self.options.interval_ms.max(1);
        let spread = u64::from(crc32fast::hash(key.to_string().as_bytes())) % interval;
        Duration::from_millis(interval.saturating_add(spread))
    }

    /// Returns whether new topics can be compacted.
    pub(crate) fn is_enabled(&self) -> bool {
        self.options.is_enabled
    }

    /// Returns the number of threads for rounds.
    pub(crate) fn thread_count(&self) -> u64 {
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        self.options.threads.min(cpus).max(1)
    }

    /// Returns true for the first call: its caller starts the threads.
    pub(crate) fn claim_threads(&self) -> bool {
        !self.is_started.swap(true, Ordering::AcqRel)
    }

    /// Begins or ends to keep copies of a topic's queues. Returns whether it has begun.
    pub(crate) fn set_topic(&self, topic: &str, is_compacted: bool) -> bool {
        let mut topics = self.topics.write();
        if !is_compacted {
            if topics.remove(topic) {
                self.ordinary().set_compacted(topic, false);
            }
            return false;
        }
        let is_new = topics.insert(topic.into());
        self.is_known.store(true, Ordering::Release);
        if is_new {
            self.copied.begin();
            self.ordinary().set_compacted(topic, true);
        }
        is_new
    }

    /// Records that all compacted topics were named.
    pub(crate) fn topics_are_known(&self) {
        self.is_known.store(true, Ordering::Release);
        if self.topics.read().is_empty() {
            self.copied.note(Some(self.dispatcher.visible().0));
        }
    }

    /// Removes the copies of a deleted topic, durably.
    pub(crate) fn remove_topic(&self, topic: &str) -> Result<(), StoreError> {
        self.set_topic(topic, false);
        let removed: Vec<_> = {
            let mut queues = self.queues.write();
            queues.extract_if(|key, _| &*key.topic == topic).map(|(_, queue)| queue).collect()
        };
        for queue in &removed {
            queue.retire();
            self.progress.lock().set(&queue.key, 0)?;
        }
        remove_topic(&*self.disk, &self.root, topic)
    }

    /// Reads a range of a queue's copy that begins before the ordinary queue's max.
    pub(crate) fn get(
        &self,
        source: &ConsumeQueue,
        ask: &Get,
        filter: &mut ReadFilter<'_>,
        into: &mut GetResult,
    ) -> Result<(), StoreError> {
        let copy = self.copy_of(source)?;
        if ask.offset.0 >= copy.next() {
            self.copy(&copy, source)?;
        }
        copy.read(ask, filter, into)?;
        if ask.offset >= into.max {
            // More has to be copied before.
            (into.status, into.next_begin) = (GetStatus::OffsetFoundNull, ask.offset);
        }
        into.max = into.max.max(source.max());
        Ok(())
    }

    /// Copies everything that is visible now. With `is_durable`, files of the log may expire that were waiting for it.
    pub(crate) fn copy_all(&self, is_durable: bool) -> Result<(), StoreError> {
        self.copy_until(is_durable, || false)
    }

    fn copy_until(&self, is_durable: bool, is_over: impl Fn() -> bool) -> Result<(), StoreError> {
        let visible = self.dispatcher.visible().0;
        let topics: Vec<Arc<str>> = self.topics.read().iter().cloned().collect();
        let mut outcome = Ok(());
        for source in topics.iter().flat_map(|topic| self.ordinary().of_topic(topic)) {
            outcome = outcome.and(self.copy_queue(&source, is_durable, &is_over));
        }
        if is_durable && self.is_known.load(Ordering::Acquire) && !is_over() {
            self.copied.note(outcome.is_ok().then_some(visible));
        }
        self.copying.note(&outcome);
        outcome
    }

    fn copy_queue(
        &self,
        source: &ConsumeQueue,
        is_durable: bool,
        is_over: &impl Fn() -> bool,
    ) -> Result<(), StoreError> {
        let copy_all = || {
            let copy = self.copy_of(source)?;
            let mut is_done = source.max().0 == copy.next();
            while !is_done && !is_over() {
                is_done = self.copy(&copy, source)?;
            }
            if is_durable { copy.sync() } else { Ok(()) }
        };
        match if source.max().0 == 0 { Ok(()) } else { copy_all() } {
            Err(StoreError::TopicDeleted { .. }) => Ok(()),
            copied => copied,
        }
    }

    /// Runs a round for every queue, due or not.
    pub(crate) fn compact_all(&self) -> Result<(), StoreError> {
        let queues: Vec<_> = self.queues.read().values().cloned().collect();
        queues.iter().try_for_each(|queue| self.compact(queue))
    }

    fn compact(&self, queue: &CompactedQueue) -> Result<(), StoreError> {
        let share = self.options.map_bytes / self.thread_count();
        let Some(round) = queue.compact(&self.flush, &self.pace, keys_max(share))? else { return Ok(()) };
        if queue.is_gone() {
            return Ok(());
        }
        self.save_progress(queue)?;
        let (queue, kept, dropped) = (queue.key.to_string(), round.kept, round.dropped);
        self.events.add(Event::Compacted { queue, kept, dropped });
        Ok(())
    }

    /// Runs the rounds that are due, until stopped. Runs on its own thread.
    pub(crate) fn run_rounds(&self) {
        let pause = LOOK_INTERVAL.min(Duration::from_millis(self.options.interval_ms.max(1)));
        while self.pause(pause) {
            let queues: Vec<_> = self.queues.read().values().cloned().collect();
            for queue in queues {
                let now = self.log.clock().elapsed();
                {
                    let mut due_at = queue.due_at.lock();
                    if now < *due_at {
                        continue;
                    }
                    *due_at = now + self.until_next_round(&queue.key);
                }
                if queue.is_dirty() {
                    self.compacting.note(&self.compact(&queue));
                }
                if self.pace.is_stopped() {
                    break;
                }
            }
        }
    }

    /// Copies new messages until stopped. Runs on its own thread.
    pub(crate) fn run_copying(&self) {
        let mut passes = 0;
        while self.pause(COPY_INTERVAL) {
            passes = (passes + 1) % PASSES_PER_SYNC;
            // A failure is reported when it begins.
            let _ = self.copy_until(passes == 0, || self.pace.is_stopped());
        }
    }

    /// Waits; returns false when the threads have to stop.
    fn pause(&self, time: Duration) -> bool {
        let mut is_stopped = self.is_stopped.lock();
        if !*is_stopped {
            self.stopping.wait_for(&mut is_stopped, time);
        }
        !*is_stopped
    }

    pub(crate) fn stop(&self) {
        self.pace.stop();
        *self.is_stopped.lock() = true;
        self.stopping.notify_all();
    }
}
