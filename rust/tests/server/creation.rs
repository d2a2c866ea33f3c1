//! Creation of topics: the names published to Python, here a test, and the frames parked for them.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::echo::{Peer, request};
use crate::store_model::open_with;
use rmqpy::clock::ManualClock;
use rmqpy::dataplane::service::data_plane::DataPlane;
use rmqpy::dataplane::state::filter::SqlSupport;
use rmqpy::dataplane::state::metadata::{Identity, Metadata, RecallOptions};
use rmqpy::dataplane::state::offsets::Offsets;
use rmqpy::dataplane::state::role::{CopyRules, SlaveReads};
use rmqpy::dataplane::waiting::upcall::{Cause, UPCALLS_MAX};
use rmqpy::remoting::codes::request::SEND_MESSAGE;
use rmqpy::remoting::codes::response::{SYSTEM_BUSY, TOPIC_NOT_EXIST};
use rmqpy::remoting::{Server, ServerOptions};
use rmqpy::store::disk::simulated::SimDisk;
use rmqpy::store::{Durability, Store};

const SHARE: i32 = UPCALLS_MAX as i32 / 10;
/// Few enough not to pause a connection.
const FEW: i32 = 200;

/// A broker without topics, with this test in the role of Python.
struct Fixture {
    server: Option<Server<DataPlane>>,
    data_plane: Arc<DataPlane>,
    store: Arc<Store>,
    address: SocketAddr,
}

impl Fixture {
    fn start(clock: &Arc<ManualClock>) -> Self {
        let store = open_with(Durability::PageCache, SimDisk::new().shared(), clock).unwrap();
        let metadata = Arc::new(Metadata::new(identity(), 6));
        let data_plane = DataPlane::with_broker(
            Arc::clone(clock) as _,
            Arc::clone(&store),
            metadata,
            Arc::new(Offsets::default()),
        )
        .unwrap();
        let server = Server::start(Arc::clone(&data_plane), ServerOptions::default()).unwrap();
        let address = server.listen("127.0.0.1:0".parse().unwrap(), false).unwrap();
        Self { server: Some(server), data_plane, store, address }
    }

    /// Takes all published names.
    fn names(&self) -> Vec<String> {
        let name = |cause| if let Cause::Missing(_, name) = cause { Some(name) } else { None };
        let mut names = Vec::new();
        loop {
            let taken = self.data_plane.take(usize::MAX);
            if taken.is_empty() {
                return names;
            }
            names.extend(taken.into_iter().filter_map(|upcall| name(upcall.cause)));
        }
    }

    /// Takes `count` published names.
    fn names_all(&self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        while names.len() < count {
            names.extend(self.names());
            std::thread::yield_now();
        }
        names
    }

    /// Waits until `count` names are pending.
    fn wait_for(&self, count: i32) {
        while self.data_plane.upcalls.waiting() < count as usize {
            std::thread::yield_now();
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop(Duration::ZERO);
        }
        self.data_plane.stop();
        let _ = self.store.close();
    }
}

fn identity() -> Identity {
    Identity {
        cluster: "c".into(),
        broker: "b".into(),
        store_host: "127.0.0.1:10911".parse().unwrap(),
        region: "r".into(),
        is_trace_on: true,
        message_bytes_max: 4 << 20,
        pull_messages_max: 1024,
        pull_bytes_max: 4 << 20,
        is_long_polling: true,
        short_polling_ms: 1000,
        is_tiered: false,
        is_auto_create_topics: true,
        has_lights: false,
        creations_per_minute: u32::MAX,
        sql: SqlSupport::Off,
        recall: RecallOptions::default(),
        slave_reads: SlaveReads::default(),
        copies: CopyRules::default(),
        pop: rmqpy::dataplane::state::pop_options::PopOptions::default(),
    }
}

fn send(topic: &str, opaque: i32) -> Vec<u8> {
    let ext = [("producerGroup", "p"), ("topic", topic), ("defaultTopic", "TBW102"), ("queueId", "0")];
    let more = [("sysFlag", "0"), ("bornTimestamp", "0"), ("flag", "0"), ("properties", "")];
    request(SEND_MESSAGE, opaque, &[ext, more].concat(), b"hello")
}

fn sends(connection: usize, numbers: Range<i32>) -> Vec<u8> {
    numbers.flat_map(|opaque| send(&format!("wanted-{connection}-{opaque}"), opaque)).collect()
}

#[test]
fn names_of_one_connection_take_a_tenth_of_the_ring_and_are_refused_beyond() {
    let broker = Fixture::start(&ManualClock::at(0));
    let mut flood = Peer::connect(broker.address);
    flood.send(&sends(0, 0..SHARE + 50));
    // Taken but not created: the share is still used up.
    assert_eq!(broker.names_all(SHARE as usize).len(), SHARE as usize);
    for opaque in SHARE..SHARE + 50 {
        let answer = flood.answer().unwrap();
        assert_eq!((answer.opaque, answer.code), (opaque, SYSTEM_BUSY));
        assert!(answer.remark.unwrap().starts_with("[OVERLOAD]"));
    }
    // Frames for a pending name join it.
    flood.send(&[send("wanted-0-3", -2), send("one-more", -3)].concat());
    assert_eq!(flood.answer().unwrap().opaque, -3);
}

#[test]
fn names_of_all_connections_fill_the_ring_but_for_the_first_of_every_other_client() {
    let broker = Fixture::start(&ManualClock::at(0));
    let mut floods: Vec<Peer> = (0..10).map(|_| Peer::connect(broker.address)).collect();
    for (index, flood) in floods.iter_mut().enumerate() {
        flood.send(&sends(index, 0..SHARE));
    }
    assert_eq!(broker.names_all(UPCALLS_MAX).len(), UPCALLS_MAX);
    let mut citizen = Peer::connect(broker.address);
    citizen.send(&sends(10, 0..2));
    assert_eq!(citizen.answer().unwrap().opaque, 1, "the second has to wait until there is room");
    assert_eq!(broker.names(), ["wanted-10-0"]);
}

#[test]
fn names_whose_frames_timed_out_are_not_published_and_free_room() {
    let clock = ManualClock::at(0);
    let broker = Fixture::start(&clock);
    let mut peer = Peer::connect(broker.address);
    peer.send(&sends(0, 0..SHARE - FEW));
    broker.names_all((SHARE - FEW) as usize);
    peer.send(&sends(0, SHARE - FEW..SHARE));
    broker.wait_for(FEW);
    peer.send(&send("one-more", SHARE));
    assert_eq!(peer.answer().unwrap().opaque, SHARE, "there is no room left");
    clock.advance(Duration::from_millis(3_001));
    for _ in 0..SHARE {
        assert_eq!(peer.answer().unwrap().code, TOPIC_NOT_EXIST);
    }
    assert_eq!(broker.names(), Vec::<String>::new());
    peer.send(&send("wanted-again", -1));
    assert_eq!(broker.names_all(1), ["wanted-again"]);
}

#[test]
fn names_that_only_a_closed_connection_needed_are_not_published() {
    let broker = Fixture::start(&ManualClock::at(0));
    let (mut gone, mut other) = (Peer::connect(broker.address), Peer::connect(broker.address));
    gone.send(&sends(0, 0..FEW));
    broker.wait_for(FEW);
    // One frame for a name of the first connection, and some for other names.
    other.send(&[send("wanted-0-5", 1), sends(1, 0..FEW)].concat());
    broker.wait_for(2 * FEW);
    drop(gone);
    while broker.server.as_ref().unwrap().statistics().connections > 1 {
        std::thread::yield_now();
    }
    let names = broker.names();
    let (of_first, of_second): (Vec<_>, Vec<_>) =
        names.iter().partition(|name| name.starts_with("wanted-0-"));
    assert_eq!(of_first, ["wanted-0-5"]);
    assert_eq!(of_second.len(), FEW as usize);
}
