//! The message store: open, append, read, look up, close.
//!
//! # Theory of operation
//!
//! All messages of all queues go into one log (`log`), a sequence of records in fixed-size mapped files (`segments`).
//! Four positions move along it, and everything is said in terms of them:
//!
//! - *reserved*: where the next record goes. Known under the put lock only;
//! - *published*: records before it are whole and may be read;
//! - *durable*: bytes before it are on disk (`flush`);
//! - *visible*: what consumers may see. In async mode that is what is published; in sync mode, what is durable: no
//!   consumer is shown a message that a power loss could take back. What is in no file yet (`write_path`) is not visible either.
//!
//! durable <= published <= reserved, and all four only grow. The thread that advances *visible* drains what the append left in
//! a ring into the queues and the index (`dispatcher`), and wakes the waiters. The queues and the index
//! (`derived`) are computed from the log, are never on the way of an acknowledgement, and can be deleted.
//!
//! Opening takes the lock, reads the log from where it is known to be good (`recovery`), cuts a torn end off, and starts
//! the threads: `flush` brings the log to disk, `maintenance` does what can wait, `interim` what cannot wait for that, `ahead` makes ready what appends come to,
//! `read` takes reads that may wait for the disk.
//! The bytes are Apache's, so a folder can go to an Apache broker and come back (docs/store.md has the maps).
//!
//! After a failed flush, or a panic in one of its threads, the store refuses writes and goes on reading until it is
//! opened again.
//!
//! Inner rooms, each of which uses those before it: `disk`, `derived`, `log`, `recovery`, `maintenance`; `inspect` works on
//! a store that is not open.
//!
//! Locks, in this order: rounds of maintenance, interim steps, pages ahead, `flush`, dispatch, put lock, next segment; then
//! queue files, index files; a queue's tail, the keys that wait for the index, or the list of the spool's parts, last. No
//! file call under the put lock.

#![allow(missing_docs, reason = "a name that says it all needs no sentence")]

mod confirmation;
mod counters;
mod derived;
pub mod disk;
mod durability;
mod error;
mod events;
pub mod inspect;
mod io_range;
mod log;
mod lookup;
mod maintenance;
#[cfg(all(test, feature = "loom"))]
mod models;
mod opening;
mod options;
mod own_file;
mod paths;
mod reading;
mod recovery;
mod replica;
mod retention;
mod statistics;
mod sync;
pub(crate) mod timers;
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

use confirmation::Confirmation;
use counters::Counters;
use disk::{Disk, FileLock};
use events::Events;
use log::{CommitLog, Dispatcher, Flush, NoRoom};
use maintenance::{Ahead, Maintenance};
use recovery::DeletedTopics;

pub use derived::{ConsumeQueue, KeyHashes, Unit};
pub use durability::Durability;
pub use error::{PutError, StoreError};
pub use events::{Event, SpoolMismatch, Step};
pub use log::{Arrivals, Growth, Put, Watcher};
pub use lookup::{Boundary, Get, GetResult, GetStatus};
pub use options::{Options, TimerOptions};
pub use paths::StorePaths;
pub use recovery::{RecoveryPhase, RecoveryProgress};
pub use replica::{RECORD_BYTES_MAX, Replica, ReplicaError};
pub use retention::Retention;
pub use waiting_rooms::{FirstOf, Left, Undelivered, WaitingRoom, Waits};

#[cfg(feature = "python")]
pub(crate) use counters::SIZE_BOUNDS;
pub(crate) use log::STORE_TIME_AHEAD_MS_MAX;
pub(crate) use lookup::ReadFilter;
pub(crate) use options::Setting;
pub(crate) use statistics::QueueArrivals;

/// How long an append waits, in all, for a segment or for a flush that makes room.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long one that others wait for waits for a flush: many times what it usually takes.
const FLUSH_WAIT_MAX: Duration = Duration::from_millis(50);

type ColdRead = Box<dyn FnOnce(&Store) + Send>;

pub struct Store {
    log: Arc<CommitLog>,
    dispatcher: Arc<Dispatcher>,
    flush: Arc<Flush>,
    maintenance: Arc<Maintenance>,
    ahead: Arc<Ahead>,
    deleted: DeletedTopics,
    options: Options,
    disk: Arc<dyn Disk>,
    in_memory_bytes: u64,
    counters: Counters,
    events: Arc<Events>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    cold_reads: Mutex<Option<SyncSender<ColdRead>>>,
    is_closed: AtomicBool,
    /// Whether there is a `Replica` of it.
    is_copied: AtomicBool,
    confirmation: Confirmation,
    /// Held until the store is closed: no other broker may touch the folder meanwhile.
    locks: Mutex<Vec<Arc<dyn FileLock>>>,
    /// The process that opened it. A forked child has neither its threads nor its lock.
    process: u32,
}

impl Store {
    /// Sets the listener for arrivals, durable positions and failure. Only the first call counts.
    pub fn set_arrivals(&self, arrivals: Arc<dyn Arrivals>) {
        self.dispatcher.set_arrivals(arrivals);
    }

    /// Who is told when the log grows.
    #[must_use]
    pub fn growth(&self) -> &Growth {
        self.dispatcher.growth()
    }

    #[must_use]
    pub fn queue(&self, topic: &str, queue_id: u32) -> Option<Arc<ConsumeQueue>> {
        self.dispatcher.derived().queues.get(topic, queue_id)
    }

    /// The queue, made where there is none; it gets files with its first message.
    pub fn queue_or_create(&self, topic: &str, queue_id: u32) -> Result<Arc<ConsumeQueue>, StoreError> {
        self.dispatcher.derived().queues.get_or_create(topic, queue_id)
    }

    /// Likewise, but makes none where `is_gone` says that the topic has been deleted.
    pub(crate) fn queue_unless(
        &self,
        topic: &str,
        queue_id: u32,
        is_gone: impl Fn() -> bool,
    ) -> Result<Arc<ConsumeQueue>, StoreError> {
        self.dispatcher.derived().queues.get_or_create_unless(topic, queue_id, is_gone)
    }

    /// The queue for a message that has waited at a position of the log, made where there is none; an error where its topic
    /// has been deleted since it was sent.
    pub(crate) fn queue_of_waiting(
        &self,
        topic: &str,
        queue_id: u32,
        at: PhysicalOffset,
    ) -> Result<Arc<ConsumeQueue>, StoreError> {
        let is_gone = || self.deleted.covers(topic.as_bytes(), at.0);
        if is_gone() {
            // One of that name, made since, is another topic.
            return Err(StoreError::TopicDeleted { topic: topic.to_owned() });
        }
        self.queue_unless(topic, queue_id, is_gone)
    }

    /// Appends messages in order; each gets its outcome. Takes the put lock once, and allocates nothing.
    ///
    /// In async mode stored messages are visible when this returns; in sync mode when they are durable, which
    /// [`release_after`](Self::release_after) brings about. Blocks for at most 5 s, when the disk does not keep up.
    pub fn append(&self, puts: &mut [Put<'_>]) {
        self.append_within(puts, |_| WAIT_MAX);
    }

    /// The same for a thread that serves others, too: it does not wait for a segment, and for a flush no longer than one
    /// usually takes. Returns how many puts were decided about. The others found no room, in order; that there may be some
    /// again is told by [`Arrivals::room_was_made`].
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
        // Where senders may wait for the disk, they ask for the flush; where not, consumers should not wait either.
        if !self.options.durability.promises_disk() {
            self.after_append();
        }
        let stored = puts.iter().filter_map(|put| put.outcome.ok());
        self.counters.put(done, stored.map(|put| put.end.bytes_since(put.physical)));
        done
    }

    /// Makes what was appended visible, or asks for the flush that will.
    fn after_append(&self) {
        if self.options.durability.is_shown_when_durable() {
            self.flush.release_after(self.log.published());
            return;
        }
        self.make_visible();
        if self.log.segments().spool().is_some_and(|spool| spool.take_due()) {
            self.flush.release_after(self.log.published());
        }
    }

    fn make_visible(&self) {
        // Nothing can fail where nothing has to be flushed first.
        let _ = self.dispatcher.advance(&self.log, |_, _| Ok(()));
    }

    /// Sees to room for an append, and waits for it a moment; returns how long, of the time that an append has.
    fn make_room(&self) -> Duration {
        if !self.options.threads {
            // No thread would make room later.
            let is_made = self.maintain().is_ok() && self.flush().is_ok();
            return if is_made { Duration::ZERO } else { WAIT_MAX };
        }
        self.maintenance.wake();
        if self.options.durability.is_shown_when_durable() {
            self.flush.release_after(self.log.published());
        } else {
            self.make_visible();
            if let Some(spool) = self.log.segments().spool()
                && !spool.recycle()
            {
                self.flush.release_after(self.log.published());
            }
        }
        self.log.wait_for_room()
    }

    /// Position of the newest record that consumers may see; `None` of a log without one.
    pub(crate) fn newest_record(&self) -> Option<PhysicalOffset> {
        self.dispatcher.last().0.map(|last| PhysicalOffset(last.physical))
    }

    /// Whether senders may ask to wait until their message is on disk.
    pub(crate) fn is_sync(&self) -> bool {
        self.options.durability.promises_disk()
    }

    /// Everything before this position is on disk.
    #[must_use]
    pub fn durable(&self) -> PhysicalOffset {
        self.flush.durable()
    }

    /// Everything before this position may be seen by consumers.
    #[must_use]
    pub fn visible(&self) -> PhysicalOffset {
        self.dispatcher.visible()
    }

    /// The first and the last position of the log.
    #[must_use]
    pub fn range(&self) -> (PhysicalOffset, PhysicalOffset) {
        (PhysicalOffset(self.log.segments().begin()), self.log.published())
    }

    /// Asks the flush thread to make everything before `end` durable, and returns at once.
    /// [`Arrivals::durable`] tells when it is, or [`Arrivals::latched`] that it will not be.
    pub fn release_after(&self, end: PhysicalOffset) {
        self.flush.release_after(end);
    }

    pub fn flush(&self) -> Result<PhysicalOffset, StoreError> {
        self.flush.flush()
    }

    /// Has the queues show what is published, and leaves `visible` behind, as it is for a moment with each message. For a store
    /// that waits for the disk and writes through the mapping.
    #[cfg(test)]
    pub(crate) fn fill_queues(&self) {
        self.dispatcher.fill_queues(&self.log);
    }

    /// Does one round of maintenance in this thread.
    pub fn maintain(&self) -> Result<(), StoreError> {
        let outcome = self.maintenance.run_round();
        self.ahead.advance();
        outcome
    }

    /// Makes a checkpoint now: what is visible will not be read again by the next recovery.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        self.maintenance.checkpoint_now()
    }

    /// Sets how long messages are kept, and what a full disk means.
    pub fn retain(&self, retention: Retention) {
        self.maintenance.expiry().set(retention);
        self.maintenance.wake();
    }

    /// Deletes in this thread the files of the log that have expired, whatever the hour, and trims queues and index. Returns
    /// how many files of the log went.
    pub fn delete_expired(&self) -> Result<u64, StoreError> {
        self.maintenance.delete_expired()
    }

    /// Removes in this thread the files of queues and index whose messages are no longer in the log.
    pub(crate) fn trim(&self) -> Result<(), StoreError> {
        self.maintenance.trim()
    }

    /// Why writes are refused; `None` while they are accepted.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.log.failure()
    }

    /// Whether writes are refused.
    #[must_use]
    pub fn is_latched(&self) -> bool {
        self.failure().is_some()
    }

    /// What messages of the delay levels 1, 2, … wait, in milliseconds.
    pub(crate) fn delay_levels_ms(&self) -> &[u64] {
        &self.options.delay_levels_ms
    }

    pub(crate) fn timer_options(&self) -> &TimerOptions {
        &self.options.timers
    }

    /// The disk, and the folder of what is kept there beside the log.
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(crate) fn root(&self) -> &Path {
        &self.options.paths.root
    }

    /// Removes a topic's queues, durably. Their messages stay in the log until it forgets them; a topic made again under the
    /// same name begins at offset 0.
    pub fn delete_topic(&self, topic: &str) -> Result<(), StoreError> {
        let queues = &self.dispatcher.derived().queues;
        let removed = self.maintenance.between_checkpoints(|base| {
            let position = base.map_or(0, |base| base.record.max(0) as u64);
            let digest = queues.digest_before(topic, position)?;
            let removed = self.dispatcher.remove_topic(&self.log, topic, |end| {
                self.deleted.begin(topic, end.0, base.map(|base| (base, digest)));
            });
            self.deleted.save().map(|()| removed)
        })?;
        queues.remove_files(topic, &removed)?;
        self.deleted.finish(topic)
    }

    /// Topics with the ids of their queues, sorted.
    #[must_use]
    pub fn topics(&self) -> Vec<(Arc<str>, Vec<u32>)> {
        self.dispatcher.derived().queues.topics()
    }

    /// Logs messages that left the room they waited in and go nowhere, and counts those that no operator deleted.
    pub(crate) fn report_undelivered(&self, room: WaitingRoom, reason: Left, first: FirstOf, count: u64) {
        if count > 0 {
            if reason != Left::TopicDeleted {
                self.counters.undelivered.fetch_add(count, Ordering::Relaxed);
            }
            self.events.add(Event::Undelivered(Undelivered { room, reason, first, count }));
        }
    }

    /// Logs messages that wait in a delay level that the settings lack.
    pub(crate) fn report_level_gone(&self, level: usize, count: u64) {
        self.events.add(Event::LevelGone { level, count });
    }

    /// The largest record that the log takes.
    pub(crate) fn record_bytes_max(&self) -> u64 {
        self.log.record_bytes_max()
    }

    /// What has happened since the last call that an operator should read about, oldest first.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.events.take()
    }

    /// Stops the threads, brings everything to disk and removes the abort file. A store that failed says so and keeps the
    /// file, so that the next start trusts nothing. Only the first call does anything.
    pub fn close(&self) -> Result<(), StoreError> {
        if !self.stop() {
            return Ok(());
        }
        let finished = match self.log.failure() {
            Some(reason) => Err(StoreError::ReadOnly { reason: reason.to_owned() }),
            None => self.maintenance.finish(),
        };
        self.unlock();
        finished
    }

    /// Stops the threads and leaves the folder as a crash would.
    pub fn abandon(&self) {
        self.stop();
        self.unlock();
    }

    /// Lets another process have the folder, though shares of this store may live on in what still reads from it.
    fn unlock(&self) {
        self.locks.lock().clear();
    }

    /// Ends appends and threads; `true` for the first call.
    fn stop(&self) -> bool {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.log.close();
        self.flush.stop();
        self.maintenance.stop();
        self.ahead.stop();
        self.cold_reads.lock().take();
        let me = std::thread::current().id();
        for thread in self.threads.lock().drain(..) {
            // The last share of a store may be dropped by a read of its own.
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
