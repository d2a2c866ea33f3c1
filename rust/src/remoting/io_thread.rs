//! I/O thread of a server: the state its connections share.
//!
//! *Invariant*: a connection is in `connections` from before its session opens until after it closes, so an empty
//! map means that nothing of this thread remains.
//! Threads: everything here is on the I/O thread; commands come through a channel, which holds at most the
//! connections that `Shared::admit` admitted.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::io::DuplexStream;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::handshakes::Handshakes;
use super::idle_tracker::IdleTracker;
use super::limits::ServerOptions;
use super::link::{Link, LinkId};
use super::round::Round;
use super::service::Service;
use super::shared::{Permit, Shared};
use super::turnstile::Turnstile;

/// Commands to an I/O thread.
pub(super) enum ThreadCommand {
    Adopt(Arrival),
    /// Accept connections here and deal them to all threads round-robin.
    Listen {
        listener: std::net::TcpListener,
        is_vip: bool,
    },
    /// Finish pending work before the deadline, and end.
    Stop {
        deadline: Instant,
    },
}

/// An accepted connection in transit to its thread.
pub(super) struct Arrival {
    pub(super) socket: Socket,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) is_vip: bool,
    pub(super) permit: Permit,
}

/// The transport of an arriving connection.
pub(super) enum Socket {
    Tcp(std::net::TcpStream),
    Memory(DuplexStream),
}

/// The state that the connections of one thread share.
pub(super) struct IoThread<S: Service> {
    pub(super) service: Arc<S>,
    pub(super) options: ServerOptions,
    pub(super) shared: Arc<Shared<S::Event>>,
    /// One sender for each I/O thread, including this one.
    pub(super) threads: Vec<UnboundedSender<ThreadCommand>>,
    pub(super) connections: RefCell<HashMap<LinkId, ConnectionEntry<S::Event>>>,
    pub(super) acceptors: RefCell<Vec<AbortHandle>>,
    /// For connections that end or handshake.
    pub(super) turnstile: Turnstile,
    /// For connections after an expensive turn.
    pub(super) expensive: Turnstile,
    pub(super) handshakes: Handshakes<S::Event>,
    pub(super) round: Round,
    pub(super) tick: Cell<u32>,
    pub(super) deadline: Cell<Option<Instant>>,
    pub(super) emptied: Notify,
}

/// The sweep's view of a connection.
pub(super) struct ConnectionEntry<E> {
    pub(super) link: Arc<Link<E>>,
    pub(super) tracker: Rc<IdleTracker>,
}

impl<S: Service> IoThread<S> {
    pub(super) fn tick(&self) -> u32 {
        self.tick.get()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.deadline.get().is_some()
    }

    /// Returns the time when a stopping thread ends, even with work pending.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline.get().unwrap_or_else(Instant::now)
    }

    /// Returns whether a connection with `pending` bytes to write must stop reading.
    pub(super) fn is_congested(&self, pending: usize) -> bool {
        pending > self.options.outbox_bytes_max
            || self.shared.pending_bytes() > self.options.outboxes_bytes_max
    }

    pub(super) async fn is_empty(&self) {
        while !self.connections.borrow().is_empty() {
            self.emptied.notified().await;
        }
    }

    pub(super) fn for_each(&self, act: impl Fn(&ConnectionEntry<S::Event>)) {
        self.connections.borrow().values().for_each(act);
    }
}
