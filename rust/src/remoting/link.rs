//! Link: the shared handle of one accepted connection.
//!
//! Owns the mailbox through which other threads reach a connection that lives on its I/O thread: a long poll that
//! came true, an answer from Python; and a signal for what needs no more than a look, such as a durable position
//! that moved.
//!
//! Invariant: everything in the mailbox has its `Room`. An `Owed` ends in a reply, in `settle`, or with its connection:
//! no accepted request is forgotten. What was posted before `close` was seen is either handled or dropped by the
//! connection; nothing is posted after it.
//! Threads: any; a post takes one short lock and wakes the connection only when it found the mailbox empty.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use parking_lot::Mutex;

use super::mailbox::{Kind, MailboxUsage, Mailboxes};

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
    /// Who the peer's certificate is for, once it has shown one.
    certificate_name: OnceLock<Box<str>>,
    mailbox: Mutex<Mailbox<E>>,
    usage: MailboxUsage,
    is_signalled: AtomicBool,
    is_closed: AtomicBool,
}

#[derive(Debug)]
struct Mailbox<E> {
    events: VecDeque<Posted<E>>,
    /// The connection's task; the same one all its life, so it is cloned once.
    task: Option<Waker>,
}

/// An event in the mailbox, with its room.
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

    /// The common name of the peer's certificate, where it has shown one that the server's authorities vouch for.
    pub fn certificate_name(&self) -> Option<&str> {
        self.certificate_name.get().map(|name| &**name)
    }

    /// Says so, after the handshake and before the first frame.
    pub(super) fn set_certificate_name(&self, name: Box<str>) {
        let first = self.certificate_name.set(name);
        debug_assert!(first.is_ok(), "a connection has one handshake");
    }

    /// Promises the peer a reply that comes later, with room for `bytes` that are kept until then. `None` when it is
    /// owed too much already: the request is refused, then, while that can still be said.
    pub fn owe(self: &Arc<Self>, bytes: usize) -> Option<Owed<E>> {
        Owed::take(self, bytes)
    }

    /// Hands an event of `bytes` that no peer waits for to the connection's `Service::event`.
    ///
    /// False means that it was dropped: the connection is closed, or its peer does not read.
    pub fn notify(self: &Arc<Self>, event: E, bytes: usize) -> bool {
        Room::for_notice(self, bytes).is_some_and(|room| self.push(event, room))
    }

    /// Has the connection call `Service::signalled`, once for any number of signals that it has not seen yet.
    pub fn signal(&self) {
        if !self.is_signalled.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Events are handled in the order they came.
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
    pub(super) fn take(&self, into: &mut VecDeque<Posted<E>>) {
        debug_assert!(into.is_empty(), "events taken before are handled first");
        std::mem::swap(&mut self.mailbox.lock().events, into);
    }

    /// Gives back the memory of a mailbox that was full once.
    pub(super) fn shrink(&self) {
        self.mailbox.lock().events.shrink_to_fit();
    }

    /// Whether there was a signal since the last call.
    pub(super) fn take_signal(&self) -> bool {
        self.is_signalled.load(Ordering::Relaxed) && self.is_signalled.swap(false, Ordering::AcqRel)
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

/// Room for one event, given back when dropped.
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

    /// Room for a notice; one that finds none is counted.
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
            // Nobody is left who could answer: its peer is better off knowing.
            self.link.close();
        }
    }
}

/// A reply that a peer was promised, and its room in the mailbox. Dropped without a reply, it closes the connection.
#[derive(Debug)]
pub struct Owed<E> {
    room: Room<E>,
}

impl<E> Owed<E> {
    /// Takes the room for a reply that comes later, and for `bytes` that are kept until then.
    fn take(link: &Arc<Link<E>>, bytes: usize) -> Option<Self> {
        let mut room = Room::take(link, Kind::Reply, bytes)?;
        room.kind = Kind::Owed;
        Some(Self { room })
    }

    /// Whose reply it is.
    pub fn link(&self) -> &Arc<Link<E>> {
        &self.room.link
    }

    /// Takes room for `bytes` more; false, and nothing taken, when there is none.
    pub fn grow(&mut self, bytes: usize) -> bool {
        self.room.grow(bytes)
    }

    /// Hands the reply, or what leads to it, to the connection.
    pub fn post(mut self, event: E) {
        self.room.kind = Kind::Reply;
        let link = Arc::clone(&self.room.link);
        link.push(event, self.room);
    }

    /// The request was answered another way.
    pub fn settle(mut self) {
        self.room.kind = Kind::Reply;
    }
}
