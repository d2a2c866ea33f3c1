//! Following: every visible record once, in the order of the log, whatever lies between records.

use std::path::Path;

use crate::store_model::{SEGMENT_BYTES, Sample, clock, open, options, options_with, put, sample};
use rmqpy::positions::PhysicalOffset;
use rmqpy::store::disk::simulated::SimDisk;
use rmqpy::store::disk::{Disk, Open};
use rmqpy::store::{Durability, Options, Store};

const SMALL: Sample = sample("orders", 0, 10);
const BIG: Sample = sample("orders", 1, 20_000);
const PAGE_BYTES: u64 = 50_000;

/// Puts messages that fill several files, and returns their positions.
fn fill(store: &Store) -> Vec<u64> {
    let mut positions = Vec::new();
    for _ in 0..12 {
        for stored in put(store, &[SMALL, BIG], false) {
            positions.push(stored.expect("room").1.0);
        }
        store.flush().expect("a working disk");
        store.maintain().expect("a working disk");
    }
    positions
}

/// Follows the log page by page; returns the positions of its records, the end, and the damaged bytes.
fn follow(store: &Store) -> (Vec<u64>, u64, u64) {
    let (mut positions, mut at, mut damaged) = (Vec::new(), 0, 0);
    loop {
        let page = store.follow(PhysicalOffset(at), PAGE_BYTES, |record| {
            positions.push(record.physical_offset().0);
            true
        });
        damaged += page.damaged;
        if page.next == page.begin {
            return (positions, at, damaged);
        }
        at = page.next;
    }
}

#[test]
fn every_record_is_followed_across_files_from_memory_and_from_disk() {
    for durability in [Durability::PageCache, Durability::PageCacheMapped, Durability::Disk] {
        let options = Options { segment_bytes: 1 << 19, ..options_with(durability, "/store") };
        for options in [options, options_with(durability, "/store")] {
            let disk = SimDisk::new();
            let store = open(disk.shared(), options.clone(), clock()).expect("opens");
            let mut put_at = fill(&store);
            // The last ones are in no file of the log yet, if there is a write ring.
            put_at.extend(put(&store, &[SMALL, SMALL], false).into_iter().map(|one| one.expect("room").1.0));
            store.flush().expect("a working disk");
            let (positions, end, damaged) = follow(&store);
            assert_eq!((&positions, damaged), (&put_at, 0), "{durability:?}");
            assert_eq!(end, store.visible().0);
            store.close().expect("a working disk");
            let store = open(disk.shared(), options, clock()).expect("opens");
            assert_eq!(follow(&store).0, put_at, "{durability:?}, opened again");
        }
    }
}

#[test]
fn a_record_that_is_refused_is_the_next_one() {
    let disk = SimDisk::new();
    let store = open(disk.shared(), options("/store"), clock()).expect("opens");
    let put_at = fill(&store);
    let mut left = 3;
    let page = store.follow(PhysicalOffset(0), u64::MAX, |_| {
        left -= 1;
        left >= 0
    });
    assert_eq!((page.begin, page.next), (0, put_at[3]));
}

#[test]
fn following_begins_with_the_log_if_its_first_files_were_deleted() {
    let disk = SimDisk::new();
    let clock = clock();
    let store = open(disk.shared(), options("/store"), clock.clone()).expect("opens");
    fill(&store);
    clock.advance(4 * crate::store_model::KEPT);
    fill(&store);
    assert!(store.delete_expired().expect("a working disk") > 0);
    let begin = store.range().0.0;
    let mut first = None;
    let page = store.follow(PhysicalOffset(0), PAGE_BYTES, |record| {
        first.get_or_insert(record.physical_offset().0);
        true
    });
    assert!(begin > 0);
    assert_eq!((page.begin, first), (begin, Some(begin)));
}

#[test]
fn damage_is_counted_and_passed() {
    let disk = SimDisk::new();
    let store = open(disk.shared(), options("/store"), clock()).expect("opens");
    let put_at = fill(&store);
    store.close().expect("a working disk");
    // The size of the second record, in a file that is full.
    let file = disk.open(Path::new("/store/commitlog/00000000000000000000"), Open::Write).expect("a file");
    file.write_at(&[0xFF; 8], put_at[1]).expect("a working disk");
    drop(file);
    let store = open(disk.shared(), options("/store"), clock()).expect("opens");
    let (positions, _, damaged) = follow(&store);
    assert!(put_at[2] < SEGMENT_BYTES, "sound records of the file follow");
    // The first record lies in the damaged block, too.
    assert_eq!((positions, damaged), (put_at[2..].to_vec(), put_at[2]));
}
