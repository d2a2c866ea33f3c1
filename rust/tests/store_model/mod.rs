//! Store model: a store with small files under test, and a model of its content.
//!
//! The body of every message is derived from its topic, queue and offset, so that a reader can check it, whichever
//! run of the store put it.
#![allow(dead_code)]

pub mod workloads;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rmqpy::clock::{ManualClock, SharedClock};
use rmqpy::message::record::{RecordFields, records};
use rmqpy::message::tag;
use rmqpy::positions::{PhysicalOffset, QueueOffset};
use rmqpy::store::disk::simulated::SimDisk;
use rmqpy::store::disk::{Disk, Open};
use rmqpy::store::{
    Durability, Get, GetResult, GetStatus, KeyHashes, Options, Put, PutError, RecoveryProgress, Retention,
    Store, StoreError,
};

pub const SEGMENT_BYTES: u64 = 1 << 16;
/// How long a file of the log is kept; then it is deleted on request, not automatically.
pub const KEPT: Duration = Duration::from_secs(72 * 3600);

/// Options with small files and no threads: a test controls every step.
pub fn options(root: impl AsRef<Path>) -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        queue_file_bytes: 20 * 8,
        index_slots: 16,
        index_entries: 64,
        ring_bytes: 1 << 18,
        threads: false,
        retention: Retention { reserved_ms: KEPT.as_millis() as u64, ..Retention::default() },
        ..Options::new(root.as_ref())
    }
}

/// Likewise, with this durability.
pub fn options_with(durability: Durability, root: impl AsRef<Path>) -> Options {
    Options { durability, ..options(root) }
}

/// Opens a store with this durability, on its own disk.
pub fn open_with(
    durability: Durability,
    disk: Arc<dyn Disk>,
    clock: &Arc<ManualClock>,
) -> Result<Arc<Store>, StoreError> {
    open(disk, options_with(durability, "/store"), clock.clone())
}

pub fn open(disk: Arc<dyn Disk>, options: Options, clock: SharedClock) -> Result<Arc<Store>, StoreError> {
    Store::open(options, disk, clock, &RecoveryProgress::default())
}

/// Opens the default store of most tests.
pub fn start(disk: &SimDisk) -> Arc<Store> {
    open(disk.shared(), options("/store"), clock()).expect("opens")
}

/// Reads up to `size` bytes of a file from `at` on.
pub fn bytes_of(disk: &SimDisk, path: &str, at: u64, size: usize) -> Vec<u8> {
    let file = disk.open(Path::new(path), Open::Read).expect("the file");
    let mut bytes = vec![0; size];
    let read = file.read_at(&mut bytes, at).expect("a working disk");
    bytes.truncate(read);
    bytes
}

pub fn clock() -> Arc<ManualClock> {
    ManualClock::at(1_700_000_000_000)
}

/// A message to put; everything else is derived from it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Sample {
    pub topic: &'static str,
    pub queue_id: u32,
    pub body_bytes: usize,
}

pub const fn sample(topic: &'static str, queue_id: u32, body_bytes: usize) -> Sample {
    Sample { topic, queue_id, body_bytes }
}

/// Returns the body of message `number` of this queue.
pub fn body_of(sample: &Sample, number: u64) -> Vec<u8> {
    let head = format!("{}/{}/{number}:", sample.topic, sample.queue_id);
    head.bytes()
        .chain((0..).map(|index: u64| (index * 31 + number) as u8))
        .take(sample.body_bytes.max(head.len()))
        .collect()
}

pub fn key_of(topic: &str, queue_id: u32, number: u64) -> String {
    format!("k{topic}-{queue_id}-{number}")
}

/// Puts messages, as one batch if `joined`; returns the outcome of each.
pub fn put(
    store: &Store,
    samples: &[Sample],
    joined: bool,
) -> Vec<Result<(QueueOffset, PhysicalOffset, PhysicalOffset), PutError>> {
    let mut numbers: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    let mut parts = Vec::new();
    for sample in samples {
        let queue = store.queue_or_create(sample.topic, sample.queue_id).expect("a good name");
        let number = numbers.entry((sample.topic, sample.queue_id)).or_insert_with(|| queue.max().0);
        let body = body_of(sample, *number);
        let key = key_of(sample.topic, sample.queue_id, *number);
        let properties = format!("KEYS\u{1}{key}\u{2}TAGS\u{1}red\u{2}").into_bytes();
        *number += 1;
        parts.push((queue, body, properties));
    }
    let mut puts: Vec<Put<'_>> = samples
        .iter()
        .zip(&parts)
        .enumerate()
        .map(|(index, (sample, (queue, body, properties)))| Put {
            joined: joined && index > 0,
            ..put_of(queue, sample.topic, sample.queue_id, body, properties)
        })
        .collect();
    store.append(&mut puts);
    puts.iter()
        .map(|put| put.outcome.map(|stored| (stored.queue_offset, stored.physical, stored.end)))
        .collect()
}

/// Puts messages with `keys_each` keys, `key-0`, `key-1`, …; returns the number of keys.
pub fn put_keys(store: &Store, topic: &str, messages: usize, keys_each: usize) -> usize {
    let queue = store.queue_or_create(topic, 0).expect("a valid name");
    for message in 0..messages {
        let first = message * keys_each;
        let keys: Vec<String> = (first..first + keys_each).map(|number| format!("key-{number}")).collect();
        let properties = format!("KEYS\u{1}{}\u{2}", keys.join(" ")).into_bytes();
        let put = put_of(&queue, topic, 0, b"body", &properties);
        let mut puts = [put];
        store.append(&mut puts);
        assert!(puts[0].outcome.is_ok());
    }
    messages * keys_each
}

pub fn put_of<'a>(
    queue: &Arc<rmqpy::store::ConsumeQueue>,
    topic: &'a str,
    queue_id: u32,
    body: &'a [u8],
    properties: &'a [u8],
) -> Put<'a> {
    let host: SocketAddr = "127.0.0.1:10911".parse().expect("an address");
    let record = RecordFields {
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 1_700_000_000_000,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        body_crc: RecordFields::body_crc(body),
        topic: topic.as_bytes(),
        properties,
    };
    Put::new(
        Arc::clone(queue),
        record,
        tag::tags_code(properties),
        KeyHashes::of(topic.as_bytes(), properties),
    )
}

/// Lets maintenance read again what the index lacks after a start that found it damaged or missing.
pub fn index_everything(store: &Store) {
    for _ in 0..1000 {
        if store.statistics()["unindexed_bytes"] == 0 {
            return;
        }
        store.maintain().expect("a working disk");
    }
    panic!("the index does not catch up");
}

/// Returns all messages of a queue, by offset, checking their bodies.
pub fn read_all(store: &Store, topic: &str, queue_id: u32) -> BTreeMap<u64, (PhysicalOffset, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let Some(queue) = store.queue(topic, queue_id) else { return found };
    let mut result = GetResult::default();
    let mut offset = queue.min();
    while offset < queue.max() {
        let ask = Get { offset, messages_max: 7, bytes_max: 1 << 20 };
        store.get(&queue, &ask, &mut |_| true, &mut result).expect("a working disk");
        assert_eq!(result.status, GetStatus::Found, "{topic}/{queue_id} at {offset} of {}", queue.max());
        for slice in &result.slices {
            for record in records(slice) {
                let record = record.expect("a whole record");
                assert!(record.body_crc_matches(), "{topic}/{queue_id} at {}", record.queue_offset());
                assert_eq!(record.topic(), topic.as_bytes());
                assert_eq!(record.queue_id(), queue_id);
                let before =
                    found.insert(record.queue_offset().0, (record.physical_offset(), record.body().to_vec()));
                assert_eq!(before, None, "an offset appears once");
            }
        }
        assert!(result.next_begin > offset, "a read makes progress");
        offset = result.next_begin;
    }
    let expected: Vec<u64> = (queue.min().0..queue.max().0).collect();
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), expected, "{topic}/{queue_id} is dense");
    found
}

/// A directory of this machine that is removed with the test.
pub struct Folder(pub std::path::PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rmqpy-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a place for temporary files");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
