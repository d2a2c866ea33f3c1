//! Peer: the shared handle of one connection to a server.
//!
//! It owns the requests waiting to be written and the calls waiting for a reply. Callers encode directly into the
//! outgoing bytes, so requests added concurrently leave in one write. A call that finds none in flight writes its
//! request itself: waking the I/O thread would take longer than everything else. A coalescing call wakes no thread
//! while others like it are in flight: the next reply does, and the requests collected by then leave in one write.
//!
//! Invariant: a call is in `calls` before its request can be written, and its callback runs exactly once, with the
//! reply or the reason there is none.
//! Threads: any. One short lock for each call; callbacks run outside it.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::call::{Call, CallError, Done, Linger, Reply, run};
use super::error::FrameError;

/// Coalescing requests are written once they reach this size.
const LINGER_BYTES_MAX: usize = 16 << 10;

/// A connection to one address, open or being made. After it ended, ask the `Client` for a new one.
pub struct Peer {
    /// Its name in the pool: the address, unless the owner gave another.
    key: Arc<str>,
    address: Arc<str>,
    bytes_max: usize,
    calls_max: usize,
    /// A copy of `State::ended` that callers choosing a connection read without the lock.
    has_ended: AtomicBool,
    state: Mutex<State>,
}

struct State {
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that are whole frames; a failed encoder may leave bytes beyond.
    sealed: usize,
    /// Bytes that the I/O thread took and has not written.
    writing: usize,
    calls: HashMap<i32, Call, foldhash::fast::RandomState>,
    /// Calls in `calls` that coalesce.
    coalescing: usize,
    /// Whether the task checks again within a millisecond, so lingering requests need not wait for a slow reply.
    is_linger_armed: bool,
    /// Whether the task was woken for the pending bytes.
    is_woken: bool,
    next_opaque: i32,
    /// A lower bound of the calls' deadlines. The call may already be done; one check is then wasted.
    earliest: Option<Instant>,
    /// The begin of the first call since the last reply. Calls that timed out count.
    unheard_since: Option<Instant>,
    local: Option<SocketAddr>,
    /// The socket, for callers that write directly.
    socket: Option<TcpStream>,
    ended: Option<CallError>,
    /// Whether the owner closes the connection.
    is_closed: bool,
    /// Whether the owner gives up the server.
    is_abandoned: bool,
    task: Option<Waker>,
}

impl Peer {
    pub(super) fn new(address: &str, bytes_max: usize, calls_max: usize) -> Self {
        Self::named(address, address, bytes_max, calls_max)
    }

    pub(super) fn named(key: &str, address: &str, bytes_max: usize, calls_max: usize) -> Self {
        let state = State {
            outgoing: Vec::new(),
            sealed: 0,
            writing: 0,
            calls: HashMap::default(),
            coalescing: 0,
            is_linger_armed: false,
            is_woken: false,
            next_opaque: 0,
            earliest: None,
            unheard_since: None,
            local: None,
            socket: None,
            ended: None,
            is_closed: false,
            is_abandoned: false,
            task: None,
        };
        let (key, address, has_ended) = (key.into(), address.into(), AtomicBool::new(false));
        Self { key, address, bytes_max, calls_max, has_ended, state: Mutex::new(state) }
    }

    /// The name that the owner gave, or the address.
    pub(crate) fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// `host:port`, as requested.
    pub(crate) fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// Returns the local address, once connected.
    pub fn local(&self) -> Option<SocketAddr> {
        self.state.lock().local
    }

    /// Returns false once the connection has ended or failed.
    pub fn is_open(&self) -> bool {
        !self.has_ended.load(Ordering::Acquire)
    }

    /// Ends the connection; its calls in flight fail.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.wake();
    }

    /// Ends the connection to a server that does not answer; its calls in flight fail as lost.
    pub fn abandon(&self) {
        self.state.lock().is_abandoned = true;
        self.wake();
    }

    /// Returns whether a call waits that has been without a reply for this time, or the server has left all calls
    /// without one.
    pub fn is_silent(&self, time: Duration) -> bool {
        let now = Instant::now();
        // The call began at its deadline less its timeout.
        let is_old = |call: &Call| call.deadline + time <= now + call.timeout;
        let state = self.state.lock();
        let is_unheard = state.unheard_since.is_some_and(|since| since + time <= now);
        state.calls.values().any(|call| is_unheard || is_old(call))
    }

    /// Returns the number of calls in flight.
    pub fn calls(&self) -> usize {
        self.state.lock().calls.len()
    }

    /// Sends a request and hands its reply to `done`.
    ///
    /// `encode` appends one whole frame with the given opaque. It runs under the peer's lock, so it must only encode.
    /// `done` runs exactly once: on the I/O thread, or here if the request could not be queued.
    pub fn call(
        &self,
        timeout: Duration,
        encode: impl FnOnce(i32, &mut Vec<u8>) -> Result<(), FrameError>,
        done: impl FnOnce(Result<Reply<'_>, CallError>) + Send + 'static,
    ) {
        self.call_with(Linger::Immediate, timeout, encode, done);
    }

    /// Sends a request that may linger, and hands its reply to `done`.
    pub fn call_with(
        &self,
        linger: Linger,
        timeout: Duration,
        encode: impl FnOnce(i32, &mut Vec<u8>) -> Result<(), FrameError>,
        done: impl FnOnce(Result<Reply<'_>, CallError>) + Send + 'static,
    ) {
        let mut state = self.state.lock();
        let opaque = state.free_opaque();
        match self.push(&mut state, |out| encode(opaque, out)) {
            Ok(was_empty) => {
                let now = Instant::now();
                let deadline = now + timeout;
                state.unheard_since.get_or_insert(now);
                let is_earliest = state.earliest.is_none_or(|earliest| deadline < earliest);
                if is_earliest {
                    state.earliest = Some(deadline);
                }
                let is_alone = state.calls.is_empty();
                state.coalescing += usize::from(linger == Linger::Coalesce);
                state.calls.insert(opaque, Call { linger, deadline, timeout, done: Box::new(done) });
                let is_gone = was_empty && is_alone && state.write_now();
                let may_linger =
                    linger == Linger::Coalesce && state.is_linger_armed && state.sealed < LINGER_BYTES_MAX;
                let must_wake = !is_gone && !may_linger && !state.is_woken;
                state.is_woken |= must_wake;
                let task = if must_wake || is_earliest { state.task.clone() } else { None };
                drop(state);
                wake(task);
            }
            Err(error) => {
                drop(state);
                done(Err(error));
            }
        }
    }

    /// Sends a frame that has no reply: a one-way request, or a response to the peer's request.
    ///
    /// # Errors
    /// When it could not be queued. Success only means that it is queued.
    pub fn send(
        &self,
        encode: impl FnOnce(i32, &mut Vec<u8>) -> Result<(), FrameError>,
    ) -> Result<(), CallError> {
        let mut state = self.state.lock();
        let opaque = state.free_opaque();
        self.push(&mut state, |out| encode(opaque, out))?;
        let task = if state.is_woken { None } else { state.task.clone() };
        state.is_woken = true;
        drop(state);
        wake(task);
        Ok(())
    }

    /// Appends a frame; returns whether the queue was empty.
    fn push(
        &self,
        state: &mut State,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), FrameError>,
    ) -> Result<bool, CallError> {
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        if state.sealed + state.writing >= self.bytes_max || state.calls.len() >= self.calls_max {
            let address = Arc::clone(&self.address);
            return Err(CallError::Overloaded {
                address,
                bytes_max: self.bytes_max,
                calls_max: self.calls_max,
            });
        }
        let sealed = state.sealed;
        state.outgoing.truncate(sealed);
        encode(&mut state.outgoing)?;
        state.sealed = state.outgoing.len();
        Ok(sealed == 0)
    }

    /// Wakes the connection's task.
    pub(super) fn wake(&self) {
        wake(self.state.lock().task.clone());
    }

    /// Marks the connection as made. Callers write to `socket`, if any, while the task has nothing to write.
    pub(super) fn connected(&self, local: Option<SocketAddr>, socket: Option<TcpStream>) {
        let mut state = self.state.lock();
        state.local = local;
        state.socket = socket;
    }

    /// Registers the task to wake and returns the state it must check first.
    pub(super) fn register(&self, task: &Waker) -> PeerStatus {
        let mut state = self.state.lock();
        if !state.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            state.task = Some(task.clone());
        }
        let has_written = state.writing == 0 && state.sealed == 0;
        let is_settled = state.calls.is_empty() && has_written;
        let State { earliest, is_closed, is_abandoned, .. } = *state;
        PeerStatus { earliest, is_settled, is_closed, is_abandoned }
    }

    /// Swaps the written buffer for the bytes queued meanwhile.
    pub(super) fn take(&self, written: &mut Vec<u8>) {
        written.clear();
        let mut state = self.state.lock();
        state.is_woken = false;
        state.writing = std::mem::take(&mut state.sealed);
        let whole = state.writing;
        state.outgoing.truncate(whole);
        std::mem::swap(&mut state.outgoing, written);
    }

    /// Removes the call of a reply; `None` when the reply is late or has no request.
    pub(super) fn answered(&self, opaque: i32) -> Option<Done> {
        let mut state = self.state.lock();
        state.unheard_since = None;
        let call = state.calls.remove(&opaque)?;
        state.left(&call);
        Some(call.done)
    }

    /// Returns whether callers may leave requests without waking the task, which then must check again within a
    /// millisecond.
    pub(super) fn arm_linger(&self) -> bool {
        let mut state = self.state.lock();
        state.is_linger_armed = state.coalescing > 0;
        state.is_linger_armed
    }

    /// Fails the calls that timed out; returns the next deadline.
    pub(super) fn expire(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        let late: Vec<Call> =
            state.calls.extract_if(|_, call| call.deadline <= now).map(|(_, call)| call).collect();
        late.iter().for_each(|call| state.left(call));
        let earliest = state.calls.values().map(|call| call.deadline).min();
        state.earliest = earliest;
        drop(state);
        for Call { timeout, done, .. } in late {
            let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            run(done, Err(CallError::Timeout { address: Arc::clone(&self.address), timeout_ms }));
        }
        earliest
    }

    /// Fails every call in flight, and all later ones.
    pub(super) fn end(&self, why: &CallError) {
        let mut state = self.state.lock();
        state.ended = Some(why.clone());
        self.has_ended.store(true, Ordering::Release);
        state.task = None;
        state.socket = None;
        state.outgoing = Vec::new();
        state.sealed = 0;
        let calls = std::mem::take(&mut state.calls);
        state.coalescing = 0;
        drop(state);
        for call in calls.into_values() {
            run(call.done, Err(why.clone()));
        }
    }
}

/// See `Peer::register`.
pub(super) struct PeerStatus {
    pub(super) earliest: Option<Instant>,
    /// Whether nothing is pending: no bytes and no calls.
    pub(super) is_settled: bool,
    /// Whether the owner closes the connection.
    pub(super) is_closed: bool,
    /// Whether the owner gives up the server.
    pub(super) is_abandoned: bool,
}

impl State {
    /// Writes pending bytes as far as the socket takes them; returns whether none are left.
    fn write_now(&mut self) -> bool {
        let Some(socket) = self.socket.as_mut().filter(|_| self.writing == 0) else { return false };
        let whole = self.outgoing.get(..self.sealed).unwrap_or_default();
        // The connection's task handles errors and the remaining bytes.
        let count = socket.write(whole).unwrap_or(0);
        self.outgoing.drain(..count);
        self.sealed -= count;
        self.sealed == 0
    }

    /// Updates the counters after a call has left `calls`.
    fn left(&mut self, call: &Call) {
        self.coalescing -= usize::from(call.linger == Linger::Coalesce);
    }

    /// Returns the next correlation id. Ids wrap around at 32 bits and skip calls still pending.
    fn free_opaque(&mut self) -> i32 {
        loop {
            let opaque = self.next_opaque;
            self.next_opaque = opaque.wrapping_add(1);
            if !self.calls.contains_key(&opaque) {
                return opaque;
            }
        }
    }
}

fn wake(task: Option<Waker>) {
    if let Some(task) = task {
        task.wake();
    }
}
