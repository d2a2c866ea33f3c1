//! Crashes at every operation of the disk, compared with a model of what was promised.
//!
//! Goal: after any crash the store opens; it holds a prefix of the appended messages, at least the acknowledged ones; nothing is
//! torn; queues, index and log agree; and the store works on.
//! Method: run a workload once on a simulated disk to count its operations; then stop the disk before each of them, let
//! unsynced sectors and names survive in different ways, reopen, compare, continue, and repeat that while reopening.
//!
//! By default each operation tests one kind of survival, in rotation; `RMQPY_CRASH_SEEDS=n`, as in `make campaign NAME=store`, tries all of
//! them with n seeds each.
#![allow(clippy::expect_used, reason = "a failed expectation fails the test")]

mod store_model;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rmqpy::clock::ManualClock;
use rmqpy::positions::PhysicalOffset;
use rmqpy::store::Durability;
use rmqpy::store::Store;
use rmqpy::store::disk::simulated::{Fault, SimDisk, Survival};
use store_model::workloads::{LARGE, NINE, SMALL, Step, WORKLOADS};
use store_model::{
    KEPT, SEGMENT_BYTES, Sample, body_of, clock, index_everything, key_of, open_with, put, read_all,
};

const SURVIVALS: [Survival; 7] = [
    Survival::Nothing,
    Survival::Everything,
    Survival::Prefix,
    Survival::Percent(10),
    Survival::Percent(50),
    Survival::Percent(90),
    Survival::Percent(99),
];

type Name = (&'static str, u32, u64);

/// The messages a store was given, and its promises.
#[derive(Default)]
struct Model {
    /// Appended messages in log order, with the position after each.
    appended: Vec<(Name, Vec<u8>, PhysicalOffset)>,
    /// Number of acknowledged ones when the disk stopped.
    acknowledged: usize,
    /// Bounds of the log's begin: acknowledged deletions, and requested ones.
    begins: (u64, u64),
}

impl Model {
    /// Runs a workload until it ends or the disk stops. The store is left as the crash finds it.
    fn run(&mut self, disk: &SimDisk, steps: &[Step], durability: Durability, clock: &Arc<ManualClock>) {
        let start = || open_with(durability, disk.shared(), clock).ok();
        let Some(mut store) = start() else { return };
        for step in steps {
            clock.advance(Duration::from_millis(7));
            match step {
                Step::Put(samples) => {
                    samples.iter().for_each(|sample| self.put(&store, std::slice::from_ref(sample), false))
                }
                Step::Batch(samples) => self.put(&store, samples, true),
                Step::Flush => drop(store.flush()),
                Step::Keep => drop(store.maintain()),
                Step::Checkpoint => drop(store.checkpoint()),
                Step::Expire => self.expire(disk, &store, clock),
                Step::Reopen => {
                    let is_closed = store.close().is_ok();
                    drop(store);
                    if !disk.is_frozen() && is_closed {
                        self.acknowledged = self.appended.len();
                    }
                    match start() {
                        Some(opened) => store = opened,
                        None => return,
                    }
                }
            }
            if disk.is_frozen() {
                return;
            }
            let durable = store.durable();
            let promised = self.appended.iter().take_while(|(_, _, end)| *end <= durable).count();
            self.acknowledged = self.acknowledged.max(promised);
        }
    }

    /// Lets time pass until everything has expired, and deletes expired files.
    fn expire(&mut self, disk: &SimDisk, store: &Store, clock: &Arc<ManualClock>) {
        clock.advance(KEPT + Duration::from_secs(3600));
        self.put(store, SMALL, false);
        let last_file = store.range().1.0 / SEGMENT_BYTES * SEGMENT_BYTES;
        self.begins.1 = self.begins.1.max(last_file);
        if store.delete_expired().is_ok() && !disk.is_frozen() {
            self.begins.0 = self.begins.0.max(store.range().0.0);
        }
    }

    fn put(&mut self, store: &Store, samples: &[Sample], joined: bool) {
        // If only durable messages are visible, offsets run ahead, and bodies are derived from visible offsets: flush first.
        if store.visible() < store.range().1 && store.flush().is_err() {
            return;
        }
        for (sample, outcome) in samples.iter().zip(put(store, samples, joined)) {
            let Ok((offset, _, end)) = outcome else { continue };
            let name = (sample.topic, sample.queue_id, offset.0);
            self.appended.push((name, body_of(sample, offset.0), end));
        }
    }

    /// Checks a reopened store; returns the number of messages it holds.
    fn check(&self, store: &Store, at_least: usize, context: &str) -> usize {
        let mut found = BTreeMap::new();
        for (topic, ids) in store.topics() {
            for id in ids {
                for (offset, (_, body)) in read_all(store, &topic, id) {
                    found.insert((topic.to_string(), id, offset), body);
                }
            }
        }
        let begin = store.range().0;
        let (begin_min, begin_max) = self.begins;
        assert!((begin_min..=begin_max).contains(&begin.0), "{context}: begins at {begin}");
        index_everything(store);
        let mut survived = 0;
        for (index, ((topic, id, offset), body, end)) in self.appended.iter().enumerate() {
            if *end <= begin {
                // It has expired; if it were still visible, it would be left over below.
                survived += 1;
                continue;
            }
            match found.remove(&((*topic).to_owned(), *id, *offset)) {
                Some(read) => {
                    assert_eq!(read, *body, "{context}: {topic}/{id}/{offset} has its body");
                    assert_eq!(
                        index, survived,
                        "{context}: {topic}/{id}/{offset} survived, but an older one did not"
                    );
                    survived += 1;
                    let key = key_of(topic, *id, *offset);
                    let hits = store.query(topic, &key, 32, 0, i64::MAX).expect("an index").records.len();
                    assert!(hits >= 1, "{context}: {topic}/{id}/{offset} is found by its key");
                }
                None => assert!(
                    index >= at_least,
                    "{context}: {topic}/{id}/{offset} was acknowledged, but is lost"
                ),
            }
        }
        assert!(found.is_empty(), "{context}: messages that were never put: {:?}", found.keys());
        survived
    }

    /// Makes the surviving messages the whole history.
    fn forget_lost(&mut self, survived: usize) {
        self.appended.truncate(survived);
        self.acknowledged = survived;
    }
}

/// Crashes a workload before operation `at`, and checks all guarantees. Returns 1 when the machine crashed again during
/// recovery.
fn crash(steps: &[Step], durability: Durability, at: u64, survival: Survival, seed: u64) -> u64 {
    let context = format!("operation {at}, {survival:?}, {durability:?}, seed {seed}");
    let disk = SimDisk::new();
    disk.freeze_at(at);
    let clock = clock();
    let mut model = Model::default();
    model.run(&disk, steps, durability, &clock);
    let mut disk = disk.crash(survival, seed);

    let is_killed = survival == Survival::Everything;
    let at_least = if is_killed { model.appended.len() } else { model.acknowledged };
    // Sometimes the machine crashes again during recovery, after a few operations or many.
    let mut at_least_then = at_least;
    let more = (seed + at) % 3;
    for again in 0..more {
        let second = (seed + at * 7 + again * 13) % 40;
        disk.freeze_at(second);
        let opened = open_with(durability, disk.shared(), &clock);
        let is_open = opened.is_ok();
        drop(opened);
        let survival = if is_killed { survival } else { SURVIVALS[(second % 7) as usize] };
        if !is_open && !is_killed {
            at_least_then = model.acknowledged;
        }
        disk = disk.crash(survival, seed ^ second);
    }
    let at_least = at_least_then;

    let store = open_with(durability, disk.shared(), &clock)
        .unwrap_or_else(|error| panic!("{context}: does not open: {error}"));
    let survived = model.check(&store, at_least, &context);
    model.forget_lost(survived);
    // The store works on: new messages take the places of lost ones, and no stale message reappears.
    for samples in [SMALL, NINE, LARGE] {
        model.put(&store, samples, false);
        store.maintain().expect("a working disk");
    }
    store.flush().expect("a working disk");
    let before = model.check(&store, model.appended.len(), &context);
    assert_eq!(before, model.appended.len());
    // A clean stop keeps everything, and so does deleting derived files.
    store.close().expect("a working disk");
    drop(store);
    let store = open_with(durability, disk.shared(), &clock).expect("opens after a clean stop");
    model.check(&store, model.appended.len(), &context);
    more.min(1)
}

/// Seeds of a long run; `None` for the short one.
fn seeds() -> Option<u64> {
    std::env::var("RMQPY_CRASH_SEEDS").ok().and_then(|seeds| seeds.parse().ok())
}

/// Returns the survivals and seeds to try at operation `at`.
fn variants(at: u64) -> Vec<(Survival, u64)> {
    let count = SURVIVALS.len() as u64;
    let indexes = if seeds().is_some() { 0..count } else { at..at + 1 };
    indexes
        .flat_map(|index| (0..seeds().unwrap_or(1)).map(move |seed| (index % count, seed)))
        .map(|(index, seed)| (SURVIVALS[index as usize], seed * 1009 + index))
        .collect()
}

fn enumerate(durability: Durability) {
    let (mut states, mut doubles) = (0, 0);
    for (name, steps) in WORKLOADS {
        let disk = SimDisk::new();
        let mut model = Model::default();
        model.run(&disk, steps, durability, &clock());
        assert!(!model.appended.is_empty(), "{name}: the workload works");
        let expires = steps.iter().any(|step| matches!(step, Step::Expire));
        assert_eq!(model.begins.0 > 0, expires, "{name}: files expire");
        let operations = disk.operations();
        for at in 0..=operations {
            // A kill behind a deletion has found bugs that no other crash did.
            let kill = expires.then_some((Survival::Everything, at));
            for (survival, seed) in variants(at).into_iter().chain(kill) {
                doubles += crash(steps, durability, at, survival, seed);
                states += 1;
            }
        }
    }
    println!("{states} crash states, {doubles} of them crashed again while recovering, {durability:?}");
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_torn_is_read_in_sync_mode() {
    Durability::ALL.into_iter().filter(|durability| durability.promises_disk()).for_each(enumerate);
}

#[test]
fn a_crash_in_async_mode_takes_only_the_end_of_the_log() {
    Durability::ALL.into_iter().filter(|durability| !durability.promises_disk()).for_each(enumerate);
}

/// Opens a store after a failure, appends, and counts acknowledged messages.
fn go_on(disk: &SimDisk, model: &mut Model, durability: Durability, clock: &Arc<ManualClock>) {
    let store = open_with(durability, disk.shared(), clock).expect("the disk works again");
    let survived = model.check(&store, model.acknowledged, "the same machine");
    model.forget_lost(survived);
    model.put(&store, SMALL, false);
    if store.flush().is_ok() {
        model.acknowledged = model.appended.len();
    }
}

/// Every operation fails once and then works, like a disk that drops pages, or fails permanently.
#[test]
fn an_operation_that_fails_makes_no_false_acknowledgement() {
    let mut faults = 0;
    for durability in Durability::ALL {
        for (name, steps) in WORKLOADS {
            let disk = SimDisk::new();
            Model::default().run(&disk, steps, durability, &clock());
            for operation in 0..disk.operations() {
                let kinds = [io::ErrorKind::Other, io::ErrorKind::StorageFull];
                let all = kinds.iter().flat_map(|kind| [false, true].map(|is_lasting| (*kind, is_lasting)));
                // The short run rotates them.
                let (skipped, taken) = if seeds().is_some() { (0, 4) } else { (operation as usize % 4, 1) };
                for (kind, is_lasting) in all.skip(skipped).take(taken) {
                    let context =
                        format!("{name}: operation {operation} {kind:?} lasting {is_lasting} {durability:?}");
                    let disk = SimDisk::new();
                    disk.set_fault(Fault { operation, is_lasting, kind });
                    let clock = clock();
                    let mut model = Model::default();
                    model.run(&disk, steps, durability, &clock);
                    faults += 1;
                    // A new process on the same machine, with pages in memory that never reached the disk.
                    if operation % 2 == 0 && !is_lasting {
                        go_on(&disk, &mut model, durability, &clock);
                    }
                    // The power fails afterwards: acknowledged messages must have been on disk.
                    let disk = disk.crash(Survival::Nothing, operation);
                    let store = open_with(durability, disk.shared(), &clock);
                    let store = store.unwrap_or_else(|error| panic!("{context}: does not open: {error}"));
                    model.check(&store, model.acknowledged, &context);
                }
            }
        }
    }
    println!("{faults} faults");
}
