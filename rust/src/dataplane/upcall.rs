//! Upcalls: requests that Python serves, and events that it has to know of.
//!
//! One bounded ring and one eventfd for a server. Python's loop takes up to 256 entries per wake-up and sends its
//! answers down as one batch; each finds its connection through the token it came up with. A full ring answers
//! `[OVERLOAD]`, and what waited in it longer than a client waits for the answer is passed over. No Python object is
//! ever kept here.
//!
//! Threads: `submit` from I/O threads, `take` and `reply_to` from Python's; none of them waits.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::event::Link;
use super::rejection::Missing;
use super::request::RequestContext;
use crate::remoting::codes::request;

/// Requests that may wait for Python, taken or not.
pub const UPCALLS_MAX: usize = 10_000;
/// Those of one connection: a tenth of the ring, so that a client that floods it is refused alone.
const UPCALLS_PER_CONNECTION_MAX: usize = UPCALLS_MAX / 10;
/// Bytes of fields and bodies that may wait to be taken; a request larger than that waits alone.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Requests of ours that clients may be answering at once.
const CLIENT_REQUESTS_MAX: usize = 64;

/// How long a request may wait to be taken, as at the original: beyond, its sender has given up or soon will.
/// Brokers wait longer for a name server than clients wait for a broker.
fn wait_max(code: i32) -> Duration {
    Duration::from_secs(match code {
        request::HEART_BEAT => 31,
        request::REGISTER_BROKER => 24,
        _ => 5,
    })
}

/// What comes up.
#[derive(Debug)]
pub enum Cause {
    /// A request that is not served here.
    Request,
    /// A client's answer to a request of ours, with its remark; the token is the request's.
    Answered(String),
    /// The connection is gone.
    Closed,
    /// Frames are parked until `release` for the name.
    Missing(Missing, String),
}

/// One entry of the ring: everything Python may ask about a request.
#[derive(Debug)]
pub struct Upcall {
    /// Why it comes up.
    pub cause: Cause,
    /// Names the request in `answer`; 0 where no answer is expected.
    pub token: u64,
    /// The connection it came from.
    pub connection: u64,
    pub(crate) peer: SocketAddr,
    /// Whether it came in through the VIP port.
    pub(crate) is_vip: bool,
    /// Request code.
    pub code: i32,
    /// Ordinal of the sender's release.
    pub(crate) version: i32,
    pub(crate) language: u8,
    pub(crate) is_oneway: bool,
    /// When it came, on the data plane's clock; requests only.
    pub(super) came_at: Duration,
    pub(crate) ext: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Upcall {
    fn size(&self) -> usize {
        self.body.len() + self.ext.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

/// Where an answer goes.
#[derive(Debug)]
pub struct ReplyTo {
    pub(crate) link: Arc<Link>,
    /// What the answer needs of the request.
    pub(crate) context: RequestContext,
    /// The body of a heartbeat, and the registry's epoch when it came: an accepted one is remembered.
    pub(crate) heartbeat: Option<(Box<[u8]>, u64)>,
}

/// What `take` found.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// For Python, oldest first.
    pub(super) fresh: Vec<Upcall>,
    /// Requests that took too long: where the refusal goes, and how long each waited.
    pub(super) late: Vec<(ReplyTo, Duration)>,
    /// Requests that wait still.
    pub(super) left: usize,
}

#[derive(Debug, Default)]
struct Ring {
    waiting: VecDeque<Upcall>,
    unanswered: HashMap<u64, ReplyTo>,
    next_token: u64,
    /// Requests of each connection that wait, taken or not.
    loads: HashMap<u64, usize>,
    /// Bytes of fields and bodies in `waiting`.
    bytes: usize,
}

impl Ring {
    fn has_room(&self, upcall: &Upcall) -> bool {
        let load = self.loads.get(&upcall.connection).copied().unwrap_or(0);
        let has_slot =
            self.waiting.len().max(self.unanswered.len()) < UPCALLS_MAX && load < UPCALLS_PER_CONNECTION_MAX;
        // Ten that flood fill the ring: a client with one request at a time must not notice. Connections are bounded.
        (load == 0 || has_slot) && (self.bytes == 0 || self.bytes + upcall.size() <= WAITING_BYTES_MAX)
    }

    /// One request of the connection waits no longer.
    fn relieve(&mut self, connection: u64) {
        if let Some(load) = self.loads.get_mut(&connection) {
            *load -= 1;
            if *load == 0 {
                self.loads.remove(&connection);
            }
        }
    }
}

/// The ring of one server.
#[derive(Debug)]
pub struct Upcalls {
    ring: Mutex<Ring>,
    /// Connections, and the requests of ours that they have not answered yet.
    open_client_requests: Mutex<HashSet<(u64, i32)>>,
    next_opaque: AtomicI32,
    wakeup: OwnedFd,
}

impl Upcalls {
    pub(super) fn new() -> std::io::Result<Self> {
        let wakeup = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self {
            ring: Mutex::default(),
            open_client_requests: Mutex::default(),
            next_opaque: AtomicI32::new(1),
            wakeup,
        })
    }

    /// Requests that Python has not answered yet.
    pub(crate) fn waiting(&self) -> usize {
        let ring = self.ring.lock();
        ring.waiting.len().max(ring.unanswered.len())
    }

    /// Readable while entries wait.
    pub(crate) fn wakeup(&self) -> RawFd {
        self.wakeup.as_raw_fd()
    }

    /// Puts a request into the ring; false when it is full, or has enough of this connection.
    ///
    /// `reply_to` is none for one-way requests: those cost no slot once taken.
    pub(super) fn submit(&self, mut upcall: Upcall, reply_to: Option<ReplyTo>) -> bool {
        let mut ring = self.ring.lock();
        if !ring.has_room(&upcall) {
            return false;
        }
        *ring.loads.entry(upcall.connection).or_insert(0) += 1;
        ring.bytes += upcall.size();
        if let Some(reply_to) = reply_to {
            ring.next_token += 1;
            upcall.token = ring.next_token;
            ring.unanswered.insert(upcall.token, reply_to);
        }
        self.push(ring, upcall);
        true
    }

    /// Puts an event into the ring. It is never refused: there is at most one for a connection, a name, or a request to a client.
    pub(super) fn push_event(&self, upcall: Upcall) {
        self.push(self.ring.lock(), upcall);
    }

    fn push(&self, mut ring: parking_lot::MutexGuard<'_, Ring>, upcall: Upcall) {
        let was_empty = ring.waiting.is_empty();
        ring.waiting.push_back(upcall);
        drop(ring);
        if was_empty {
            // Fails only when the counter is about to overflow, and then it is readable anyway.
            let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
        }
    }

    /// Names a request to a client whose answer is to come up; `None` when too many are under way.
    pub(crate) fn expect_answer(&self, connection: u64) -> Option<i32> {
        let mut open = self.open_client_requests.lock();
        if open.len() >= CLIENT_REQUESTS_MAX {
            return None;
        }
        let opaque = self.next_opaque.fetch_add(1, Ordering::Relaxed);
        open.insert((connection, opaque));
        Some(opaque)
    }

    /// The answer is here, or given up; whether it was still expected.
    pub(crate) fn forget_answer(&self, connection: u64, opaque: i32) -> bool {
        self.open_client_requests.lock().remove(&(connection, opaque))
    }

    /// Takes up to `limit` entries, oldest first; clears the wakeup when it took the last. `now` is the time on the
    /// clock that `came_at` was read from.
    pub(super) fn take(&self, limit: usize, now: Duration) -> Taken {
        let mut ring = self.ring.lock();
        let mut taken = Taken::default();
        for _ in 0..limit {
            let Some(upcall) = ring.waiting.pop_front() else { break };
            // Events were never counted, and are never late.
            if matches!(upcall.cause, Cause::Request) {
                ring.bytes -= upcall.size();
                if upcall.token == 0 {
                    ring.relieve(upcall.connection);
                }
                let waited = now.saturating_sub(upcall.came_at);
                if waited > wait_max(upcall.code) {
                    if let Some(reply_to) = ring.unanswered.remove(&upcall.token) {
                        ring.relieve(upcall.connection);
                        taken.late.push((reply_to, waited));
                    }
                    continue;
                }
            }
            taken.fresh.push(upcall);
        }
        taken.left = ring.waiting.len();
        if ring.waiting.is_empty() {
            // Nothing to read means that it was quiet already.
            let _ = rustix::io::read(&self.wakeup, &mut [0_u8; 8]);
        }
        taken
    }

    /// Where the answer goes to `token`; each token once.
    pub fn reply_to(&self, token: u64) -> Option<ReplyTo> {
        let mut ring = self.ring.lock();
        let reply_to = ring.unanswered.remove(&token)?;
        ring.relieve(reply_to.link.id().0);
        Some(reply_to)
    }
}
