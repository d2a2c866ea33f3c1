//! What the store costs on this machine: `cargo bench --bench store`. One thread, 128-byte bodies, async flush; the best
//! of many short rounds, since the machine has other things to do. Numbers to look at, not a gate.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on should panic")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};

use rmqpy::clock::SystemClock;
use rmqpy::message::record::RecordFields;
use rmqpy::positions::{PhysicalOffset, QueueOffset};
use rmqpy::store::disk::OsDisk;
use rmqpy::store::{
    Arrivals, ConsumeQueue, Get, GetResult, KeyHashes, MediumKind, Options, Progress, Put, PutError, Store,
};

const PROPERTIES: &[u8] = b"UNIQ_KEY\x01AC11000100001234567890ABCDEF0000\x02WAIT\x01true\x02";
const BURST: usize = 32;
const ROUNDS: usize = 300;
const BURSTS_PER_ROUND: u32 = 100;
const FLUSHES: usize = 500;

fn put<'a>(store: &Store, body: &'a [u8]) -> Put<'a> {
    let host: SocketAddr = "127.0.0.1:10911".parse().unwrap();
    Put {
        queue: store.queue_or_create("orders", 0).unwrap(),
        record: RecordFields {
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: 1_700_000_000_000,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            body_crc: RecordFields::body_crc(body),
            topic: b"orders",
            properties: PROPERTIES,
        },
        tags_code: 0,
        keys: KeyHashes::of(b"orders", PROPERTIES),
        joined: false,
        outcome: Err(PutError::Pending),
    }
}

fn open(options: Options) -> Arc<Store> {
    Store::open(options, OsDisk::shared(), SystemClock::shared(), &Progress::default()).unwrap()
}

fn report(name: &str, best: Duration, times: u32) {
    println!("{name:<40} {:>8.1} ns", best.as_nanos() as f64 / f64::from(times));
}

fn append(store: &Store, name: &str, burst: usize) {
    let body = [7; 128];
    let mut puts: Vec<Put<'_>> = (0..burst).map(|_| put(store, &body)).collect();
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let mut spent = Duration::ZERO;
        for _ in 0..BURSTS_PER_ROUND {
            puts.iter_mut().for_each(|put| put.keys = KeyHashes::of(b"orders", PROPERTIES));
            let begin = Instant::now();
            store.append(&mut puts);
            spent += begin.elapsed();
        }
        best = best.min(spent);
    }
    assert!(puts.iter().all(|put| put.outcome.is_ok()));
    report(name, best, BURSTS_PER_ROUND * burst as u32);
}

fn read(store: &Store, name: &str, offset: QueueOffset, mut wanted: impl FnMut(i64) -> bool) {
    let queue = store.queue("orders", 0).unwrap();
    let ask = Get { offset, messages_max: 32, bytes_max: 1 << 18 };
    let mut result = GetResult::default();
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        (0..BURSTS_PER_ROUND).for_each(|_| store.get(&queue, &ask, &mut wanted, &mut result));
        best = best.min(begin.elapsed());
    }
    assert_eq!(result.count, 32);
    report(name, best, BURSTS_PER_ROUND);
}

/// Tells the sender how far the flush thread has come.
struct Durable(Thread);

impl Arrivals for Durable {
    fn arrived(&self, _: &ConsumeQueue, _: QueueOffset, _: i64) {}

    fn durable(&self, _: PhysicalOffset) {
        self.0.unpark();
    }

    fn latched(&self) {}
}

/// As a sending broker does it: appended here, flushed by the flush thread, waited for until it is durable.
fn group_commit(root: &std::path::Path, senders: usize) {
    let folder = root.join(senders.to_string());
    let options = Options { sync_flush: true, medium: MediumKind::Tail, ..Options::new(folder) };
    let store = open(options);
    store.set_arrivals(Arc::new(Durable(std::thread::current())));
    let body = [7; 128];
    let mut times: Vec<Duration> = (0..FLUSHES)
        .map(|_| {
            let mut puts: Vec<Put<'_>> = (0..senders).map(|_| put(&store, &body)).collect();
            let begin = Instant::now();
            store.append(&mut puts);
            let end = store.range().1;
            store.release_after(end);
            while store.durable() < end {
                std::thread::park_timeout(Duration::from_millis(100));
            }
            begin.elapsed()
        })
        .collect();
    times.sort();
    println!(
        "{:<40} {:>8} us",
        format!("group commit of {senders}, median"),
        times[times.len() / 2].as_micros()
    );
    store.close().unwrap();
}

fn sync_append(root: &std::path::Path, medium: MediumKind) {
    let options = Options { sync_flush: true, medium, threads: false, ..Options::new(root) };
    let store = open(options);
    store.keep().unwrap();
    let body = [7; 128];
    let mut times: Vec<Duration> = (0..FLUSHES)
        .map(|_| {
            let mut puts = [put(&store, &body)];
            let begin = Instant::now();
            store.append(&mut puts);
            store.flush().unwrap();
            begin.elapsed()
        })
        .collect();
    times.sort();
    let name = format!("append and flush, median, {medium:?}");
    println!("{name:<40} {:>8} us", times[times.len() / 2].as_micros());
}

fn main() {
    let root = std::env::temp_dir().join(format!("rmqpy-bench-{}", std::process::id()));
    let options = Options::new(root.join("async"));
    let begin = Instant::now();
    let store = open(options.clone());
    println!("{:<40} {:>8} us", "open an empty store", begin.elapsed().as_micros());
    append(&store, "append one by one, each", 1);
    append(&store, "append in bursts of 32, each", BURST);
    let max = store.queue("orders", 0).unwrap().max();
    read(&store, "read 32 at the end of the queue", QueueOffset(max.0 - 32), |_| true);
    read(&store, "read 32 from the queue's files", QueueOffset(0), |_| true);
    let mut turn = 0;
    let every_fourth = |_| {
        turn += 1;
        turn % 4 == 0
    };
    read(&store, "read 32 of 128, the others filtered out", QueueOffset(max.0 - 128), every_fourth);

    let (_, PhysicalOffset(end)) = store.range();
    store.abandon();
    drop(store);
    // Without our mark recovery reads the file from its begin, and every record with its CRC.
    std::fs::remove_dir_all(root.join("async/rmqpy")).unwrap();
    let begin = Instant::now();
    let store = open(options.clone());
    let (spent, size) = (begin.elapsed(), end as f64 / 1e6);
    println!("{:<40} {size:>8.0} MB in {spent:.0?}", "recovery, all of the log");
    store.close().unwrap();
    drop(store);
    let begin = Instant::now();
    drop(open(options));
    println!("{:<40} {:>8} us", "open after a clean stop", begin.elapsed().as_micros());
    sync_append(&root.join("mapping"), MediumKind::Mapping);
    sync_append(&root.join("tail"), MediumKind::Tail);
    [1, 64].into_iter().for_each(|senders| group_commit(&root.join("group"), senders));
    std::fs::remove_dir_all(root).unwrap();
}
