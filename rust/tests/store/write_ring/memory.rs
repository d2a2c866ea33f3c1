//! The memory of a write ring follows the rate of appends.

use std::path::Path;

use super::{count, ring_options};
use crate::store_model::{Folder, open, put, sample};
use rmqpy::clock::SystemClock;
use rmqpy::store::disk::OsDisk;
use rmqpy::store::{Durability, Event, Options};

/// Bytes of the write ring's files that this process has in memory.
fn resident(folder: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("this process");
    let place = folder.join("rmqpy/ring/");
    let place = place.to_str().expect("a name");
    let mut is_ours = false;
    let mut kib = 0;
    for line in maps.lines() {
        match line.strip_prefix("Rss:") {
            Some(size) if is_ours => {
                kib += size.trim().trim_end_matches(" kB").parse::<usize>().expect("a number");
            }
            Some(_) => {}
            // The line of a mapping begins with its addresses.
            None if line.split(' ').next().is_some_and(|word| word.contains('-')) => {
                is_ours = line.contains(place);
            }
            None => {}
        }
    }
    kib << 10
}

/// Real files: the memory of a write ring grows with the rate of appends, and shrinks after it.
#[test]
fn the_memory_of_a_write_ring_follows_the_rate_of_appends() {
    const REST: usize = 9 << 20;
    let folder = Folder::new("memory");
    let options = Options {
        queue_file_bytes: 6_000_000,
        segment_bytes: 256 << 20,
        ring_bytes: 64 << 20,
        ..ring_options(&folder.0)
    };
    let store = open(OsDisk::shared(), options, SystemClock::shared()).expect("opens");
    if let [Event::NoRing { reason }] = &store.events()[..] {
        println!("no direct writes here: {reason}");
        return;
    }
    let at_rest = resident(&folder.0);
    assert!((4 << 20..REST).contains(&at_rest), "{at_rest} bytes at rest");
    let large = [sample("a", 0, 60_000); 16];
    // Slowly: a MiB in each round.
    for _ in 0..30 {
        assert!(put(&store, &large, true).iter().all(Result::is_ok));
        store.flush().expect("a working disk");
        store.maintain().expect("a working disk");
    }
    let slow = resident(&folder.0);
    assert!(slow < REST + (4 << 20), "{slow} bytes at a low rate");
    // Fast: twenty in each round.
    for _ in 0..5 {
        for _ in 0..20 {
            assert!(put(&store, &large, true).iter().all(Result::is_ok));
            store.flush().expect("a working disk");
        }
        store.maintain().expect("a working disk");
    }
    let fast = resident(&folder.0);
    assert!(fast > 60 << 20, "{fast} bytes at a high rate");
    for _ in 0..401 {
        store.maintain().expect("a working disk");
    }
    let again = resident(&folder.0);
    assert!(again < REST, "{again} bytes at rest again");
    // Bytes whose memory was released are still there.
    assert_eq!(count(&store, "a", 0), (30 + 100) * 16);
    assert!(put(&store, &large, true).iter().all(Result::is_ok));
    store.abandon();
    drop(store);
    let mapped = Options {
        durability: Durability::PageCacheMapped,
        segment_bytes: 256 << 20,
        ..ring_options(&folder.0)
    };
    let store = open(OsDisk::shared(), mapped, SystemClock::shared()).expect("opens");
    assert_eq!(count(&store, "a", 0), (30 + 100 + 1) * 16);
}
