//! Hot path cost: allocations of a broker per send and per pulled message, and, under callgrind, instructions.
//!
//! `hot_path send 20000` runs a broker's data plane over a real socket and a new store, sends that many messages of
//! 128 bytes in bursts of 32, or pulls them 32 at a time, and prints the process's allocations. Under `valgrind
//! --tool=callgrind`, the difference between two counts is the cost per message; `scripts/count` does both. The
//! client is part of the process and writes prepared bytes. The options `signed` and `tls` add access control, with a
//! policy for the user, and encryption.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on should panic")]
#![allow(unsafe_code, reason = "a counting allocator cannot be written without it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rmqpy::access::action::{Action, Actions};
use rmqpy::access::policy::{Decision, Entry, Policies};
use rmqpy::access::resource::ResourcePattern;
use rmqpy::access::rules::{Checks, User};
use rmqpy::access::signature::{ACCESS_KEY, SIGNATURE, SigningKey};
use rmqpy::access::white_list::WhiteList;
use rmqpy::clock::SystemClock;
use rmqpy::dataplane::service::data_plane::DataPlane;
use rmqpy::dataplane::state::filter::SqlSupport;
use rmqpy::dataplane::state::metadata::{Group, Identity, Metadata, RecallOptions, Topic};
use rmqpy::dataplane::state::offsets::Offsets;
use rmqpy::dataplane::state::pop_options::PopOptions;
use rmqpy::dataplane::state::role::{CopyRules, SlaveReads};
use rmqpy::remoting::codes::{VERSION, request};
use rmqpy::remoting::frame::Encoding;
use rmqpy::remoting::header::HeaderWriter;
use rmqpy::remoting::{Server, ServerOptions};
use rmqpy::store::disk::OsDisk;
use rmqpy::store::{Options, RecoveryProgress, Store};
use rmqpy::tls::{
    BlockingStream, ClientCertificates, ClientTls, Identity as Certificate, ServerTls, Suites, Trust, make,
};

const BURST: usize = 32;
const BODY: [u8; 128] = [b'x'; 128];
const SECRET: &str = "not a secret";

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: forwards every call unchanged to the system allocator.
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
        eprintln!("usage: hot_path send|pull COUNT [signed] [tls]");
        std::process::exit(2);
    };
    let has = |way: &str| arguments.iter().skip(3).any(|argument| argument == way);
    let way = Way { is_signed: has("signed"), is_encrypted: has("tls") };
    let folder = std::env::temp_dir().join(format!("rmqpy-hot-path-{}", std::process::id()));
    let allocations = measure(&folder, what, count, way);
    std::fs::remove_dir_all(&folder).unwrap();
    println!("{what}: {count} messages, {:.4} allocations each", allocations as f64 / count as f64);
}

/// The options of requests.
#[derive(Clone, Copy)]
struct Way {
    is_signed: bool,
    is_encrypted: bool,
}

/// Returns the process's allocations while `count` messages are sent or pulled.
fn measure(folder: &std::path::Path, what: &str, count: usize, way: Way) -> u64 {
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
    if way.is_signed {
        let checks = Checks { authenticates: true, authorizes: true, ..Checks::default() };
        data_plane.publish_access(checks, [sender()]).unwrap();
    }
    let options = ServerOptions { tls: way.is_encrypted.then(server_tls), ..ServerOptions::default() };
    let server = Server::start(Arc::clone(&data_plane), options).unwrap();
    let address = server.listen("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    let stream = if way.is_encrypted {
        let tls = ClientTls::new(Trust::Anybody, None, None, &Suites::default()).unwrap();
        BlockingStream::through(socket, &tls, &address.to_string()).unwrap()
    } else {
        BlockingStream::plain(socket)
    };
    let mut peer = Peer { stream, received: Vec::new(), buffer: vec![0; 1 << 20] };

    let burst: Vec<u8> = (0..BURST).flat_map(|index| send_frame(index, way)).collect();
    let warm_up = 4096.min(count);
    let exchange = |peer: &mut Peer, messages: usize| {
        for _ in 0..messages / BURST {
            peer.ask(&burst, BURST);
        }
    };
    exchange(&mut peer, warm_up);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    exchange(&mut peer, count);
    let sent = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let allocations = if what == "pull" { pull(&mut peer, count, way) } else { sent };
    drop(peer);
    server.stop(std::time::Duration::from_secs(1));
    data_plane.stop();
    store.close().unwrap();
    allocations
}

fn pull(peer: &mut Peer, count: usize, way: Way) -> u64 {
    // One queue has a quarter of the messages, so it is read from its begin repeatedly.
    let frames: Vec<Vec<u8>> = (0..count / 4 / BURST).map(|index| pull_frame(index * BURST, way)).collect();
    peer.ask(&frames[0], 1);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for frame in frames.iter().cycle().take(count / BURST) {
        peer.ask(frame, 1);
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// The client.
struct Peer {
    stream: BlockingStream,
    received: Vec<u8>,
    buffer: Vec<u8>,
}

impl Peer {
    /// Sends `frames` and reads `answers` responses.
    fn ask(&mut self, frames: &[u8], answers: usize) {
        self.stream.write_all(frames).unwrap();
        self.stream.flush().unwrap();
        for _ in 0..answers {
            while !self.has_frame() {
                self.receive();
            }
            let size = 4 + self.length().unwrap();
            self.received.drain(..size);
        }
    }

    fn length(&self) -> Option<usize> {
        Some(u32::from_be_bytes(self.received.get(..4)?.try_into().ok()?) as usize)
    }

    fn has_frame(&self) -> bool {
        self.length().is_some_and(|length| self.received.len() >= 4 + length)
    }

    fn receive(&mut self) {
        match self.stream.read(&mut self.buffer) {
            Ok(count) => self.received.extend_from_slice(&self.buffer[..count]),
            // The rest of a record has not arrived.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn send_frame(index: usize, way: Way) -> Vec<u8> {
    let queue = (index % 4).to_string();
    let properties =
        "UNIQ_KEY\u{1}FD000000000000000000000000000002584E30946E096946E6DC0000\u{2}WAIT\u{1}true\u{2}";
    let fields = [
        ("a", "senders"),
        ("b", "hot"),
        ("c", "TBW102"),
        ("d", "4"),
        ("e", &queue),
        ("f", "0"),
        ("g", "1795257454301"),
        ("h", "0"),
        ("i", properties),
        ("j", "0"),
        ("k", "false"),
        ("m", "false"),
        ("n", "broker-a"),
    ];
    frame(request::SEND_MESSAGE_V2, &fields, &BODY, way)
}

fn pull_frame(offset: usize, way: Way) -> Vec<u8> {
    let offset = offset.to_string();
    let fields = [
        ("consumerGroup", "readers"),
        ("topic", "hot"),
        ("queueId", "0"),
        ("queueOffset", &offset),
        ("maxMsgNums", "32"),
        ("sysFlag", "4"),
        ("commitOffset", "0"),
        ("suspendTimeoutMillis", "0"),
        ("subscription", "*"),
        ("subVersion", "0"),
    ];
    frame(request::PULL_MESSAGE, &fields, &[], way)
}

fn frame(code: i32, fields: &[(&str, &str)], body: &[u8], way: Way) -> Vec<u8> {
    let mut out = Vec::new();
    let mut header = HeaderWriter::begin(&mut out, Encoding::Json, code, 7, 0, None);
    let mut fields = fields.to_vec();
    let signature;
    if way.is_signed {
        fields.push((ACCESS_KEY, "sender"));
        signature = SigningKey::new(SECRET).sign(fields.iter().copied(), VERSION, body).unwrap();
        fields.push((SIGNATURE, &signature));
    }
    for (name, value) in fields {
        header.ext(name, value);
    }
    header.finish(body.len()).unwrap();
    out.extend_from_slice(body);
    out
}

/// Builds a user with access through two entries of five.
fn sender() -> User {
    let entry = |resource: &str, actions: &[Action]| Entry {
        resources: ResourcePattern::parse(resource).unwrap(),
        actions: Actions::of(actions),
        sources: Box::default(),
        decision: Decision::Allow,
    };
    let custom = vec![
        entry("Topic:orders", &[Action::Pub]),
        entry("Topic:refunds*", &[Action::Pub, Action::Sub]),
        entry("Topic:hot", &[Action::Pub, Action::Sub]),
        entry("Group:readers", &[Action::Sub]),
        entry("Group:billing*", &[Action::Sub]),
    ];
    User {
        name: "sender".into(),
        key: SigningKey::new(SECRET),
        is_super: false,
        is_enabled: true,
        policies: Policies { custom, default: Vec::new() },
        trusted_from: WhiteList::default(),
        usage: Arc::default(),
    }
}

fn server_tls() -> Arc<ServerTls> {
    let made = make(&["127.0.0.1".to_owned()], 1, false, None).unwrap();
    let certificate = Certificate::read(made.certificate.as_bytes(), made.key.as_bytes(), None).unwrap();
    Arc::new(ServerTls::new(true, certificate, ClientCertificates::Ignored, &Suites::default()).unwrap())
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
        is_tiered: false,
        is_auto_create_topics: false,
        has_lights: false,
        creations_per_minute: 1000,
        sql: SqlSupport::Off,
        recall: RecallOptions::default(),
        slave_reads: SlaveReads::default(),
        copies: CopyRules::default(),
        pop: PopOptions::default(),
    }
}
