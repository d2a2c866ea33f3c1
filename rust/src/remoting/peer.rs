//! Peer: a server we call, as the shared handle of one connection that we made.
//!
//! Owns the requests that wait to be written and the calls that wait for a reply. Callers encode straight into the
//! outgoing bytes, so that whatever many of them added meanwhile leaves in one write. A call that finds nothing under
//! way writes its request itself: waking the I/O thread for it would take longer than everything else it does. A call
//! that coalesces, while others like it are under way, wakes no thread either: the next reply does, and what has
//! gathered by then leaves in one write.
//!
//! Invariant: a call is in `calls` before its request can be written, and its callback runs exactly once: with the
//! reply, or with the reason why there is none.
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

/// Requests that linger leave when they are so much.
const LINGER_BYTES_MAX: usize = 16 << 10;

/// A connection to one address, open or being made. Once it ended it stays so: ask the `Client` for the next one.
pub struct Peer {
    address: Arc<str>,
    bytes_max: usize,
    calls_max: usize,
    /// Of `State::ended`, for callers that choose a connection: they look without the lock.
    has_ended: AtomicBool,
    state: Mutex<State>,
}

struct State {
    outgoing: Vec<u8>,
    /// How much of `outgoing` is whole frames; beyond is what an encoder that failed left behind.
    sealed: usize,
    /// Bytes the I/O thread took and has not written.
    writing: usize,
    calls: HashMap<i32, Call, foldhash::fast::RandomState>,
    /// Those of them that coalesce.
    coalescing: usize,
    /// The task looks again within a millisecond: what lingers will not wait for a slow reply.
    is_linger_armed: bool,
    /// The task has been woken for what waits.
    is_woken: bool,
    next_opaque: i32,
    /// No deadline of a call is earlier. Often it is that of a call already done: then one look is in vain.
    earliest: Option<Instant>,
    local: Option<SocketAddr>,
    /// The connection, for callers that write themselves.
    socket: Option<TcpStream>,
    ended: Option<CallError>,
    task: Option<Waker>,
}

impl Peer {
    pub(super) fn new(address: &str, bytes_max: usize, calls_max: usize) -> Self {
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
            local: None,
            socket: None,
            ended: None,
            task: None,
        };
        let (address, has_ended) = (address.into(), AtomicBool::new(false));
        Self { address, bytes_max, calls_max, has_ended, state: Mutex::new(state) }
    }

    /// `host:port`, as it was asked for.
    pub(crate) fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// Our side of the connection, once it is made.
    pub fn local(&self) -> Option<SocketAddr> {
        self.state.lock().local
    }

    /// False once the connection ended, or could not be made.
    pub fn is_open(&self) -> bool {
        !self.has_ended.load(Ordering::Acquire)
    }

    /// Calls that wait for a reply.
    pub fn calls(&self) -> usize {
        self.state.lock().calls.len()
    }

    /// Sends a request and hands its reply to `done`.
    ///
    /// `encode` appends one whole frame with the opaque it is given; it runs at once, under the peer's lock, so it
    /// only encodes. `done` runs exactly once: on the I/O thread, or here, when the request could not be queued.
    pub fn call(
        &self,
        timeout: Duration,
        encode: impl FnOnce(i32, &mut Vec<u8>) -> Result<(), FrameError>,
        done: impl FnOnce(Result<Reply<'_>, CallError>) + Send + 'static,
    ) {
        self.call_with(Linger::Immediate, timeout, encode, done);
    }

    /// Likewise, for a request that may linger.
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
                let deadline = Instant::now() + timeout;
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

    /// Sends a frame that has no answer: a one-way request, or our answer to a request of the peer's.
    ///
    /// # Errors
    /// When it could not be queued. That it was queued is all that is promised.
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

    /// Appends a frame; whether nothing waited before.
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

    /// Wakes the connection's task whatever it waits for.
    pub(super) fn wake(&self) {
        wake(self.state.lock().task.clone());
    }

    /// There is a connection. Callers write to `socket`, if there is one, while the task has nothing to write.
    pub(super) fn connected(&self, local: Option<SocketAddr>, socket: Option<TcpStream>) {
        let mut state = self.state.lock();
        state.local = local;
        state.socket = socket;
    }

    /// What the connection's task looks at first when it wakes up; it is the one to be woken from now on.
    pub(super) fn register(&self, task: &Waker) -> PeerStatus {
        let mut state = self.state.lock();
        if !state.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            state.task = Some(task.clone());
        }
        let has_written = state.writing == 0 && state.sealed == 0;
        let is_settled = state.calls.is_empty() && has_written;
        PeerStatus { earliest: state.earliest, is_settled }
    }

    /// Exchanges what was written, all of it, for what was queued meanwhile.
    pub(super) fn take(&self, written: &mut Vec<u8>) {
        written.clear();
        let mut state = self.state.lock();
        state.is_woken = false;
        state.writing = std::mem::take(&mut state.sealed);
        let whole = state.writing;
        state.outgoing.truncate(whole);
        std::mem::swap(&mut state.outgoing, written);
    }

    /// The call a reply belongs to; `None` when it came too late, or to no request.
    pub(super) fn answered(&self, opaque: i32) -> Option<Done> {
        let mut state = self.state.lock();
        let call = state.calls.remove(&opaque)?;
        state.left(&call);
        Some(call.done)
    }

    /// Whether callers may leave requests without waking the task, which then has to look again within a millisecond.
    pub(super) fn arm_linger(&self) -> bool {
        let mut state = self.state.lock();
        state.is_linger_armed = state.coalescing > 0;
        state.is_linger_armed
    }

    /// Fails the calls whose time is up; when the next one's is.
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

    /// Fails everything in flight, and everything asked from now on.
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
    /// Nothing to write, and no call waits for a reply.
    pub(super) is_settled: bool,
}

impl State {
    /// Writes what waits as far as the socket takes it; whether nothing is left.
    fn write_now(&mut self) -> bool {
        let Some(socket) = self.socket.as_mut().filter(|_| self.writing == 0) else { return false };
        let whole = self.outgoing.get(..self.sealed).unwrap_or_default();
        // What it does not take, and why, is for the connection's task to find out.
        let count = socket.write(whole).unwrap_or(0);
        self.outgoing.drain(..count);
        self.sealed -= count;
        self.sealed == 0
    }

    /// A call is under way no more.
    fn left(&mut self, call: &Call) {
        self.coalescing -= usize::from(call.linger == Linger::Coalesce);
    }

    /// The next correlation id; it runs through all 32 bits, and skips calls that have waited so long.
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
