//! Servers over real sockets: bursts, order, isolation of connections, TLS, and requests that Python answers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation fails the test")]

mod bounds;
mod creation;
#[path = "../echo/mod.rs"]
mod echo;
mod mailbox;
#[path = "../store_model/mod.rs"]
mod store_model;
mod tls;
mod upcalls;

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use echo::{BULK, BURST, ECHO, NOTICE, PANIC, PARK, Peer, QUIT, TIMEOUT, eventually, request, serve};
use rmqpy::remoting::{FrameLimits, LinkId, ServerOptions};

#[test]
fn an_echo_comes_back_under_its_opaque() {
    let (_server, _, address) = serve(ServerOptions::default());
    let mut peer = Peer::connect(address);
    for opaque in [0, 1, i32::MAX, i32::MIN, -1] {
        peer.echoes(opaque);
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_and_in_bursts() {
    let (_server, _, address) = serve(ServerOptions::default());
    let mut peer = Peer::connect(address);
    let frames: Vec<u8> = (0..10_000).flat_map(|opaque| request(BURST, opaque, &[], b"")).collect();
    let mut writer = peer.socket.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&frames).unwrap());
    let mut largest = 0;
    for opaque in 0..10_000 {
        let answer = peer.answer().unwrap();
        assert_eq!(answer.opaque, opaque);
        largest = largest.max(answer.ext[0].1.parse::<usize>().unwrap());
    }
    writing.join().unwrap();
    assert_eq!(largest, 64, "one read hands over many frames, and never more than a burst");
}

#[test]
fn a_frame_may_come_in_any_pieces() {
    let (_server, _, address) = serve(ServerOptions::default());
    let mut peer = Peer::connect(address);
    let mut bytes = request(ECHO, 1, &[("a", "b")], b"first");
    bytes.extend(request(ECHO, 2, &[], b"second"));
    for cut in 1..bytes.len() {
        peer.send(&bytes[..cut]);
        peer.send(&bytes[cut..]);
        assert_eq!(peer.answer().unwrap().body, b"first");
        assert_eq!(peer.answer().unwrap().body, b"second");
    }
    for byte in &bytes {
        peer.send(&[*byte]);
    }
    assert_eq!(peer.answer().unwrap().body, b"first");
    assert_eq!(peer.answer().unwrap().body, b"second");
}

#[test]
fn frames_of_every_size_up_to_the_limit_come_through() {
    let (_server, _, address) = serve(ServerOptions::default());
    let limit = FrameLimits::default().frame_bytes_max;
    let bare = request(ECHO, 1, &[], b"").len();
    for size in [bare + 1, 4095, 4096, 4097, 262_143, 262_144, 262_145, 1_000_000, limit - 1, limit] {
        let mut peer = Peer::connect(address);
        let body: Vec<u8> = (0..size - bare).map(|index| index as u8).collect();
        let frame = request(ECHO, 1, &[], &body);
        assert_eq!(frame.len(), size);
        let mut writer = peer.socket.try_clone().unwrap();
        let writing = std::thread::spawn(move || writer.write_all(&frame).unwrap());
        let answer = peer.answer();
        writing.join().unwrap();
        assert!(answer.unwrap().body == body, "{size} bytes came back different");
        peer.echoes(2);
    }
}

#[test]
fn an_invalid_frame_closes_the_connection_after_earlier_replies() {
    let (server, _, address) = serve(ServerOptions::default());
    let limit = FrameLimits::default().frame_bytes_max as u32;
    let word = |length: u32| length.to_be_bytes().to_vec();
    let nonsense: [(&str, Vec<u8>); 12] = [
        ("a TLS hello", vec![0x16]),
        ("a PROXY line", b"PROXY TCP4".to_vec()),
        ("a browser", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("a negative length", vec![0xFF; 4]),
        ("the most negative length", word(0x8000_0000)),
        ("a length of 0", word(0)),
        ("a length of 3", word(3)),
        ("one byte above the limit", word(limit - 3)),
        ("an unknown encoding", vec![0, 0, 0, 6, 2, 0, 0, 2, b'{', b'}']),
        ("a header longer than its frame", vec![0, 0, 0, 6, 0, 0, 0, 3, b'{', b'}']),
        ("an empty JSON header", vec![0, 0, 0, 4, 0, 0, 0, 0]),
        ("a header that is not JSON", vec![0, 0, 0, 6, 0, 0, 0, 2, b']', b'[']),
    ];
    for (what, bytes) in &nonsense {
        let mut peer = Peer::connect(address);
        let mut stream = request(ECHO, 7, &[], b"before");
        stream.extend(bytes);
        peer.send(&stream);
        assert_eq!(peer.answer().expect(what).body, b"before", "{what}");
        assert_eq!(peer.answer(), None, "{what}");
    }
    eventually("all are counted", || server.statistics().closed_broken == nonsense.len() as u64);
    Peer::connect(address).echoes(1);
}

#[test]
fn a_panic_closes_only_its_own_connection() {
    let (server, echo, address) = serve(ServerOptions { io_threads: 1, ..ServerOptions::default() });
    let mut bystander = Peer::connect(address);
    bystander.echoes(1);
    let mut peer = Peer::connect(address);
    peer.send(&request(PANIC, 1, &[], b""));
    assert_eq!(peer.answer(), None);
    bystander.echoes(2);
    eventually("the session is closed", || echo.closed.load(Ordering::SeqCst) == 1);
    // The service learns of an end shortly before it is counted.
    eventually("it is counted", || server.statistics().panics == 1);
}

#[test]
fn a_service_can_close_a_connection() {
    let (_server, echo, address) = serve(ServerOptions::default());
    let mut peer = Peer::connect(address);
    let mut bytes = request(ECHO, 1, &[], b"x");
    bytes.extend(request(QUIT, 2, &[], b""));
    bytes.extend(request(ECHO, 3, &[], b"never"));
    peer.send(&bytes);
    assert_eq!(peer.answer().unwrap().opaque, 1);
    assert_eq!(peer.answer(), None);
    assert_eq!(echo.handled.load(Ordering::SeqCst), 2);
}

#[test]
fn any_thread_may_answer_later_through_the_link() {
    let (server, echo, address) = serve(ServerOptions::default());
    let mut peer = Peer::connect(address);
    for opaque in 0..100 {
        peer.send(&request(PARK, opaque, &[], b""));
    }
    eventually("all are parked", || echo.parked.lock().len() == 100);
    let parked = std::mem::take(&mut *echo.parked.lock());
    let link = Arc::clone(parked[0].0.link());
    let id = link.id();
    assert_eq!(link.peer(), peer.socket.local_addr().unwrap());
    assert_eq!(link.local(), address);
    for (owed, opaque) in parked.into_iter().rev() {
        owed.post(opaque);
    }
    for opaque in (0..100).rev() {
        assert_eq!(peer.answer().unwrap().opaque, opaque, "events are handled in the order they were posted");
    }
    assert!(server.link(id).is_some());
    drop(peer);
    eventually("the link is forgotten", || server.link(id).is_none());
    assert!(!link.notify(NOTICE, 0), "a closed connection takes no events");
    assert!(server.link(LinkId(0)).is_none());
}

#[test]
fn a_link_can_be_closed_from_outside() {
    let (_server, echo, address) = serve(ServerOptions::default());
    let mut peer = Peer::connect(address);
    peer.send(&request(PARK, 1, &[], b""));
    eventually("parked", || !echo.parked.lock().is_empty());
    let (owed, _) = echo.parked.lock().pop().unwrap();
    owed.link().close();
    assert_eq!(peer.answer(), None);
    assert!(!owed.link().notify(NOTICE, 0));
}

#[test]
fn the_two_ports_are_distinguished() {
    let (server, echo, _) = serve(ServerOptions::default());
    let vip = server.listen("127.0.0.1:0".parse().unwrap(), true).unwrap();
    let mut peer = Peer::connect(vip);
    peer.send(&request(PARK, 1, &[], b""));
    eventually("parked", || !echo.parked.lock().is_empty());
    assert!(echo.parked.lock()[0].0.link().is_vip());
}

#[test]
fn an_address_in_use_is_an_error() {
    let (server, _, address) = serve(ServerOptions::default());
    assert_eq!(server.listen(address, false).unwrap_err().kind(), ErrorKind::AddrInUse);
}

#[test]
fn a_stop_sends_owed_replies_and_accepts_nothing_more() {
    // One thread, so that accepting has stopped once one connection notices the stop.
    let (server, echo, address) = serve(ServerOptions { io_threads: 1, ..ServerOptions::default() });
    let mut idle = Peer::connect(address);
    idle.echoes(1);
    let mut parked = Peer::connect(address);
    parked.send(&request(PARK, 2, &[], b""));
    let mut slow = Peer::connect(address);
    slow.send(&request(BULK, 3, &[("size", "16000000")], b""));
    eventually("all have asked", || echo.handled.load(Ordering::SeqCst) == 3);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| server.stop(TIMEOUT));
        assert_eq!(idle.answer(), None, "nothing is owed to it");
        // Refused, or left in the backlog of a closed listener.
        let late = TcpStream::connect(address);
        assert!(late.is_err() || late.is_ok_and(|socket| Peer::over(socket).answer().is_none()));
        assert!(!stopping.is_finished());
        // A new request is refused, an old one answered.
        parked.send(&request(ECHO, 4, &[], b"too late"));
        let (owed, opaque) = echo.parked.lock().pop().unwrap();
        owed.post(opaque);
        assert_eq!(parked.answer().unwrap().opaque, 2);
        assert_eq!(parked.answer(), None);
        drop(parked);
        assert_eq!(slow.answer().unwrap().body.len(), 16_000_000);
        assert_eq!(slow.answer(), None);
    });
    assert_eq!(echo.closed.load(Ordering::SeqCst), 3);
    server.stop(TIMEOUT);
    assert!(server.listen("127.0.0.1:0".parse().unwrap(), false).is_err());
}

#[test]
fn a_stop_does_not_wait_longer_than_its_grace() {
    let (server, echo, address) = serve(ServerOptions::default());
    let mut peer = Peer::connect(address);
    peer.send(&request(PARK, 1, &[], b""));
    eventually("parked", || !echo.parked.lock().is_empty());
    let began = Instant::now();
    server.stop(Duration::from_millis(100));
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert!(began.elapsed() < TIMEOUT / 2, "{:?}", began.elapsed());
    assert_eq!(peer.answer(), None);
    assert_eq!(echo.closed.load(Ordering::SeqCst), 1);
}

#[test]
fn connections_are_dealt_to_all_threads_and_counted_once() {
    let (server, echo, address) = serve(ServerOptions { io_threads: 3, ..ServerOptions::default() });
    let mut peers: Vec<Peer> = (0..9).map(|_| Peer::connect(address)).collect();
    peers.iter_mut().for_each(|peer| peer.echoes(1));
    assert_eq!(server.statistics().connections, 9);
    assert_eq!(server.statistics().accepted, 9);
    server.stop(TIMEOUT);
    assert_eq!(echo.closed.load(Ordering::SeqCst), 9);
    assert_eq!(server.statistics().connections, 0);
}

#[test]
fn peers_that_reset_their_connection_are_forgotten() {
    let (server, echo, address) = serve(ServerOptions::default());
    for _ in 0..50 {
        let mut peer = Peer::connect(address);
        peer.send(&request(BULK, 1, &[("size", "3000000")], b""));
        // Closed with unread bytes: the kernel sends a reset.
        assert!(peer.socket.peek(&mut [0]).unwrap() > 0);
    }
    eventually("all are gone", || echo.closed.load(Ordering::SeqCst) == 50);
    // The service learns of an end shortly before it is counted.
    eventually("all are removed", || {
        let left = server.statistics();
        (left.connections, left.pending_bytes) == (0, 0)
    });
}

#[test]
fn ipv6_is_served_if_available() {
    let (server, _, _) = serve(ServerOptions::default());
    let Ok(address) = server.listen("[::1]:0".parse::<SocketAddr>().unwrap(), false) else { return };
    Peer::connect(address).echoes(1);
}
