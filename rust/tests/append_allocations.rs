//! Allocations of the append path: none in steady state.
#![allow(clippy::expect_used, reason = "a failed expectation fails the test")]

mod store_model;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmqpy::clock::SystemClock;
use rmqpy::message::record::RecordFields;
use rmqpy::store::disk::OsDisk;
use rmqpy::store::{Durability, KeyHashes, Options, Put};
use store_model::{Folder, open};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: forwards everything to the system's allocator, and counts.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's guarantee is forwarded.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantee is forwarded.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's guarantee is forwarded.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn an_append_allocates_nothing_in_steady_state() {
    [Durability::PageCache, Durability::PageCacheMapped].into_iter().for_each(count);
}

fn count(durability: Durability) {
    const BURST: usize = 16;
    const BURSTS: usize = 5_000;
    let folder = Folder::new("allocations");
    // Maintenance and flushes run between the bursts, so that the count is the same on every machine.
    let options = Options { durability, segment_bytes: 256 << 20, threads: false, ..Options::new(&folder.0) };
    let store = open(OsDisk::shared(), options, SystemClock::shared()).expect("opens");
    let queue = store.queue_or_create("orders", 0).expect("a queue");
    let host: SocketAddr = "127.0.0.1:10911".parse().expect("an address");
    let body = [7; 128];
    let properties = b"UNIQ_KEY\x01AC11000100001234567890ABCDEF0000\x02WAIT\x01true\x02";
    let record = RecordFields {
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 1_700_000_000_000,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: &body,
        body_crc: RecordFields::body_crc(&body),
        topic: b"orders",
        properties,
    };
    let mut puts: Vec<Put<'_>> = (0..BURST)
        .map(|_| Put::new(Arc::clone(&queue), record, 0, KeyHashes::of(b"orders", properties)))
        .collect();
    let mut run = |bursts| {
        let (mut allocations, mut elapsed) = (0, Duration::ZERO);
        for burst in 0..bursts {
            puts.iter_mut().for_each(|put| put.keys = KeyHashes::of(b"orders", properties));
            let (before, begin) = (ALLOCATIONS.with(Cell::get), Instant::now());
            store.append(&mut puts);
            elapsed += begin.elapsed();
            allocations += ALLOCATIONS.with(Cell::get) - before;
            if burst % 100 == 99 {
                store.maintain().expect("a working disk");
                store.flush().expect("a working disk");
            }
        }
        (allocations, elapsed)
    };
    // Warm-up: ring, queue tail and index buffer reach their sizes.
    run(BURSTS);
    let (allocations, elapsed) = run(BURSTS);
    let messages = (BURST * BURSTS) as u64;
    println!(
        "{allocations} allocations in {messages} appends, {} ns each",
        elapsed.as_nanos() as u64 / messages
    );
    assert_eq!(allocations, 0, "in {messages} appends, {durability:?}");
    assert!(puts.iter().all(|put| put.outcome.is_ok()));
}
