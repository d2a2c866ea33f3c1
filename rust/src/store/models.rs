//! Models: the threads of the store in every interleaving, by loom: `make campaign NAME=threads`.
//!
//! Goal: the guarantees of the positions, the ring between append and dispatch, the list of dirty queues, and
//! waiters for a message or for the disk, hold for every interleaving and memory reordering. Method: the real log,
//! dispatcher and flush on a disk in memory; each model runs through all interleavings with a bounded number of
//! preemptions. A thread that is never woken is a deadlock and fails the model.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::thread::spawn;

use crate::clock::ManualClock;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::derived::{
    ConsumeQueue, Derived, DerivedFiles, KeyHashes, QueueFiles, Queues, UNIT_BYTES, Unit,
};
use crate::store::disk::simulated::SimDisk;
use crate::store::error::PutError;
use crate::store::log::{
    Arrivals, Checksums, CommitLog, Dispatcher, Flush, Put, Segments, WritePathKind, WriteRing,
};
use crate::store::reports::events::Events;
use crate::store::sync::{AtomicU64, Condvar, Mutex};

const SEGMENT_BYTES: u64 = 1 << 13;
/// Bugs of this kind need two preemptions, rarely three; each further one multiplies the interleavings by some ten.
const PREEMPTIONS_MAX: usize = 2;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS_MAX);
    builder.check(model);
}

/// A log with one queue, and the parts that move its positions.
struct World {
    log: Arc<CommitLog>,
    dispatcher: Arc<Dispatcher>,
    flush: Arc<Flush>,
    queue: Arc<ConsumeQueue>,
}

impl World {
    fn new(write_path: WritePathKind, is_sync: bool) -> Arc<Self> {
        let disk = SimDisk::new().shared();
        let dir = PathBuf::from("/commitlog");
        disk.create_dir(&dir).expect("a directory");
        let scratch = PathBuf::from("/scratch");
        let mut segments =
            Segments::load(Arc::clone(&disk), dir, scratch, SEGMENT_BYTES, write_path).expect("no files");
        if write_path == WritePathKind::Ring {
            let ring = WriteRing::make(&disk, PathBuf::from("/ring"), 1 << 18, SEGMENT_BYTES, is_sync);
            segments.set_write_ring(ring.expect("room"));
        }
        let active = segments.create().expect("a file");
        let checksums =
            Checksums::load(&disk, Path::new("/"), &segments, 0, true, &Arc::new(Events::default()));
        let checksums = checksums.expect("no checksums");
        let log = Arc::new(
            CommitLog::new(segments, checksums, ManualClock::at(0), active, 0).expect("a write path"),
        );
        let files = QueueFiles::new(disk, PathBuf::from("/consumequeue"), 8 * UNIT_BYTES as u64);
        let queues = Queues::new(files, &[]);
        let queue = queues.get_or_create("t", 0).expect("a valid name");
        let derived = DerivedFiles { queues, index: None };
        let dispatcher = Arc::new(Dispatcher::new(derived, PhysicalOffset(0), None, Vec::new()));
        let (flushed, seen) = (Arc::clone(&log), Arc::clone(&dispatcher));
        let flush = Arc::new(Flush::new(flushed, seen, is_sync, Duration::MAX, PhysicalOffset(0)));
        Arc::new(Self { log, dispatcher, flush, queue })
    }

    /// Appends a message; returns the position after it.
    fn append(&self) -> Result<PhysicalOffset, PutError> {
        let mut puts = [Put::sample(&self.queue, b"body")];
        self.log.append(&mut puts, |_| false);
        let [put] = puts;
        put.outcome.map(|stored| stored.end)
    }

    fn show(&self) {
        self.dispatcher.advance(&self.log, |_| Ok(())).expect("no flush is needed");
    }

    /// Checks the state that a reader may see at any time.
    fn look(&self, is_sync: bool) {
        let visible = self.dispatcher.visible();
        let units = self.queue.max().0;
        let durable = self.flush.durable();
        let published = self.log.published();
        assert!(visible <= published && durable <= published);
        assert!(
            !is_sync || visible <= durable,
            "{visible:?} can be seen and only {durable:?} is on the disk"
        );
        let (mut last, mut end) = ([[0; UNIT_BYTES]], 0);
        if units > 0 {
            assert_eq!(self.queue.read_tail(units - 1, &mut last), Some(1));
            end = Unit::decode(&last[0]).end();
        }
        assert!(end >= visible.0, "a queue has its units before its messages are visible");
    }
}

/// Records notifications, and lets threads wait for them.
#[derive(Default)]
struct Listener {
    received: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl Listener {
    fn wait_until(&self, holds: impl Fn(&(u64, bool)) -> bool) {
        let mut seen = self.received.lock();
        while !holds(&seen) {
            self.changed.wait_for(&mut seen, Duration::MAX);
        }
    }
}

impl Arrivals for Listener {
    fn arrived(&self, _: &Arc<ConsumeQueue>, _: QueueOffset, _: i64) {
        self.received.lock().1 = true;
        self.changed.notify_all();
    }

    fn durable(&self, position: PhysicalOffset) {
        let mut seen = self.received.lock();
        seen.0 = seen.0.max(position.0);
        self.changed.notify_all();
    }

    fn latched(&self) {}
}

#[test]
fn in_sync_mode_visible_is_never_ahead_of_durable_nor_durable_of_published() {
    for write_path in [WritePathKind::Ring, WritePathKind::Mapping] {
        check(move || {
            let world = World::new(write_path, true);
            let sender = Arc::clone(&world);
            let sending = spawn(move || {
                sender.append().expect("stored");
                sender.flush.flush().expect("a working disk");
            });
            let reader = Arc::clone(&world);
            let reading = spawn(move || reader.look(true));
            world.append().expect("stored");
            sending.join().expect("no panic");
            reading.join().expect("no panic");
            world.flush.flush().expect("a working disk");
            assert_eq!(world.dispatcher.visible(), world.log.published());
        });
    }
}

#[test]
fn the_ring_passes_every_record_once_and_in_order_to_any_thread() {
    check(|| {
        let world = World::new(WritePathKind::Ring, false);
        let other = Arc::clone(&world);
        let sending = spawn(move || {
            let end = other.append().expect("stored");
            other.show();
            assert!(other.dispatcher.visible() >= end, "an append is visible to its own thread");
            other.look(false);
        });
        world.append().expect("stored");
        world.show();
        sending.join().expect("no panic");
        let mut units = [[0; UNIT_BYTES]; 3];
        assert_eq!(world.queue.read_tail(0, &mut units), Some(2));
        let [first, second, _] = units.map(|unit| Unit::decode(&unit));
        assert_eq!((first.end(), PhysicalOffset(second.end())), (second.physical, world.log.published()));
        assert_eq!(world.dispatcher.visible(), world.log.published());
    });
}

#[test]
fn a_waiter_at_a_queue_sees_the_message_or_is_notified() {
    check(|| {
        let world = World::new(WritePathKind::Ring, false);
        let listener = Arc::new(Listener::default());
        let weak = Arc::downgrade(&listener);
        world.dispatcher.set_arrivals(weak);
        let sender = Arc::clone(&world);
        let sending = spawn(move || {
            sender.append().expect("stored");
            sender.show();
        });
        world.queue.set_awaited(true);
        if world.queue.max() == QueueOffset(0) {
            listener.wait_until(|seen| seen.1);
        }
        sending.join().expect("no panic");
    });
}

#[test]
fn every_waiter_for_the_disk_is_released() {
    check(|| {
        let world = World::new(WritePathKind::Ring, true);
        let listener = Arc::new(Listener::default());
        let weak = Arc::downgrade(&listener);
        world.dispatcher.set_arrivals(weak);
        let flush = Arc::clone(&world.flush);
        let flushing = spawn(move || flush.run());
        let (other, seen) = (Arc::clone(&world), Arc::clone(&listener));
        let send = |world: &World, listener: &Listener| {
            let end = world.append().expect("stored");
            world.flush.release_after(end);
            listener.wait_until(|seen| seen.0 >= end.0);
            assert!(world.flush.durable() >= end && world.dispatcher.visible() >= end);
        };
        let sending = spawn(move || send(&other, &seen));
        send(&world, &listener);
        sending.join().expect("no panic");
        world.flush.stop();
        flushing.join().expect("no panic");
    });
}

#[test]
fn a_queue_with_unwritten_units_is_on_the_list_of_dirty_queues() {
    check(|| {
        let world = World::new(WritePathKind::Ring, false);
        world.append().expect("stored");
        world.show();
        let writer = Arc::clone(&world);
        let writing = spawn(move || writer.dispatcher.derived().queues.write().expect("a working disk"));
        world.append().expect("stored");
        world.show();
        writing.join().expect("no panic");
        world.dispatcher.derived().queues.write().expect("a working disk");
        assert_eq!((world.queue.max(), world.queue.written()), (QueueOffset(2), 2));
    });
}

#[test]
fn a_latched_log_stores_nothing() {
    check(|| {
        let world = World::new(WritePathKind::Ring, true);
        let sender = Arc::clone(&world);
        let stored = Arc::new(AtomicU64::new(0));
        let end = Arc::clone(&stored);
        let sending = spawn(move || {
            if let Ok(position) = sender.append() {
                end.store(position.0, Ordering::Relaxed);
            }
        });
        world.flush.fail("the disk is broken".to_owned());
        let published = world.log.published();
        sending.join().expect("no panic");
        assert_eq!(world.log.published(), published);
        assert_eq!(stored.load(Ordering::Relaxed), published.0);
        assert_eq!(world.append(), Err(PutError::ReadOnly));
    });
}
