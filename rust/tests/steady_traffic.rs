//! Steady traffic: an I/O thread allocates nothing.
//!
//! Goal: a request does not call the allocator. Method: a counting allocator, and a service that marks its thread.

#![allow(unsafe_code, reason = "an allocator that counts must be one")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation fails the test")]

mod echo;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use echo::{Echo, Peer, Session};
use rmqpy::remoting::{Close, Frame, Link, Outbox, Server, ServerOptions, Service};

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: forwards every call unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_COUNTED.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// An echo whose threads are counted.
struct Counted(Echo);

impl Service for Counted {
    type Session = Session;
    type Event = i32;

    fn open(&self, link: Arc<Link<i32>>) -> Session {
        IS_COUNTED.set(true);
        self.0.open(link)
    }

    fn burst(&self, session: &mut Session, frames: &[Frame<'_>], out: &mut Outbox) -> Result<(), Close> {
        self.0.burst(session, frames, out)
    }

    fn event(&self, session: &mut Session, event: i32, out: &mut Outbox) -> Result<(), Close> {
        self.0.event(session, event, out)
    }

    fn refuse(&self, session: &mut Session, head: &Frame<'_>, out: &mut Outbox) -> Result<(), Close> {
        self.0.refuse(session, head, out)
    }

    fn close(&self, session: Session) {
        self.0.close(session);
    }
}

fn ask(address: SocketAddr, peer: &mut Peer, rounds: usize) {
    let burst: Vec<u8> =
        (0..100).flat_map(|opaque| echo::request(echo::ECHO, opaque, &[("a", "b")], b"body")).collect();
    for _ in 0..rounds {
        peer.send(&burst);
        for opaque in 0..100 {
            assert_eq!(peer.answer().unwrap().opaque, opaque, "{address}");
        }
    }
}

#[test]
fn a_hundred_thousand_requests_allocate_nothing() {
    let server = Server::start(Arc::new(Counted(Echo::default())), ServerOptions::default()).unwrap();
    let address = server.listen("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let mut peer = Peer::connect(address);
    ask(address, &mut peer, 50);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    assert!(before > 0, "the thread is counted");
    ask(address, &mut peer, 1000);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    // The sweep occasionally trims a buffer, which grows again. That happens per second, not per request; one for
    // each burst would be a thousand.
    assert!(allocations < 500, "{allocations} allocations");
}
