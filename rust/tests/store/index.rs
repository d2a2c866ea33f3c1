//! Index: it takes no more space than it needs, delays nothing else, and recovers completely.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::store_model::{
    Folder, Sample, clock, index_everything, key_of, open, open_with, options, options_with, put, sample,
};
use rmqpy::clock::{Clock, ManualClock};
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::disk::{Disk, Open, OsDisk};
use rmqpy::store::{Durability, Event, Options, Store};

const A: Sample = sample("orders", 0, 100);
const B: Sample = sample("orders", 1, 50);
const INDEX: &str = "/store/index";

/// Also looks up by time, which a file of the index counts from its first key.
fn is_found(store: &Store, queue_id: u32, number: u64) -> bool {
    let key = key_of("orders", queue_id, number);
    let since = clock().wall_ms() as i64;
    store.query("orders", &key, 8, since, i64::MAX).expect("an index").records.len() == 1
}

/// Returns keys that find no message, of `count` in each of both queues.
fn lost(store: &Store, count: u64) -> Vec<(u32, u64)> {
    let all = (0..2).flat_map(|queue_id| (0..count).map(move |number| (queue_id, number)));
    all.filter(|(queue_id, number)| !is_found(store, *queue_id, *number)).collect()
}

fn put_both(store: &Store, count: u64) {
    for _ in 0..count {
        assert!(put(store, &[A, B], false).iter().all(Result::is_ok));
        // If only durable messages are visible, messages are numbered by the durable ones.
        store.flush().expect("a working disk");
    }
}

/// Runs rounds for ten seconds, ignoring their results; returns the events.
fn rounds(store: &Store, clock: &ManualClock) -> Vec<String> {
    for _ in 0..200 {
        clock.advance(Duration::from_millis(50));
        drop(store.maintain());
    }
    store.events().iter().map(Event::to_string).collect()
}

/// The unused part of an index file is a hole: 420 MB at the sizes of a broker.
#[test]
fn after_a_crash_the_index_takes_no_more_room_than_before() {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::new("index-room");
    let root = folder.0.join("store");
    let large = || Options {
        index_slots: 5_000_000,
        index_entries: 20_000_000,
        ..options_with(Durability::DiskMapped, &root)
    };
    let room = || {
        let files = std::fs::read_dir(root.join("index")).expect("a directory");
        files.map(|file| file.expect("a file").metadata().expect("a file").blocks() * 512).sum::<u64>()
    };
    let store = open(OsDisk::shared(), large(), clock()).expect("opens");
    put_both(&store, 20);
    store.checkpoint().expect("a working disk");
    put_both(&store, 20);
    store.maintain().expect("a working disk");
    store.abandon();
    let before = room();
    for _ in 0..2 {
        let store = open(OsDisk::shared(), large(), clock()).expect("opens after a crash");
        assert_eq!(lost(&store, 40), []);
        store.abandon();
        assert!(room() < 1 << 20, "{} bytes, {before} before", room());
    }
}

/// Method: remove the index, and crash the machine before each operation of the start and of the rebuild, with any subset of
/// the unsynced data on disk; then repeat.
#[test]
fn a_crash_while_the_index_is_recovered_changes_nothing() {
    type Damage = fn(&SimDisk);
    let damages: [(&str, Damage); 4] = [
        ("nothing", |_| {}),
        ("the index is gone", |disk| disk.remove_dir(Path::new(INDEX)).expect("removes")),
        ("its newest file is gone", |disk| {
            let newest = disk.list(Path::new(INDEX)).expect("a directory").pop().expect("a file");
            disk.remove(&Path::new(INDEX).join(newest.name)).expect("removes");
        }),
        ("a chain is broken", |disk| {
            let newest = disk.list(Path::new(INDEX)).expect("a directory").pop().expect("a file");
            let file = disk.open(&Path::new(INDEX).join(newest.name), Open::Write).expect("the file");
            let second_entry = 40 + 16 * 4 + 2 * 20;
            file.write_at(&[7; 4], second_entry).and_then(|()| file.sync()).expect("a working disk");
        }),
    ];
    let survivals = [Survival::Nothing, Survival::Everything, Survival::Prefix, Survival::Percent(50)];
    let mut states = 0;
    for (name, damage) in damages {
        for is_clean in [true, false] {
            let prepared = SimDisk::new();
            let clock = clock();
            let start = |disk: &SimDisk| open_with(Durability::Disk, disk.shared(), &clock);
            let store = start(&prepared).expect("opens");
            put_both(&store, 10);
            store.checkpoint().expect("a working disk");
            put_both(&store, 2);
            store.flush().expect("a working disk");
            if is_clean {
                store.close().expect("closes")
            } else {
                store.abandon()
            }
            drop(store);
            damage(&prepared);
            prepared.sync_dir(Path::new(INDEX)).expect("a working disk");
            let go_on = |disk: &SimDisk| {
                let Ok(store) = start(disk) else { return };
                drop(store.maintain());
                drop(store.checkpoint());
                store.abandon();
            };
            let first = prepared.crash(Survival::Everything, 0);
            go_on(&first);
            for at in 0..=first.operations() {
                for (seed, survival) in survivals.into_iter().enumerate() {
                    let context = format!("{name}, clean {is_clean}, operation {at}, {survival:?}");
                    let disk = prepared.crash(Survival::Everything, 0);
                    disk.freeze_at(at);
                    go_on(&disk);
                    let disk = disk.crash(survival, seed as u64 * 7 + at);
                    let store = start(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
                    index_everything(&store);
                    assert_eq!(lost(&store, 12), [], "{context}");
                    put_both(&store, 1);
                    assert_eq!(lost(&store, 13), [], "{context}: and later ones");
                    states += 1;
                }
            }
        }
    }
    println!("{states} states");
}

#[test]
fn an_unwritable_index_delays_nothing_else_and_is_reported_once() {
    let disk = SimDisk::new();
    let clock = clock();
    let start = || open(disk.shared(), options("/store"), clock.clone()).expect("opens");
    let store = start();
    put_both(&store, 3);
    store.checkpoint().expect("a working disk");
    disk.set_broken(Some((INDEX, ErrorKind::StorageFull)));
    put_both(&store, 3);
    let reports = rounds(&store, &clock);
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].starts_with("cannot write the index"), "{reports:?}");
    put_both(&store, 3);
    assert_eq!(lost(&store, 9), [], "waiting keys are found");
    store.checkpoint().expect("checkpoints continue");
    store.abandon();

    let store = start();
    assert_eq!(lost(&store, 3), [], "it starts with the keys on disk");
    put_both(&store, 1);
    let reports = rounds(&store, &clock);
    assert_eq!(
        reports.iter().filter(|report| report.starts_with("cannot write the index")).count(),
        1,
        "{reports:?}"
    );
    store.close().expect("a clean stop");

    disk.set_broken(None);
    let store = start();
    index_everything(&store);
    assert_eq!(lost(&store, 10), [], "nothing is missing permanently");
    let reports = rounds(&store, &clock);
    assert!(reports.iter().any(|report| report == "the index is complete again"), "{reports:?}");
    store.close().expect("a clean stop");
    let store = start();
    assert_eq!(store.statistics()["unindexed_bytes"], 0, "nothing is left to read again");
    assert_eq!(lost(&store, 10), []);
}

/// Method: more keys than memory holds, in few messages.
#[test]
fn keys_beyond_the_limit_are_read_from_the_log_and_nothing_waits_for_them() {
    let disk = SimDisk::new();
    let wide = || Options {
        segment_bytes: 64 << 20,
        index_slots: 1 << 20,
        index_entries: 1_100_000,
        ring_bytes: 64 << 20,
        ..options("/store")
    };
    let store = open(disk.shared(), wide(), clock()).expect("opens");
    let stored = crate::store_model::put_keys(&store, "orders", 450, 2_400);
    assert!(store.statistics()["unindexed_bytes"] > 0, "{stored} keys");
    index_everything(&store);
    let is_found = |key: &String| {
        let found = store.query("orders", key, 8, 0, i64::MAX).expect("an index");
        found.records.len() == 1
    };
    let keys = (0..stored).step_by(997).map(|number| format!("key-{number}"));
    assert_eq!(keys.filter(|key| !is_found(key)).count(), 0);
    let reports: Vec<_> = store.events().iter().map(Event::to_string).collect();
    assert_eq!(reports.len(), 1, "{reports:?}");
    store.close().expect("a clean stop");
}

#[test]
fn keys_missing_at_a_stop_are_indexed_after_the_next_start() {
    let disk = SimDisk::new();
    let start = || open(disk.shared(), options("/store"), clock()).expect("opens");
    let store: Arc<Store> = start();
    put_both(&store, 5);
    store.checkpoint().expect("a working disk");
    disk.set_broken(Some((INDEX, ErrorKind::StorageFull)));
    put_both(&store, 40);
    store.close().expect("a clean stop");
    disk.set_broken(None);
    let store = start();
    assert!(store.statistics()["unindexed_bytes"] > 0);
    index_everything(&store);
    assert_eq!(lost(&store, 45), []);
}
