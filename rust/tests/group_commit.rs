//! Group commit: promises to waiters, and what a killed process leaves, on real disks with all threads.
#![allow(clippy::expect_used, reason = "a failed expectation fails the test")]

mod store_model;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rmqpy::clock::SystemClock;
use rmqpy::positions::{PhysicalOffset, QueueOffset};
use rmqpy::store::disk::simulated::{Fault, SimDisk};
use rmqpy::store::disk::{OsDisk, Space};
use rmqpy::store::{Arrivals, ConsumeQueue, Durability, Options, PutError, Store};
use store_model::{Folder, clock, open, open_with, options, options_with, put, read_all, sample};

/// Records notifications, and lets tests wait for them.
#[derive(Default)]
struct Listener {
    durable: AtomicU64,
    latched: AtomicUsize,
    arrived: Mutex<Vec<(u32, u64)>>,
    changed: Condvar,
    waiting: Mutex<()>,
}

impl Listener {
    fn wait_for(&self, end: PhysicalOffset) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut waiting = self.waiting.lock();
        while self.durable.load(Ordering::Acquire) < end.0 {
            if self.changed.wait_until(&mut waiting, deadline).timed_out() {
                return false;
            }
        }
        true
    }
}

impl Arrivals for Listener {
    fn arrived(&self, queue: &Arc<ConsumeQueue>, max: QueueOffset, _tags_code: i64) {
        self.arrived.lock().push((queue.key().queue_id, max.0));
    }

    fn durable(&self, position: PhysicalOffset) {
        let _waiting = self.waiting.lock();
        self.durable.fetch_max(position.0, Ordering::AcqRel);
        self.changed.notify_all();
    }

    fn latched(&self) {
        self.latched.fetch_add(1, Ordering::AcqRel);
    }
}

fn threaded(root: &Path, durability: Durability) -> Arc<Store> {
    let options = Options { threads: true, ..options_with(durability, root) };
    open(OsDisk::shared(), options, SystemClock::shared()).expect("opens")
}

fn sync_modes() -> impl Iterator<Item = Durability> {
    Durability::ALL.into_iter().filter(|durability| durability.promises_disk())
}

#[test]
fn in_sync_mode_nothing_is_visible_before_it_is_durable() {
    for durability in Durability::ALL.into_iter().filter(|durability| durability.promises_disk()) {
        check_that_visible_follows_durable(durability);
    }
}

fn check_that_visible_follows_durable(durability: Durability) {
    let disk = SimDisk::new();
    let store = open_with(durability, disk.shared(), &clock()).expect("opens");
    let listener = Arc::new(Listener::default());
    store.set_arrivals(&listener);
    store.queue_or_create("orders", 0).expect("a queue").set_awaited(true);
    let (_, _, end) = put(&store, &[sample("orders", 0, 100)], false)[0].expect("stored");
    let queue = store.queue("orders", 0).expect("a queue");
    assert_eq!(
        (queue.max(), store.visible(), store.durable()),
        (QueueOffset(0), PhysicalOffset(0), PhysicalOffset(0))
    );
    assert!(listener.arrived.lock().is_empty());
    assert_eq!(store.lookup(PhysicalOffset(0)), None);
    assert_eq!(store.flush().expect("a working disk"), end);
    assert_eq!((queue.max(), store.visible(), store.durable()), (QueueOffset(1), end, end));
    assert_eq!(*listener.arrived.lock(), [(0, 1)]);
}

#[test]
fn in_async_mode_it_is_visible_immediately_and_only_awaited_queues_are_announced() {
    let disk = SimDisk::new();
    let store = open(disk.shared(), options("/store"), clock()).expect("opens");
    let listener = Arc::new(Listener::default());
    store.set_arrivals(&listener);
    store.queue_or_create("orders", 1).expect("a queue").set_awaited(true);
    put(&store, &[sample("orders", 0, 10), sample("orders", 1, 10), sample("orders", 1, 10)], false);
    assert_eq!(store.visible(), store.range().1);
    assert_eq!(*listener.arrived.lock(), [(1, 1), (1, 2)]);
    assert_eq!(store.durable(), PhysicalOffset(0));
}

#[test]
fn a_failed_flush_fails_its_waiters_and_latches_the_log() {
    for durability in Durability::ALL {
        let disk = SimDisk::new();
        let store = open_with(durability, disk.shared(), &clock()).expect("opens");
        let listener = Arc::new(Listener::default());
        store.set_arrivals(&listener);
        put(&store, &[sample("orders", 0, 10)], false);
        store.flush().expect("a working disk");
        let durable = store.durable();
        put(&store, &[sample("orders", 0, 10)], false);
        // The next operation fails once: a repeated flush would succeed.
        disk.set_fault(Fault {
            operation: disk.operations(),
            is_lasting: false,
            kind: std::io::ErrorKind::Other,
        });
        assert!(store.flush().is_err());
        assert!(store.flush().is_err(), "and is not retried");
        assert_eq!((store.durable(), listener.latched.load(Ordering::Acquire)), (durable, 1));
        assert!(store.is_latched() && store.failure().expect("a reason").contains("commitlog"));
        assert_eq!(put(&store, &[sample("orders", 0, 10)], false), [Err(PutError::ReadOnly)]);
        let visible = if durability.promises_disk() { 1 } else { 2 };
        assert_eq!(read_all(&store, "orders", 0).len(), visible, "reads continue");
        assert!(store.close().is_err());
    }
}

#[test]
fn many_senders_share_flushes_and_all_are_released() {
    sync_modes().for_each(check_many_senders);
}

fn check_many_senders(durability: Durability) {
    const SENDERS: u32 = 8;
    const MESSAGES: usize = 100;
    let folder = Folder::new(&format!("senders-{:?}", durability));
    let store = threaded(&folder.0, durability);
    let listener = Arc::new(Listener::default());
    store.set_arrivals(&listener);
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (store, listener) = (&store, &listener);
            scope.spawn(move || {
                for _ in 0..MESSAGES {
                    let (offset, _, end) =
                        put(store, &[sample("orders", sender, 300)], false)[0].expect("stored");
                    store.release_after(end);
                    assert!(listener.wait_for(end), "released within a minute");
                    assert!(store.durable() >= end);
                    assert!(
                        store.queue("orders", sender).expect("a queue").max() > offset,
                        "readable when acknowledged"
                    );
                }
            });
        }
    });
    for sender in 0..SENDERS {
        assert_eq!(read_all(&store, "orders", sender).len(), MESSAGES);
    }
    store.close().expect("closes");
}

#[test]
fn the_interval_flushes_without_a_waiter() {
    let folder = Folder::new("interval");
    for (index, durability) in Durability::ALL.into_iter().enumerate() {
        let store = threaded(&folder.0.join(index.to_string()), durability);
        let listener = Arc::new(Listener::default());
        store.set_arrivals(&listener);
        let (_, _, end) = put(&store, &[sample("orders", 0, 300)], false)[0].expect("stored");
        assert!(listener.wait_for(end), "{durability:?}");
    }
}

#[test]
fn cold_reads_run_on_their_own_thread_until_the_store_is_closed() {
    let folder = Folder::new("cold");
    let store = threaded(&folder.0, Durability::PageCache);
    put(&store, &[sample("orders", 0, 300)], false);
    let (sender, receiver) = std::sync::mpsc::channel();
    let is_taken = store.read_later(move |store| {
        let name = std::thread::current().name().map(str::to_owned);
        sender.send((name, read_all(store, "orders", 0).len())).expect("the test waits");
    });
    assert!(is_taken);
    let (name, count) = receiver.recv_timeout(Duration::from_secs(60)).expect("an answer");
    assert_eq!((name.as_deref(), count), (Some("rmqpy-read"), 1));
    store.close().expect("closes");
    assert!(!store.read_later(|_| ()));
}

const CHILD_FOLDER: &str = "RMQPY_KILLED_CHILD_FOLDER";
const CHILD_MODE: &str = "RMQPY_KILLED_CHILD_MODE";

/// Not a separate test: the process that gets killed. It prints what it was promised.
#[test]
fn child_that_gets_killed() {
    let Ok(root) = std::env::var(CHILD_FOLDER) else { return };
    let index = std::env::var(CHILD_MODE).ok().and_then(|index| index.parse::<usize>().ok());
    let durability = Durability::ALL[index.expect("the parent names a durability")];
    let store = threaded(Path::new(&root), durability);
    let listener = Arc::new(Listener::default());
    store.set_arrivals(&listener);
    let send = |store: &Store, queue_id: u32| {
        let samples = [sample("orders", queue_id, 30), sample("orders", queue_id, 3000)];
        let outcomes = put(store, &samples, queue_id == 1);
        for (offset, _, end) in outcomes.into_iter().flatten() {
            if durability.promises_disk() {
                store.release_after(end);
                listener.wait_for(end);
            }
            let mut out = std::io::stdout().lock();
            writeln!(out, "acknowledged {queue_id} {offset}")
                .and_then(|()| out.flush())
                .expect("the parent reads");
        }
    };
    std::thread::scope(|scope| {
        for queue_id in 0..2 {
            let (store, send) = (&store, &send);
            scope.spawn(move || {
                loop {
                    send(store, queue_id);
                }
            });
        }
    });
}

/// `RMQPY_KILLS=n` kills n times in each durability; the store grows across the runs.
#[test]
fn a_killed_process_loses_nothing_that_it_acknowledged() {
    let kills = std::env::var("RMQPY_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(4);
    for (index, durability) in Durability::ALL.into_iter().enumerate() {
        let folder = Folder::new(&format!("killed-{index}"));
        let mut acknowledged = BTreeSet::new();
        for kill in 0..kills {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args(["--exact", "child_that_gets_killed", "--nocapture"]).env(CHILD_FOLDER, &folder.0);
            command.env(CHILD_MODE, index.to_string());
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a child");
            let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
            // A number of acknowledgements that differs per run, not a time: slow machines kill as well.
            let promises_max = 20 + kill * 37;
            let mut promises = 0;
            for line in lines {
                let Ok(line) = line else { break };
                let Some(promise) = line.split("acknowledged ").nth(1) else { continue };
                let numbers: Vec<u64> = promise.split(' ').filter_map(|number| number.parse().ok()).collect();
                if let [queue_id, offset] = numbers[..] {
                    acknowledged.insert((queue_id as u32, offset));
                    promises += 1;
                    if promises == promises_max {
                        child.kill().expect("kills");
                    }
                }
            }
            child.wait().expect("it is dead");
            assert!(promises >= promises_max, "the child worked: {promises}");
            let options = options_with(durability, &folder.0);
            let store = open(OsDisk::shared(), options, SystemClock::shared()).expect("opens after a kill");
            for queue_id in 0..2 {
                let found = read_all(&store, "orders", queue_id);
                let lost: Vec<_> = acknowledged
                    .iter()
                    .filter(|(id, offset)| *id == queue_id && !found.contains_key(offset))
                    .collect();
                assert!(lost.is_empty(), "kill {kill}, {durability:?}: {lost:?}");
            }
            store.abandon();
        }
    }
}

#[test]
fn a_full_disk_refuses_messages_until_there_is_space() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = open(disk.shared(), options("/store"), clock.clone()).expect("opens");
    let outcome = || put(&store, &[sample("orders", 0, 10)], false)[0].map(|(offset, ..)| offset);
    let look = || {
        clock.advance(Duration::from_secs(1));
        store.maintain().expect("a working disk");
    };
    look();
    assert_eq!(outcome(), Ok(QueueOffset(0)));
    let free = options("/store").retention.free_bytes_min - 1;
    disk.set_space(Space { free, total: 1 << 40 });
    look();
    assert_eq!(outcome(), Err(PutError::DiskFull));
    assert_eq!(read_all(&store, "orders", 0).len(), 1, "reads continue");
    assert_eq!((store.is_latched(), store.statistics()["is_full"]), (false, 1));
    disk.set_space(Space { free: 1 << 30, total: 1 << 40 });
    look();
    assert_eq!(outcome(), Ok(QueueOffset(1)));
    assert_eq!(store.statistics()["is_full"], 0);
}
