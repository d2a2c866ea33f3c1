//! I/O thread of a server: what the connections dealt to it share.
//!
//! Invariant: a connection is in `connections` from before its session opens until after it closed, so that an empty
//! map means that nothing of this thread is left.
//! Threads: everything here is on the I/O thread; commands come through a channel, which holds at most what
//! `Shared::admit` let in.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

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

/// Commands of the rest of the server to an I/O thread.
pub(super) enum ThreadCommand {
    Adopt(Arrival),
    /// Accept connections here and deal them to all threads.
    Listen {
        listener: std::net::TcpListener,
        is_vip: bool,
    },
    /// Finish what is pending until then, and end.
    Stop {
        deadline: Instant,
    },
}

/// An accepted connection on its way to its thread.
pub(super) struct Arrival {
    pub(super) stream: std::net::TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) is_vip: bool,
    pub(super) permit: Permit,
}

/// What the connections of one thread share.
pub(super) struct IoThread<S: Service> {
    pub(super) service: Arc<S>,
    pub(super) options: ServerOptions,
    pub(super) shared: Arc<Shared<S::Event>>,
    /// One sender for each I/O thread, this one's included.
    pub(super) threads: Vec<UnboundedSender<ThreadCommand>>,
    pub(super) connections: RefCell<HashMap<LinkId, ConnectionEntry<S::Event>>>,
    pub(super) acceptors: RefCell<Vec<AbortHandle>>,
    /// For connections that end, or shake hands.
    pub(super) turnstile: Turnstile,
    pub(super) handshakes: Handshakes<S::Event>,
    pub(super) round: Round,
    pub(super) tick: Cell<u32>,
    pub(super) deadline: Cell<Option<Instant>>,
    pub(super) emptied: Notify,
}

/// A connection as the sweep sees it.
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

    /// When a stopping thread ends, whatever is pending.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline.get().unwrap_or_else(Instant::now)
    }

    /// Whether a connection with so much to write must read no more.
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
