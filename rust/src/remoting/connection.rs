//! Connection: a task for each accepted one, that never leaves its I/O thread.
//!
//! ```text
//! socket → inbox → bursts of frames → Service::burst ─┐
//!                  mailbox → events → Service::event ─┴→ outbox → socket
//! ```
//!
//! A turn reads once, hands over everything complete, and writes once what came of it; a connection that is never
//! without work gives way after each turn. While its peer does not take what waits for it, nothing more is read or
//! handled: the bound is the outbox, and behind it the peer's own socket.
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
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::idle_tracker::{IdleAction, IdleTracker};
use super::inbox::Inbox;
use super::io_thread::IoThread;
use super::limits::{BURST_FRAMES_MAX, CLOSE_GRACE, READ_BYTES_MAX, TURN_FRAMES_MAX, WRITE_BYTES_EAGER};
use super::link::Link;
use super::outbox::{GATHER_MAX, Outbox};
use super::service::{Close, Service};

pub(super) struct Connection<S: Service> {
    thread: Rc<IoThread<S>>,
    link: Arc<Link<S::Event>>,
    tracker: Rc<IdleTracker>,
    stream: TcpStream,
    session: S::Session,
    inbox: Inbox,
    /// The inbox may hold complete frames that were not handed over.
    has_frames: bool,
    outbox: Outbox,
    /// What of the outbox is part of the server's sum.
    counted_bytes: usize,
    /// Events taken out of the mailbox and not yet handled.
    events: VecDeque<S::Event>,
}

/// What is left of a turn.
struct WorkBudget {
    frames: usize,
    bytes: usize,
}

impl<S: Service> Connection<S> {
    /// Opens the session; `None` when the service panicked.
    pub(super) fn open(
        thread: Rc<IoThread<S>>,
        link: Arc<Link<S::Event>>,
        tracker: Rc<IdleTracker>,
        stream: TcpStream,
    ) -> Option<Self> {
        let session = catch_unwind(AssertUnwindSafe(|| thread.service.open(Arc::clone(&link)))).ok()?;
        let inbox = Inbox::new(thread.options.frame, thread.shared.large_frames.clone());
        let (outbox, events) = (Outbox::new(), VecDeque::new());
        Some(Self {
            thread,
            link,
            tracker,
            stream,
            session,
            inbox,
            has_frames: false,
            outbox,
            counted_bytes: 0,
            events,
        })
    }

    /// Serves until something ends it, and says what.
    pub(super) async fn run(mut self) -> Close {
        let why = loop {
            match poll_fn(|cx| self.poll_turn(cx)).await {
                Ok(()) => tokio::task::yield_now().await,
                Err(why) => break why,
            }
        };
        match why {
            Close::Stopped => self.leave().await,
            // Half a reply may be in the outbox.
            Close::Panicked => {}
            // What the frames before the bad one were answered, as far as the socket takes it.
            _ => {
                poll_fn(|cx| Poll::Ready(self.poll_write(cx).is_ok())).await;
            }
        }
        self.count_pending(0);
        self.link.end();
        let Self { thread, session, .. } = self;
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
        while budget.frames > 0 && budget.bytes > 0 {
            self.apply_actions()?;
            if !self.work(cx, &mut budget)? {
                if self.has_left()? {
                    return Poll::Ready(Err(Close::Stopped));
                }
                let waits_for_peer = self.inbox.is_open() && !self.is_congested() && !self.inbox.is_waiting();
                self.tracker
                    .sleeps(waits_for_peer, self.inbox.is_oversized() || self.outbox.held_bytes() > 0);
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// One step: events, then what was read or can be, then a write. False when there was nothing to do.
    fn work(&mut self, cx: &mut Context<'_>, budget: &mut WorkBudget) -> Result<bool, Close> {
        if self.is_congested() {
            let before = self.outbox.pending_bytes();
            self.poll_write(cx)?;
            return Ok(self.outbox.pending_bytes() < before);
        }
        let mut has_worked = self.handle_events(budget)?;
        if !self.thread.is_stopping() {
            has_worked |= self.has_frames || self.poll_read(cx, budget)?.is_ready();
            if self.has_frames {
                self.handle_frames(budget)?;
            }
        }
        // Replies of one read leave together, unless they are many.
        if !self.has_frames || self.outbox.pending_bytes() >= WRITE_BYTES_EAGER {
            self.poll_write(cx)?;
        }
        Ok(has_worked)
    }

    fn handle_events(&mut self, budget: &mut WorkBudget) -> Result<bool, Close> {
        if self.events.is_empty() {
            self.link.take(&mut self.events);
        }
        let mut has_worked = false;
        while !self.is_congested()
            && let Some(event) = self.events.pop_front()
        {
            guarded(|| self.thread.service.event(&mut self.session, event, &mut self.outbox))?;
            budget.frames = budget.frames.saturating_sub(1);
            has_worked = true;
        }
        Ok(has_worked)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, budget: &mut WorkBudget) -> Result<Poll<()>, Close> {
        match self.inbox.poll_read(cx, &mut self.stream) {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Ok(0) | Err(_)) => Err(Close::Peer),
            Poll::Ready(Ok(count)) => {
                self.tracker.received(count, self.thread.tick());
                budget.bytes = budget.bytes.saturating_sub(count);
                self.has_frames = true;
                Ok(Poll::Ready(()))
            }
        }
    }

    fn handle_frames(&mut self, budget: &mut WorkBudget) -> Result<(), Close> {
        let mut frames = ArrayVec::<_, BURST_FRAMES_MAX>::new();
        let extent = self.inbox.frames(&mut frames);
        self.has_frames = frames.is_full();
        if !frames.is_empty() {
            budget.frames = budget.frames.saturating_sub(frames.len());
            self.tracker.frames_received();
            guarded(|| self.thread.service.burst(&mut self.session, &frames, &mut self.outbox))?;
        }
        drop(frames);
        self.inbox.handled(extent);
        extent.error.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Writes as much as the socket takes; the rest goes on when it takes more.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<(), Close> {
        while !self.outbox.is_empty() {
            let mut list = [IoSlice::new(&[]); GATHER_MAX];
            let filled = self.outbox.gather(&mut list);
            let list = list.get(..filled).unwrap_or_default();
            let stream = Pin::new(&mut self.stream);
            let written = match list {
                // A plain write: the runtime learns from a short one that the socket is full, and asks it no more.
                [all] => stream.poll_write(cx, all),
                _ => stream.poll_write_vectored(cx, list),
            };
            match written {
                Poll::Pending => break,
                Poll::Ready(Ok(0) | Err(_)) => return Err(Close::Peer),
                Poll::Ready(Ok(count)) => {
                    self.outbox.advance(count);
                    self.tracker.sent(self.thread.tick());
                }
            }
        }
        self.count_pending(self.outbox.pending_bytes());
        Ok(())
    }

    /// Does what the sweep or another thread asked for.
    fn apply_actions(&mut self) -> Result<(), Close> {
        match self.tracker.take_action() {
            Some(IdleAction::Close(why)) => return Err(why),
            Some(IdleAction::Shrink) => {
                self.inbox.settle();
                if self.tracker.is_calm(self.thread.tick()) {
                    self.outbox.shrink();
                    self.events.shrink_to_fit();
                }
            }
            None => {}
        }
        if self.link.is_closed() { Err(Close::Requested) } else { Ok(()) }
    }

    /// Whether the server stops and this peer has everything it was owed.
    fn has_left(&mut self) -> Result<bool, Close> {
        Ok(self.thread.is_stopping()
            && self.outbox.is_empty()
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
        let pending = self.outbox.pending_bytes();
        pending > 0 && self.thread.is_congested(pending)
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
