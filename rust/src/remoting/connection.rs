//! Connection: a task for each accepted one, that never leaves its I/O thread.
//!
//! ```text
//! socket → inbox → bursts of frames → Service::burst ─┐
//!                  mailbox → events → Service::event ─┴→ outbox → socket
//! ```
//!
//! A turn reads once, hands over everything complete, and writes once what came of it, after the other connections that
//! were ready with it had theirs (`round`); a connection that is never without work gives way after each turn. While its
//! peer does not take what waits for it, nothing more is read or handled: the bound is the outbox, and behind it the
//! peer's own socket.
//!
//! Invariant: whenever the task sleeps, whatever could give it work (socket, mailbox, memory) will wake it.
//! Threads: the I/O thread it was dealt to.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::IoSlice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrayvec::ArrayVec;
use bytes::Bytes;
use tokio::io::{AsyncWrite as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};

use crate::tls::Stream;

use super::buffer_budget::BufferShare;
use super::frame;
use super::idle_tracker::{IdleAction, IdleTracker, Surplus};
use super::inbox::{Inbox, Needs};
use super::io_thread::IoThread;
use super::limits::{
    BURST_FRAMES_MAX, CLOSE_GRACE, INBOX_BYTES_IDLE, INBOX_BYTES_SPENT, KEPT_BYTES_MAX, LARGE_READ_BYTES_MAX,
    READ_BYTES_MAX, TURN_FRAMES_MAX, WRITE_BYTES_EAGER,
};
use super::link::{Link, Posted};
use super::outbox::{GATHER_MAX, Outbox};
use super::service::{Close, LargeBody, Service};

pub(super) struct Connection<S: Service> {
    thread: Rc<IoThread<S>>,
    link: Arc<Link<S::Event>>,
    tracker: Rc<IdleTracker>,
    stream: Stream,
    session: S::Session,
    inbox: Inbox,
    /// The inbox may hold complete frames that were not handed over.
    has_frames: bool,
    outbox: Outbox,
    /// The outbox waits for the other connections of the round.
    has_deferred: bool,
    /// What of the outbox is part of the server's sum.
    counted_bytes: usize,
    /// Events taken out of the mailbox and not yet handled.
    events: VecDeque<Posted<S::Event>>,
    /// What the buffers of this connection are counted as.
    buffers: BufferShare,
    /// When they were counted, and what the inbox had then.
    counted: (u32, usize),
}

/// What is left of a turn.
struct WorkBudget {
    frames: usize,
    bytes: usize,
}

impl<S: Service> Connection<S> {
    /// Opens the session; `None` when the service panicked. In a box, for a task would hold room for it once more at
    /// each step that it is handed through.
    pub(super) fn open(
        thread: Rc<IoThread<S>>,
        link: Arc<Link<S::Event>>,
        tracker: Rc<IdleTracker>,
        stream: Stream,
    ) -> Option<Box<Self>> {
        if let Some(name) = stream.peer_name() {
            link.set_certificate_name(name);
        }
        let session = catch_unwind(AssertUnwindSafe(|| thread.service.open(Arc::clone(&link)))).ok()?;
        let (large_frames, budget) = (thread.shared.large_frames.clone(), thread.shared.buffers.clone());
        let buffers = budget.share();
        let inbox = Inbox::new(thread.options.frame, large_frames, budget);
        let (outbox, events) = (Outbox::new(), VecDeque::new());
        Some(Box::new(Self {
            thread,
            link,
            tracker,
            stream,
            session,
            inbox,
            has_frames: false,
            outbox,
            has_deferred: false,
            counted_bytes: 0,
            events,
            buffers,
            counted: (u32::MAX, 0),
        }))
    }

    /// Serves until something ends it, and says what.
    pub(super) async fn run(mut self: Box<Self>) -> Close {
        let why = loop {
            match poll_fn(|cx| self.poll_turn(cx)).await {
                Ok(()) => tokio::task::yield_now().await,
                Err(why) => break why,
            }
        };
        if matches!(why, Close::Frame(_) | Close::Header(_)) {
            let (peer, bytes) = (self.link.peer(), self.inbox.unhandled());
            self.thread.shared.foreign_clients.note(peer, bytes, std::time::Instant::now());
        }
        match why {
            Close::Stopped => self.leave().await,
            // Half a reply may be in the outbox.
            Close::Panicked => {}
            // What the frames before the bad one were answered, as far as the socket takes it.
            _ => {
                poll_fn(|cx| Poll::Ready(self.poll_write(cx).is_ok())).await;
            }
        }
        if !self.thread.is_stopping() {
            self.thread.turnstile.pass().await;
        }
        self.count_pending(0);
        self.link.end();
        let Self { thread, session, .. } = *self;
        guarded(|| {
            thread.service.close(session);
            Ok(why)
        })
        .unwrap_or_else(|panicked| panicked)
    }

    /// Works until there is nothing to do (pending), the turn is used up (ok), or the connection ends (error).
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Close>> {
        self.link.register(cx.waker());
        let mut budget = WorkBudget { frames: TURN_FRAMES_MAX, bytes: READ_BYTES_MAX };
        if std::mem::take(&mut self.has_deferred) {
            self.thread.round.comes_back();
            self.poll_write(cx)?;
        }
        while budget.frames > 0 && budget.bytes > 0 {
            self.apply_actions()?;
            if !self.work(cx, &mut budget)? {
                if self.has_left()? {
                    return Poll::Ready(Err(Close::Stopped));
                }
                self.rest();
                return Poll::Pending;
            }
            if self.has_deferred {
                self.rest();
                // Behind all that are ready now.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        self.rest();
        Poll::Ready(Ok(()))
    }

    /// Notes what this turn has left.
    fn rest(&mut self) {
        let surplus = self.surplus();
        let needs = match self.inbox.needs() {
            // Its sender may have sent it: nothing is read while our answers are not, or its requests wait.
            Needs::Rest if self.is_full() || !self.is_ready() => Needs::Nothing,
            needs => needs,
        };
        self.tracker.rests(needs, surplus);
    }

    /// Counts the buffers, and gives back where all connections together keep too much. Once a sweep is enough for
    /// what does not grow by itself: the next one asks for what was not counted.
    fn surplus(&mut self) -> Surplus {
        let now = (self.thread.tick(), self.inbox.held_bytes());
        if self.counted == now && !self.buffers.is_spent() {
            return Surplus::Much;
        }
        let mut kept = self.kept_bytes();
        if self.buffers.is_spent() {
            self.inbox.release();
            if kept > INBOX_BYTES_SPENT {
                self.shrink();
                kept = self.kept_bytes();
            }
        }
        let inbox = self.inbox.held_bytes();
        self.counted = (now.0, inbox);
        self.buffers.set(inbox + kept);
        match kept {
            0 if inbox <= INBOX_BYTES_IDLE => Surplus::Nothing,
            0..=KEPT_BYTES_MAX if inbox <= INBOX_BYTES_IDLE => Surplus::Little,
            _ => Surplus::Much,
        }
    }

    /// Memory kept besides the inbox. The mailbox and its counterpart here are exchanged, so that both have grown.
    fn kept_bytes(&self) -> usize {
        let events = 2 * self.events.capacity() * size_of::<Posted<S::Event>>();
        let stream = self.stream.held_bytes();
        self.outbox.held_bytes() + stream + events + self.thread.service.kept_bytes(&self.session)
    }

    fn shrink(&mut self) {
        self.outbox.shrink();
        self.stream.shrink();
        self.events.shrink_to_fit();
        self.link.shrink();
        self.thread.service.shrink(&mut self.session);
    }

    /// One step: events, then what was read or can be, then a write. False when there was nothing to do.
    fn work(&mut self, cx: &mut Context<'_>, budget: &mut WorkBudget) -> Result<bool, Close> {
        if self.is_congested() {
            let before = self.unsent_bytes();
            self.poll_write(cx)?;
            return Ok(self.unsent_bytes() < before);
        }
        let mut has_worked = self.handle_events(budget)?;
        let takes_frames = !self.thread.is_stopping() && !self.is_full() && self.is_ready();
        if takes_frames {
            has_worked |= self.has_frames || self.poll_read(cx, budget)?.is_ready();
            if self.has_frames {
                self.handle_frames(budget)?;
            }
        }
        // Replies of one read leave together, unless they are many.
        if !self.has_frames || !takes_frames || self.outbox.pending_bytes() >= WRITE_BYTES_EAGER {
            self.has_deferred = has_worked && !self.outbox.is_empty() && self.thread.round.defers();
            if !self.has_deferred {
                self.poll_write(cx)?;
            }
        }
        Ok(has_worked)
    }

    fn handle_events(&mut self, budget: &mut WorkBudget) -> Result<bool, Close> {
        if self.events.is_empty() {
            self.link.take(&mut self.events);
        }
        let mut has_worked = self.link.take_signal();
        if has_worked {
            guarded(|| self.thread.service.signalled(&mut self.session, &mut self.outbox))?;
        }
        // A crowd of them has its turns as frames have: the other connections are served in between.
        while budget.frames > 0
            && !self.is_congested()
            && let Some(Posted { event, room }) = self.events.pop_front()
        {
            // What it leads to may need room in turn.
            drop(room);
            guarded(|| self.thread.service.event(&mut self.session, event, &mut self.outbox))?;
            let cost = 1 + self.thread.service.take_cost(&mut self.session);
            budget.frames = budget.frames.saturating_sub(cost);
            has_worked = true;
        }
        Ok(has_worked)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, budget: &mut WorkBudget) -> Result<Poll<()>, Close> {
        let bytes_max = if self.inbox.is_large() { LARGE_READ_BYTES_MAX } else { READ_BYTES_MAX };
        match self.inbox.poll_read(cx, &mut self.stream, bytes_max) {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Ok(0) | Err(_)) => Err(Close::Peer),
            Poll::Ready(Ok(count)) => {
                self.tracker.received(count, self.thread.tick());
                budget.bytes = budget.bytes.saturating_sub(count * (READ_BYTES_MAX / bytes_max));
                self.has_frames = true;
                Ok(Poll::Ready(()))
            }
        }
    }

    fn handle_frames(&mut self, budget: &mut WorkBudget) -> Result<(), Close> {
        if let Some(memory) = self.inbox.take_given() {
            return self.hand_over(memory, budget);
        }
        let mut frames = ArrayVec::<_, BURST_FRAMES_MAX>::new();
        let extent = self.inbox.frames(&mut frames);
        self.has_frames = frames.is_full();
        if !frames.is_empty() {
            budget.frames = budget.frames.saturating_sub(frames.len());
            self.tracker.frames_received();
            guarded(|| self.thread.service.burst(&mut self.session, &frames, &mut self.outbox))?;
            let cost = self.thread.service.take_cost(&mut self.session);
            budget.frames = budget.frames.saturating_sub(cost);
        }
        drop(frames);
        self.inbox.handled(extent);
        if let Some(error) = extent.error {
            return Err(error.into());
        }
        self.weigh_large_frame()
    }

    fn hand_over(&mut self, memory: Bytes, budget: &mut WorkBudget) -> Result<(), Close> {
        self.has_frames = false;
        budget.frames = budget.frames.saturating_sub(1);
        self.tracker.frames_received();
        let bytes = memory.clone();
        let frame = frame::whole(&bytes).ok_or(Close::Protocol("a large frame without a header"))?;
        guarded(|| self.thread.service.given(&mut self.session, &frame, memory, &mut self.outbox))
    }

    /// Asks, once the header of a large frame has come, what becomes of its body.
    fn weigh_large_frame(&mut self) -> Result<(), Close> {
        if let Some((head, body_bytes)) = self.inbox.large_head() {
            let service = &self.thread.service;
            match guarded(|| service.weigh(&mut self.session, &head, body_bytes, &mut self.outbox))? {
                LargeBody::Declined => self.inbox.skip(),
                fate => self.inbox.keep(fate == LargeBody::Given),
            }
        }
        Ok(())
    }

    /// Writes as much as the socket takes; the rest goes on when it takes more.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<(), Close> {
        while !self.outbox.is_empty() {
            let sent = {
                let mut list = ArrayVec::<IoSlice<'_>, GATHER_MAX>::new();
                self.outbox.gather(&mut list);
                self.stream.poll_write_list(cx, &list)
            };
            match sent {
                Poll::Pending => break,
                Poll::Ready(Ok(0) | Err(_)) => return Err(Close::Peer),
                Poll::Ready(Ok(count)) => {
                    self.outbox.advance(count);
                    self.tracker.sent(self.thread.tick());
                }
            }
        }
        if let Poll::Ready(Err(_)) = Pin::new(&mut self.stream).poll_flush(cx) {
            return Err(Close::Peer);
        }
        self.count_pending(self.pending_bytes());
        Ok(())
    }

    /// Does what the sweep or another thread asked for.
    fn apply_actions(&mut self) -> Result<(), Close> {
        match self.tracker.take_action() {
            Some(IdleAction::Close(why)) => return Err(why),
            Some(IdleAction::Shrink) => {
                self.inbox.settle();
                // One that goes on with less keeps little of what it once needed.
                if self.tracker.is_calm(self.thread.tick()) || self.kept_bytes() > KEPT_BYTES_MAX {
                    self.shrink();
                }
            }
            Some(IdleAction::Refuse) => self.refuse()?,
            None => {}
        }
        if self.link.is_closed() { Err(Close::Requested) } else { Ok(()) }
    }

    /// Answers the frame for which there was no memory in time, and forgets it.
    fn refuse(&mut self) -> Result<(), Close> {
        if self.inbox.needs() == Needs::Room {
            // Where not even its header fits, nobody knows what to answer.
            let head = self.inbox.head().ok_or(Close::Slow)?;
            guarded(|| self.thread.service.refuse(&mut self.session, &head, &mut self.outbox))?;
            self.inbox.skip();
            self.thread.shared.count_refused_frame();
        }
        Ok(())
    }

    /// Whether the server stops and this peer has everything it was owed.
    fn has_left(&mut self) -> Result<bool, Close> {
        Ok(self.thread.is_stopping()
            && self.unsent_bytes() == 0
            && guarded(|| Ok(self.thread.service.is_settled(&self.session)))?)
    }

    /// Ends the stream and waits a moment for the peer to see it.
    async fn leave(&mut self) {
        let until = self.thread.deadline().min(Instant::now() + CLOSE_GRACE);
        let farewell = async {
            self.stream.shutdown().await?;
            poll_fn(|cx| self.inbox.poll_discard(cx, &mut self.stream)).await
        };
        // A peer that does not see it in time, or is gone already, is not waited for.
        drop(timeout_at(until, farewell).await);
    }

    /// Whether more replies would only pile up.
    fn is_congested(&self) -> bool {
        let pending = self.unsent_bytes();
        pending > 0 && self.thread.is_congested(pending)
    }

    /// Whether more requests would only pile up replies: their peer does not take them, or they wait for the disk.
    fn is_full(&self) -> bool {
        let pending = self.pending_bytes();
        pending > 0 && self.thread.is_congested(pending)
    }

    /// Whether the service takes more requests of this peer.
    fn is_ready(&self) -> bool {
        self.thread.service.is_ready(&self.session)
    }

    /// Bytes that the socket has not taken.
    fn unsent_bytes(&self) -> usize {
        self.outbox.pending_bytes() + self.stream.unsent_bytes()
    }

    fn pending_bytes(&self) -> usize {
        self.unsent_bytes() + self.thread.service.held_bytes(&self.session)
    }

    fn count_pending(&mut self, pending: usize) {
        if pending != self.counted_bytes {
            self.thread.shared.count_pending(self.counted_bytes, pending);
            self.counted_bytes = pending;
        }
    }
}

/// Runs the service; a panic there is the end of this connection alone.
fn guarded<T>(work: impl FnOnce() -> Result<T, Close>) -> Result<T, Close> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Close::Panicked))
}
