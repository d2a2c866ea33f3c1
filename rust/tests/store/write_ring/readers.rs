//! Readers find every message while parts are recycled.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{count, mapped, ring_options, start};
use crate::store_model::{Folder, body_of, open, put, read_all, sample};
use rmqpy::clock::SystemClock;
use rmqpy::store::disk::OsDisk;
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::{Durability, Event, Options};

/// Puts messages of all sizes until the log has several files, with occasional flushes, and reads everything at each step.
#[test]
fn everything_is_readable_while_parts_fill_up_and_are_recycled() {
    const SIZES: [usize; 7] = [10, 4_000, 90, 60_000, 1, 12_345, 700];
    let disk = SimDisk::new();
    let store = start(&disk, ring_options("/store"));
    for round in 0..60 {
        let samples = SIZES.map(|size| sample("a", 0, size));
        let is_joined = samples.iter().map(|each| each.body_bytes + 200).sum::<usize>() < 1 << 16;
        assert!(put(&store, &samples, is_joined).iter().all(Result::is_ok), "round {round}");
        store.maintain().expect("a working disk");
        if round % 3 == 0 {
            store.flush().expect("a working disk");
        }
        if round % 7 == 0 {
            store.checkpoint().expect("a working disk");
        }
        assert_eq!(count(&store, "a", 0), (round + 1) * SIZES.len() as u64);
    }
    assert!(store.range().1.0 > 4 << 20);
    let disk = disk.crash(Survival::Everything, 0);
    let store = start(&disk, ring_options("/store"));
    assert_eq!(count(&store, "a", 0), 60 * SIZES.len() as u64);
    store.close().expect("a working disk");
    // Checksums were noted while the blocks were written, so nothing counts as damaged.
    let store = start(&disk, mapped());
    assert_eq!((count(&store, "a", 0), store.events()), (60 * SIZES.len() as u64, vec![]));
}

/// Real files, real threads: readers follow the end of the log while parts are recycled behind them.
#[test]
fn readers_find_every_message_while_parts_are_recycled() {
    [Durability::PageCache, Durability::Disk].into_iter().for_each(check_readers);
}

fn check_readers(durability: Durability) {
    const MESSAGES: u64 = 20_000;
    let folder = Folder::new(&format!("ring-{durability:?}"));
    let options = || Options {
        durability,
        queue_file_bytes: 6_000_000,
        segment_bytes: 1 << 22,
        ..ring_options(&folder.0)
    };
    let threaded = Options { threads: true, ..options() };
    let store = open(OsDisk::shared(), threaded, SystemClock::shared()).expect("opens");
    let events = store.events();
    if let [Event::NoRing { reason }] = &events[..] {
        println!("no direct writes here: {reason}");
        return;
    }
    assert_eq!(events, []);
    let (done, seen) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut rounds = 0;
                while !done.load(Ordering::Acquire) || rounds == 0 {
                    let found = read_all(&store, "a", 0);
                    for (number, (_, body)) in &found {
                        assert_eq!(*body, body_of(&sample("a", 0, 700), *number));
                    }
                    seen.fetch_max(found.len() as u64, Ordering::AcqRel);
                    rounds += 1;
                }
            });
        }
        let failed = (0..MESSAGES / 20).find_map(|_| {
            if durability.promises_disk() {
                // Bodies are derived from visible offsets.
                store.flush().expect("a working disk");
            }
            let stored = put(&store, &[sample("a", 0, 700); 20], false);
            stored.into_iter().find_map(Result::err)
        });
        done.store(true, Ordering::Release);
        assert_eq!(failed, None, "{:?}", store.failure());
    });
    assert!(seen.load(Ordering::Acquire) > 0);
    store.flush().expect("a working disk");
    assert_eq!(count(&store, "a", 0), MESSAGES);
    // Like a kill.
    store.abandon();
    drop(store);
    let mapped = Options { durability: Durability::PageCacheMapped, ..options() };
    let store = open(OsDisk::shared(), mapped, SystemClock::shared()).expect("opens");
    assert_eq!(count(&store, "a", 0), MESSAGES);
}
