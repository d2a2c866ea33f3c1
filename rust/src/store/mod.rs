//! The message store: open, append, read, look up, close.
//!
//! # Theory of operation
//!
//! All messages of all queues go into one log (`commit_log`), a sequence of records in fixed-size mapped files
//! (`segments`). Four positions move along it, and everything is said in terms of them:
//!
//! - *reserved*: where the next record goes. Known under the put lock only;
//! - *published*: records before it are whole and may be read;
//! - *durable*: bytes before it are on disk (`flush`);
//! - *visible*: what consumers may see. In async mode that is what is published; in sync mode, what is durable: nobody
//!   is shown a message that a power loss could take back. What is in no file yet (`medium`) is not visible either.
//!
//! durable <= published <= reserved, and all four only grow. Whoever advances *visible* drains what the append left in
//! a ring into the queues and the index (`dispatch`), and wakes those who wait there. The queues (`consume_queue`)
//! and the index (`index`) are computed from the log, are never on the way of an acknowledgement, and can be deleted.
//!
//! Opening takes the lock, reads the log from where it is known to be good (`recovery`), cuts a torn end off, and starts
//! the threads: `flush` brings the log to disk, `keeper` does what can wait, `read` serves who may wait for the disk.
//! The bytes are Apache's, so a folder can go to an Apache broker and come back (docs/store.md has the maps).
//!
//! After a failed flush, or a panic in one of its threads, the store refuses writes and goes on reading until it is
//! opened again.
//!
//! Locks, in this order: keeper's state, `flush`, dispatch, put lock, next segment; then queue files, index files; a
//! queue's tail last. No file call under the put lock.

mod checkpoint;
mod commit_log;
mod consume_queue;
mod deleted;
mod derived;
pub mod disk;
mod dispatch;
mod error;
mod flush;
mod index;
mod keeper;
mod lookup;
mod medium;
mod options;
mod queue_files;
mod queue_load;
mod queues;
mod recovery;
mod region;
mod scan;
mod segments;
pub mod simdisk;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::clock::SharedClock;
use crate::message::tag;
use crate::positions::{PhysicalOffset, QueueOffset};

use checkpoint::Marks;
use deleted::DeletedTopics;
use disk::{Disk, DiskFile};
use dispatch::Dispatcher;
use flush::Flush;
use keeper::Keeper;
use lookup::Reader;

pub use commit_log::{CommitLog, Put, Stored};
pub use consume_queue::{ConsumeQueue, SCHEDULE_TOPIC};
pub use dispatch::Arrivals;
pub use error::{PutError, StoreError};
pub use index::KeyHashes;
pub use lookup::{Boundary, Get, GetResult, GetStatus, QUERY_RECORDS_MAX, QueryResult};
pub use medium::MediumKind;
pub use options::Options;
pub use recovery::{Phase, Progress};

/// How long an append waits, in all, for a segment or for a flush that makes room.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Reads that wait for the `read` thread, at most.
const COLD_READS_MAX: usize = 1024;
/// Share of the machine's memory that the end of the log may take before a reader counts as far behind, in percent.
const FAR_BEHIND_MEMORY_PERCENT: u64 = 40;

type ColdRead = Box<dyn FnOnce(&Store) + Send>;

/// A message store, open.
pub struct Store {
    log: Arc<CommitLog>,
    dispatcher: Arc<Dispatcher>,
    flush: Arc<Flush>,
    keeper: Arc<Keeper>,
    deleted: DeletedTopics,
    options: Options,
    far_behind_bytes: u64,
    counters: Counters,
    threads: Mutex<Vec<JoinHandle<()>>>,
    cold_reads: Mutex<Option<SyncSender<ColdRead>>>,
    is_closed: AtomicBool,
    /// Held until the store is closed: no other broker may touch the folder meanwhile.
    lock: Mutex<Option<Arc<dyn DiskFile>>>,
}

#[derive(Default)]
struct Counters {
    puts: AtomicU64,
    put_bytes: AtomicU64,
    put_failures: AtomicU64,
    gets: AtomicU64,
    got_messages: AtomicU64,
}

impl Store {
    /// Takes the lock, recovers what is there, and starts the store's threads.
    ///
    /// `progress` may be watched from another thread meanwhile.
    pub fn open(
        options: Options,
        disk: Arc<dyn Disk>,
        clock: SharedClock,
        progress: &Progress,
    ) -> Result<Arc<Self>, StoreError> {
        options.check()?;
        progress.enter(Phase::Locking, 0);
        let root = &options.root;
        disk.create_dir(root).map_err(StoreError::io(root, "create"))?;
        let path = root.join("lock");
        let lock = disk.lock(&path).map_err(StoreError::io(&path, "lock"))?;
        let Some(lock) = lock else { return Err(StoreError::Locked { path }) };
        lock.write_at(b"lock", 0).and_then(|()| lock.sync()).map_err(StoreError::io(&path, "write"))?;

        let marks = Marks::open(Arc::clone(&disk), root)?;
        let recovered = recovery::recover(&options, &disk, &clock, &marks, progress)?;
        let store_timestamp_ms = recovered.last.map_or(0, |last| last.store_timestamp_ms);
        let log =
            CommitLog::new(recovered.segments, Arc::clone(&clock), recovered.active, store_timestamp_ms);
        let log = Arc::new(log);
        let end = log.published();
        let dispatcher = Arc::new(Dispatcher::new(recovered.derived, end, recovered.last));
        let flush = Arc::new(Flush::new(
            Arc::clone(&log),
            Arc::clone(&dispatcher),
            options.is_shown_when_durable(),
            Duration::from_millis(options.flush_interval_ms),
            end,
        ));
        let keeper = Arc::new(Keeper::new(
            Arc::clone(&log),
            Arc::clone(&dispatcher),
            Arc::clone(&flush),
            marks,
            clock,
            &options,
            recovered.checkpoint,
        ));
        let store = Arc::new(Self {
            log,
            dispatcher,
            flush,
            keeper,
            deleted: recovered.deleted,
            options,
            far_behind_bytes: memory_bytes() / 100 * FAR_BEHIND_MEMORY_PERCENT,
            counters: Counters::default(),
            threads: Mutex::default(),
            cold_reads: Mutex::default(),
            is_closed: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
        });
        if store.options.threads {
            store.start_threads()?;
        }
        progress.enter(Phase::Open, 0);
        Ok(store)
    }

    fn start_threads(self: &Arc<Self>) -> Result<(), StoreError> {
        let (flush, keeper) = (Arc::clone(&self.flush), Arc::clone(&self.keeper));
        self.spawn("flush", move || flush.run())?;
        self.spawn("keeper", move || keeper.run())?;
        let (sender, receiver) = sync_channel::<ColdRead>(COLD_READS_MAX);
        *self.cold_reads.lock() = Some(sender);
        let store = Arc::downgrade(self);
        self.spawn("read", move || {
            while let Ok(read) = receiver.recv() {
                let Some(store) = store.upgrade() else { return };
                read(&store);
            }
        })
    }

    fn spawn(self: &Arc<Self>, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        let flush = Arc::clone(&self.flush);
        let thread_name = name.to_owned();
        let thread = std::thread::Builder::new().name(format!("rmqpy-{name}")).spawn(move || {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                flush.fail(format!("the {thread_name} thread of the store panicked"));
            }
        });
        self.threads.lock().push(thread.map_err(StoreError::io(&self.options.root, "start a thread"))?);
        Ok(())
    }

    /// Names who is told about arrivals, durable positions and failure. Only the first call counts.
    pub fn set_arrivals(&self, arrivals: Arc<dyn Arrivals>) {
        self.dispatcher.set_arrivals(arrivals);
    }

    /// The queue, if it exists.
    #[must_use]
    pub fn queue(&self, topic: &str, queue_id: u32) -> Option<Arc<ConsumeQueue>> {
        self.dispatcher.derived().queues.get(topic, queue_id)
    }

    /// The queue, made where there is none; it gets files with its first message.
    pub fn queue_or_create(&self, topic: &str, queue_id: u32) -> Result<Arc<ConsumeQueue>, StoreError> {
        self.dispatcher.derived().queues.get_or_create(topic, queue_id)
    }

    /// Appends messages in order; each gets its outcome. Takes the put lock once, and allocates nothing.
    ///
    /// In async mode stored messages are visible when this returns; in sync mode when they are durable, which
    /// [`release_after`](Self::release_after) brings about. Blocks for at most 5 s, when the disk does not keep up.
    pub fn append(&self, puts: &mut [Put<'_>]) {
        let mut waited = Duration::ZERO;
        self.log.append(puts, || {
            waited += self.make_room();
            waited < WAIT_MAX
        });
        if !self.options.is_shown_when_durable() {
            self.make_visible();
        } else if !self.options.sync_flush {
            // Nobody waits for it, but consumers should not either.
            self.flush.release_after(self.log.published());
        }
        let mut stored = 0;
        let mut bytes = 0;
        for put in puts.iter().filter_map(|put| put.outcome.ok()) {
            stored += 1;
            bytes += put.end.bytes_since(put.physical);
        }
        self.counters.puts.fetch_add(stored, Ordering::Relaxed);
        self.counters.put_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.counters.put_failures.fetch_add(puts.len() as u64 - stored, Ordering::Relaxed);
    }

    fn make_visible(&self) {
        // Nothing can fail where nothing has to be flushed first.
        let _ = self.dispatcher.advance(&self.log, |_, _| Ok(()));
    }

    /// Sees to room for an append, and waits for it a moment; returns how long, of the time that an append has.
    fn make_room(&self) -> Duration {
        if !self.options.threads {
            // Who else should make room later?
            let is_made = self.keeper.keep().is_ok() && self.flush().is_ok();
            return if is_made { Duration::ZERO } else { WAIT_MAX };
        }
        self.keeper.wake();
        if self.options.is_shown_when_durable() {
            self.flush.release_after(self.log.published());
        } else {
            self.make_visible();
        }
        self.log.wait_for_room()
    }

    /// Whether senders may ask to wait until their message is on disk.
    #[must_use]
    pub fn is_sync(&self) -> bool {
        self.options.sync_flush
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

    /// Flushes in this thread everything published so far.
    pub fn flush(&self) -> Result<PhysicalOffset, StoreError> {
        self.flush.flush()
    }

    /// Does one round of the keeper's work in this thread.
    pub fn keep(&self) -> Result<(), StoreError> {
        self.keeper.keep()
    }

    /// Makes a checkpoint now: what is visible will not be read again by the next recovery.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        self.keeper.checkpoint_now()
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

    fn reader(&self) -> Reader<'_> {
        Reader { log: &self.log, derived: self.dispatcher.derived(), far_behind_bytes: self.far_behind_bytes }
    }

    /// Reads a range of a queue; `accept` is asked with the tags code of every message.
    pub fn get(
        &self,
        queue: &ConsumeQueue,
        ask: &Get,
        accept: &mut dyn FnMut(i64) -> bool,
        into: &mut GetResult,
    ) {
        self.reader().get(queue, ask, accept, into);
        self.counters.gets.fetch_add(1, Ordering::Relaxed);
        self.counters.got_messages.fetch_add(u64::from(into.count), Ordering::Relaxed);
    }

    /// Whether a message is at `offset` and near enough to the end of the log to be in memory.
    #[must_use]
    pub fn is_hot(&self, queue: &ConsumeQueue, offset: QueueOffset) -> bool {
        self.reader().is_hot(queue, offset, self.options.hot_bytes)
    }

    /// Whether a position of the log is near enough to its end to be in memory.
    #[must_use]
    pub fn is_recent(&self, at: PhysicalOffset) -> bool {
        self.log.published().bytes_since(at) <= self.options.hot_bytes
    }

    /// What messages of the delay levels 1, 2, … wait, in milliseconds.
    #[must_use]
    pub fn delay_levels_ms(&self) -> &[u64] {
        &self.options.delay_levels_ms
    }

    /// Runs `read` on the thread for reads that may wait for the disk. `false`, and nothing done, when too many wait
    /// already or the store is closed.
    pub fn read_later(&self, read: impl FnOnce(&Self) + Send + 'static) -> bool {
        let reads = self.cold_reads.lock();
        reads.as_ref().is_some_and(|reads| reads.try_send(Box::new(read)).is_ok())
    }

    /// The record that begins at `at`; `None` where none begins, or it is not visible.
    #[must_use]
    pub fn lookup(&self, at: PhysicalOffset) -> Option<Bytes> {
        self.reader().record(at, self.visible())
    }

    /// Records of `topic` with `key`, stored within `begin_ms..=end_ms`, newest first; at most
    /// [`QUERY_RECORDS_MAX`]. Keys are compared by hash, as clients expect and sort out.
    pub fn query(
        &self,
        topic: &str,
        key: &str,
        records_max: usize,
        begin_ms: i64,
        end_ms: i64,
    ) -> Result<QueryResult, StoreError> {
        let hash = tag::key_hash(topic.as_bytes(), key.as_bytes());
        self.reader().query(topic, hash, records_max, begin_ms, end_ms, self.visible())
    }

    /// The offset for a time, always within the queue.
    #[must_use]
    pub fn offset_by_time(&self, queue: &ConsumeQueue, timestamp_ms: i64, boundary: Boundary) -> QueueOffset {
        self.reader().offset_by_time(queue, timestamp_ms, boundary)
    }

    /// Store time of the message at an offset.
    #[must_use]
    pub fn store_time(&self, queue: &ConsumeQueue, offset: QueueOffset) -> Option<i64> {
        self.reader().store_time(queue, offset)
    }

    /// Store time of the oldest message of a queue.
    #[must_use]
    pub fn earliest_store_time(&self, queue: &ConsumeQueue) -> Option<i64> {
        self.store_time(queue, queue.min())
    }

    /// Removes a topic's queues, durably. Their messages stay in the log until it forgets them; a topic made again under the
    /// same name begins at offset 0.
    pub fn delete_topic(&self, topic: &str) -> Result<(), StoreError> {
        let queues = &self.dispatcher.derived().queues;
        let (removed, end) = self.dispatcher.remove_topic(&self.log, topic);
        if removed.is_empty() && !queues.has_files(topic)? {
            return Ok(());
        }
        self.deleted.begin(topic, end.0)?;
        queues.remove_files(topic, &removed)?;
        self.deleted.finish(topic)
    }

    /// Topics with the ids of their queues, sorted.
    #[must_use]
    pub fn topics(&self) -> Vec<(Arc<str>, Vec<u32>)> {
        self.dispatcher.derived().queues.topics()
    }

    /// Counters and positions by name.
    #[must_use]
    pub fn statistics(&self) -> BTreeMap<&'static str, u64> {
        let (begin, end) = self.range();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BTreeMap::from([
            ("min_physical", begin.0),
            ("max_physical", end.0),
            ("durable", self.durable().0),
            ("visible", self.visible().0),
            ("is_full", u64::from(self.log.is_full())),
            ("puts", count(&self.counters.puts)),
            ("put_bytes", count(&self.counters.put_bytes)),
            ("put_failures", count(&self.counters.put_failures)),
            ("gets", count(&self.counters.gets)),
            ("got_messages", count(&self.counters.got_messages)),
        ])
    }

    /// Stops the threads, brings everything to disk and removes the abort file. A store that failed says so and keeps the
    /// file, so that the next start trusts nothing. Only the first call does anything.
    pub fn close(&self) -> Result<(), StoreError> {
        if !self.stop() {
            return Ok(());
        }
        let finished = match self.log.failure() {
            Some(reason) => Err(StoreError::ReadOnly { reason: reason.to_owned() }),
            None => self.keeper.finish(),
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
        self.lock.lock().take();
    }

    /// Ends appends and threads; `true` for the first call.
    fn stop(&self) -> bool {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.log.close();
        self.flush.stop();
        self.keeper.stop();
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
        out.debug_struct("Store").field("root", &self.options.root).finish_non_exhaustive()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Memory of this machine; a guess where the kernel does not say.
fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let bytes = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)));
    if bytes == 0 { 8 << 30 } else { bytes }
}
