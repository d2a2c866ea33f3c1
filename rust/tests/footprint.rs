//! Memory of connections. A separate program whose tests run one at a time, because memory is measured for the whole
//! process.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation fails the test")]

mod echo;

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use echo::{ECHO, Peer, eventually, private_bytes, request, serve};
use parking_lot::Mutex;
use rmqpy::remoting::ServerOptions;

static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_reader_that_does_not_read_is_not_read_from_and_costs_little() {
    let _alone = ALONE.lock();
    let options = ServerOptions { io_threads: 1, outbox_bytes_max: 1 << 20, ..ServerOptions::default() };
    let (server, _, address) = serve(options);
    let mut peer = Peer::connect(address);
    peer.socket.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let before = private_bytes();
    // Request 32 KiB responses until even the requests are no longer read.
    let ask = request(ECHO, 1, &[], &[b'x'; 32 << 10]);
    let mut asked = 0;
    while peer.socket.write_all(&ask).is_ok() {
        asked += 1;
        assert!(asked < 10_000, "the server never stops reading");
    }
    let grown = private_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for {asked} requests");
    assert!(server.statistics().pending_bytes < 2 << 20);
    // Other connections are unaffected.
    Peer::connect(address).echoes(5);
    // Nothing was lost: it continues where it stopped.
    for _ in 0..asked {
        assert_eq!(peer.answer().unwrap().body.len(), 32 << 10);
    }
    eventually("the outbox is empty", || server.statistics().pending_bytes == 0);
}

#[test]
fn a_frame_that_announces_much_and_sends_little_costs_little() {
    let _alone = ALONE.lock();
    let (_server, _, address) = serve(ServerOptions::default());
    Peer::connect(address).echoes(1);
    let before = private_bytes();
    let peers: Vec<Peer> = (0..200)
        .map(|_| {
            let mut peer = Peer::connect(address);
            peer.send(&[0, 0xFF, 0xFF, 0xFC, 0, 0, 0, 2, b'{', b'}', b'x']);
            peer
        })
        .collect();
    Peer::connect(address).echoes(2);
    let grown = private_bytes().saturating_sub(before);
    assert!(grown < 200 * (32 << 10), "{grown} bytes for {} half frames", peers.len());
}

#[test]
fn a_thousand_idle_connections_cost_little() {
    let _alone = ALONE.lock();
    let (server, echo, address) = serve(ServerOptions::default());
    Peer::connect(address).echoes(1);
    let before = private_bytes();
    let mut peers: Vec<Peer> = (0..1000).map(|_| Peer::connect(address)).collect();
    eventually("all are open", || server.statistics().connections >= 1000);
    let grown = private_bytes().saturating_sub(before);
    // Both ends of each, of which the server's buffer has 4 KiB. Less if an earlier test has left memory.
    assert!(grown / 1000 < 12 << 10, "{} bytes each", grown / 1000);
    peers[999].echoes(2);
    peers[0].echoes(3);
    drop(peers);
    eventually("all are closed", || echo.closed.load(Ordering::SeqCst) >= 1000);
}

#[test]
fn a_large_frame_costs_what_came_of_it_and_leaves_nothing_behind() {
    let _alone = ALONE.lock();
    let (server, _, address) = serve(ServerOptions::default());
    Peer::connect(address).echoes(1);
    let before = private_bytes();
    let head = [0, 0xFF, 0xFF, 0xFC, 0, 0, 0, 2, b'{', b'}'];
    let begun = vec![b'x'; 1 << 20];
    // Sixty frames in all: the remaining memory must not grow with them. The allocator may keep a few buffers.
    for _ in 0..30 {
        let mut peers: Vec<Peer> = (0..2).map(|_| Peer::connect(address)).collect();
        for peer in &mut peers {
            peer.send(&head);
            peer.send(&begun);
        }
        Peer::connect(address).echoes(2);
        let grown = private_bytes().saturating_sub(before);
        assert!(grown < 16 << 20, "{grown} bytes for two frames of which 1 MiB came");
        drop(peers);
        // They are closed later, and would be counted in the next round.
        eventually("all are closed", || server.statistics().connections == 0);
    }
    eventually("what they took is given back", || private_bytes().saturating_sub(before) < 8 << 20);
}
