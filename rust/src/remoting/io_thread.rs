//! One I/O thread of a server: the connections dealt to it, the sweep over them, and on the first one the listeners.
//!
//! Invariant: a connection is in `connections` from before its session opens until after it closed, so that an empty
//! map means that nothing of this thread is left.
//! Threads: everything here is on the I/O thread; orders come through a channel, which holds at most what
//! `Shared::admit` let in.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::{AbortHandle, LocalSet, spawn_local};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at};

use super::connection::Connection;
use super::limits::{ACCEPT_PAUSE, ServerOptions};
use super::link::{Link, LinkId};
use super::pulse::{Patience, Pulse, Verdict};
use super::service::{Close, Service};
use super::shared::{Admission, Shared};

/// What the rest of the server tells an I/O thread.
pub(super) enum Order {
    /// Serve this connection.
    Adopt(Arrival),
    /// Accept connections here and deal them to all threads.
    Listen { listener: std::net::TcpListener, is_vip: bool },
    /// Finish what is pending until then, and end.
    Stop { deadline: Instant },
}

/// An accepted connection on its way to its thread.
pub(super) struct Arrival {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    is_vip: bool,
    admission: Admission,
}

/// What the connections of one thread share.
pub(super) struct IoThread<S: Service> {
    pub service: Arc<S>,
    pub options: ServerOptions,
    pub shared: Arc<Shared<S::Event>>,
    /// One sender for each I/O thread, this one's included.
    peers: Vec<UnboundedSender<Order>>,
    connections: RefCell<HashMap<LinkId, Seat<S::Event>>>,
    acceptors: RefCell<Vec<AbortHandle>>,
    tick: Cell<u32>,
    deadline: Cell<Option<Instant>>,
    emptied: Notify,
}

struct Seat<E> {
    link: Arc<Link<E>>,
    pulse: Rc<Pulse>,
}

/// Runs the thread until it is told to stop.
pub(super) fn run<S: Service>(
    runtime: &Runtime,
    service: Arc<S>,
    shared: Arc<Shared<S::Event>>,
    options: ServerOptions,
    peers: Vec<UnboundedSender<Order>>,
    orders: UnboundedReceiver<Order>,
) {
    let thread = Rc::new(IoThread {
        service,
        options,
        shared,
        peers,
        connections: RefCell::new(HashMap::new()),
        acceptors: RefCell::new(Vec::new()),
        tick: Cell::new(0),
        deadline: Cell::new(None),
        emptied: Notify::new(),
    });
    let tasks = LocalSet::new();
    tasks.spawn_local(sweep(Rc::clone(&thread)));
    tasks.block_on(runtime, obey(thread, orders));
}

async fn obey<S: Service>(thread: Rc<IoThread<S>>, mut orders: UnboundedReceiver<Order>) {
    let deadline = loop {
        match orders.recv().await {
            Some(Order::Adopt(arrival)) => adopt(&thread, arrival),
            Some(Order::Listen { listener, is_vip }) => listen(&thread, listener, is_vip),
            Some(Order::Stop { deadline }) => break deadline,
            None => break Instant::now(),
        }
    };
    for acceptor in thread.acceptors.take() {
        acceptor.abort();
    }
    // Connections still in the channel are dropped with it, unserved, as those still in the backlog.
    drop(orders);
    thread.deadline.set(Some(deadline));
    thread.for_each(|seat| seat.link.wake());
    if timeout_at(deadline, thread.is_empty()).await.is_err() {
        thread.for_each(|seat| {
            seat.pulse.sentence(Verdict::Close(Close::Stopped));
            seat.link.wake();
        });
        // They end at their next turn, and no turn blocks; a service that breaks this rule is left behind.
        drop(timeout(Duration::from_secs(1), thread.is_empty()).await);
    }
}

/// Looks at every connection once in a while.
async fn sweep<S: Service>(thread: Rc<IoThread<S>>) {
    let patience = Patience::new(&thread.options);
    let mut ticks = interval(thread.options.sweep_interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let tick = thread.tick.get().wrapping_add(1);
        thread.tick.set(tick);
        thread.for_each(|seat| {
            if let Some(verdict) = seat.pulse.judge(tick, &patience) {
                seat.pulse.sentence(verdict);
                seat.link.wake();
            }
        });
    }
}

fn listen<S: Service>(thread: &Rc<IoThread<S>>, listener: std::net::TcpListener, is_vip: bool) {
    // Registered with this thread's reactor here; the socket itself was bound by `Server::listen`.
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let task = spawn_local(accept(Rc::clone(thread), listener, is_vip));
    thread.acceptors.borrow_mut().push(task.abort_handle());
}

/// Accepts for ever; the task is aborted to stop it.
async fn accept<S: Service>(thread: Rc<IoThread<S>>, listener: TcpListener, is_vip: bool) {
    let mut turns = (0..thread.peers.len()).cycle();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Out of descriptors, mostly. Trying at once again would only burn the processor.
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(admission) = thread.shared.admit(peer.ip()) else { continue };
        let (Ok(local), Ok(())) = (stream.local_addr(), stream.set_nodelay(true)) else { continue };
        let Ok(stream) = stream.into_std() else { continue };
        let to = turns.next().and_then(|turn| thread.peers.get(turn));
        if let Some(to) = to {
            // A thread that is gone stops, and so do we.
            drop(to.send(Order::Adopt(Arrival { stream, peer, local, is_vip, admission })));
        }
    }
}

fn adopt<S: Service>(thread: &Rc<IoThread<S>>, arrival: Arrival) {
    let Arrival { stream, peer, local, is_vip, admission } = arrival;
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    let link = thread.shared.link(peer, local, is_vip);
    let pulse = Rc::new(Pulse::new(thread.tick()));
    let seat = Seat { link: Arc::clone(&link), pulse: Rc::clone(&pulse) };
    thread.connections.borrow_mut().insert(link.id(), seat);
    let presence = Presence {
        thread: Rc::clone(thread),
        id: link.id(),
        why: Cell::new(Close::Panicked),
        _admission: admission,
    };
    let thread = Rc::clone(thread);
    spawn_local(async move {
        let why = match Connection::open(thread, link, pulse, stream) {
            Some(connection) => connection.run().await,
            None => Close::Panicked,
        };
        presence.why.set(why);
    });
}

/// A connection's entries in every list; they go with it, however it ends.
struct Presence<S: Service> {
    thread: Rc<IoThread<S>>,
    id: LinkId,
    why: Cell<Close>,
    _admission: Admission,
}

impl<S: Service> Drop for Presence<S> {
    fn drop(&mut self) {
        self.thread.shared.forget(self.id, self.why.get());
        self.thread.connections.borrow_mut().remove(&self.id);
        self.thread.emptied.notify_one();
    }
}

impl<S: Service> IoThread<S> {
    /// Number of sweeps so far.
    pub fn tick(&self) -> u32 {
        self.tick.get()
    }

    /// Whether no new frames are to be read.
    pub fn is_stopping(&self) -> bool {
        self.deadline.get().is_some()
    }

    /// When a stopping thread ends, whatever is pending.
    pub fn deadline(&self) -> Instant {
        self.deadline.get().unwrap_or_else(Instant::now)
    }

    /// Whether a connection with so much to write must read no more.
    pub fn is_congested(&self, pending: usize) -> bool {
        pending > self.options.outbox_bytes_max
            || self.shared.pending_bytes() > self.options.outboxes_bytes_max
    }

    async fn is_empty(&self) {
        while !self.connections.borrow().is_empty() {
            self.emptied.notified().await;
        }
    }

    fn for_each(&self, act: impl Fn(&Seat<S::Event>)) {
        self.connections.borrow().values().for_each(act);
    }
}
