//! Upcalls: requests that Python serves, and events that it has to know of.
//!
//! One bounded ring and one eventfd for a server. Python's loop takes some entries per wake-up and sends its answers down
//! as one batch; each finds its connection through the token it came up with. A full ring answers `[OVERLOAD]`, and what
//! waited in it longer than a client waits for the answer is passed over. No Python object is ever kept here.
//!
//! Connections take turns, one entry each, and have few in one batch: a client that floods the ring delays itself. Of one
//! for which enough waits no more is read, so that a flood costs its sender's time instead of an I/O thread's. What comes
//! of one connection, requests and events, goes up in the order it came; of two, in no order that may be relied on.
//!
//! A name that frames wait for is counted as a one-way request is: until it is taken. `parked_frames` bounds those that
//! are not made yet.
//!
//! Threads: `submit` from I/O threads, `take` and `reply_to` from Python's; none of them waits.

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
use super::rejection::Missing;
use super::request::RequestContext;
use crate::remoting::codes::request;

/// Requests that may wait for Python, taken or not.
pub const UPCALLS_MAX: usize = 10_000;
/// Those of one connection: a tenth of the ring, so that a client that floods it is refused alone.
pub(super) const UPCALLS_PER_CONNECTION_MAX: usize = UPCALLS_MAX / 10;
/// Entries of one connection in one batch: what every other client may have to wait for when one floods the ring.
pub const TAKEN_PER_CONNECTION_MAX: usize = 4;
/// Entries of one connection that wait to be taken, above which it is not read until half of them are.
pub const WAITING_PER_CONNECTION_MAX: usize = 256;
/// Bytes of fields and bodies that may wait to be taken; a request larger than that waits alone.
const WAITING_BYTES_MAX: usize = 64 << 20;

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
    /// Who sent it, where access control is on and it says so.
    pub(crate) user: Option<Box<str>>,
    /// Whether what it needs is to be asked for: see `Guard::authorize`.
    pub(crate) is_guarded: bool,
    /// When it came, on the data plane's clock; requests only.
    pub(super) came_at: Duration,
    pub(crate) ext: Vec<(String, String)>,
    /// Empty where it has more bytes than Python reads of such a request.
    pub body: Bytes,
    /// Bytes of the body as it came.
    pub body_bytes: usize,
}

impl Upcall {
    fn size(&self) -> usize {
        self.body.len() + self.ext.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

/// Where an answer goes.
#[derive(Debug)]
pub struct ReplyTo {
    pub(crate) owed: Owed,
    /// What the answer needs of the request.
    pub(crate) context: RequestContext,
    /// The body of a heartbeat, and the registry's epoch when it came: an accepted one is remembered.
    pub(crate) heartbeat: Option<(Box<[u8]>, u64)>,
}

/// What `take` found.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// For Python, those of each connection in the order they came.
    pub(super) fresh: Vec<Upcall>,
    /// Requests that took too long: where the refusal goes, and how long each waited.
    pub(super) late: Vec<(ReplyTo, Duration)>,
    /// Requests that wait still.
    pub(super) left: usize,
    /// Connections that may be read again.
    pub(super) resumed: Vec<Arc<Link>>,
}

/// What the ring has of one connection.
#[derive(Debug, Default)]
struct Share {
    /// Not taken yet, oldest first.
    waiting: VecDeque<Upcall>,
    /// Requests that wait, taken or not.
    load: usize,
    /// Its connection, while that is not read.
    held: Option<Arc<Link>>,
}

#[derive(Debug, Default)]
struct Ring {
    /// Of connections of which anything waits, taken or not.
    shares: HashMap<u64, Share>,
    /// Connections of which entries wait to be taken, each once.
    turns: VecDeque<u64>,
    /// Entries that wait to be taken.
    waiting: usize,
    unanswered: HashMap<u64, ReplyTo>,
    next_token: u64,
    /// Bytes of fields and bodies that wait to be taken.
    bytes: usize,
}

impl Ring {
    fn has_room(&self, connection: u64, size: usize) -> bool {
        let load = self.shares.get(&connection).map_or(0, |share| share.load);
        let has_slot =
            self.waiting.max(self.unanswered.len()) < UPCALLS_MAX && load < UPCALLS_PER_CONNECTION_MAX;
        // Ten that flood fill the ring: a client with one request at a time must not notice. Connections are bounded.
        (load == 0 || has_slot) && (self.bytes == 0 || self.bytes + size <= WAITING_BYTES_MAX)
    }

    fn count(&mut self, upcall: &Upcall) {
        self.shares.entry(upcall.connection).or_default().load += 1;
        self.bytes += upcall.size();
    }

    /// One request of the connection waits no longer.
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

    /// The oldest entry of the connection whose turn it is; the next one has to wait for its next turn. Notes in
    /// `resumed` the connection that has few enough for more to be read.
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
        // Events were never counted.
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

/// The ring of one server.
#[derive(Debug)]
pub struct Upcalls {
    ring: Mutex<Ring>,
    pub(crate) client_requests: ClientRequests,
    wakeup: OwnedFd,
}

impl Upcalls {
    pub(super) fn new() -> std::io::Result<Self> {
        let wakeup = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { ring: Mutex::default(), client_requests: ClientRequests::default(), wakeup })
    }

    /// Requests that Python has not answered yet.
    pub fn waiting(&self) -> usize {
        let ring = self.ring.lock();
        ring.waiting.max(ring.unanswered.len())
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

    /// Whether the name that a frame of `size` bytes needs may come up.
    pub(super) fn has_room(&self, connection: u64, size: usize) -> bool {
        self.ring.lock().has_room(connection, size)
    }

    /// Whether so much of the connection waits that no more of it is to be read until `take` names it as resumed.
    pub(super) fn holds(&self, link: &Arc<Link>) -> bool {
        let mut ring = self.ring.lock();
        let Some(share) = ring.shares.get_mut(&link.id().0) else { return false };
        let holds =
            share.waiting.len() > WAITING_PER_CONNECTION_MAX / if share.held.is_some() { 2 } else { 1 };
        share.held = holds.then(|| Arc::clone(link));
        holds
    }

    /// Puts a name into the ring for which there was room a moment ago.
    pub(super) fn push_name(&self, upcall: Upcall) {
        let mut ring = self.ring.lock();
        ring.count(&upcall);
        self.push(ring, upcall);
    }

    /// Puts an event into the ring. It is never refused: there is at most one for a connection, or a request to a client.
    pub(super) fn push_event(&self, upcall: Upcall) {
        self.push(self.ring.lock(), upcall);
    }

    fn push(&self, mut ring: parking_lot::MutexGuard<'_, Ring>, upcall: Upcall) {
        let was_empty = ring.turns.is_empty();
        ring.push(upcall);
        drop(ring);
        if was_empty {
            // Fails only when the counter is about to overflow, and then it is readable anyway.
            let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
        }
    }

    /// Takes up to `limit` entries, and of one connection up to its maximum; clears the wakeup when it took the last.
    /// `now` is the time on the clock that `came_at` was read from.
    pub(super) fn take(&self, limit: usize, now: Duration) -> Taken {
        let mut ring = self.ring.lock();
        let mut taken = Taken::default();
        let mut room = limit;
        for _ in 0..TAKEN_PER_CONNECTION_MAX {
            // One round: a turn for each of those that had something when it began.
            let turns = ring.turns.len().min(room);
            room -= turns;
            for _ in 0..turns {
                let Some(upcall) = ring.pop(&mut taken.resumed) else { break };
                // A name is late when nobody waits for it any more.
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
            // Nothing to read means that it was quiet already.
            let _ = rustix::io::read(&self.wakeup, &mut [0_u8; 8]);
        }
        taken
    }

    /// Where the answer goes to `token`; each token once.
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

    /// A one-way request, told by its code.
    fn entry(connection: u64, code: i32, cause: Cause) -> Upcall {
        Upcall {
            cause,
            token: 0,
            connection,
            peer: ([127, 0, 0, 1], 1).into(),
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
        assert_eq!(take(&upcalls, usize::MAX), all, "a connection's end comes after all that it asked");
        assert!(upcalls.ring.lock().shares.is_empty(), "nothing is kept of who has nothing there");
    }

    #[test]
    fn a_batch_has_few_of_one_connection_and_the_next_goes_on_where_it_ended() {
        let upcalls = Upcalls::new().unwrap();
        let max = TAKEN_PER_CONNECTION_MAX as i32;
        flood(&upcalls, 1, 0..2 * max);
        let batch = |codes: std::ops::Range<i32>| codes.map(|code| (1, code)).collect::<Vec<_>>();
        assert_eq!(take(&upcalls, usize::MAX), batch(0..max));
        flood(&upcalls, 2, 0..1);
        let next = take(&upcalls, 2);
        assert_eq!(next, [(1, max), (2, 0)], "who comes waits for one of each other");
        assert_eq!(take(&upcalls, usize::MAX), batch(max + 1..2 * max));
    }

    #[test]
    fn a_limit_ends_a_batch_within_a_round_and_nobody_loses_a_turn() {
        let upcalls = Upcalls::new().unwrap();
        (1..=3).for_each(|connection| flood(&upcalls, connection, 0..2));
        assert_eq!(take(&upcalls, 4), [(1, 0), (2, 0), (3, 0), (1, 1)]);
        assert_eq!(take(&upcalls, 4), [(2, 1), (3, 1)]);
    }

    #[test]
    fn the_wakeup_stays_readable_while_anything_waits() {
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
