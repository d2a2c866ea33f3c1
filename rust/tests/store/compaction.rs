//! Compacted topics: copies with the newest message of each key, after rounds, restarts and expiry.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use crate::store_model::{KEPT, Sample, clock, open, put, put_of, sample};
use rmqpy::clock::ManualClock;
use rmqpy::message::properties::{self, name};
use rmqpy::message::record::records;
use rmqpy::positions::QueueOffset;
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::disk::{Disk, Open};
use rmqpy::store::{CompactionOptions, Get, GetResult, GetStatus, Options, Retention, Store};

pub const TOPIC: &str = "profiles";
const BIG: Sample = sample("bulk", 0, 20_000);
const LOGS: &str = "/store/compaction/compactionLog/profiles/0";
const QUEUES: &str = "/store/compaction/compactionCq/profiles/0";

/// A message of a copy: its offset, key and body.
pub type Found = (u64, String, String);

/// Small files: seven messages fit into one.
pub fn options() -> Options {
    Options {
        compaction: CompactionOptions {
            log_file_bytes: 2_000,
            queue_file_bytes: 46 * 8,
            bytes_per_second: 0,
            map_bytes: 1 << 10,
            ..CompactionOptions::default()
        },
        ..crate::store_model::options("/store")
    }
}

pub fn start(disk: &SimDisk, clock: &Arc<ManualClock>) -> Arc<Store> {
    let store = open(disk.shared(), options(), clock.clone()).expect("opens");
    store.set_compacted(TOPIC, true).expect("no threads");
    store
}

/// Sends a message; returns its offset, or `None` if it is refused.
pub fn send(store: &Store, key: &str, body: &str) -> Option<u64> {
    let queue = store.queue_or_create(TOPIC, 0).expect("a good name");
    let properties = if key.is_empty() {
        "TAGS\u{1}red\u{2}".to_owned()
    } else {
        format!("KEYS\u{1}{key}\u{2}TAGS\u{1}red\u{2}")
    };
    let mut puts = [put_of(&queue, TOPIC, 0, body.as_bytes(), properties.as_bytes())];
    store.append(&mut puts);
    puts[0].outcome.ok().map(|stored| stored.queue_offset.0)
}

/// Reads from an offset to the end, like a consumer.
pub fn read_from(store: &Store, from: u64) -> Vec<Found> {
    let mut found = Vec::new();
    let Some(queue) = store.queue(TOPIC, 0) else { return found };
    let (mut offset, mut result) = (QueueOffset(from), GetResult::default());
    while offset < queue.max() {
        let ask = Get { offset, messages_max: 3, bytes_max: 1 << 20 };
        store.get(&queue, &ask, &mut |_| true, &mut result).expect("a working disk");
        for record in result.slices.iter().flat_map(|slice| records(slice)) {
            let record = record.expect("a whole record");
            assert!(record.body_crc_matches());
            let key = properties::get(record.properties(), name::KEYS).expect("a key");
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
            found.push((record.queue_offset().0, text(key), text(record.body())));
        }
        assert!(result.next_begin > offset, "a read makes progress");
        offset = result.next_begin;
    }
    assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "offsets ascend: {found:?}");
    assert!(found.iter().all(|(offset, ..)| *offset >= from));
    found
}

pub fn read(store: &Store) -> Vec<Found> {
    read_from(store, 0)
}

/// The messages that were sent, by offset, and those that a round has covered.
#[derive(Default, Clone)]
pub struct Model {
    pub sent: Vec<(String, String)>,
    pub compacted: usize,
}

impl Model {
    pub fn send(&mut self, store: &Store, key: &str, body: &str) {
        if let Some(offset) = send(store, key, body) {
            assert_eq!(offset, self.sent.len() as u64);
            self.sent.push((key.to_owned(), body.to_owned()));
        }
    }

    /// Returns what a copy has: of the covered messages the newest of each key, and all others with a key.
    pub fn expected(&self) -> Vec<Found> {
        let mut newest = BTreeMap::new();
        for (offset, (key, _)) in self.sent.iter().enumerate().take(self.compacted) {
            newest.insert(key, offset);
        }
        let stays = |offset: usize, key: &String, body: &str| {
            let is_newest = newest.get(key) == Some(&offset) && !body.is_empty();
            !key.is_empty() && (offset >= self.compacted || is_newest)
        };
        let messages = self.sent.iter().enumerate();
        messages
            .filter(|(offset, (key, body))| stays(*offset, key, body))
            .map(|(offset, (key, body))| (offset as u64, key.clone(), body.clone()))
            .collect()
    }
}

/// Lets everything expire, and deletes expired files of the log.
fn expire(store: &Store, clock: &ManualClock) {
    (0..5).for_each(|_| assert!(put(store, &[BIG], false)[0].is_ok()));
    clock.advance(KEPT + Duration::from_secs(3600));
    store.delete_expired().expect("a working disk");
}

fn names(disk: &SimDisk, dir: &str) -> Vec<String> {
    disk.list(Path::new(dir)).expect("a working disk").into_iter().map(|entry| entry.name).collect()
}

#[derive(Clone, Debug)]
enum Operation {
    Send(u8, bool),
    SendWithoutKey,
    Compact,
    Kill,
    Close,
    Expire,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        20 => (0_u8..6, prop::bool::weighted(0.15)).prop_map(|(key, deletes)| Operation::Send(key, deletes)),
        2 => Just(Operation::SendWithoutKey),
        3 => Just(Operation::Compact),
        1 => Just(Operation::Kill),
        1 => Just(Operation::Close),
        1 => Just(Operation::Expire),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_copy_equals_a_map_of_the_newest_values(
        operations in prop::collection::vec(operation(), 1..120),
    ) {
        let (disk, clock) = (SimDisk::new(), clock());
        let (mut store, mut model) = (start(&disk, &clock), Model::default());
        for (number, operation) in operations.iter().enumerate() {
            let body = format!("value-{number}");
            match operation {
                Operation::Send(key, deletes) => {
                    model.send(&store, &format!("k{key}"), if *deletes { "" } else { &body });
                }
                Operation::SendWithoutKey => model.send(&store, "", &body),
                Operation::Compact => {
                    store.compact().expect("a working disk");
                    model.compacted = model.sent.len();
                }
                Operation::Expire => expire(&store, &clock),
                Operation::Kill | Operation::Close => {
                    if matches!(operation, Operation::Kill) {
                        store.abandon();
                    } else {
                        store.close().expect("a working disk");
                    }
                    drop(store);
                    store = start(&disk, &clock);
                }
            }
            prop_assert_eq!(read(&store), model.expected(), "after {} of {:?}", number, &operations);
        }
        // Without a body, a message deletes its key also if every message of the copy is deleted.
        for key in 0..6 {
            model.send(&store, &format!("k{key}"), "");
        }
        store.compact().expect("a working disk");
        prop_assert_eq!(read(&store), Vec::new());
    }
}

#[test]
fn three_keys_with_a_thousand_values_leave_three_messages_and_the_tail() {
    let (disk, clock) = (SimDisk::new(), clock());
    let (store, mut model) = (start(&disk, &clock), Model::default());
    for number in 0..3_000 {
        model.send(&store, &format!("k{}", number % 3), &format!("value-{number}"));
    }
    assert_eq!(read(&store).len(), 3_000);
    store.compact().expect("a working disk");
    model.compacted = 3_000;
    let left: Vec<u64> = read(&store).into_iter().map(|(offset, ..)| offset).collect();
    assert_eq!(left, [2_997, 2_998, 2_999]);
    assert_eq!(names(&disk, LOGS), ["00000000000000000000"], "the other files are gone");
    model.send(&store, "k1", "tail");
    assert_eq!(read(&store), model.expected());
    assert_eq!(read(&store).len(), 4);
}

#[test]
fn more_keys_than_memory_are_compacted_in_one_round() {
    let (disk, clock) = (SimDisk::new(), clock());
    let (store, mut model) = (start(&disk, &clock), Model::default());
    // The memory of the test holds a hundred keys.
    for number in 0..1_500 {
        model.send(&store, &format!("k{}", number * number % 701), &format!("value-{number}"));
    }
    store.compact().expect("a working disk");
    model.compacted = 1_500;
    assert_eq!(read(&store), model.expected());
    assert!(read(&store).len() > 300);
}

#[test]
fn a_hole_leads_to_the_next_message_and_the_end_to_the_end_of_the_queue() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = start(&disk, &clock);
    for body in ["a", "b", "c"] {
        send(&store, "one", body);
    }
    send(&store, "two", "d");
    send(&store, "two", "");
    send(&store, "", "without a key");
    store.compact().expect("a working disk");
    let queue = store.queue(TOPIC, 0).expect("a queue");
    let mut result = GetResult::default();
    let mut get = |offset| {
        let ask = Get { offset: QueueOffset(offset), messages_max: 32, bytes_max: 1 << 20 };
        store.get(&queue, &ask, &mut |_| true, &mut result).expect("a working disk");
        (result.status, result.next_begin.0, result.count)
    };
    assert_eq!(get(0), (GetStatus::Found, 6, 1));
    assert_eq!(get(2), (GetStatus::Found, 6, 1));
    assert_eq!(get(3), (GetStatus::NoMatchedMessage, 6, 0));
    assert_eq!(get(6), (GetStatus::OffsetOverflowOne, 6, 0));
    assert_eq!(get(7), (GetStatus::OffsetOverflowBadly, 6, 0));
    assert_eq!((queue.min(), queue.max()), (QueueOffset(0), QueueOffset(6)), "of the ordinary queue");
}

#[test]
fn a_read_keeps_its_limits_and_its_filter() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = start(&disk, &clock);
    (0..20).for_each(|number| assert!(send(&store, &format!("k{number}"), "body").is_some()));
    let queue = store.queue(TOPIC, 0).expect("a queue");
    let mut result = GetResult::default();
    let mut get = |messages_max, bytes_max, accepts: bool| {
        let ask = Get { offset: QueueOffset(0), messages_max, bytes_max };
        store.get(&queue, &ask, &mut |_| accepts, &mut result).expect("a working disk");
        (result.count, result.next_begin.0)
    };
    assert_eq!(get(5, 1 << 20, true), (5, 5));
    assert_eq!(get(32, 1, true), (1, 1), "one message, whatever its size");
    assert_eq!(get(32, 1 << 20, true), (20, 20), "over three files");
    assert_eq!(get(32, 1 << 20, false), (0, 20));
}

#[test]
fn values_outlive_the_log() {
    let (disk, clock) = (SimDisk::new(), clock());
    let (store, mut model) = (start(&disk, &clock), Model::default());
    for number in 0..30 {
        model.send(&store, &format!("k{}", number % 4), &format!("value-{number}"));
    }
    expire(&store, &clock);
    let queue = store.queue(TOPIC, 0).expect("a queue");
    assert_eq!(queue.min(), QueueOffset(30), "the ordinary queue has nothing any more");
    assert_eq!(read(&store), model.expected());
    store.compact().expect("a working disk");
    model.compacted = 30;
    store.close().expect("a working disk");
    drop(store);
    let store = start(&disk, &clock);
    assert_eq!(read(&store), model.expected());
    assert_eq!(read(&store).len(), 4);
}

#[test]
fn a_file_of_the_log_stays_until_its_messages_are_copied() {
    let (disk, clock) = (SimDisk::new(), clock());
    let retention = Retention {
        reserved_ms: KEPT.as_millis() as u64,
        delete_hours: (0..24).collect(),
        ..Retention::default()
    };
    let store = open(disk.shared(), Options { retention, ..options() }, clock.clone()).expect("opens");
    store.set_compacted(TOPIC, true).expect("no threads");
    send(&store, "one", "value");
    (0..5).for_each(|_| drop(put(&store, &[BIG], false)));
    clock.advance(KEPT + Duration::from_secs(3600));
    let settle = || {
        for _ in 0..20 {
            clock.advance(Duration::from_secs(1));
            store.maintain().expect("a working disk");
        }
    };
    settle();
    assert_eq!(store.range().0.0, 0, "the message is not copied yet");
    store.compact().expect("a working disk");
    settle();
    assert_ne!(store.range().0.0, 0);
    assert_eq!(read(&store), [(0, "one".to_owned(), "value".to_owned())]);
}

#[test]
fn copies_of_an_unknown_topic_keep_the_log_until_the_topics_are_known() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = start(&disk, &clock);
    send(&store, "one", "value");
    store.compact().expect("a working disk");
    store.close().expect("a working disk");
    drop(store);
    // The broker has not named its topics yet.
    let store = open(disk.shared(), options(), clock.clone()).expect("opens");
    expire(&store, &clock);
    assert_eq!(store.range().0.0, 0);
    store.compacted_topics_are_known();
    store.delete_expired().expect("a working disk");
    assert_ne!(store.range().0.0, 0);
}

#[test]
fn a_lost_copy_and_a_lost_position_are_made_again_from_the_log() {
    let (disk, clock) = (SimDisk::new(), clock());
    let (store, mut model) = (start(&disk, &clock), Model::default());
    for number in 0..30 {
        model.send(&store, &format!("k{}", number % 4), &format!("value-{number}"));
    }
    store.compact().expect("a working disk");
    store.close().expect("a working disk");
    drop(store);
    let position = Path::new("/store/compaction/position-checkpoint");
    assert_eq!(
        disk.shared().list(position.parent().expect("a folder")).map(|entries| entries.len()).ok(),
        Some(3)
    );
    disk.remove_dir(Path::new("/store/compaction/compactionLog")).expect("a working disk");
    disk.remove_dir(Path::new("/store/compaction/compactionCq")).expect("a working disk");
    let store = start(&disk, &clock);
    assert_eq!(read(&store), model.expected(), "everything is in the log");
    store.compact().expect("a working disk");
    store.close().expect("a working disk");
    drop(store);
    disk.remove(position).expect("a working disk");
    let store = start(&disk, &clock);
    model.compacted = 30;
    assert_eq!(read(&store), model.expected(), "offsets in the copy are not copied again");
    model.send(&store, "k0", "new");
    store.compact().expect("a working disk");
    model.compacted = 31;
    assert_eq!(read(&store), model.expected());
}

#[test]
fn offsets_of_lost_messages_are_given_again() {
    let (disk, clock) = (SimDisk::new(), clock());
    let (store, mut model) = (start(&disk, &clock), Model::default());
    for number in 0..10 {
        model.send(&store, "one", &format!("value-{number}"));
    }
    store.flush().expect("a working disk");
    for number in 0..10 {
        send(&store, "one", &format!("lost-{number}"));
    }
    // Copies durably, and does not flush the log.
    store.delete_expired().expect("a working disk");
    assert_eq!(read(&store).len(), 20);
    let disk = disk.crash(Survival::Nothing, 1);
    let store = start(&disk, &clock);
    assert_eq!(read(&store), model.expected());
    model.send(&store, "two", "next");
    assert_eq!(read(&store), model.expected());
    store.compact().expect("a working disk");
    model.compacted = 11;
    assert_eq!(read(&store), model.expected());
}

#[test]
fn a_round_drops_nothing_for_a_message_that_the_log_may_lose() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = start(&disk, &clock);
    send(&store, "one", "old");
    expire(&store, &clock);
    send(&store, "one", "new");
    store.compact().expect("a working disk");
    let disk = disk.crash(Survival::Nothing, 1);
    let found = read(&start(&disk, &clock));
    assert_eq!(found.last().map(|(_, _, body)| body.as_str()), Some("new"), "{found:?}");
}

#[test]
fn a_deleted_topic_leaves_no_copy_and_begins_again_empty() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = start(&disk, &clock);
    (0..20).for_each(|_| assert!(send(&store, "one", "old").is_some()));
    store.compact().expect("a working disk");
    store.delete_topic(TOPIC).expect("a working disk");
    assert_eq!(names(&disk, "/store/compaction/compactionLog"), [""; 0]);
    assert_eq!(names(&disk, "/store/compaction/compactionCq"), [""; 0]);
    store.set_compacted(TOPIC, true).expect("no threads");
    let mut model = Model::default();
    model.send(&store, "two", "new");
    assert_eq!(read(&store), model.expected());
    store.close().expect("a working disk");
    drop(store);
    assert_eq!(read(&start(&disk, &clock)), model.expected());
}

#[test]
fn damaged_records_are_passed_and_dropped() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = start(&disk, &clock);
    (0..20).for_each(|number| assert!(send(&store, &format!("k{number}"), "body").is_some()));
    store.compact().expect("a working disk");
    let file = disk.open(&Path::new(LOGS).join("00000000000000000000"), Open::Write).expect("a file");
    let mut bytes = [0; 1];
    file.read_at(&mut bytes, 90).expect("a working disk");
    file.write_at(&[!bytes[0]], 90).expect("a working disk");
    assert_eq!(read(&store).len(), 19);
    store.compact().expect("a working disk");
    assert_eq!(read(&store).len(), 19);
}

#[test]
fn files_come_in_pairs_of_one_name_and_full_size() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = start(&disk, &clock);
    (0..20).for_each(|number| assert!(send(&store, &format!("k{number}"), "body").is_some()));
    store.compact().expect("a working disk");
    (0..3).for_each(|number| assert!(send(&store, &format!("k{number}"), "again").is_some()));
    assert_eq!(read(&store).len(), 23);
    let files = |dir: &str| {
        let entries = disk.list(Path::new(dir)).expect("a working disk");
        entries.into_iter().map(|entry| (entry.name, entry.size)).collect::<Vec<_>>()
    };
    let (logs, queues) = (files(LOGS), files(QUEUES));
    assert_eq!(logs.len(), 4, "{logs:?}");
    for (index, (log, queue)) in logs.iter().zip(&queues).enumerate() {
        let name = format!("{:020}", index * 1_840);
        assert_eq!((log, queue), (&(name.clone(), 1_840), &(name, 368)));
    }
}

#[test]
fn without_compaction_the_log_serves_the_topic() {
    let (disk, clock) = (SimDisk::new(), clock());
    let compaction = CompactionOptions { is_enabled: false, ..options().compaction };
    let store = open(disk.shared(), Options { compaction, ..options() }, clock.clone()).expect("opens");
    store.set_compacted(TOPIC, true).expect("no threads");
    (0..5).for_each(|_| assert!(send(&store, "one", "value").is_some()));
    store.compact().expect("a working disk");
    assert_eq!(read(&store).len(), 5);
    assert!(!names(&disk, "/store").contains(&"compaction".to_owned()));
}
