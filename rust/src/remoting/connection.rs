//! Connection: the task of one accepted connection, pinned to its I/O thread.
//!
//! ```text
//! socket → inbox → bursts of frames → Service::burst ─┐
//!                  mailbox → events → Service::event ─┴→ outbox → socket
//! ```
//!
//! A turn reads once, handles every complete frame, and writes the replies once, after the other connections that
//! became ready with it (`round`). A connection that always has work yields after each turn. While the peer does not
//! read its replies, the connection reads and handles nothing more: the outbox is the bound, and behind it the peer's
//! socket applies backpressure.
//!
//! Invariant: while the task sleeps, every source of work (socket, mailbox, memory) has its waker.
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
    /// Whether the inbox may hold complete frames that are not handled.
    has_frames: bool,
    outbox: Outbox,
    /// Whether the outbox waits for the other connections of the round.
    has_deferred: bool,
    /// Outbox bytes counted in the server-wide total.
    counted_bytes: usize,
    /// Events taken out of the mailbox and not handled yet.
    events: VecDeque<Posted<S::Event>>,
    /// This connection's count in the buffer budget.
    buffers: BufferShare,
    /// The tick of that count, and the inbox bytes at the time.
    counted: (u32, usize),
    /// Whether the last turn was expensive.
    was_expensive: bool,
}

/// The work left in a turn.
struct WorkBudget {
    frames: usize,
    bytes: usize,
    /// Extra cost so far, in frames.
    extra_cost: usize,
}

impl WorkBudget {
    fn spend(&mut self, frames: usize, extra_cost: usize) {
        self.frames = self.frames.saturating_sub(frames + extra_cost);
        self.extra_cost += extra_cost;
    }
}

impl<S: Service> Connection<S> {
    /// Opens the session; `None` when the service panicked. Boxed, because the future would otherwise reserve its
    /// size again at each call it is passed through.
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
            was_expensive: false,
        }))
    }

    /// Serves the connection until it ends, and returns the reason.
    pub(super) async fn run(mut self: Box<Self>) -> Close {
        let why = loop {
            match poll_fn(|cx| self.poll_turn(cx)).await {
                Ok(()) if self.was_expensive => self.thread.expensive.pass().await,
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
            // The outbox may hold half a reply.
            Close::Panicked => {}
            // Send the replies to the frames before the bad one, as far as the socket takes them.
            _ => {
                poll_fn(|cx| Poll::Ready(self.poll_write(cx).is_ok())).await;
            }
        }
        if !self.thread.is_stopping() {
            self.thread.turnstile.pass().await;
        }
        self.count_pending(0);
        self.link.end();
        while guarded(|| Ok(self.thread.service.release(&mut self.session))).unwrap_or(false) {
            if !self.thread.is_stopping() {
                self.thread.turnstile.pass().await;
            }
        }
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
        let mut budget = WorkBudget { frames: TURN_FRAMES_MAX, bytes: READ_BYTES_MAX, extra_cost: 0 };
        if std::mem::take(&mut self.has_deferred) {
            self.thread.round.comes_back();
            self.poll_write(cx)?;
            if self.was_expensive {
                // These were its replies.
                self.rest();
                return Poll::Ready(Ok(()));
            }
        }
        self.was_expensive = false;
        while budget.frames > 0 && budget.bytes > 0 {
            self.apply_actions()?;
            let has_worked = self.work(cx, &mut budget)?;
            self.was_expensive = budget.extra_cost >= TURN_FRAMES_MAX;
            if !has_worked {
                if self.has_left()? {
                    return Poll::Ready(Err(Close::Stopped));
                }
                self.rest();
                return Poll::Pending;
            }
            if self.has_deferred {
                self.rest();
                // Run again after every task that is ready now.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        self.rest();
        Poll::Ready(Ok(()))
    }

    /// Records the state in which this turn ends.
    fn rest(&mut self) {
        let surplus = self.surplus();
        let needs = match self.inbox.needs() {
            // The rest may already have been sent: nothing is read while replies or requests are stuck.
            Needs::Rest if self.is_full() || !self.is_ready() => Needs::Nothing,
            needs => needs,
        };
        self.tracker.rests(needs, surplus);
    }

    /// Updates the buffer count, and shrinks the buffers when all connections together exceed the budget. One update
    /// per sweep is enough for memory that does not grow by itself: the next sweep asks for the rest.
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

    /// Returns the memory kept outside the inbox. The mailbox and `events` swap their buffers, so both have grown.
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

    /// Performs one step: handles events, handles or reads frames, then writes. Returns false when there was nothing
    /// to do.
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
        // Replies to one read leave together, unless they are large.
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
        // Events spend the turn's budget like frames, so that other connections are served in between.
        while budget.frames > 0
            && !self.is_congested()
            && let Some(Posted { event, room }) = self.events.pop_front()
        {
            // The event's handler may need room itself.
            drop(room);
            guarded(|| self.thread.service.event(&mut self.session, event, &mut self.outbox))?;
            budget.spend(1, self.thread.service.take_cost(&mut self.session));
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
        self.has_frames = extent.may_have_more;
        if !frames.is_empty() {
            self.tracker.frames_received();
            guarded(|| self.thread.service.burst(&mut self.session, &frames, &mut self.outbox))?;
            budget.spend(frames.len(), self.thread.service.take_cost(&mut self.session));
        }
        if extent.may_have_more {
            budget.frames = 0;
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

    /// Asks the service, once a large frame's header has come, how to handle its body.
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

    /// Writes as much as the socket takes; the rest follows when it takes more.
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

    /// Does what the sweep or another thread requested.
    fn apply_actions(&mut self) -> Result<(), Close> {
        match self.tracker.take_action() {
            Some(IdleAction::Close(why)) => return Err(why),
            Some(IdleAction::Shrink) => {
                self.inbox.settle();
                // A connection that continues with less traffic keeps little of the memory it once needed.
                if self.tracker.is_calm(self.thread.tick()) || self.kept_bytes() > KEPT_BYTES_MAX {
                    self.shrink();
                }
            }
            Some(IdleAction::Refuse) => self.refuse()?,
            None => {}
        }
        if self.link.is_closed() { Err(Close::Requested) } else { Ok(()) }
    }

    /// Refuses the frame that found no memory in time, and skips it.
    fn refuse(&mut self) -> Result<(), Close> {
        if self.inbox.needs() == Needs::Room {
            // A reply needs the opaque in the header.
            let head = self.inbox.head().ok_or(Close::Slow)?;
            guarded(|| self.thread.service.refuse(&mut self.session, &head, &mut self.outbox))?;
            self.inbox.skip();
            self.thread.shared.count_refused_frame();
        }
        Ok(())
    }

    /// Returns whether the server is stopping and this peer has every reply it is owed.
    fn has_left(&mut self) -> Result<bool, Close> {
        Ok(self.thread.is_stopping()
            && self.unsent_bytes() == 0
            && guarded(|| Ok(self.thread.service.is_settled(&self.session)))?)
    }

    /// Ends the stream and waits briefly for the peer to notice.
    async fn leave(&mut self) {
        let until = self.thread.deadline().min(Instant::now() + CLOSE_GRACE);
        let farewell = async {
            self.stream.shutdown().await?;
            poll_fn(|cx| self.inbox.poll_discard(cx, &mut self.stream)).await
        };
        // Do not wait for a peer that is gone or does not notice in time.
        drop(timeout_at(until, farewell).await);
    }

    /// Returns whether more replies would only accumulate.
    fn is_congested(&self) -> bool {
        let pending = self.unsent_bytes();
        pending > 0 && self.thread.is_congested(pending)
    }

    /// Returns whether more requests would only accumulate replies: the peer does not read them, or they wait for
    /// the disk.
    fn is_full(&self) -> bool {
        let pending = self.pending_bytes();
        pending > 0 && self.thread.is_congested(pending)
    }

    /// Returns whether the service accepts more requests from this peer.
    fn is_ready(&self) -> bool {
        self.thread.service.is_ready(&self.session)
    }

    /// Returns the bytes that the socket has not taken.
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

/// Runs the service; a panic ends only this connection.
fn guarded<T>(work: impl FnOnce() -> Result<T, Close>) -> Result<T, Close> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Close::Panicked))
}
