//! Link: the shared handle of one accepted connection.
//!
//! Owns the mailbox through which other threads reach a connection that lives on its I/O thread: a long poll that
//! came true, a durable position that moved, an answer from Python.
//!
//! Invariant: the mailbox is bounded, and what was posted before `close` was seen is either handled or dropped by
//! the connection; nothing is posted after it.
//! Threads: any; a post takes one short lock and wakes the connection only when it found the mailbox empty.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

/// Names one accepted connection for the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// Shared handle of one accepted connection; any thread may post to it.
#[derive(Debug)]
pub struct Link<E> {
    id: LinkId,
    peer: SocketAddr,
    local: SocketAddr,
    is_vip: bool,
    mailbox: Mutex<Mailbox<E>>,
    events_max: usize,
    is_closed: AtomicBool,
}

#[derive(Debug)]
struct Mailbox<E> {
    events: VecDeque<E>,
    /// The connection's task; the same one all its life, so it is cloned once.
    task: Option<Waker>,
}

impl<E: Send + 'static> Link<E> {
    pub(super) fn new(
        id: LinkId,
        peer: SocketAddr,
        local: SocketAddr,
        is_vip: bool,
        events_max: usize,
    ) -> Self {
        let mailbox = Mutex::new(Mailbox { events: VecDeque::new(), task: None });
        Self { id, peer, local, is_vip, mailbox, events_max, is_closed: AtomicBool::new(false) }
    }

    /// Which connection this is.
    pub fn id(&self) -> LinkId {
        self.id
    }

    /// The other side.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Our side: the address the peer connected to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Whether it came in on the VIP port, which serves no pulls.
    pub fn is_vip(&self) -> bool {
        self.is_vip
    }

    /// Hands an event to the connection's `Service::event`, in the order of the posts.
    ///
    /// False means that the event was dropped: the connection is closed, or its mailbox is full because its peer
    /// does not read. A caller that owes that peer a reply then closes the link.
    pub fn post(&self, event: E) -> bool {
        let mut mailbox = self.mailbox.lock();
        if self.is_closed() || mailbox.events.len() >= self.events_max {
            return false;
        }
        let was_empty = mailbox.events.is_empty();
        mailbox.events.push_back(event);
        let task = if was_empty { mailbox.task.clone() } else { None };
        drop(mailbox);
        if let Some(task) = task {
            task.wake();
        }
        true
    }

    /// Asks the connection to close; replies not yet written are lost.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether the connection is closed or about to be.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Lets the connection look again at what there is to do.
    pub(super) fn wake(&self) {
        let task = self.mailbox.lock().task.clone();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Remembers the task to wake. Called by the connection before it looks at anything, so that no wake-up is lost.
    pub(super) fn register(&self, task: &Waker) {
        let mut mailbox = self.mailbox.lock();
        if !mailbox.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            mailbox.task = Some(task.clone());
        }
    }

    /// Exchanges the mailbox with an empty queue; both keep their capacity for the next time.
    pub(super) fn take(&self, into: &mut VecDeque<E>) {
        debug_assert!(into.is_empty(), "events taken before are handled first");
        std::mem::swap(&mut self.mailbox.lock().events, into);
    }

    /// Refuses posts from now on and drops what waits.
    pub(super) fn end(&self) {
        self.is_closed.store(true, Ordering::Release);
        let mut mailbox = self.mailbox.lock();
        mailbox.task = None;
        let dropped = std::mem::take(&mut mailbox.events);
        // Outside the lock: an event's drop may be anything.
        drop(mailbox);
        drop(dropped);
    }
}
