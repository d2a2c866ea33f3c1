//! Reads of queue files: a failure is an error, never an answer, and a process at its limit of descriptors can still open the
//! files of its store.
#![allow(clippy::expect_used, reason = "a failed expectation fails the test")]

mod store_model;

use std::fs::{self, File};
use std::sync::Arc;

use rmqpy::clock::SystemClock;
use rmqpy::positions::QueueOffset;
use rmqpy::store::disk::OsDisk;
use rmqpy::store::{Boundary, ConsumeQueue, Get, GetResult, GetStatus, Options, Store};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store_model::{Folder, Sample, open, options, put, sample};

const A: Sample = sample("orders", 0, 100);
/// More than stay in memory in an idle queue.
const MESSAGES: usize = 200;

fn get(store: &Store, queue: &ConsumeQueue, offset: u64) -> Result<(GetStatus, u64, u32), String> {
    let ask = Get { offset: QueueOffset(offset), messages_max: 64, bytes_max: 1 << 20 };
    let mut found = GetResult::default();
    let read = store.get(queue, &ask, &mut |_| true, &mut found);
    read.map(|()| (found.status, found.next_begin.0, found.count)).map_err(|error| error.to_string())
}

/// Returns a reopened store that has not opened a file of its queue; its files hold 100 units.
fn reopened(folder: &Folder) -> (Arc<Store>, Arc<ConsumeQueue>) {
    let options = || Options { queue_file_bytes: 20 * 100, ..options(folder.0.join("store")) };
    let store = open(OsDisk::shared(), options(), SystemClock::shared()).expect("opens");
    put(&store, &[A; MESSAGES], false);
    store.close().expect("closes");
    let store = open(OsDisk::shared(), options(), SystemClock::shared()).expect("opens");
    let queue = store.queue("orders", 0).expect("a queue");
    (store, queue)
}

/// A single test, because the limit applies to the whole process.
#[test]
fn an_unreadable_queue_file_is_an_error_and_the_store_has_reserved_descriptors() {
    let folder = Folder::new("queue-reads");
    let (store, queue) = reopened(&folder);
    let files = folder.0.join("store/consumequeue/orders/0");
    let (second, aside) = (files.join("00000000000000002000"), folder.0.join("aside"));

    // A directory in its place exists but cannot be opened as a file.
    fs::rename(&second, &aside).expect("a file to move");
    fs::create_dir(&second).expect("room for a directory");
    assert_eq!(
        get(&store, &queue, 90),
        Ok((GetStatus::Found, 100, 10)),
        "messages read before the error are a result"
    );
    let error = get(&store, &queue, 100).expect_err("cannot be opened");
    assert!(error.contains("00000000000000002000"), "{error}");
    assert!(store.store_time(&queue, QueueOffset(100)).is_err());
    assert!(store.offset_by_time(&queue, i64::MAX, Boundary::Lower).is_err());
    let counted = |name| store.statistics().get(name).copied();
    assert_eq!((counted("gets"), counted("gets_failed")), (Some(1), Some(1)));
    fs::remove_dir(&second).expect("a directory to remove");
    fs::rename(&aside, &second).expect("a file to move back");
    assert_eq!(get(&store, &queue, 100), Ok((GetStatus::Found, 164, 64)));
    let end = store.offset_by_time(&queue, i64::MAX, Boundary::Lower).expect("can be opened");
    assert_eq!(end, QueueOffset(MESSAGES as u64));
    store.abandon();
    drop((store, queue));

    // Other code holds every descriptor of the process, and takes each one that is released.
    let folder = Folder::new("descriptors");
    let (store, queue) = reopened(&folder);
    let before = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: Some(256), maximum: before.maximum };
    setrlimit(Resource::Nofile, wanted).expect("a lower limit");
    let mut others = Vec::new();
    let take_all = |others: &mut Vec<File>| {
        while let Ok(file) = File::open("/dev/null") {
            others.push(file);
        }
    };
    let mut outcomes = Vec::new();
    for round in 0..40 {
        take_all(&mut others);
        outcomes.push(get(&store, &queue, round));
        put(&store, &[A, sample("more", round as u32, 10)], false);
        outcomes.push(store.maintain().map(|()| (GetStatus::Found, 0, 0)).map_err(|error| error.to_string()));
    }
    take_all(&mut others);
    outcomes.push(store.checkpoint().map(|()| (GetStatus::Found, 0, 0)).map_err(|error| error.to_string()));
    setrlimit(Resource::Nofile, before).expect("the previous limit");
    let taken = others.len();
    drop(others);
    assert!(taken > 100, "the process had used up its descriptors: {taken}");
    for outcome in outcomes {
        assert!(matches!(outcome, Ok((GetStatus::Found, ..))), "{outcome:?}");
    }
    store.close().expect("closes");
}
