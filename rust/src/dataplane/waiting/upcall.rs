//! Upcalls: requests that Python serves, and events for Python.
//!
//! Each server has a bounded ring and an eventfd. Python's loop takes some entries per wake-up and returns its
//! replies as one batch; each finds its connection through the token of the request. A full ring answers
//! `[OVERLOAD]`, and a request older than its client's timeout is skipped. The ring keeps no Python object.
//!
//! Connections take turns round-robin, with a few entries in each batch, so a client that floods the ring delays
//! only itself. Its connection is not read while it has many pending entries: backpressure, which costs the sender's
//! time instead of an I/O thread's. Entries of one connection are forwarded in order; those of different connections
//! are not ordered.
//!
//! A name that frames are parked for counts like a one-way request, until it is taken. `parked_frames` bounds the
//! names that are not created yet.
//!
//! Threads: `submit` on I/O threads, `take` and `reply_to` on Python's; none blocks.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::client_requests::ClientRequests;
use super::event::{Link, Owed};
use crate::dataplane::state::rejection::Missing;
use crate::dataplane::state::request::RequestContext;
use crate::remoting::codes::request;

/// Maximum number of requests pending for Python, taken or not.
pub const UPCALLS_MAX: usize = 10_000;
/// Maximum entries of one connection: a tenth of the ring, so that only a flooding client is refused.
pub(super) const UPCALLS_PER_CONNECTION_MAX: usize = UPCALLS_MAX / 10;
/// Maximum entries of one connection in a batch, which bounds the delay that a flood causes for others.
pub const TAKEN_PER_CONNECTION_MAX: usize = 4;
/// Entries of one connection in the ring above which it is not read, until half of them are taken.
pub const WAITING_PER_CONNECTION_MAX: usize = 256;
/// Maximum bytes of fields and bodies in the ring; a larger request is admitted only if the ring is empty.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Maximum wait of a request in the ring, as in Apache's broker; after it, clients time out. Brokers wait longer for a
/// name server than clients wait for a broker.
fn wait_max(code: i32) -> Duration {
    Duration::from_secs(match code {
        request::HEART_BEAT => 31,
        request::REGISTER_BROKER => 24,
        _ => 5,
    })
}

/// The kind of an entry.
#[derive(Debug)]
pub enum Cause {
    /// A request that is not served in Rust.
    Request,
    /// A client's answer to a request of this broker, with its remark; the token is the request's opaque.
    Answered(String),
    /// The connection was closed.
    Closed,
    /// Frames are parked until `release` of the name.
    Missing(Missing, String),
}

/// An entry of the ring, with everything that Python may need of a request.
#[derive(Debug)]
pub struct Upcall {
    /// A request or an event.
    pub cause: Cause,
    /// The token for the reply; 0 if none is expected.
    pub token: u64,
    /// The connection that sent it.
    pub connection: u64,
    pub(crate) peer: SocketAddr,
    /// The address that accepted the connection.
    pub(crate) local: SocketAddr,
    /// Whether it was received on the VIP port.
    pub(crate) is_vip: bool,
    /// Request code.
    pub code: i32,
    /// The ordinal of the sender's release.
    pub(crate) version: i32,
    pub(crate) language: u8,
    pub(crate) is_oneway: bool,
    /// The user, if access control is on and the request names one.
    pub(crate) user: Option<Box<str>>,
    /// Whether Python must authorize it: see `Guard::authorize`.
    pub(crate) is_guarded: bool,
    /// The time of arrival on the data plane's clock; requests only.
    pub(in crate::dataplane) came_at: Duration,
    pub(crate) ext: Vec<(String, String)>,
    /// The body; empty if it exceeds what Python reads for the code.
    pub body: Bytes,
    /// The size of the body as received.
    pub body_bytes: usize,
}

impl Upcall {
    fn size(&self) -> usize {
        self.body.len() + self.ext.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

/// The destination of a reply.
#[derive(Debug)]
pub struct ReplyTo {
    pub(crate) owed: Owed,
    /// The facts of the request that the answer needs.
    pub(crate) context: RequestContext,
    /// The body of a heartbeat, and the registry's epoch on arrival; cached if the heartbeat is accepted.
    pub(crate) heartbeat: Option<(Box<[u8]>, u64)>,
}

/// The result of `take`.
#[derive(Debug, Default)]
pub(in crate::dataplane) struct Taken {
    /// Entries for Python, in order for each connection.
    pub(in crate::dataplane) fresh: Vec<Upcall>,
    /// Requests that waited too long: the destination of the refusal, and the time waited.
    pub(in crate::dataplane) late: Vec<(ReplyTo, Duration)>,
    /// The number of entries left in the ring.
    pub(in crate::dataplane) left: usize,
    /// Connections whose reading resumes.
    pub(in crate::dataplane) resumed: Vec<Arc<Link>>,
}

/// The entries of one connection.
#[derive(Debug, Default)]
struct Share {
    /// Entries not taken yet, oldest first.
    waiting: VecDeque<Upcall>,
    /// The number of pending requests, taken or not.
    load: usize,
    /// The connection, while it is not read.
    held: Option<Arc<Link>>,
}

#[derive(Debug, Default)]
struct Ring {
    /// Connections with pending entries, taken or not.
    shares: HashMap<u64, Share>,
    /// Connections with entries in the ring, each once, in round-robin order.
    turns: VecDeque<u64>,
    /// The number of entries in the ring.
    waiting: usize,
    unanswered: HashMap<u64, ReplyTo>,
    next_token: u64,
    /// Bytes of fields and bodies in the ring.
    bytes: usize,
}

impl Ring {
    fn has_room(&self, connection: u64, size: usize) -> bool {
        let load = self.shares.get(&connection).map_or(0, |share| share.load);
        let has_slot =
            self.waiting.max(self.unanswered.len()) < UPCALLS_MAX && load < UPCALLS_PER_CONNECTION_MAX;
        // Ten flooding clients fill the ring, and a client with one request at a time must still be admitted. The
        // number of connections is bounded.
        (load == 0 || has_slot) && (self.bytes == 0 || self.bytes + size <= WAITING_BYTES_MAX)
    }

    fn count(&mut self, upcall: &Upcall) {
        self.shares.entry(upcall.connection).or_default().load += 1;
        self.bytes += upcall.size();
    }

    /// Uncounts a pending request of the connection.
    fn relieve(&mut self, connection: u64) {
        if let Some(share) = self.shares.get_mut(&connection) {
            share.load -= 1;
            self.drop_if_idle(connection);
        }
    }

    fn push(&mut self, upcall: Upcall) {
        let connection = upcall.connection;
        let share = self.shares.entry(connection).or_default();
        if share.waiting.is_empty() {
            self.turns.push_back(connection);
        }
        share.waiting.push_back(upcall);
        self.waiting += 1;
    }

    /// Takes the oldest entry of the next connection in turn. Adds the connection to `resumed` if it has few enough
    /// entries left to be read again.
    fn pop(&mut self, resumed: &mut Vec<Arc<Link>>) -> Option<Upcall> {
        let connection = self.turns.pop_front()?;
        let share = self.shares.get_mut(&connection)?;
        let upcall = share.waiting.pop_front()?;
        self.waiting -= 1;
        if share.waiting.len() <= WAITING_PER_CONNECTION_MAX / 2 {
            resumed.extend(share.held.take());
        }
        if !share.waiting.is_empty() {
            self.turns.push_back(connection);
        }
        // Events are not counted.
        if matches!(upcall.cause, Cause::Request | Cause::Missing(..)) {
            self.bytes -= upcall.size();
            if upcall.token == 0 {
                share.load -= 1;
            }
        }
        self.drop_if_idle(connection);
        Some(upcall)
    }

    fn drop_if_idle(&mut self, connection: u64) {
        if self.shares.get(&connection).is_some_and(|share| share.load == 0 && share.waiting.is_empty()) {
            self.shares.remove(&connection);
        }
    }
}

/// The ring of a server.
#[derive(Debug)]
pub struct Upcalls {
    ring: Mutex<Ring>,
    pub(crate) client_requests: ClientRequests,
    wakeup: OwnedFd,
}

impl Upcalls {
    pub(in crate::dataplane) fn new() -> std::io::Result<Self> {
        let wakeup = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { ring: Mutex::default(), client_requests: ClientRequests::default(), wakeup })
    }

    /// Returns the number of requests that Python has not answered.
    pub fn waiting(&self) -> usize {
        let ring = self.ring.lock();
        ring.waiting.max(ring.unanswered.len())
    }

    /// Returns the eventfd, which is readable while the ring has entries.
    pub(crate) fn wakeup(&self) -> RawFd {
        self.wakeup.as_raw_fd()
    }

    /// Adds a request; returns false if the ring or the share of the connection is full.
    ///
    /// `reply_to` is `None` for a one-way request, which occupies no slot once it is taken.
    pub(in crate::dataplane) fn submit(&self, mut upcall: Upcall, reply_to: Option<ReplyTo>) -> bool {
        let mut ring = self.ring.lock();
        if !ring.has_room(upcall.connection, upcall.size()) {
            reply_to.into_iter().for_each(|reply_to| reply_to.owed.settle());
            return false;
        }
        ring.count(&upcall);
        if let Some(reply_to) = reply_to {
            ring.next_token += 1;
            upcall.token = ring.next_token;
            ring.unanswered.insert(upcall.token, reply_to);
        }
        self.push(ring, upcall);
        true
    }

    /// Returns whether the name that a frame of `size` bytes needs may be forwarded.
    pub(in crate::dataplane) fn has_room(&self, connection: u64, size: usize) -> bool {
        self.ring.lock().has_room(connection, size)
    }

    /// Returns whether reading from the connection must pause until `take` returns it in `resumed`.
    pub(in crate::dataplane) fn holds(&self, link: &Arc<Link>) -> bool {
        let mut ring = self.ring.lock();
        let Some(share) = ring.shares.get_mut(&link.id().0) else { return false };
        let holds =
            share.waiting.len() > WAITING_PER_CONNECTION_MAX / if share.held.is_some() { 2 } else { 1 };
        share.held = holds.then(|| Arc::clone(link));
        holds
    }

    /// Adds a name, after `has_room` returned true.
    pub(in crate::dataplane) fn push_name(&self, upcall: Upcall) {
        let mut ring = self.ring.lock();
        ring.count(&upcall);
        self.push(ring, upcall);
    }

    /// Adds an event. Events are not refused: there is at most one for a connection or for a request to a client.
    pub(in crate::dataplane) fn push_event(&self, upcall: Upcall) {
        self.push(self.ring.lock(), upcall);
    }

    fn push(&self, mut ring: parking_lot::MutexGuard<'_, Ring>, upcall: Upcall) {
        let was_empty = ring.turns.is_empty();
        ring.push(upcall);
        drop(ring);
        if was_empty {
            // Fails only if the counter is about to overflow, and then it is readable already.
            let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
        }
    }

    /// Takes up to `limit` entries, with a maximum for each connection, and clears the wakeup if the ring is empty.
    /// `now` is the time on the clock of `came_at`.
    pub(in crate::dataplane) fn take(&self, limit: usize, now: Duration) -> Taken {
        let mut ring = self.ring.lock();
        let mut taken = Taken::default();
        let mut room = limit;
        for _ in 0..TAKEN_PER_CONNECTION_MAX {
            // One round: a turn for each connection that had entries at its start.
            let turns = ring.turns.len().min(room);
            room -= turns;
            for _ in 0..turns {
                let Some(upcall) = ring.pop(&mut taken.resumed) else { break };
                // A name is stale only if no frame waits for it any more, which the caller checks.
                if matches!(upcall.cause, Cause::Request) {
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
        }
        taken.left = ring.waiting;
        if ring.turns.is_empty() {
            // Fails if it was clear already.
            let _ = rustix::io::read(&self.wakeup, &mut [0_u8; 8]);
        }
        taken
    }

    /// Returns the destination of the reply with this token, once.
    pub fn reply_to(&self, token: u64) -> Option<ReplyTo> {
        let mut ring = self.ring.lock();
        let reply_to = ring.unanswered.remove(&token)?;
        ring.relieve(reply_to.owed.link().id().0);
        Some(reply_to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a one-way entry with this code.
    fn entry(connection: u64, code: i32, cause: Cause) -> Upcall {
        Upcall {
            cause,
            token: 0,
            connection,
            peer: ([127, 0, 0, 1], 1).into(),
            local: ([127, 0, 0, 1], 2).into(),
            is_vip: false,
            code,
            version: 0,
            language: 0,
            is_oneway: true,
            user: None,
            is_guarded: false,
            came_at: Duration::ZERO,
            ext: Vec::new(),
            body: Bytes::new(),
            body_bytes: 0,
        }
    }

    fn flood(upcalls: &Upcalls, connection: u64, codes: std::ops::Range<i32>) {
        for code in codes {
            assert!(upcalls.submit(entry(connection, code, Cause::Request), None));
        }
    }

    fn take(upcalls: &Upcalls, limit: usize) -> Vec<(u64, i32)> {
        let taken = upcalls.take(limit, Duration::ZERO);
        taken.fresh.iter().map(|upcall| (upcall.connection, upcall.code)).collect()
    }

    #[test]
    fn connections_take_turns_and_each_keeps_its_order() {
        let upcalls = Upcalls::new().unwrap();
        flood(&upcalls, 1, 0..4);
        flood(&upcalls, 2, 0..2);
        upcalls.push_event(entry(2, 2, Cause::Closed));
        flood(&upcalls, 3, 0..1);
        let all = [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2), (2, 2), (1, 3)];
        assert_eq!(take(&upcalls, usize::MAX), all, "the close of a connection follows its requests");
        assert!(upcalls.ring.lock().shares.is_empty(), "idle connections are removed");
    }

    #[test]
    fn a_batch_has_few_entries_of_each_connection_and_the_next_one_continues() {
        let upcalls = Upcalls::new().unwrap();
        let max = TAKEN_PER_CONNECTION_MAX as i32;
        flood(&upcalls, 1, 0..2 * max);
        let batch = |codes: std::ops::Range<i32>| codes.map(|code| (1, code)).collect::<Vec<_>>();
        assert_eq!(take(&upcalls, usize::MAX), batch(0..max));
        flood(&upcalls, 2, 0..1);
        let next = take(&upcalls, 2);
        assert_eq!(next, [(1, max), (2, 0)], "a new connection waits for one entry of each other");
        assert_eq!(take(&upcalls, usize::MAX), batch(max + 1..2 * max));
    }

    #[test]
    fn a_limit_within_a_round_costs_no_connection_its_turn() {
        let upcalls = Upcalls::new().unwrap();
        (1..=3).for_each(|connection| flood(&upcalls, connection, 0..2));
        assert_eq!(take(&upcalls, 4), [(1, 0), (2, 0), (3, 0), (1, 1)]);
        assert_eq!(take(&upcalls, 4), [(2, 1), (3, 1)]);
    }

    #[test]
    fn the_wakeup_is_readable_while_the_ring_has_entries() {
        let upcalls = Upcalls::new().unwrap();
        let is_readable = || {
            let mut fds = [rustix::event::PollFd::new(&upcalls.wakeup, rustix::event::PollFlags::IN)];
            let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut fds, Some(&at_once)).unwrap() == 1
        };
        flood(&upcalls, 1, 0..TAKEN_PER_CONNECTION_MAX as i32 + 1);
        take(&upcalls, usize::MAX);
        assert!(is_readable());
        take(&upcalls, usize::MAX);
        assert!(!is_readable());
        flood(&upcalls, 1, 0..1);
        assert!(is_readable());
    }
}
