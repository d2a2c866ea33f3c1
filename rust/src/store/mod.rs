//! Message store: the log of all messages, with queues and index derived from it.
//!
//! # Theory of operation
//!
//! All messages of all queues go into one log (`log`), a sequence of records in fixed-size mapped files
//! (`segments`). Four positions move along it and define its state:
//!
//! - *reserved*: the end of the last record. Known only under the put lock;
//! - *published*: records before it are whole and readable;
//! - *durable*: bytes before it are on disk (`flush`);
//! - *visible*: the end of what consumers may see: the published records in async mode, and the durable ones in sync
//!   mode, where consumers never see a message that a power loss could remove or that is in no file yet
//!   (`write_path`).
//!
//! durable <= published <= reserved, and all four only grow. The thread that advances *visible* drains the records
//! of the append from a ring into the queues and the index (`dispatcher`), and wakes the waiters. Queues and index
//! (`derived`) are computed from the log, delay no acknowledgement, and can be deleted.
//!
//! Opening takes the lock, reads the log from the last trusted position (`recovery`), cuts a torn end off, and
//! starts the threads: `flush` makes the log durable, `maintenance` does periodic work, `interim` does its urgent
//! steps during a checkpoint, `read` runs reads that may block on the disk. The formats are Apache's, so that a folder can move to its broker and back (docs/store.md has the layouts).
//!
//! After a failed flush, or a panic in one of its threads, the store refuses writes until it is reopened; reads
//! continue.
//!
//! Parts, each of which uses those before it: `disk`, `derived`, `log`, `compaction`, `recovery`, `maintenance`;
//! `inspect` works on a stopped store. `compaction` keeps the newest values of compacted topics longer than the log.
//!
//! Lock order: rounds of maintenance or compaction, interim steps, `flush`, dispatch, put lock, next segment; then
//! compacted queues, queue files, index files; last a queue's tail, the waiting keys of the index, or the list of the write ring's parts.
//! No file operation happens under the put lock.

#![allow(missing_docs, reason = "self-explanatory names need no sentence")]

mod compaction;
mod derived;
pub mod disk;
mod error;
pub mod inspect;
mod light_queues;
mod lite_topics;
mod log;
mod maintenance;
#[cfg(all(test, feature = "loom"))]
mod models;
mod opening;
mod own_file;
mod read;
mod recovery;
mod replica;
mod reports;
mod settings;
mod sync;
mod waiting_rooms;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::positions::PhysicalOffset;

use compaction::Compaction;
use disk::{Disk, FileLock};
use log::{CommitLog, Dispatcher, Flush, NoRoom};
use maintenance::Maintenance;
use recovery::DeletedTopics;
use replica::confirmation::Confirmation;
use reports::counters::Counters;
use reports::events::Events;

pub use derived::{ConsumeQueue, KeyHashes, Unit};
pub use error::{PutError, StoreError};
pub use light_queues::LightError;
pub use log::{Arrivals, Growth, LightPut, Put, Watcher};
pub use read::copied::{CopyError, Room, Selected, UnitGroup, group_units};
pub use read::follow::Followed;
pub use read::lookup::{Boundary, Get, GetResult, GetStatus};
pub use recovery::{RecoveryPhase, RecoveryProgress};
pub use replica::{RECORD_BYTES_MAX, Replica, ReplicaError};
pub use reports::events::{Event, RingMismatch, Step};
pub use settings::durability::Durability;
pub use settings::options::{CompactionOptions, Options, TimerOptions};
pub use settings::paths::StorePaths;
pub use settings::retention::Retention;
pub use waiting_rooms::{FirstOf, Left, Undelivered, WaitingRoom, Waits};

pub(crate) use log::STORE_TIME_AHEAD_MS_MAX;
pub(crate) use read::lookup::ReadFilter;
#[cfg(feature = "python")]
pub(crate) use reports::counters::SIZE_BOUNDS;
pub(crate) use reports::statistics::QueueArrivals;
pub(crate) use settings::options::Setting;

/// Maximum total time that an append waits for a segment, or for a flush that makes room.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Maximum time an I/O thread blocks on a flush: many times the usual duration.
const FLUSH_WAIT_MAX: Duration = Duration::from_millis(50);

type ColdRead = Box<dyn FnOnce(&Store) + Send>;

pub struct Store {
    log: Arc<CommitLog>,
    dispatcher: Arc<Dispatcher>,
    flush: Arc<Flush>,
    maintenance: Arc<Maintenance>,
    compaction: Arc<Compaction>,
    deleted: DeletedTopics,
    options: Options,
    disk: Arc<dyn Disk>,
    in_memory_bytes: u64,
    counters: Counters,
    events: Arc<Events>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    cold_reads: Mutex<Option<SyncSender<ColdRead>>>,
    is_closed: AtomicBool,
    /// Whether a `Replica` of the store exists.
    is_copied: AtomicBool,
    confirmation: Confirmation,
    /// Held until the store is closed, so that no other broker uses the folder.
    locks: Mutex<Vec<Arc<dyn FileLock>>>,
    /// The process that opened the store. A forked child has neither its threads nor its lock.
    process: u32,
}

impl Store {
    /// Sets the listener for arrivals, durable positions and failure, which the caller keeps alive. Only the first
    /// call has an effect.
    pub fn set_arrivals(&self, arrivals: &Arc<impl Arrivals + 'static>) {
        let listener = Arc::downgrade(arrivals);
        self.dispatcher.set_arrivals(listener);
    }

    /// Returns the notification of new log data.
    #[must_use]
    pub fn growth(&self) -> &Growth {
        self.dispatcher.growth()
    }

    #[must_use]
    pub fn queue(&self, topic: &str, queue_id: u32) -> Option<Arc<ConsumeQueue>> {
        self.dispatcher.derived().queues.get(topic, queue_id)
    }

    /// Returns the queue, created if necessary. It gets files with its first message.
    pub fn queue_or_create(&self, topic: &str, queue_id: u32) -> Result<Arc<ConsumeQueue>, StoreError> {
        self.dispatcher.derived().queues.get_or_create(topic, queue_id)
    }

    /// Returns the queue, but does not create one if `is_gone` reports a deleted topic.
    pub(crate) fn queue_unless(
        &self,
        topic: &str,
        queue_id: u32,
        is_gone: impl Fn() -> bool,
    ) -> Result<Arc<ConsumeQueue>, StoreError> {
        self.dispatcher.derived().queues.get_or_create_unless(topic, queue_id, is_gone)
    }

    /// Returns the queue for a pending message at `at`, created if necessary. Fails if its topic was deleted after
    /// the message was sent.
    pub(crate) fn queue_of_waiting(
        &self,
        topic: &str,
        queue_id: u32,
        at: PhysicalOffset,
    ) -> Result<Arc<ConsumeQueue>, StoreError> {
        let is_gone = || self.deleted.covers(topic.as_bytes(), at.0);
        if is_gone() {
            // A topic created since under the same name is a different one.
            return Err(StoreError::TopicDeleted { topic: topic.to_owned() });
        }
        self.queue_unless(topic, queue_id, is_gone)
    }

    /// Appends messages in order and sets the outcome of each. Takes the put lock once and allocates nothing.
    ///
    /// In async mode stored messages are visible when this returns; in sync mode when they are durable, which
    /// [`release_after`](Self::release_after) requests. Blocks for at most 5 s, when the disk does not keep up.
    pub fn append(&self, puts: &mut [Put<'_>]) {
        self.append_within(puts, |_| WAIT_MAX);
    }

    /// Appends messages on an I/O thread: does not wait for a segment, and waits only briefly for a flush. Returns
    /// the number of decided puts. The others, in order, found no room; [`Arrivals::room_was_made`] notifies of the
    /// time to retry.
    pub fn try_append(&self, puts: &mut [Put<'_>]) -> usize {
        self.append_within(puts, |missing| match missing {
            NoRoom::File => Duration::ZERO,
            NoRoom::Flush => FLUSH_WAIT_MAX,
        })
    }

    fn append_within(&self, puts: &mut [Put<'_>], wait_max: impl Fn(NoRoom) -> Duration) -> usize {
        let mut waited = Duration::ZERO;
        let done = self.log.append(puts, |missing| {
            let wait_max = wait_max(missing);
            if wait_max.is_zero() && self.options.threads {
                self.maintenance.wake();
                return false;
            }
            waited += self.make_room();
            waited.is_zero() || waited < wait_max
        });
        // Senders that may wait for the disk request the flush. Otherwise the flush is requested here, for the
        // consumers.
        if !self.options.durability.promises_disk() {
            self.after_append();
        }
        let stored = puts.iter().filter_map(|put| put.outcome.ok());
        self.counters.put(done, stored.map(|put| put.end.bytes_since(put.physical)));
        done
    }

    /// Makes appended messages visible, or requests the flush that will.
    fn after_append(&self) {
        if self.options.durability.promises_disk() {
            self.flush.release_after(self.log.published());
            return;
        }
        self.make_visible();
        if self.log.segments().write_ring().is_some_and(|ring| ring.take_due()) {
            self.flush.release_after(self.log.published());
        }
    }

    fn make_visible(&self) {
        // Cannot fail without a flush.
        let _ = self.dispatcher.advance(&self.log, |_| Ok(()));
    }

    /// Requests space and waits briefly; returns the time to charge to the append.
    fn make_room(&self) -> Duration {
        if !self.options.threads {
            // Without threads, room is made here.
            let is_made = self.maintain().is_ok() && self.flush().is_ok();
            return if is_made { Duration::ZERO } else { WAIT_MAX };
        }
        self.maintenance.wake();
        // A reader may have held the oldest part when the last flush ended.
        let has_part = self.log.segments().write_ring().is_none_or(|ring| ring.recycle());
        let is_sync = self.options.durability.promises_disk();
        if !is_sync {
            self.make_visible();
        }
        if is_sync || !has_part {
            self.flush.release_after(self.log.published());
        }
        self.log.wait_for_room()
    }

    /// Returns the position of the newest record that consumers may see; `None` for a log without records.
    pub(crate) fn newest_record(&self) -> Option<PhysicalOffset> {
        self.dispatcher.last().0.map(|last| PhysicalOffset(last.physical))
    }

    /// Returns whether senders may wait until their message is on disk.
    pub(crate) fn is_sync(&self) -> bool {
        self.options.durability.promises_disk()
    }

    /// Returns the position before which everything is on disk.
    #[must_use]
    pub fn durable(&self) -> PhysicalOffset {
        self.flush.durable()
    }

    /// Returns the position before which everything is visible to consumers.
    #[must_use]
    pub fn visible(&self) -> PhysicalOffset {
        self.dispatcher.visible()
    }

    /// Returns the first and the last position of the log.
    #[must_use]
    pub fn range(&self) -> (PhysicalOffset, PhysicalOffset) {
        (PhysicalOffset(self.log.segments().begin()), self.log.published())
    }

    /// Requests a flush of everything before `end` without waiting. [`Arrivals::durable`] reports success, and
    /// [`Arrivals::latched`] failure.
    pub fn release_after(&self, end: PhysicalOffset) {
        self.flush.release_after(end);
    }

    pub fn flush(&self) -> Result<PhysicalOffset, StoreError> {
        self.flush.flush()
    }

    /// Fills the queues with published messages but leaves `visible` behind, a state that every message passes
    /// briefly. For a store that waits for the disk and writes through the mapping.
    #[cfg(test)]
    pub(crate) fn fill_queues(&self) {
        self.dispatcher.fill_queues(&self.log);
    }

    /// Runs one round of maintenance on this thread.
    pub fn maintain(&self) -> Result<(), StoreError> {
        self.maintenance.run_round()
    }

    /// Makes a checkpoint now: the next recovery will not read visible messages again.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        self.maintenance.checkpoint_now()
    }

    /// Sets how long messages are kept, and the limits of a full disk.
    pub fn retain(&self, retention: Retention) {
        self.maintenance.expiry().set(retention);
        self.maintenance.wake();
    }

    /// Keeps files that end after `position`, except from the deletion by force on a full disk.
    pub(crate) fn keep_from(&self, position: PhysicalOffset) {
        self.maintenance.expiry().keep_from(position.0);
    }

    /// Deletes expired files of the log on this thread, at any hour, and trims queues and index. Returns the number
    /// of deleted files.
    pub fn delete_expired(&self) -> Result<u64, StoreError> {
        // A file whose messages are not copied yet stays.
        self.compaction.copy_all(true)?;
        self.maintenance.delete_expired()
    }

    /// Removes, on this thread, files of queues and index whose messages were deleted from the log.
    pub(crate) fn trim(&self) -> Result<(), StoreError> {
        self.maintenance.trim()
    }

    /// Returns the reason why writes are refused; `None` while they are accepted.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.log.failure()
    }

    /// Returns whether writes are refused.
    #[must_use]
    pub fn is_latched(&self) -> bool {
        self.failure().is_some()
    }

    /// Delays of the delay levels 1, 2, …, in milliseconds.
    pub(crate) fn delay_levels_ms(&self) -> &[u64] {
        &self.options.delay_levels_ms
    }

    pub(crate) fn timer_options(&self) -> &TimerOptions {
        &self.options.timers
    }

    /// Returns the disk of the store's root.
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(crate) fn root(&self) -> &Path {
        &self.options.paths.root
    }

    /// Removes a topic's queues, durably. Their messages stay in the log until their files are deleted; a topic
    /// created again under the same name begins at offset 0.
    pub fn delete_topic(&self, topic: &str) -> Result<(), StoreError> {
        self.delete_topics(&[topic])
    }

    /// Removes the queues of topics as `delete_topic` does, in one step.
    pub fn delete_topics(&self, topics: &[&str]) -> Result<(), StoreError> {
        let queues = &self.dispatcher.derived().queues;
        let removed = self.maintenance.between_checkpoints(|base| {
            let position = base.map_or(0, |base| base.record.max(0) as u64);
            let mut removed = Vec::with_capacity(topics.len());
            for topic in topics {
                let digest = queues.digest_before(topic, position)?;
                removed.push(self.dispatcher.remove_topic(&self.log, topic, |end| {
                    self.deleted.begin(topic, end.0, base.map(|base| (base, digest)));
                }));
            }
            self.deleted.save().map(|()| removed)
        })?;
        for (topic, removed) in topics.iter().zip(removed) {
            self.compaction.remove_topic(topic)?;
            queues.remove_files(topic, &removed)?;
        }
        self.deleted.finish(topics)
    }

    /// Begins or ends to keep the newest message of each key of a topic's queues, and to serve consumers from there.
    /// Does nothing if compaction is off.
    pub fn set_compacted(self: &Arc<Self>, topic: &str, is_compacted: bool) -> Result<(), StoreError> {
        let has_begun = self.compaction.is_enabled() && self.compaction.set_topic(topic, is_compacted);
        let starts = has_begun && self.options.threads && !self.is_closed.load(Ordering::Acquire);
        if starts && self.compaction.claim_threads() { self.start_compaction() } else { Ok(()) }
    }

    /// Records that every compacted topic was named, so that expired files of the log do not wait for others.
    pub fn compacted_topics_are_known(&self) {
        self.compaction.topics_are_known();
    }

    /// Copies new messages of compacted topics durably, and compacts all queues, on this thread.
    pub fn compact(&self) -> Result<(), StoreError> {
        self.compaction.copy_all(true)?;
        self.compaction.compact_all()
    }

    /// Returns the topics with the ids of their queues, sorted.
    #[must_use]
    pub fn topics(&self) -> Vec<(Arc<str>, Vec<u32>)> {
        self.dispatcher.derived().queues.topics()
    }

    /// Reports pending messages that were discarded, and counts those whose topic was not deleted.
    pub(crate) fn report_undelivered(&self, room: WaitingRoom, reason: Left, first: FirstOf, count: u64) {
        if count > 0 {
            if reason != Left::TopicDeleted {
                self.counters.undelivered.fetch_add(count, Ordering::Relaxed);
            }
            self.events.add(Event::Undelivered(Undelivered { room, reason, first, count }));
        }
    }

    /// Reports delayed messages in a level that the settings lack.
    pub(crate) fn report_level_gone(&self, level: usize, count: u64) {
        self.events.add(Event::LevelGone { level, count });
    }

    /// Returns the size of the largest record that the log accepts.
    pub(crate) fn record_bytes_max(&self) -> u64 {
        self.log.record_bytes_max()
    }

    /// Takes the events since the last call, oldest first.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.events.take()
    }

    /// Stops the threads, makes everything durable and removes the abort file. A failed store returns its error and
    /// keeps the file, so that the next start trusts nothing. Only the first call has an effect.
    pub fn close(&self) -> Result<(), StoreError> {
        if !self.stop() {
            return Ok(());
        }
        let finished = match self.log.failure() {
            Some(reason) => Err(StoreError::ReadOnly { reason: reason.to_owned() }),
            None => {
                // An error was reported; the next start copies the rest.
                let _ = self.flush.flush().and_then(|_| self.compaction.copy_all(true));
                self.maintenance.finish()
            }
        };
        self.unlock();
        finished
    }

    /// Stops the threads and leaves the folder as a crash would.
    pub fn abandon(&self) {
        self.stop();
        self.unlock();
    }

    /// Releases the folder for other processes, even if references to this store remain.
    fn unlock(&self) {
        self.locks.lock().clear();
    }

    /// Stops appends and threads. Returns true for the first call.
    fn stop(&self) -> bool {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.log.close();
        self.flush.stop();
        self.maintenance.stop();
        self.compaction.stop();
        self.cold_reads.lock().take();
        let me = std::thread::current().id();
        for thread in self.threads.lock().drain(..) {
            // A read of the store may drop the last reference to it.
            if thread.thread().id() != me {
                let _ = thread.join();
            }
        }
        true
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Store").field("root", &self.options.paths.root).finish_non_exhaustive()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.abandon();
        }
    }
}
