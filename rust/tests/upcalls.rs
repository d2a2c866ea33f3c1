//! Ring of upcalls, without Python: a client that floods it is refused, and no other.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod echo;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use echo::{Peer, request};
use rmqpy::clock::{ManualClock, SharedClock, SystemClock};
use rmqpy::dataplane::data_plane::DataPlane;
use rmqpy::dataplane::upcall::{Cause, UPCALLS_MAX, Upcall};
use rmqpy::remoting::codes::request::HEART_BEAT;
use rmqpy::remoting::codes::response::SYSTEM_BUSY;
use rmqpy::remoting::{Server, ServerOptions};

const COLD: i32 = 999_999;

fn serve() -> (Server<DataPlane>, Arc<DataPlane>, SocketAddr) {
    serve_by(SystemClock::shared())
}

fn serve_by(clock: SharedClock) -> (Server<DataPlane>, Arc<DataPlane>, SocketAddr) {
    let data_plane = Arc::new(DataPlane::new(clock).unwrap());
    let server = Server::start(Arc::clone(&data_plane), ServerOptions::default()).unwrap();
    let address = server.listen("127.0.0.1:0".parse().unwrap(), false).unwrap();
    (server, data_plane, address)
}

fn take(data_plane: &DataPlane) -> Vec<Upcall> {
    let mut taken = data_plane.take(usize::MAX);
    taken.retain(|upcall| matches!(upcall.cause, Cause::Request));
    taken
}

#[test]
fn one_connection_takes_a_tenth_of_the_ring_and_is_refused_beyond() {
    let (_server, data_plane, address) = serve();
    let share = UPCALLS_MAX as i32 / 10;
    let mut flood = Peer::connect(address);
    let frames: Vec<u8> = (0..share + 50).flat_map(|opaque| request(COLD, opaque, &[], b"")).collect();
    flood.send(&frames);
    for opaque in share..share + 50 {
        assert_eq!(flood.answer().unwrap().opaque, opaque, "only those beyond the share are answered");
    }
    let mut citizen = Peer::connect(address);
    citizen.send(&request(COLD, 7, &[], b""));
    let mut taken = Vec::new();
    while taken.len() < share as usize + 1 {
        taken.extend(take(&data_plane));
    }
    assert_ne!(taken.last().unwrap().connection, taken[0].connection, "the citizen was let in");
    // Taken is not answered: the share is still used up, until it is answered.
    flood.send(&request(COLD, -1, &[], b""));
    assert_eq!(flood.answer().unwrap().opaque, -1);
    assert!(data_plane.upcalls.reply_to(taken[0].token).is_some());
    assert!(data_plane.upcalls.reply_to(taken[0].token).is_none(), "each token once");
    flood.send(&request(COLD, -2, &[], b""));
    while take(&data_plane).is_empty() {
        std::thread::yield_now();
    }
}

#[test]
fn a_full_ring_has_room_for_one_request_of_every_other_client() {
    let (_server, data_plane, address) = serve();
    let share = UPCALLS_MAX as i32 / 10;
    let frames: Vec<u8> = (0..=share).flat_map(|opaque| request(COLD, opaque, &[], b"")).collect();
    let mut floods: Vec<Peer> = (0..10).map(|_| Peer::connect(address)).collect();
    for flood in &mut floods {
        flood.send(&frames);
        assert_eq!(flood.answer().unwrap().opaque, share);
    }
    let mut citizen = Peer::connect(address);
    citizen.send(&request(COLD, 1, &[], b""));
    citizen.send(&request(COLD, 2, &[], b""));
    assert_eq!(citizen.answer().unwrap().opaque, 2, "the second has to wait until there is room");
    assert_eq!(take(&data_plane).len(), UPCALLS_MAX + 1);
}

#[test]
fn what_waits_to_be_taken_is_bounded_in_bytes_too() {
    let (_server, data_plane, address) = serve();
    let mut flood = Peer::connect(address);
    let body = vec![b'x'; 10 << 20];
    for opaque in 0..8 {
        flood.send(&request(COLD, opaque, &[], &body));
    }
    // Six times 10 MiB fit 64 MiB.
    for opaque in 6..8 {
        assert_eq!(flood.answer().unwrap().opaque, opaque);
    }
    assert_eq!(take(&data_plane).len(), 6);
    flood.send(&request(COLD, 8, &[], &body));
    while take(&data_plane).is_empty() {
        std::thread::yield_now();
    }
}

#[test]
fn what_waited_longer_than_a_client_does_is_refused_and_the_rest_is_served() {
    let clock = ManualClock::at(0);
    let (_server, data_plane, address) = serve_by(Arc::clone(&clock) as _);
    let mut peer = Peer::connect(address);
    // The refusal of the last one says that all of them are in the ring.
    let share = UPCALLS_MAX as i32 / 10;
    let sent = |opaque: i32| request(if opaque == 1 { HEART_BEAT } else { COLD }, opaque, &[], b"");
    peer.send(&(0..=share).flat_map(sent).collect::<Vec<u8>>());
    assert_eq!(peer.answer().unwrap().opaque, share);
    clock.advance(Duration::from_millis(5_001));
    let taken = take(&data_plane);
    assert_eq!(taken.iter().map(|upcall| upcall.code).collect::<Vec<_>>(), [HEART_BEAT]);
    for opaque in (0..share).filter(|opaque| *opaque != 1) {
        let answer = peer.answer().unwrap();
        assert_eq!((answer.opaque, answer.code), (opaque, SYSTEM_BUSY));
        let remark = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, \
                      period in queue: 5001ms, size of queue: 0";
        assert_eq!(answer.remark.as_deref(), Some(remark));
    }
    // Their share of the ring is free again.
    peer.send(&request(COLD, -1, &[], b""));
    while take(&data_plane).is_empty() {
        std::thread::yield_now();
    }
}
