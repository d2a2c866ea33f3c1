//! Peer task: connects a `Peer`, writes the queued requests, and hands replies to their calls.
//!
//! Invariant: while it sleeps, the socket, callers and the alarm all have its waker.
//! Threads: the client's I/O thread.

use std::future::{Future, poll_fn};
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arrayvec::ArrayVec;
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::tls::Stream;

use super::buffer_budget::BufferBudget;
use super::call::{CallError, Reply, run};
use super::client_thread::ClientThread;
use super::foreign::ForeignProtocol;
use super::header::Header;
use super::inbox::Inbox;
use super::limits::{BURST_FRAMES_MAX, READ_BYTES_MAX};
use super::peer::Peer;

/// The interval in which a quiet connection checks whether it is idle or holds too much memory.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(5);
/// Longest delay of a coalescing request when no reply wakes the task.
const LINGER: Duration = Duration::from_millis(1);

pub(super) struct PeerTask {
    thread: Rc<ClientThread>,
    peer: Arc<Peer>,
    header: Header,
    writing: Vec<u8>,
    written: usize,
    /// Fires at the next call deadline, and for maintenance.
    alarm: Pin<Box<Sleep>>,
    /// Fires when requests have lingered long enough.
    linger: Pin<Box<Sleep>>,
    moved_at: Instant,
    /// Whether any byte has arrived.
    has_received: bool,
}

/// Connects, unless the stream is given, and serves one peer until the connection ends; returns the reason.
pub(super) async fn serve(thread: Rc<ClientThread>, peer: Arc<Peer>, given: Option<Stream>) -> CallError {
    let (alarm, linger) = (Box::pin(sleep(MAINTENANCE_INTERVAL)), Box::pin(sleep(LINGER)));
    let (header, writing, moved_at) = (Header::new(), Vec::new(), Instant::now());
    let mut task =
        PeerTask { thread, peer, header, writing, written: 0, alarm, linger, moved_at, has_received: false };
    let connected = match given {
        Some(stream) => Ok(stream),
        None => task.connect().await,
    };
    match connected {
        Ok(stream) => task.drive(stream).await,
        Err(why) => why,
    }
}

impl PeerTask {
    /// Tries every address of the name. Queued calls may time out meanwhile.
    async fn connect(&mut self) -> Result<Stream, CallError> {
        let address = Arc::clone(self.peer.address());
        let refused =
            |reason: String| CallError::Connect { address: Arc::clone(&address), reason: reason.into() };
        let limit = self.thread.options.connect;
        let tls = self.thread.options.tls.clone();
        let mut connecting = pin!(timeout(limit, async {
            let socket = TcpStream::connect(&*address).await?;
            socket.set_nodelay(true)?;
            let Some(tls) = tls else { return Ok(Stream::Plain(socket)) };
            let mut stream = tls.begin(socket, &address)?;
            poll_fn(|cx| stream.poll_handshake(cx)).await?;
            Ok::<_, std::io::Error>(stream)
        }));
        let stream = poll_fn(|cx| {
            // Take no requests before there is a socket, so pending bytes count against the limit.
            self.poll_status(cx)?;
            connecting.as_mut().poll(cx).map(|outcome| match outcome {
                Ok(Ok(stream)) => Ok(stream),
                Ok(Err(error)) => Err(refused(error.to_string())),
                Err(_) => Err(refused(format!("no answer within {} ms", limit.as_millis()))),
            })
        })
        .await?;
        // Callers can write to a plain socket, not to a TLS session.
        let socket = match &stream {
            Stream::Plain(socket) => socket.as_fd().try_clone_to_owned().ok().map(std::net::TcpStream::from),
            Stream::Memory(_) | Stream::Tls(_) => None,
        };
        self.peer.connected(stream.socket().and_then(|socket| socket.local_addr().ok()), socket);
        Ok(stream)
    }

    /// Reads and writes until the connection ends; returns the reason.
    async fn drive(&mut self, mut stream: Stream) -> CallError {
        // A client has few connections and its own limits on pending bytes.
        let budget = BufferBudget::new(usize::MAX);
        let mut inbox = Inbox::new(self.thread.options.frame, self.thread.large_frames.clone(), budget);
        self.moved_at = Instant::now();
        loop {
            match poll_fn(|cx| self.poll_turn(cx, &mut stream, &mut inbox)).await {
                Ok(()) => tokio::task::yield_now().await,
                Err(why) => return why,
            }
        }
    }

    /// Works until there is nothing to do (pending), a turn's worth was read (ok), or the connection ends (error).
    fn poll_turn(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        inbox: &mut Inbox,
    ) -> Poll<Result<(), CallError>> {
        let mut read_bytes = 0;
        while read_bytes < READ_BYTES_MAX {
            if self.poll_status(cx)? {
                self.maintain(inbox)?;
            }
            let has_written = self.poll_write(cx, stream)?;
            match inbox.poll_read(cx, stream, READ_BYTES_MAX) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(self.lost_at(inbox, self.ended_by_peer()))),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.lost(error))),
                Poll::Ready(Ok(count)) => {
                    read_bytes += count;
                    self.has_received = true;
                    self.moved_at = Instant::now();
                    self.handle_frames(inbox)?;
                }
                Poll::Pending if has_written => {}
                Poll::Pending => {
                    self.poll_linger(cx);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Registers with callers and the alarm, and fails late calls. Returns true when maintenance is due, an error
    /// when the client stops.
    fn poll_status(&mut self, cx: &mut Context<'_>) -> Result<bool, CallError> {
        let status = self.peer.register(cx.waker());
        if status.is_closed || self.thread.must_end(status.is_settled) {
            return Err(CallError::Stopped);
        }
        if status.is_abandoned {
            return Err(self.lost("it does not answer, and another broker leads in its place"));
        }
        if let Some(earliest) = status.earliest.filter(|earliest| *earliest < self.alarm.deadline()) {
            self.alarm.as_mut().reset(earliest);
        }
        let mut has_rung = false;
        while self.alarm.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let next = now + MAINTENANCE_INTERVAL;
            let earliest = self.peer.expire(now);
            self.alarm.as_mut().reset(earliest.map_or(next, |earliest| earliest.min(next)));
            has_rung = true;
        }
        Ok(has_rung)
    }

    /// Arms the linger timer if callers may leave requests without waking the task.
    fn poll_linger(&mut self, cx: &mut Context<'_>) {
        if self.peer.arm_linger() {
            while self.linger.as_mut().poll(cx).is_ready() {
                self.linger.as_mut().reset(Instant::now() + LINGER);
            }
        }
    }

    /// Releases unused memory, and ends a connection that was idle too long.
    fn maintain(&mut self, inbox: &mut Inbox) -> Result<(), CallError> {
        inbox.settle();
        if self.writing.is_empty() {
            self.writing = Vec::new();
        }
        if self.moved_at.elapsed() >= self.thread.options.idle {
            return Err(self.lost("idle"));
        }
        Ok(())
    }

    /// Writes queued bytes as far as the socket takes them; returns whether it took any.
    fn poll_write(&mut self, cx: &mut Context<'_>, stream: &mut Stream) -> Result<bool, CallError> {
        let mut has_written = false;
        loop {
            let rest = self.writing.get(self.written..).unwrap_or_default();
            if rest.is_empty() {
                self.written = 0;
                self.peer.take(&mut self.writing);
                if self.writing.is_empty() {
                    // Flush bytes that TLS has encrypted and the socket has not taken.
                    return match Pin::new(&mut *stream).poll_flush(cx) {
                        Poll::Ready(Err(error)) => Err(self.lost(error)),
                        _ => Ok(has_written),
                    };
                }
                continue;
            }
            match Pin::new(&mut *stream).poll_write(cx, rest) {
                Poll::Pending => return Ok(has_written),
                Poll::Ready(Ok(0)) => return Err(self.lost("closed by the peer")),
                Poll::Ready(Err(error)) => return Err(self.lost(error)),
                Poll::Ready(Ok(count)) => {
                    self.written += count;
                    self.moved_at = Instant::now();
                    has_written = true;
                }
            }
        }
    }

    /// Hands replies to their calls, and requests to their receiver.
    fn handle_frames(&mut self, inbox: &mut Inbox) -> Result<(), CallError> {
        loop {
            let mut frames = ArrayVec::<_, BURST_FRAMES_MAX>::new();
            let extent = inbox.frames(&mut frames);
            for frame in &frames {
                self.header.decode(frame).map_err(|error| self.lost_at(inbox, error))?;
                self.dispatch(frame.body);
            }
            let has_more = extent.may_have_more;
            drop(frames);
            inbox.handled(extent);
            if let Some(error) = extent.error {
                return Err(self.lost_at(inbox, error));
            }
            if !has_more {
                return Ok(());
            }
        }
    }

    fn dispatch(&self, body: &[u8]) {
        if !self.header.is_response() {
            let requests = &self.thread.requests;
            // As with callbacks: a panic in the receiver does not end the connection.
            drop(catch_unwind(AssertUnwindSafe(|| requests.request(&self.peer, &self.header, body))));
        } else if let Some(done) = self.peer.answered(self.header.opaque) {
            run(done, Ok(Reply { header: &self.header, body }));
        }
    }

    /// Like `lost`, when the received bytes may belong to another protocol.
    fn lost_at(&self, inbox: &Inbox, reason: impl ToString) -> CallError {
        match ForeignProtocol::of(inbox.unhandled()) {
            Some(foreign) => self.lost(foreign),
            None => self.lost(reason),
        }
    }

    fn ended_by_peer(&self) -> &'static str {
        if self.has_received || self.thread.options.tls.is_some() {
            "closed by the peer"
        } else {
            "closed by the peer before its first reply: the port may require TLS"
        }
    }

    fn lost(&self, reason: impl ToString) -> CallError {
        CallError::Disconnected {
            address: Arc::clone(self.peer.address()),
            reason: reason.to_string().into(),
        }
    }
}
