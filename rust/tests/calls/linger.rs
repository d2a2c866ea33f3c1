//! Lingering requests: they share a write, and do not wait for a slow reply.

use std::io::Write;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rmqpy::remoting::codes::flag;
use rmqpy::remoting::{Linger, Peer, ServerOptions};

use crate::echo::{ECHO, TIMEOUT, serve};
use crate::{Outcome, call, client, listener, next, read_frame, write};

fn call_coalesced(peer: &Peer, code: i32, body: &[u8], to: &Sender<Outcome>) {
    let to = to.clone();
    peer.call_with(
        Linger::Coalesce,
        TIMEOUT,
        |opaque, out| write(out, code, opaque, 0, body),
        move |reply| to.send(reply.map(|reply| (reply.header.opaque, reply.body.to_vec()))).unwrap(),
    );
}

#[test]
fn a_lingering_request_leaves_though_no_reply_comes() {
    let (listener, address) = listener();
    let client = client();
    let peer = client.peer(&address);
    let (to, _outcomes) = channel();
    call_coalesced(&peer, ECHO, b"first", &to);
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(TIMEOUT / 3)).unwrap();
    let first = read_frame(&mut socket).0;
    for _ in 0..3 {
        call_coalesced(&peer, ECHO, b"another", &to);
        assert_ne!(read_frame(&mut socket).0, first);
    }
}

#[test]
fn a_request_does_not_linger_while_the_io_thread_sleeps() {
    let (listener, address) = listener();
    let client = client();
    let peer = client.peer(&address);
    let (to, outcomes) = channel();
    let mut socket = None;
    // Once for the connection, and once for a call whose deadline is later than an earlier one and so wakes no
    // thread.
    for _ in 0..2 {
        call(&peer, ECHO, b"before", TIMEOUT, &to);
        let socket = socket.get_or_insert_with(|| listener.accept().unwrap().0);
        let mut reply = Vec::new();
        write(&mut reply, 0, read_frame(socket).0, flag::RESPONSE, b"").unwrap();
        socket.write_all(&reply).unwrap();
        next(&outcomes).unwrap();
    }
    let mut socket = socket.expect("a connection");
    // Shorter than the interval at which the task checks by itself.
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    // A test cannot observe whether a thread sleeps.
    std::thread::sleep(Duration::from_millis(100));
    // Nothing is in flight, so the caller writes the first one itself, and it gets no reply.
    call_coalesced(&peer, ECHO, b"first", &to);
    let first = read_frame(&mut socket).0;
    call_coalesced(&peer, ECHO, b"second", &to);
    assert_eq!(read_frame(&mut socket).0, first + 1);
}

#[test]
fn an_immediate_request_flushes_lingering_ones() {
    let (listener, address) = listener();
    let client = client();
    let peer = client.peer(&address);
    let (to, _outcomes) = channel();
    call_coalesced(&peer, ECHO, b"first", &to);
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(TIMEOUT / 3)).unwrap();
    let first = read_frame(&mut socket).0;
    call_coalesced(&peer, ECHO, b"second", &to);
    call(&peer, ECHO, b"third", TIMEOUT, &to);
    let rest = [read_frame(&mut socket).0, read_frame(&mut socket).0];
    assert_eq!(rest, [first + 1, first + 2]);
}

#[test]
fn every_coalesced_request_is_answered() {
    let (_server, _, address) = serve(ServerOptions::default());
    let client = client();
    let peer = client.peer(&address.to_string());
    let (to, outcomes) = channel();
    for number in 0..5_000_u32 {
        call_coalesced(&peer, ECHO, &number.to_be_bytes(), &to);
    }
    for number in 0..5_000_u32 {
        assert_eq!(next(&outcomes).unwrap().1, number.to_be_bytes());
    }
}
