//! Crashes during the copying and the rounds of compacted topics.
//!
//! Goal: whatever stops when, the store opens; the newest durable message of each key is there, none twice; and the next
//! round has the right result.
//! Method: run a workload on a simulated disk, stop the disk before each of its operations, let unsynced sectors and names
//! survive in different ways, reopen and compare; stop the disk during that, too.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::compaction::{Model, TOPIC, options, read, start};
use crate::store_model::{clock, open};
use rmqpy::clock::ManualClock;
use rmqpy::store::Store;
use rmqpy::store::disk::simulated::{Fault, SimDisk, Survival};

const SURVIVALS: [Survival; 5] =
    [Survival::Nothing, Survival::Everything, Survival::Prefix, Survival::Percent(30), Survival::Percent(80)];

/// The messages of a run, how many are durable, and the operation at which copying began.
struct Run {
    model: Model,
    durable: usize,
    begin: u64,
}

fn send_some(store: &Store, model: &mut Model, count: usize) {
    for _ in 0..count {
        let number = model.sent.len();
        let body = if number % 11 == 10 { String::new() } else { format!("value-{number}") };
        model.send(store, &format!("k{}", number * number % 7), &body);
    }
}

/// Three rounds, with messages before, between and behind them.
fn run(disk: &SimDisk, clock: &Arc<ManualClock>) -> Run {
    let store = start(disk, clock);
    let mut run = Run { model: Model::default(), durable: 0, begin: disk.operations() };
    for (number, count) in [25, 10, 30].into_iter().enumerate() {
        send_some(&store, &mut run.model, count);
        if store.flush().is_ok() && !disk.is_frozen() {
            run.durable = run.model.sent.len();
        }
        if number == 0 {
            run.begin = disk.operations();
        }
        if store.compact().is_ok() && !disk.is_frozen() {
            assert!(run.durable == run.model.sent.len());
        }
    }
    send_some(&store, &mut run.model, 5);
    let _ = store.delete_expired();
    run
}

/// Checks a store after a crash, and that it works on.
fn check(disk: &SimDisk, run: &Run, clock: &Arc<ManualClock>, context: &str) {
    let store = start(disk, clock);
    let max = store.queue(TOPIC, 0).map_or(0, |queue| queue.max().0) as usize;
    assert!(max >= run.durable, "{context}");
    let mut model = run.model.clone();
    model.sent.truncate(max);
    let found = read(&store);
    for (offset, key, body) in &found {
        assert_eq!(model.sent.get(*offset as usize), Some(&(key.clone(), body.clone())), "{context}");
    }
    let mut newest = BTreeMap::new();
    for (offset, (key, _)) in model.sent.iter().enumerate().take(run.durable) {
        newest.insert(key, offset as u64);
    }
    for (key, offset) in newest {
        let is_deleted = model.sent[offset as usize].1.is_empty();
        let is_there = found.iter().any(|(at, of, _)| of == key && *at >= offset);
        assert!(is_there || is_deleted, "{context}: {key} at {offset} is lost: {found:?}");
    }
    store.compact().expect("a working disk");
    model.compacted = max;
    assert_eq!(read(&store), model.expected(), "{context}");
    send_some(&store, &mut model, 10);
    assert_eq!(read(&store), model.expected(), "{context}");
    store.compact().expect("a working disk");
    model.compacted = model.sent.len();
    assert_eq!(read(&store), model.expected(), "{context}");
    let compacting = Path::new("/store/compaction/compactionLog/profiles/0/compacting");
    let left = rmqpy::store::disk::Disk::list(disk, compacting).expect("a working disk");
    assert!(left.is_empty(), "{context}: {left:?}");
}

#[test]
fn a_crash_at_any_operation_leaves_the_old_or_the_new_files() {
    let whole = SimDisk::new();
    let begin = run(&whole, &clock()).begin;
    let end = whole.operations();
    assert!(end - begin > 100, "{begin} to {end}");
    for operation in begin..=end {
        let (disk, clock) = (SimDisk::new(), clock());
        disk.freeze_at(operation);
        let run = run(&disk, &clock);
        for (number, survival) in SURVIVALS.into_iter().enumerate() {
            if number as u64 % 2 != operation % 2 && survival != Survival::Nothing {
                continue;
            }
            let context = format!("stopped at {operation}, {survival:?}");
            let after = disk.crash(survival, operation);
            // Also a start may be interrupted.
            let again = after.crash(Survival::Everything, 0);
            again.freeze_at(operation % 60);
            if let Ok(store) = open(again.shared(), options(), clock.clone()) {
                store.abandon();
            }
            check(&again.crash(survival, operation + 1), &run, &clock, &format!("{context}, twice"));
            check(&after, &run, &clock, &context);
        }
    }
}

#[test]
fn a_failed_operation_only_delays_a_round() {
    let whole = SimDisk::new();
    let begin = run(&whole, &clock()).begin;
    let end = whole.operations();
    for operation in begin..end {
        let (disk, clock) = (SimDisk::new(), clock());
        let kind = if operation % 2 == 0 { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
        disk.set_fault(Fault { operation, is_lasting: false, kind });
        let store = start(&disk, &clock);
        let mut model = Model::default();
        for count in [25, 10, 30] {
            send_some(&store, &mut model, count);
            let _ = store.flush();
            let _ = store.compact();
        }
        // After a failed flush the log takes nothing any more.
        // The disk fails once: now, if it has not yet.
        let _ = store.compact();
        if store.is_latched() {
            continue;
        }
        store.compact().expect("the disk works again");
        model.compacted = model.sent.len();
        assert_eq!(read(&store), model.expected(), "failed at {operation}");
        drop(store);
        assert_eq!(read(&start(&disk, &clock)), model.expected(), "failed at {operation}, reopened");
    }
}
