//! Upcall ring, without Python: a flooding client is throttled, then refused, without affecting others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::echo::{Peer, eventually, oneway, request};
use rmqpy::clock::{ManualClock, SharedClock, SystemClock};
use rmqpy::dataplane::service::data_plane::DataPlane;
use rmqpy::dataplane::waiting::upcall::{
    Cause, TAKEN_PER_CONNECTION_MAX, UPCALLS_MAX, Upcall, WAITING_PER_CONNECTION_MAX,
};
use rmqpy::remoting::BURST_FRAMES_MAX;
use rmqpy::remoting::codes::request::HEART_BEAT;
use rmqpy::remoting::codes::response::{REQUEST_CODE_NOT_SUPPORTED, SYSTEM_BUSY};
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

/// Takes everything pending: no connection has more batches than that.
fn take(data_plane: &DataPlane) -> Vec<Upcall> {
    let batches = 0..=(WAITING_PER_CONNECTION_MAX + BURST_FRAMES_MAX) / TAKEN_PER_CONNECTION_MAX;
    let mut taken: Vec<Upcall> = batches.flat_map(|_| data_plane.take(usize::MAX)).collect();
    taken.retain(|upcall| matches!(upcall.cause, Cause::Request));
    taken
}

/// Takes this many upcalls, in order.
fn take_all(data_plane: &DataPlane, count: usize) -> Vec<Upcall> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.extend(take(data_plane));
        std::thread::yield_now();
    }
    taken
}

#[test]
fn a_connection_is_throttled_until_half_of_its_requests_are_taken() {
    let (server, data_plane, address) = serve();
    let mut flood = Peer::connect(address);
    let codes = COLD..COLD + 2_000;
    flood.send(&codes.clone().flat_map(|code| oneway(code, &[], b"")).collect::<Vec<u8>>());
    while data_plane.upcalls.waiting() <= WAITING_PER_CONNECTION_MAX {
        std::thread::yield_now();
    }
    // A later client is admitted; by then a connection that is still read would have continued.
    let mut citizen = Peer::connect(address);
    citizen.send(&oneway(7, &[], b""));
    while server.statistics().connections < 2 {
        std::thread::yield_now();
    }
    let most = WAITING_PER_CONNECTION_MAX + BURST_FRAMES_MAX;
    let waiting = data_plane.upcalls.waiting();
    assert!(waiting <= most + 1, "{waiting} wait");
    let taken = take_all(&data_plane, codes.len() + 1);
    let is_citizen = |upcall: &&Upcall| upcall.code == 7;
    let (of_citizen, of_flood): (Vec<&Upcall>, Vec<&Upcall>) = taken.iter().partition(is_citizen);
    assert_eq!(of_citizen.len(), 1);
    assert!(of_flood.iter().map(|upcall| upcall.code).eq(codes), "nothing of it is lost or out of order");
    assert_eq!(server.statistics().connections, 2, "and no connection was closed");
}

#[test]
fn one_connection_takes_a_tenth_of_the_ring_and_is_refused_beyond() {
    let (_server, data_plane, address) = serve();
    let share = UPCALLS_MAX as i32 / 10;
    let mut flood = Peer::connect(address);
    let frames: Vec<u8> = (0..share + 50).flat_map(|opaque| request(COLD, opaque, &[], b"")).collect();
    flood.send(&frames);
    // Taking is not answering: the share stays used up until the answer.
    let taken = take_all(&data_plane, share as usize);
    for opaque in share..share + 50 {
        assert_eq!(flood.answer().unwrap().opaque, opaque, "only those beyond the share are answered");
    }
    let mut citizen = Peer::connect(address);
    citizen.send(&request(COLD, 7, &[], b""));
    let other = take_all(&data_plane, 1);
    assert_ne!(other[0].connection, taken[0].connection, "the other client was admitted");
    flood.send(&request(COLD, -1, &[], b""));
    assert_eq!(flood.answer().unwrap().opaque, -1);
    // Held to the end: dropping it unanswered would close the connection.
    let reply_to = data_plane.upcalls.reply_to(taken[0].token);
    assert!(reply_to.is_some());
    assert!(data_plane.upcalls.reply_to(taken[0].token).is_none(), "each token once");
    flood.send(&request(COLD, -2, &[], b""));
    take_all(&data_plane, 1);
}

#[test]
fn a_full_ring_has_room_for_one_request_of_every_other_client() {
    let (_server, data_plane, address) = serve();
    let share = UPCALLS_MAX as i32 / 10;
    let frames: Vec<u8> = (0..share).flat_map(|opaque| request(COLD, opaque, &[], b"")).collect();
    let mut floods: Vec<Peer> = (0..10).map(|_| Peer::connect(address)).collect();
    floods.iter_mut().for_each(|flood| flood.send(&frames));
    take_all(&data_plane, UPCALLS_MAX);
    let mut citizen = Peer::connect(address);
    citizen.send(&request(COLD, 1, &[], b""));
    citizen.send(&request(COLD, 2, &[], b""));
    assert_eq!(citizen.answer().unwrap().opaque, 2, "the second has to wait until there is room");
    assert_eq!(take(&data_plane).len(), 1);
}

#[test]
fn pending_upcalls_are_bounded_in_bytes_too() {
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
fn an_unread_body_is_not_kept() {
    let (_server, data_plane, address) = serve();
    data_plane.declare_requests([(COLD, 1 << 20), (COLD + 1, 0)].into_iter().collect());
    let mut peer = Peer::connect(address);
    let body = vec![b'x'; 10 << 20];
    for (opaque, code) in (0..8).zip([COLD, COLD + 1].into_iter().cycle()) {
        peer.send(&request(code, opaque, &[], &body));
    }
    peer.send(&request(COLD, 8, &[], &body[..1 << 20]));
    // Far more than the limit of pending bytes.
    let taken = take_all(&data_plane, 9);
    assert!(taken[..8].iter().all(|upcall| (upcall.body_bytes, upcall.body.len()) == (10 << 20, 0)));
    assert_eq!((taken[8].body_bytes, taken[8].body.len()), (1 << 20, 1 << 20));
}

#[test]
fn an_oversized_request_is_forwarded_before_its_body_is_read() {
    let (_server, data_plane, address) = serve();
    data_plane.declare_requests([(COLD, 1 << 20)].into_iter().collect());
    let mut peer = Peer::connect(address);
    let frame = request(COLD, 1, &[], &vec![b'x'; 10 << 20]);
    let (begin, rest) = frame.split_at(300 << 10);
    peer.send(begin);
    let taken = take_all(&data_plane, 1);
    assert_eq!((taken[0].body_bytes, taken[0].body.len()), (10 << 20, 0));
    peer.send(rest);
    peer.send(&oneway(COLD, &[], b"next"));
    assert_eq!(take_all(&data_plane, 1)[0].body, b"next".as_slice());
}

#[test]
fn a_large_body_is_forwarded_unchanged() {
    let (_server, data_plane, address) = serve();
    let mut peer = Peer::connect(address);
    let bodies: Vec<Vec<u8>> = [100, 300 << 10, 5 << 20]
        .iter()
        .map(|bytes| (0..*bytes).map(|at: usize| at as u8).collect())
        .collect();
    peer.send(&bodies.iter().flat_map(|body| oneway(COLD, &[], body)).collect::<Vec<u8>>());
    let taken = take_all(&data_plane, bodies.len());
    assert!(taken.iter().zip(&bodies).all(|(upcall, body)| upcall.body == *body));
}

#[test]
fn an_unknown_request_is_refused_without_an_upcall() {
    let (server, data_plane, address) = serve();
    data_plane.declare_requests([(COLD, 1 << 20)].into_iter().collect());
    let mut stranger = Peer::connect(address);
    stranger.send(&oneway(COLD + 1, &[], b""));
    stranger.send(&request(COLD + 1, 1, &[], b""));
    let answer = stranger.answer().unwrap();
    assert_eq!((answer.opaque, answer.code), (1, REQUEST_CODE_NOT_SUPPORTED));
    assert_eq!(answer.remark.as_deref(), Some(" request type 1000000 not supported"));
    drop(stranger);
    eventually("it is gone", || server.statistics().connections == 0);
    let mut known = Peer::connect(address);
    known.send(&oneway(COLD, &[], b""));
    drop(known);
    // A connection with a forwarded request also has its end forwarded, as the last event.
    let mut taken = Vec::new();
    eventually("its end is forwarded", || {
        taken.extend(data_plane.take(usize::MAX));
        taken.iter().any(|upcall| matches!(upcall.cause, Cause::Closed))
    });
    assert_eq!(taken.len(), 2, "{taken:?}");
    assert_eq!(taken[0].code, COLD);
}

#[test]
fn requests_older_than_a_client_timeout_are_refused() {
    let clock = ManualClock::at(0);
    let (_server, data_plane, address) = serve_by(Arc::clone(&clock) as _);
    let mut peer = Peer::connect(address);
    let share = WAITING_PER_CONNECTION_MAX as i32;
    let sent = |opaque: i32| request(if opaque == 1 { HEART_BEAT } else { COLD }, opaque, &[], b"");
    peer.send(&(0..share).flat_map(sent).collect::<Vec<u8>>());
    while data_plane.upcalls.waiting() < share as usize {
        std::thread::yield_now();
    }
    clock.advance(Duration::from_millis(5_001));
    let taken = take(&data_plane);
    assert_eq!(taken.iter().map(|upcall| upcall.code).collect::<Vec<_>>(), [HEART_BEAT]);
    for opaque in (0..share).filter(|opaque| *opaque != 1) {
        let answer = peer.answer().unwrap();
        assert_eq!((answer.opaque, answer.code), (opaque, SYSTEM_BUSY));
        let batch = TAKEN_PER_CONNECTION_MAX as i32;
        let left = share - share.min((opaque / batch + 1) * batch);
        let remark = format!(
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, \
             period in queue: 5001ms, size of queue: {left}"
        );
        assert_eq!(answer.remark, Some(remark));
    }
    // Their share of the ring is free again.
    peer.send(&request(COLD, -1, &[], b""));
    while take(&data_plane).is_empty() {
        std::thread::yield_now();
    }
}
