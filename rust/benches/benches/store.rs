//! Store benchmarks on this machine: `make bench NAME=micro`. One thread, 128-byte bodies, in the temporary
//! folder.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on should panic")]
#![allow(missing_docs, reason = "criterion's macros create public functions")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use rmqpy::clock::SystemClock;
use rmqpy::message::record::RecordFields;
use rmqpy::positions::{PhysicalOffset, QueueOffset};
use rmqpy::store::disk::OsDisk;
use rmqpy::store::{
    Arrivals, ConsumeQueue, Durability, Get, GetResult, KeyHashes, Options, Put, RecoveryProgress, Store,
};

const PROPERTIES: &[u8] = b"UNIQ_KEY\x01AC11000100001234567890ABCDEF0000\x02WAIT\x01true\x02";
const BURST: usize = 32;
/// Messages for reads and recovery.
const STORED: usize = 200_000;

fn put<'a>(store: &Store, body: &'a [u8]) -> Put<'a> {
    let host: SocketAddr = "127.0.0.1:10911".parse().unwrap();
    let record = RecordFields {
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
    };
    Put::new(store.queue_or_create("orders", 0).unwrap(), record, 0, KeyHashes::of(b"orders", PROPERTIES))
}

fn open(options: Options) -> Arc<Store> {
    Store::open(options, OsDisk::shared(), SystemClock::shared(), &RecoveryProgress::default()).unwrap()
}

/// A folder that is removed with the benchmark.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("rmqpy-bench-{}-{name}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing was created when the benchmark was only listed.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn fill(store: &Store, count: usize) {
    let body = [7; 128];
    for _ in 0..count / BURST {
        let mut puts: Vec<Put<'_>> = (0..BURST).map(|_| put(store, &body)).collect();
        store.append(&mut puts);
        assert!(puts.iter().all(|put| put.outcome.is_ok()));
    }
}

fn appends(criterion: &mut Criterion) {
    let folder = Folder::new("append");
    let store = open(Options::new(&folder.0));
    let body = [7; 128];
    let mut group = criterion.benchmark_group("append");
    for burst in [1, BURST] {
        group.throughput(Throughput::Elements(burst as u64));
        group.bench_function(format!("{burst} together"), |bench| {
            let mut puts: Vec<Put<'_>> = (0..burst).map(|_| put(&store, &body)).collect();
            bench.iter_custom(|times| {
                let mut spent = Duration::ZERO;
                for _ in 0..times {
                    // The append has taken the keys.
                    puts.iter_mut().for_each(|put| put.keys = KeyHashes::of(b"orders", PROPERTIES));
                    let begin = Instant::now();
                    store.append(&mut puts);
                    spent += begin.elapsed();
                }
                spent
            });
        });
    }
    group.finish();
    store.close().unwrap();
}

fn reads(criterion: &mut Criterion) {
    let folder = Folder::new("read");
    let store = open(Options::new(&folder.0));
    fill(&store, STORED);
    let max = store.queue("orders", 0).unwrap().max().0;
    let mut group = criterion.benchmark_group("read 32");
    read(&mut group, &store, "at the end of the queue", max - 32, |_| true);
    read(&mut group, &store, "from the queue's files", 0, |_| true);
    let mut turn = 0;
    let every_fourth = |_| {
        turn += 1;
        turn % 4 == 0
    };
    read(&mut group, &store, "of 128, the others filtered out", max - 128, every_fourth);
    group.finish();
    store.close().unwrap();
}

fn read(
    group: &mut BenchmarkGroup<'_, WallTime>,
    store: &Store,
    name: &str,
    from: u64,
    mut wanted: impl FnMut(i64) -> bool,
) {
    let queue = store.queue("orders", 0).unwrap();
    let ask = Get { offset: QueueOffset(from), messages_max: 32, bytes_max: 1 << 18 };
    let mut result = GetResult::default();
    group.bench_function(name, |bench| {
        bench.iter(|| store.get(&queue, &ask, &mut wanted, &mut result).unwrap())
    });
}

/// Reports the progress of the flush thread to the sender.
struct Durable(Thread);

impl Arrivals for Durable {
    fn arrived(&self, _: &Arc<ConsumeQueue>, _: QueueOffset, _: i64) {}

    fn durable(&self, _: PhysicalOffset) {
        self.0.unpark();
    }

    fn latched(&self) {}
}

/// Like a sending broker: append here, let the flush thread flush, wait until it is durable.
fn group_commits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("group commit");
    for durability in [Durability::DiskMapped, Durability::Disk] {
        for senders in [1, 64] {
            let folder = Folder::new(&format!("{durability:?}-{senders}"));
            let store = open(Options { durability, ..Options::new(&folder.0) });
            let listener = Arc::new(Durable(std::thread::current()));
            store.set_arrivals(&listener);
            let body = [7; 128];
            group.throughput(Throughput::Elements(senders));
            group.bench_function(format!("of {senders}, {durability:?}"), |bench| {
                bench.iter(|| {
                    let mut puts: Vec<Put<'_>> = (0..senders).map(|_| put(&store, &body)).collect();
                    store.append(&mut puts);
                    let end = store.range().1;
                    store.release_after(end);
                    while store.durable() < end {
                        std::thread::park_timeout(Duration::from_millis(100));
                    }
                });
            });
            store.close().unwrap();
        }
    }
    group.finish();
}

/// Fills and closes a store: its folder, options, and the bytes of its log.
fn filled(name: &str) -> (Folder, Options, u64) {
    let folder = Folder::new(name);
    let options = Options::new(&folder.0);
    let store = open(options.clone());
    fill(&store, STORED);
    let (_, PhysicalOffset(bytes)) = store.range();
    store.close().unwrap();
    drop(store);
    (folder, options, bytes)
}

fn opens(criterion: &mut Criterion) {
    let (folder, options, bytes) = filled("open");
    let mut group = criterion.benchmark_group("open");
    group.sample_size(10);
    group.bench_function("after a clean stop", |bench| {
        bench.iter_custom(|times| (0..times).map(|_| timed_open(&options)).sum());
    });
    group.throughput(Throughput::Bytes(bytes));
    group.bench_function("and read all of the log", |bench| {
        // Without our marker, recovery reads the file from its begin, checking every CRC.
        bench.iter_custom(|times| {
            (0..times)
                .map(|_| {
                    std::fs::remove_dir_all(folder.0.join("rmqpy")).unwrap();
                    timed_open(&options)
                })
                .sum()
        });
    });
    group.finish();
}

fn timed_open(options: &Options) -> Duration {
    let begin = Instant::now();
    let store = open(options.clone());
    let spent = begin.elapsed();
    store.close().unwrap();
    spent
}

/// Data of an earlier life is compared with block checksums once.
fn checks(criterion: &mut Criterion) {
    let (_folder, options, bytes) = filled("check");
    let mut group = criterion.benchmark_group("read all, opened again");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(bytes));
    for (name, times_before) in [("for the first time, with checksums", 0), ("once more", 1)] {
        group.bench_function(name, |bench| {
            bench.iter_custom(|times| {
                (0..times)
                    .map(|_| {
                        let store = open(options.clone());
                        (0..times_before).for_each(|_| read_all(&store));
                        let begin = Instant::now();
                        read_all(&store);
                        let spent = begin.elapsed();
                        store.close().unwrap();
                        spent
                    })
                    .sum()
            });
        });
    }
    group.finish();
}

fn read_all(store: &Store) {
    let queue = store.queue("orders", 0).unwrap();
    let mut result = GetResult::default();
    for from in (0..STORED as u64).step_by(BURST) {
        let ask = Get { offset: QueueOffset(from), messages_max: BURST as u32, bytes_max: 1 << 18 };
        store.get(&queue, &ask, &mut |_| true, &mut result).unwrap();
        assert_eq!(result.count as usize, BURST);
    }
}

criterion_group! {
    name = stores;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    targets = appends, reads, group_commits, opens, checks
}
criterion_main!(stores);
