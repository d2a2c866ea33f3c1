//! Store formats: the files of the store byte by byte, and property tests of them.

use std::path::Path;

use crate::store_model::{SEGMENT_BYTES, Sample, bytes_of, clock, open, options, put, read_all, sample};
use proptest::prelude::*;
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::disk::{Disk, Open};

fn long(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"))
}

fn int(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"))
}

#[test]
fn every_file_has_the_bytes_of_the_map_in_the_documents() {
    let disk = SimDisk::new();
    let store = open(disk.shared(), options("/store"), clock()).expect("opens");
    let (_, first, _) = put(&store, &[sample("orders", 3, 40_000)], false)[0].expect("stored");
    store.maintain().expect("a working disk");
    let (_, second, end) = put(&store, &[sample("orders", 3, 40_000)], false)[0].expect("stored");
    store.close().expect("closes");
    assert_eq!((first.0, second.0), (0, SEGMENT_BYTES));

    let record_bytes = (end.0 - second.0) as u32;
    let record = bytes_of(&disk, "/store/commitlog/00000000000000065536", 0, 91);
    assert_eq!((int(&record), int(&record[4..])), (record_bytes, 0xDAA3_20A7));
    assert_eq!((int(&record[12..]), long(&record[20..]), long(&record[28..])), (3, 1, SEGMENT_BYTES));
    let blank = bytes_of(&disk, "/store/commitlog/00000000000000000000", u64::from(record_bytes), 8);
    assert_eq!((int(&blank), int(&blank[4..])), (SEGMENT_BYTES as u32 - record_bytes, 0xCBD4_3194));

    let units = bytes_of(&disk, "/store/consumequeue/orders/3/00000000000000000000", 0, 1000);
    assert_eq!(units.len(), 160, "at full length from the start");
    assert_eq!((long(&units[20..]), int(&units[28..])), (SEGMENT_BYTES, record_bytes));
    assert_eq!(long(&units[32..]) as i64, 112_785, "\"red\".hashCode()");
    assert!(units[40..].iter().all(|byte| *byte == 0));

    let now = 1_700_000_000_000_u64;
    let index = disk.list(Path::new("/store/index")).expect("a directory").remove(0);
    assert_eq!((index.name.as_str(), index.size), ("20231114221320000", 40 + 16 * 4 + 64 * 20));
    let index = bytes_of(&disk, &format!("/store/index/{}", index.name), 0, 2000);
    assert_eq!(
        (long(&index), long(&index[8..]), long(&index[16..]), long(&index[24..])),
        (now, now, 0, SEGMENT_BYTES)
    );
    assert_eq!(int(&index[36..]), 5, "two keys and two tags, counted from 1");
    let tag_hash = int(&index[40 + 16 * 4 + 2 * 20..]);
    assert_eq!(int(&index[40 + (tag_hash as usize % 16) * 4..]), 4, "the slot names the newest entry");
    let newest = &index[40 + 16 * 4 + 4 * 20..];
    assert_eq!(
        (int(newest), long(&newest[4..]), int(&newest[12..]), int(&newest[16..])),
        (tag_hash, SEGMENT_BYTES, 0, 2)
    );

    let checkpoint = bytes_of(&disk, "/store/checkpoint", 0, 5000);
    assert_eq!(checkpoint.len(), 4096);
    let numbers: Vec<u64> = checkpoint.chunks(8).take(6).map(long).collect();
    assert_eq!(numbers, [now, now, 0, 0, 0, SEGMENT_BYTES]);
    assert_eq!(bytes_of(&disk, "/store/lock", 0, 10), b"lock");
}

const TOPICS: [&str; 3] = ["a", "b-topic", "%RETRY%c"];

fn samples() -> impl Strategy<Value = Vec<Vec<Sample>>> {
    let one =
        (0..3_usize, 0..3_u32, 0..2000_usize).prop_map(|(topic, id, size)| sample(TOPICS[topic], id, size));
    prop::collection::vec(prop::collection::vec(one, 1..6), 1..12)
}

/// Few cases by default, or as many as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let default = ProptestConfig::default();
    ProptestConfig { cases: if asked { default.cases } else { 48 }, failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_was_put_is_read_back_in_order_through_stops_and_kills(bursts in samples(), stops in any::<u64>()) {
        let disk = SimDisk::new();
        let mut store = open(disk.shared(), options("/store"), clock()).expect("opens");
        let mut appended = 0;
        for (index, burst) in bursts.iter().enumerate() {
            let outcomes = put(&store, burst, index % 2 == 1);
            prop_assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            appended += burst.len();
            store.maintain().expect("a working disk");
            match stops >> (index * 2) & 3 {
                0 => store.close().expect("closes"),
                1 => store.abandon(),
                _ => continue,
            }
            store = open(disk.shared(), options("/store"), clock()).expect("opens");
        }
        let found: usize = store.topics().iter()
            .flat_map(|(topic, ids)| ids.iter().map(|id| read_all(&store, topic, *id).len()))
            .sum();
        prop_assert_eq!(found, appended);
    }

    #[test]
    fn a_flipped_byte_anywhere_neither_stops_the_start_nor_is_served_as_a_new_message(
        file in 0..5_usize, at in 0..6000_u64, value in any::<u8>(), is_clean in any::<bool>(),
    ) {
        let disk = SimDisk::new();
        let store = open(disk.shared(), options("/store"), clock()).expect("opens");
        put(&store, &[sample("a", 0, 900), sample("a", 1, 10), sample("a", 0, 900), sample("a", 0, 900)], false);
        store.checkpoint().expect("a working disk");
        put(&store, &[sample("a", 0, 10), sample("a", 1, 900)], false);
        if is_clean { store.close().expect("closes") } else { store.abandon() }
        drop(store);
        let disk = disk.crash(Survival::Everything, 0);
        let index = disk.list(Path::new("/store/index")).expect("a directory").remove(0).name;
        let path = [
            "/store/commitlog/00000000000000000000".to_owned(),
            "/store/consumequeue/a/0/00000000000000000000".to_owned(),
            format!("/store/index/{index}"),
            "/store/checkpoint".to_owned(),
            "/store/rmqpy/manifest".to_owned(),
        ][file].clone();
        let target = disk.open(Path::new(&path), Open::Write).expect("the file");
        let size = target.size().expect("a working disk");
        target.write_at(&[value], at % size).expect("a working disk");
        let store = open(disk.shared(), options("/store"), clock()).expect("opens whatever it finds");
        for (topic, ids) in store.topics() {
            for id in ids {
                let queue = store.queue(&topic, id).expect("a queue");
                prop_assert!(queue.max().0 <= 4, "{}", queue.max());
            }
        }
        let (_, physical, _) = put(&store, &[sample("a", 2, 100)], false)[0].expect("works on");
        prop_assert!(store.lookup(physical).is_some());
        let _ = store.query("a", "any", 32, 0, i64::MAX).expect("an index");
    }
}
