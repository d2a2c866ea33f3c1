//! Mailboxes of a server: owed replies always arrive, and notices are bounded.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rmqpy::remoting::{Link, ServerOptions};

use crate::echo::{BULK, ECHO, Echo, NOTICE, PARK, Peer, eventually, request, serve};

/// Opens a peer that does not read, with its link.
fn deaf_peer(echo: &Echo, address: std::net::SocketAddr) -> (Peer, Arc<Link<i32>>) {
    let mut peer = Peer::connect(address);
    peer.send(&request(PARK, 1, &[], b""));
    eventually("parked", || !echo.parked.lock().is_empty());
    let link = {
        let mut parked = echo.parked.lock();
        let (owed, opaque) = parked.pop().unwrap();
        let link = Arc::clone(owed.link());
        owed.post(opaque);
        link
    };
    assert_eq!(peer.answer().unwrap().opaque, 1);
    let handled = echo.handled.load(Ordering::SeqCst);
    peer.send(&request(BULK, 2, &[("size", "16000000")], b""));
    eventually("congested", || echo.handled.load(Ordering::SeqCst) == handled + 1);
    (peer, link)
}

fn few_bytes() -> ServerOptions {
    ServerOptions { outbox_bytes_max: 1000, ..ServerOptions::default() }
}

#[test]
fn a_reader_that_does_not_read_gets_a_bounded_number_of_notices() {
    let (server, echo, address) = serve(ServerOptions { notices_max: 50, ..few_bytes() });
    let (_peer, link) = deaf_peer(&echo, address);
    let events = echo.events.load(Ordering::SeqCst);
    assert_eq!((0..200).filter(|_| link.notify(NOTICE, 0)).count(), 50);
    assert!(!link.is_closed(), "refusing a notice closes nothing");
    assert_eq!(server.statistics().dropped_notices, 150);
    assert_eq!(echo.events.load(Ordering::SeqCst), events);
}

#[test]
fn replies_that_are_owed_come_however_many_notices_wait() {
    let (_server, echo, address) = serve(ServerOptions { notices_max: 5, owed_max: 1000, ..few_bytes() });
    let mut peer = Peer::connect(address);
    let asks: Vec<u8> = (0..1000).flat_map(|opaque| request(PARK, opaque, &[], b"")).collect();
    peer.send(&asks);
    peer.send(&request(PARK, 1000, &[], b""));
    let refused = peer.answer().unwrap();
    assert_eq!((refused.opaque, refused.code), (1000, 2), "one over the bound is refused immediately");
    peer.send(&request(BULK, 1001, &[("size", "16000000")], b""));
    eventually("congested", || echo.handled.load(Ordering::SeqCst) == 1002);
    let parked = std::mem::take(&mut *echo.parked.lock());
    while parked[0].0.link().notify(NOTICE, 0) {}
    parked.into_iter().for_each(|(owed, opaque)| owed.post(opaque));
    assert_eq!(peer.answer().unwrap().opaque, 1001);
    (0..1000).for_each(|opaque| assert_eq!(peer.answer().unwrap().opaque, opaque));
    // Released room is available again.
    peer.send(&asks);
    eventually("parked again", || echo.parked.lock().len() == 1000);
}

#[test]
fn an_abandoned_reply_closes_its_connection() {
    let (_server, echo, address) = serve(ServerOptions::default());
    let mut peer = Peer::connect(address);
    peer.send(&request(PARK, 1, &[], b""));
    peer.send(&request(PARK, 2, &[], b""));
    eventually("parked", || echo.parked.lock().len() == 2);
    let (answered_otherwise, _) = echo.parked.lock().pop().unwrap();
    answered_otherwise.settle();
    peer.echoes(3);
    drop(echo.parked.lock().pop());
    assert_eq!(peer.answer(), None);
}

#[test]
fn bytes_that_wait_for_replies_are_bounded_for_one_peer_and_for_all() {
    let limits = ServerOptions { mailbox_bytes_max: 20_000, mailboxes_bytes_max: 30_000, ..few_bytes() };
    let (server, echo, address) = serve(limits);
    let park = |peer: &mut Peer, opaque, bytes| peer.send(&request(PARK, opaque, &[], &vec![0; bytes]));
    let parked = |count| eventually("parked", || echo.parked.lock().len() == count);
    let mut first = Peer::connect(address);
    park(&mut first, 1, 15_000);
    parked(1);
    park(&mut first, 2, 15_000);
    assert_eq!(first.answer().unwrap().code, 2, "too much for one");
    let mut second = Peer::connect(address);
    park(&mut second, 3, 16_000);
    assert_eq!(second.answer().unwrap().code, 2, "too much for all");
    park(&mut second, 4, 15_000);
    parked(2);
    let mut third = Peer::connect(address);
    park(&mut third, 5, 4_000);
    parked(3);
    park(&mut third, 6, 4_000);
    assert_eq!(third.answer().unwrap().code, 2, "the first small one always has room");
    assert_eq!(server.statistics().mailbox_bytes, 34_000);
    let mut owed = std::mem::take(&mut *echo.parked.lock());
    assert!(!owed[0].0.grow(10_000));
    assert!(!owed[2].0.grow(1));
    owed.into_iter().for_each(|(owed, opaque)| owed.post(opaque));
    for (peer, opaque) in [(&mut first, 1), (&mut second, 4), (&mut third, 5)] {
        assert_eq!(peer.answer().unwrap().opaque, opaque);
    }
    eventually("given back", || server.statistics().mailbox_bytes == 0);
}

#[test]
fn room_of_an_ended_connection_is_released() {
    let (server, echo, address) = serve(few_bytes());
    let (peer, link) = deaf_peer(&echo, address);
    assert!(link.notify(NOTICE, 1_000_000) && link.notify(NOTICE, 1_000_000));
    assert_eq!(server.statistics().mailbox_bytes, 2_000_000);
    drop(peer);
    eventually("given back", || server.statistics().mailbox_bytes == 0);
    assert!(!link.notify(NOTICE, 0));
}

#[test]
fn any_number_of_signals_is_handled_once() {
    let (_server, echo, address) = serve(few_bytes());
    let (mut peer, link) = deaf_peer(&echo, address);
    (0..1000).for_each(|_| link.signal());
    assert_eq!(echo.signals.load(Ordering::SeqCst), 0, "it is congested");
    assert_eq!(peer.answer().unwrap().opaque, 2);
    eventually("signalled", || echo.signals.load(Ordering::SeqCst) == 1);
    for count in 2..100 {
        link.signal();
        eventually("signalled", || echo.signals.load(Ordering::SeqCst) == count);
    }
}

#[test]
fn nothing_more_is_read_while_too_much_is_held_back() {
    let (server, echo, address) = serve(few_bytes());
    let (mut peer, link) = deaf_peer(&echo, address);
    assert_eq!(peer.answer().unwrap().opaque, 2);
    echo.held_bytes.store(1001, Ordering::SeqCst);
    link.signal();
    // Pending bytes show that the connection has handled it.
    eventually("it is held back", || server.statistics().pending_bytes == 1001);
    peer.send(&request(ECHO, 3, &[], b"later"));
    // After the second signal, the effects of the first are over.
    for count in 2..4 {
        link.signal();
        eventually("signalled", || echo.signals.load(Ordering::SeqCst) == count);
    }
    assert_eq!(echo.handled.load(Ordering::SeqCst), 2);
    echo.held_bytes.store(0, Ordering::SeqCst);
    link.signal();
    assert_eq!(peer.answer().unwrap().opaque, 3);
}

#[test]
fn every_reply_arrives_once_when_threads_post_concurrently() {
    const THREADS: i32 = 4;
    const EACH: i32 = 2_000;
    let (server, echo, address) = serve(ServerOptions::default());
    let mut peer = Peer::connect(address);
    let asks: Vec<u8> = (0..THREADS * EACH).flat_map(|opaque| request(PARK, opaque, &[], b"x")).collect();
    peer.send(&asks);
    eventually("parked", || echo.parked.lock().len() == (THREADS * EACH) as usize);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some((owed, opaque)) = { echo.parked.lock().pop() } {
                    owed.link().notify(NOTICE, 1);
                    owed.link().signal();
                    owed.post(opaque);
                }
            });
        }
        let mut seen: Vec<i32> = (0..THREADS * EACH).map(|_| peer.answer().unwrap().opaque).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..THREADS * EACH));
    });
    eventually("given back", || server.statistics().mailbox_bytes == 0);
}
