//! Link: the shared handle of one accepted connection.
//!
//! It owns the mailbox through which other threads reach a connection on its I/O thread (a long poll with new
//! messages, an answer from Python), and a signal for events without data, such as a durable offset that moved.
//!
//! Invariant: every event in the mailbox has its `Room`. An `Owed` ends in a reply, in `settle`, or with its
//! connection, so every accepted request is answered or its connection closes. Events posted before `close` are
//! handled or dropped by the connection; later posts are refused.
//! Threads: any; a post takes one short lock and wakes the connection only when it found the mailbox empty.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use parking_lot::Mutex;

use super::mailbox::{Kind, MailboxUsage, Mailboxes};

/// Identifies one accepted connection for the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// The shared handle of one accepted connection; any thread may post to it.
#[derive(Debug)]
pub struct Link<E> {
    id: LinkId,
    peer: SocketAddr,
    local: SocketAddr,
    is_vip: bool,
    /// The common name in the peer's certificate, if it presented one.
    certificate_name: OnceLock<Box<str>>,
    mailbox: Mutex<Mailbox<E>>,
    usage: MailboxUsage,
    is_signalled: AtomicBool,
    is_closed: AtomicBool,
}

#[derive(Debug)]
struct Mailbox<E> {
    events: VecDeque<Posted<E>>,
    /// The connection's task. It never changes, so it is cloned once.
    task: Option<Waker>,
}

/// An event in the mailbox, with its reserved room.
#[derive(Debug)]
pub(super) struct Posted<E> {
    pub(super) event: E,
    pub(super) room: Room<E>,
}

impl<E> Link<E> {
    pub(super) fn new(
        id: LinkId,
        peer: SocketAddr,
        local: SocketAddr,
        is_vip: bool,
        mailboxes: &Arc<Mailboxes>,
    ) -> Self {
        let mailbox = Mutex::new(Mailbox { events: VecDeque::new(), task: None });
        let usage = MailboxUsage::new(Arc::clone(mailboxes));
        let (is_signalled, is_closed) = (AtomicBool::new(false), AtomicBool::new(false));
        let certificate_name = OnceLock::new();
        Self { id, peer, local, is_vip, certificate_name, mailbox, usage, is_signalled, is_closed }
    }

    /// Returns a handle without a connection, whose mailbox is never emptied.
    #[cfg(test)]
    pub(crate) fn detached(id: LinkId) -> Arc<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let mailboxes = Arc::new(Mailboxes::new(&super::ServerOptions::default()));
        Arc::new(Self::new(id, address, address, false, &mailboxes))
    }

    /// Returns the id of this connection.
    pub fn id(&self) -> LinkId {
        self.id
    }

    /// Returns the peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the local address that the peer connected to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns whether the connection arrived on the VIP port, which does not serve pulls.
    pub fn is_vip(&self) -> bool {
        self.is_vip
    }

    /// Returns the common name of the peer's certificate, if the server's authorities have verified one.
    pub fn certificate_name(&self) -> Option<&str> {
        self.certificate_name.get().map(|name| &**name)
    }

    /// Sets the name, after the handshake and before the first frame.
    pub(super) fn set_certificate_name(&self, name: Box<str>) {
        let first = self.certificate_name.set(name);
        debug_assert!(first.is_ok(), "a connection has one handshake");
    }

    /// Reserves a deferred reply, with room for `bytes` kept until then. `None` when the peer is owed too much: the
    /// request must then be refused immediately.
    pub fn owe(self: &Arc<Self>, bytes: usize) -> Option<Owed<E>> {
        Owed::take(self, bytes)
    }

    /// Posts an event of `bytes` that no peer waits for to the connection's `Service::event`.
    ///
    /// Returns false if the event was dropped: the connection is closed, or its peer does not read.
    pub fn notify(self: &Arc<Self>, event: E, bytes: usize) -> bool {
        Room::for_notice(self, bytes).is_some_and(|room| self.push(event, room))
    }

    /// Makes the connection call `Service::signalled`, once for any number of pending signals.
    pub fn signal(&self) {
        if !self.is_signalled.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Posts an event; events are handled in order.
    fn push(&self, event: E, room: Room<E>) -> bool {
        let mut mailbox = self.mailbox.lock();
        if self.is_closed() {
            return false;
        }
        let was_empty = mailbox.events.is_empty();
        mailbox.events.push_back(Posted { event, room });
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

    /// Returns whether the connection is closed or about to be.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Wakes the connection to check for work.
    pub(super) fn wake(&self) {
        let task = self.mailbox.lock().task.clone();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Stores the waker. The connection calls this before it checks for work, so that it misses no wake-up.
    pub(super) fn register(&self, task: &Waker) {
        let mut mailbox = self.mailbox.lock();
        if !mailbox.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            mailbox.task = Some(task.clone());
        }
    }

    /// Swaps the mailbox with an empty queue; both keep their capacity.
    pub(super) fn take(&self, into: &mut VecDeque<Posted<E>>) {
        debug_assert!(into.is_empty(), "earlier events are handled first");
        std::mem::swap(&mut self.mailbox.lock().events, into);
    }

    /// Releases the memory of a mailbox that was once full.
    pub(super) fn shrink(&self) {
        self.mailbox.lock().events.shrink_to_fit();
    }

    /// Returns whether a signal arrived since the last call.
    pub(super) fn take_signal(&self) -> bool {
        self.is_signalled.load(Ordering::Relaxed) && self.is_signalled.swap(false, Ordering::AcqRel)
    }

    /// Refuses further posts and drops pending events.
    pub(super) fn end(&self) {
        self.is_closed.store(true, Ordering::Release);
        let mut mailbox = self.mailbox.lock();
        mailbox.task = None;
        let dropped = std::mem::take(&mut mailbox.events);
        // Outside the lock, because dropping an event may run arbitrary code.
        drop(mailbox);
        drop(dropped);
    }
}

/// Reserved room for one event, released on drop.
#[derive(Debug)]
pub(super) struct Room<E> {
    link: Arc<Link<E>>,
    kind: Kind,
    bytes: usize,
}

impl<E> Room<E> {
    fn take(link: &Arc<Link<E>>, kind: Kind, bytes: usize) -> Option<Self> {
        if !link.usage.take_slot(kind) {
            return None;
        }
        let mut room = Self { link: Arc::clone(link), kind, bytes: 0 };
        room.grow(bytes).then_some(room)
    }

    /// Reserves room for a notice, and counts a notice that finds none.
    fn for_notice(link: &Arc<Link<E>>, bytes: usize) -> Option<Self> {
        let room = Self::take(link, Kind::Notice, bytes);
        if room.is_none() {
            link.usage.dropped();
        }
        room
    }

    fn grow(&mut self, bytes: usize) -> bool {
        let has_room = self.link.usage.take_bytes(bytes);
        self.bytes += if has_room { bytes } else { 0 };
        has_room
    }
}

impl<E> Drop for Room<E> {
    fn drop(&mut self) {
        self.link.usage.give(self.kind, self.bytes);
        if self.kind == Kind::Owed {
            // The reply will never come; closing the connection notifies the peer.
            self.link.close();
        }
    }
}

/// A reply owed to a peer, and its room in the mailbox. Dropping it without a reply closes the connection.
#[derive(Debug)]
pub struct Owed<E> {
    room: Room<E>,
}

impl<E> Owed<E> {
    /// Reserves room for a deferred reply, and for `bytes` kept until then.
    fn take(link: &Arc<Link<E>>, bytes: usize) -> Option<Self> {
        let mut room = Room::take(link, Kind::Reply, bytes)?;
        room.kind = Kind::Owed;
        Some(Self { room })
    }

    /// Returns the connection that is owed the reply.
    pub fn link(&self) -> &Arc<Link<E>> {
        &self.room.link
    }

    /// Reserves `bytes` more. Returns false, and reserves nothing, without room.
    pub fn grow(&mut self, bytes: usize) -> bool {
        self.room.grow(bytes)
    }

    /// Posts the reply, or the event that leads to it, to the connection.
    pub fn post(mut self, event: E) {
        self.room.kind = Kind::Reply;
        let link = Arc::clone(&self.room.link);
        link.push(event, self.room);
    }

    /// Releases the room: the request was answered another way.
    pub fn settle(mut self) {
        self.room.kind = Kind::Reply;
    }
}
