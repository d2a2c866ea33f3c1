//! Cost of one send and one pulled message in a broker: allocations, and, under callgrind, instructions.
//!
//! `hot_path send 20000` runs a broker's data plane over a real socket and a new store, sends that many messages of
//! 128 bytes in bursts of 32, or pulls them 32 at a time, and prints what the process allocated on the way. The
//! difference between two counts under `valgrind --tool=callgrind` is what a message costs; `scripts/count` does
//! both. The sending side is part of the process, and writes bytes that were made before.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on should panic")]
#![allow(unsafe_code, reason = "a counting allocator cannot be written without it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rmqpy::clock::SystemClock;
use rmqpy::dataplane::data_plane::DataPlane;
use rmqpy::dataplane::filter::SqlSupport;
use rmqpy::dataplane::metadata::{Group, Identity, Metadata, RecallOptions, Topic};
use rmqpy::dataplane::offsets::Offsets;
use rmqpy::dataplane::role::{CopyRules, SlaveReads};
use rmqpy::remoting::codes::request;
use rmqpy::remoting::frame::Encoding;
use rmqpy::remoting::header::HeaderWriter;
use rmqpy::remoting::{Server, ServerOptions};
use rmqpy::store::disk::OsDisk;
use rmqpy::store::{Options, RecoveryProgress, Store};

const BURST: usize = 32;
const BODY: [u8; 128] = [b'x'; 128];

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from `System`, through `alloc` here.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (Some(what), Some(count)) = (arguments.get(1), arguments.get(2).and_then(|text| text.parse().ok()))
    else {
        eprintln!("usage: hot_path send|pull COUNT");
        std::process::exit(2);
    };
    let folder = std::env::temp_dir().join(format!("rmqpy-hot-path-{}", std::process::id()));
    let allocations = measure(&folder, what, count);
    std::fs::remove_dir_all(&folder).unwrap();
    println!("{what}: {count} messages, {:.4} allocations each", allocations as f64 / count as f64);
}

/// Allocations of the whole process while `count` messages are sent, or pulled.
fn measure(folder: &std::path::Path, what: &str, count: usize) -> u64 {
    let clock = SystemClock::shared();
    let mut options = Options::new(folder);
    options.segment_bytes = 256 << 20;
    options.index_slots = 50_000;
    options.index_entries = 2_000_000;
    let store =
        Store::open(options, OsDisk::shared(), Arc::clone(&clock), &RecoveryProgress::default()).unwrap();
    let metadata = Arc::new(Metadata::new(identity(), 6));
    metadata.set_topic("hot", Some(Topic::new("hot", 4, 4, 6)));
    metadata.groups.set("readers", Some(Group::default()));
    let data_plane =
        DataPlane::with_broker(clock, Arc::clone(&store), metadata, Arc::new(Offsets::default())).unwrap();
    let server = Server::start(Arc::clone(&data_plane), ServerOptions::default()).unwrap();
    let address = server.listen("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let mut peer = TcpStream::connect(address).unwrap();
    let mut answer = vec![0; 1 << 20];

    let burst: Vec<u8> = (0..BURST).flat_map(send_frame).collect();
    let warm_up = 4096.min(count);
    let exchange = |peer: &mut TcpStream, answer: &mut [u8], messages: usize| {
        for _ in 0..messages / BURST {
            peer.write_all(&burst).unwrap();
            receive(peer, answer, BURST);
        }
    };
    exchange(&mut peer, &mut answer, warm_up);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    exchange(&mut peer, &mut answer, count);
    let sent = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let allocations = if what == "pull" { pull(&mut peer, &mut answer, count) } else { sent };
    drop(peer);
    server.stop(std::time::Duration::from_secs(1));
    data_plane.stop();
    store.close().unwrap();
    allocations
}

fn pull(peer: &mut TcpStream, answer: &mut [u8], count: usize) -> u64 {
    // One queue has a quarter of the messages: it is read from its begin as often as it takes.
    let frames: Vec<Vec<u8>> = (0..count / 4 / BURST).map(|index| pull_frame(index * BURST)).collect();
    receive_pull(peer, answer, &frames[0]);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for frame in frames.iter().cycle().take(count / BURST) {
        receive_pull(peer, answer, frame);
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

fn receive_pull(peer: &mut TcpStream, answer: &mut [u8], frame: &[u8]) {
    peer.write_all(frame).unwrap();
    receive(peer, answer, 1);
}

/// Reads `frames` whole answers.
fn receive(peer: &mut TcpStream, answer: &mut [u8], frames: usize) {
    for _ in 0..frames {
        let mut length = [0; 4];
        peer.read_exact(&mut length).unwrap();
        let length = u32::from_be_bytes(length) as usize;
        peer.read_exact(&mut answer[..length]).unwrap();
    }
}

fn send_frame(index: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut header = HeaderWriter::begin(&mut frame, Encoding::Json, request::SEND_MESSAGE_V2, 7, 0, None);
    header.ext("a", "senders").ext("b", "hot").ext("c", "TBW102").ext("d", "4");
    header.ext_u64("e", index as u64 % 4).ext("f", "0").ext("g", "1795257454301").ext("h", "0");
    header.ext(
        "i",
        "UNIQ_KEY\u{1}FD000000000000000000000000000002584E30946E096946E6DC0000\u{2}WAIT\u{1}true\u{2}",
    );
    header.ext("j", "0").ext("k", "false").ext("m", "false").ext("n", "broker-a");
    header.finish(BODY.len()).unwrap();
    frame.extend_from_slice(&BODY);
    frame
}

fn pull_frame(offset: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut header = HeaderWriter::begin(&mut frame, Encoding::Json, request::PULL_MESSAGE, 7, 0, None);
    header.ext("consumerGroup", "readers").ext("topic", "hot").ext("queueId", "0");
    header.ext_u64("queueOffset", offset as u64).ext("maxMsgNums", "32").ext("sysFlag", "4");
    header
        .ext("commitOffset", "0")
        .ext("suspendTimeoutMillis", "0")
        .ext("subscription", "*")
        .ext("subVersion", "0");
    header.finish(0).unwrap();
    frame
}

fn identity() -> Identity {
    Identity {
        cluster: "DefaultCluster".into(),
        broker: "broker-a".to_owned(),
        store_host: "127.0.0.1:10911".parse().unwrap(),
        region: "DefaultRegion".into(),
        is_trace_on: true,
        message_bytes_max: 4 << 20,
        pull_messages_max: 1024,
        pull_bytes_max: 4 << 20,
        is_long_polling: true,
        short_polling_ms: 1000,
        is_auto_create_topics: false,
        creations_per_minute: 1000,
        sql: SqlSupport::Off,
        recall: RecallOptions::default(),
        slave_reads: SlaveReads::default(),
        copies: CopyRules::default(),
    }
}
