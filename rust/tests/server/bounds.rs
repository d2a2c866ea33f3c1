//! Bounds of the server: idle connections, slow frames, slow readers, floods.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rmqpy::remoting::ServerOptions;

use crate::echo::{BULK, ECHO, EXPENSIVE, GATE, KEPT, Peer, TIMEOUT, UNWANTED, eventually, request, serve};

/// Idle timeout of a test, long enough for any active peer on a busy machine.
const IDLE: Duration = Duration::from_secs(3);

/// Timeouts short enough to expire in a test.
fn short_timeouts() -> ServerOptions {
    ServerOptions { idle: IDLE, first_frame: IDLE / 2, open_frame: IDLE / 2, ..ServerOptions::default() }
}

#[test]
fn many_slow_readers_together_are_bounded_below_their_own_bounds() {
    let options = ServerOptions {
        io_threads: 1,
        outbox_bytes_max: 64 << 20,
        outboxes_bytes_max: 1 << 20,
        ..ServerOptions::default()
    };
    let (server, _, address) = serve(options);
    let asks: Vec<u8> =
        (0..200).flat_map(|opaque| request(BULK, opaque, &[("size", "300000")], b"")).collect();
    let mut peers: Vec<Peer> = (0..10).map(|_| Peer::connect(address)).collect();
    for peer in &mut peers {
        peer.send(&asks);
    }
    // All of it would be 600 MB; a read's worth of bursts may pass before a connection notices.
    eventually("something waits", || server.statistics().pending_bytes > 1 << 20);
    Peer::connect(address).echoes(1);
    let pending = server.statistics().pending_bytes;
    assert!(pending < 250 << 20, "{pending} bytes wait");
    for opaque in 0..200 {
        assert_eq!(peers[3].answer().unwrap().opaque, opaque);
    }
}

#[test]
fn large_frames_share_a_budget_and_wait_for_it() {
    let options = ServerOptions {
        large_frames_bytes_max: 16 << 20,
        large_frame_delay: TIMEOUT,
        large_frame_wait: TIMEOUT,
        open_frame: TIMEOUT,
        ..ServerOptions::default()
    };
    let (_server, _, address) = serve(options);
    let frame = request(ECHO, 1, &[], &vec![b'x'; 12 << 20]);
    let mut half = Peer::connect(address);
    half.send(&frame[..6 << 20]);
    let mut other = Peer::connect(address);
    let mut writer = other.socket.try_clone().unwrap();
    let whole = frame.clone();
    let writing = std::thread::spawn(move || writer.write_all(&whole).unwrap());
    // Small frames pass by.
    Peer::connect(address).echoes(1);
    other.socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let waits = other.socket.peek(&mut [0]).unwrap_err();
    assert!(matches!(waits.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{waits}");
    other.socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    half.send(&frame[6 << 20..]);
    assert_eq!(half.answer().unwrap().body.len(), 12 << 20);
    drop(half);
    assert_eq!(other.answer().unwrap().body.len(), 12 << 20);
    writing.join().unwrap();
}

#[test]
fn a_stalled_large_frame_is_closed_and_the_next_one_served() {
    let options = ServerOptions {
        large_frames_bytes_max: 16 << 20,
        large_frame_delay: Duration::from_millis(200),
        large_frame_wait: TIMEOUT,
        ..ServerOptions::default()
    };
    let (server, _, address) = serve(options);
    let frame = request(ECHO, 1, &[], &vec![b'x'; 12 << 20]);
    let mut trickle = Peer::connect(address);
    trickle.echoes(0);
    trickle.send(&frame[..1 << 20]);
    Peer::connect(address).echoes(1);
    let mut other = Peer::connect(address);
    let mut writer = other.socket.try_clone().unwrap();
    let whole = frame.clone();
    let writing = std::thread::spawn(move || writer.write_all(&whole).unwrap());
    // More calls than any open frame needs, but only a fraction of this one.
    let closed = frame.chunks(1 << 10).find(|some| {
        std::thread::park_timeout(Duration::from_millis(5));
        trickle.socket.write_all(some).is_err()
    });
    assert!(closed.is_some(), "12 MiB came in pieces of 1 KiB");
    assert_eq!(other.answer().unwrap().body.len(), 12 << 20);
    writing.join().unwrap();
    eventually("it is counted", || server.statistics().closed_slow == 1);
    assert_eq!(server.statistics().refused_frames, 0);
}

#[test]
fn a_frame_without_memory_is_refused_and_its_connection_continues() {
    let options = ServerOptions {
        large_frames_bytes_max: 16 << 20,
        large_frame_delay: TIMEOUT,
        large_frame_wait: Duration::from_millis(200),
        ..ServerOptions::default()
    };
    let (server, _, address) = serve(options);
    let frame = request(ECHO, 1, &[], &vec![b'x'; 12 << 20]);
    let mut half = Peer::connect(address);
    half.send(&frame[..6 << 20]);
    Peer::connect(address).echoes(1);
    let mut other = Peer::connect(address);
    let mut writer = other.socket.try_clone().unwrap();
    let whole = frame.clone();
    let writing = std::thread::spawn(move || writer.write_all(&whole).unwrap());
    let refusal = other.answer().unwrap();
    assert_eq!((refusal.code, refusal.opaque, refusal.body.len()), (2, 1, 0));
    writing.join().unwrap();
    other.echoes(2);
    half.send(&frame[6 << 20..]);
    assert_eq!(half.answer().unwrap().body.len(), 12 << 20);
    let statistics = server.statistics();
    assert_eq!((statistics.closed_slow, statistics.refused_frames), (0, 1));
}

#[test]
fn an_unwanted_large_frame_is_answered_from_its_header_without_memory() {
    let options = ServerOptions {
        large_frames_bytes_max: 16 << 20,
        large_frame_delay: TIMEOUT,
        large_frame_wait: TIMEOUT,
        ..ServerOptions::default()
    };
    let (_server, _, address) = serve(options);
    let (unwanted, wanted) = [UNWANTED, ECHO].map(|code| request(code, 1, &[], &vec![b'x'; 12 << 20])).into();
    let mut peer = Peer::connect(address);
    peer.send(&unwanted[..1 << 20]);
    let refusal = peer.answer().unwrap();
    assert_eq!((refusal.code, refusal.opaque), (3, 1));
    assert_eq!(refusal.remark, Some((12 << 20).to_string()), "the size of its body is known");
    // Most of it has not arrived, and there is memory for only one.
    let mut other = Peer::connect(address);
    other.send(&wanted);
    assert_eq!(other.answer().unwrap().body.len(), 12 << 20);
    peer.send(&unwanted[1 << 20..]);
    peer.echoes(2);
    peer.send(&wanted);
    assert_eq!(peer.answer().unwrap().body.len(), 12 << 20);
}

#[test]
fn a_large_frame_may_be_kept_without_a_copy_and_releases_its_reservation() {
    let options = ServerOptions { large_frames_bytes_max: 16 << 20, ..ServerOptions::default() };
    let (server, echo, address) = serve(options);
    let bodies: Vec<Vec<u8>> = (1..=4).map(|number| vec![number; 12 << 20]).collect();
    let mut peer = Peer::connect(address);
    let mut writer = peer.socket.try_clone().unwrap();
    // In one write, so that the bytes after a frame arrive while its buffer has room.
    let stream: Vec<u8> = (1..)
        .zip(&bodies)
        .flat_map(|(opaque, body)| {
            [request(KEPT, opaque, &[], body), request(ECHO, -opaque, &[], b"x")].concat()
        })
        .collect();
    let writing = std::thread::spawn(move || writer.write_all(&stream).unwrap());
    for opaque in 1..=4 {
        let (kept, echoed) = (peer.answer().unwrap(), peer.answer().unwrap());
        assert_eq!((kept.opaque, kept.body.as_slice()), (opaque, b"kept".as_slice()));
        assert_eq!((echoed.opaque, echoed.body.as_slice()), (-opaque, b"x".as_slice()));
    }
    writing.join().unwrap();
    // Far more than the budget of large frames: kept bodies do not count against it.
    assert!(echo.kept.lock().iter().zip(&bodies).all(|(kept, body)| kept == body));
    eventually("the connection has a usual buffer", || server.statistics().buffers_bytes <= 256 << 10);
}

#[test]
fn while_buffers_are_over_their_budget_traffic_goes_on_with_small_ones() {
    let options = ServerOptions { buffers_bytes_max: 0, ..ServerOptions::default() };
    let (server, _, address) = serve(options);
    let mut peers: Vec<Peer> = (0..20).map(|_| Peer::connect(address)).collect();
    let bodies = [1 << 10, 20 << 10, 200 << 10, 2 << 20];
    for peer in &mut peers {
        for body in bodies {
            let mut writer = peer.socket.try_clone().unwrap();
            let frame = request(ECHO, 1, &[], &vec![b'x'; body]);
            let writing = std::thread::spawn(move || writer.write_all(&frame).unwrap());
            assert_eq!(peer.answer().unwrap().body.len(), body);
            writing.join().unwrap();
        }
    }
    eventually("they keep what idle ones have", || server.statistics().buffers_bytes <= 20 * (4 << 10));
}

#[test]
fn idle_connections_are_closed_and_active_ones_are_not() {
    let (server, _, address) = serve(short_timeouts());
    let began = Instant::now();
    let mut silent = Peer::connect(address);
    silent.echoes(1);
    let mut mute = Peer::connect(address);
    let mut talker = Peer::connect(address);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let talking = scope.spawn(|| {
            let mut opaque = 0;
            while !stop.load(Ordering::SeqCst) {
                talker.echoes(opaque);
                opaque += 1;
                std::thread::park_timeout(Duration::from_millis(20));
            }
        });
        assert_eq!(mute.answer(), None, "it never sent a frame");
        assert_eq!(silent.answer(), None);
        assert!(began.elapsed() >= IDLE);
        // Peers see the end shortly before it is counted.
        eventually("both are counted", || {
            let statistics = server.statistics();
            (statistics.closed_idle, statistics.closed_slow) == (1, 1)
        });
        stop.store(true, Ordering::SeqCst);
        talking.join().unwrap();
    });
    let statistics = server.statistics();
    assert_eq!((statistics.closed_idle, statistics.closed_slow), (1, 1));
}

#[test]
fn a_trickling_frame_is_closed() {
    let (server, _, address) = serve(short_timeouts());
    let mut peer = Peer::connect(address);
    peer.echoes(1);
    let frame = request(ECHO, 2, &[], &[b'x'; 1000]);
    let closed = frame.iter().find(|byte| {
        std::thread::park_timeout(Duration::from_millis(5));
        peer.socket.write_all(&[**byte]).is_err()
    });
    assert!(closed.is_some(), "it took {} bytes one by one", frame.len());
    eventually("it is counted", || server.statistics().closed_slow == 1);
}

#[test]
fn connections_beyond_the_bound_are_closed_as_they_come() {
    let (server, _, address) = serve(ServerOptions { connections_max: 3, ..ServerOptions::default() });
    let mut inside: Vec<Peer> = (0..3).map(|_| Peer::connect(address)).collect();
    inside.iter_mut().for_each(|peer| peer.echoes(1));
    assert_eq!(Peer::connect(address).answer(), None);
    assert_eq!(server.statistics().refused, 1);
    inside.pop();
    eventually("a connection has ended", || server.statistics().connections == 2);
    Peer::connect(address).echoes(1);
}

#[test]
fn connections_leave_descriptors_to_files() {
    // Other tests in this process always have more descriptors open than this.
    let (server, _, address) = serve(ServerOptions { descriptors_max: 3, ..ServerOptions::default() });
    assert_eq!(Peer::connect(address).answer(), None);
    let statistics = server.statistics();
    assert_eq!((statistics.refused_for_descriptors, statistics.connections), (1, 0));
}

#[test]
fn a_flood_on_one_connection_leaves_time_for_the_others() {
    let (_server, echo, address) = serve(ServerOptions { io_threads: 1, ..ServerOptions::default() });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = Peer::connect(address);
        let mut drain = flood.socket.try_clone().unwrap();
        let reading = scope.spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            while drain.read(&mut buffer).is_ok_and(|count| count > 0) {}
        });
        let stop = &stop;
        scope.spawn(move || {
            let mut socket = flood.socket;
            let frames: Vec<u8> = (0..5000).flat_map(|opaque| request(ECHO, opaque, &[], b"")).collect();
            while !stop.load(Ordering::SeqCst) {
                socket.write_all(&frames).unwrap();
            }
            socket.shutdown(Shutdown::Both).unwrap();
        });
        eventually("the flood is on", || echo.handled.load(Ordering::SeqCst) > 10_000);
        let mut peer = Peer::connect(address);
        let mut waits: Vec<Duration> = (0..100)
            .map(|opaque| {
                let began = Instant::now();
                peer.echoes(opaque);
                began.elapsed()
            })
            .collect();
        waits.sort_unstable();
        stop.store(true, Ordering::SeqCst);
        reading.join().unwrap();
        // Below the timeout for most peers; a single one may be as late as the machine is.
        assert!(waits[waits.len() / 2] < Duration::from_secs(1), "{waits:?}");
    });
}

#[test]
fn expensive_connections_take_turns_while_others_are_served() {
    let (_server, echo, address) = serve(ServerOptions { io_threads: 1, ..ServerOptions::default() });
    let mut peers: Vec<Peer> = (0..8).map(|_| Peer::connect(address)).collect();
    peers.iter_mut().for_each(|peer| peer.echoes(0));
    let mut ordinary = Peer::connect(address);
    ordinary.echoes(0);
    let ordinary_id = *echo.bursts.lock().last().unwrap();
    // Everything has come before the thread of them all goes on.
    let gate = echo.gate.lock();
    Peer::connect(address).send(&request(GATE, 0, &[], b""));
    eventually("it waits", || echo.handled.load(Ordering::SeqCst) == 10);
    let expensive: Vec<u8> = (0..640)
        .flat_map(|opaque| request(EXPENSIVE, opaque, &[], b""))
        .chain(request(ECHO, 1, &[], b""))
        .collect();
    for peer in &mut peers {
        peer.send(&expensive);
    }
    ordinary.send(&(0..640).flat_map(|opaque| request(ECHO, opaque, &[], b"")).collect::<Vec<u8>>());
    echo.bursts.lock().clear();
    drop(gate);
    for opaque in 0..640 {
        assert_eq!(ordinary.answer().unwrap().opaque, opaque);
    }
    for peer in &mut peers {
        assert_eq!(peer.answer().unwrap().opaque, 1);
    }
    let bursts = echo.bursts.lock();
    // The first turn of each shows what it costs.
    let mut seen = Vec::new();
    let later = bursts.iter().filter(|id| {
        let is_first = **id != ordinary_id && !seen.contains(*id);
        seen.extend(is_first.then_some(**id));
        !is_first
    });
    let order: Vec<bool> = later.map(|id| *id == ordinary_id).collect();
    let last = order.iter().rposition(|is_ordinary| *is_ordinary).unwrap();
    let between = order[..last].split(|is_ordinary| *is_ordinary).map(<[bool]>::len).max();
    assert!(between <= Some(2), "{between:?} expensive turns while an ordinary request waits");
}
