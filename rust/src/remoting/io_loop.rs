//! I/O loop: accepts connections on the first thread, and adopts, sweeps and ends those of this thread.
//!
//! Threads: one loop for each I/O thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::AsRawFd as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at};

use super::connection::Connection;
use super::greeting::greet;
use super::handshakes::Handshakes;
use super::idle_tracker::{IdleAction, IdleTracker, Timeouts};
use super::io_thread::{Arrival, ConnectionEntry, IoThread, Socket, ThreadCommand};
use super::limits::{ACCEPT_PAUSE, ServerOptions};
use super::link::LinkId;
use super::round::Round;
use super::service::{Close, Service};
use super::shared::{Permit, Shared};
use super::turnstile::{PASSES_MAX, Turnstile};
use crate::tls::Stream;

/// Runs the thread until it is stopped.
pub(super) fn run<S: Service>(
    runtime: &Runtime,
    service: Arc<S>,
    shared: Arc<Shared<S::Event>>,
    options: ServerOptions,
    threads: Vec<UnboundedSender<ThreadCommand>>,
    commands: UnboundedReceiver<ThreadCommand>,
) {
    let handshakes = Handshakes::new(&options, shared.buffers.clone());
    let thread = Rc::new(IoThread {
        service,
        options,
        shared,
        threads,
        connections: RefCell::new(HashMap::new()),
        acceptors: RefCell::new(Vec::new()),
        turnstile: Turnstile::new(PASSES_MAX),
        expensive: Turnstile::new(1),
        handshakes,
        round: Round::default(),
        tick: Cell::new(0),
        deadline: Cell::new(None),
        emptied: Notify::new(),
    });
    let tasks = LocalSet::new();
    tasks.spawn_local(sweep(Rc::clone(&thread)));
    let turning = Rc::clone(&thread);
    tasks.spawn_local(async move { turning.turnstile.turn().await });
    let turning = Rc::clone(&thread);
    tasks.spawn_local(async move { turning.expensive.turn().await });
    tasks.block_on(runtime, apply(thread, commands));
}

async fn apply<S: Service>(thread: Rc<IoThread<S>>, mut commands: UnboundedReceiver<ThreadCommand>) {
    let mut adopted = 0_usize;
    let deadline = loop {
        match commands.recv().await {
            Some(ThreadCommand::Adopt(arrival)) => {
                adopt(&thread, arrival);
                adopted += 1;
                if adopted.is_multiple_of(PASSES_MAX) {
                    yield_now().await;
                }
            }
            Some(ThreadCommand::Listen { listener, is_vip }) => listen(&thread, listener, is_vip),
            Some(ThreadCommand::Stop { deadline }) => break deadline,
            None => break Instant::now(),
        }
    };
    for acceptor in thread.acceptors.take() {
        acceptor.abort();
    }
    // Connections still in the channel are dropped unserved, like those in the backlog.
    drop(commands);
    thread.deadline.set(Some(deadline));
    thread.for_each(|entry| entry.link.wake());
    if timeout_at(deadline, thread.is_empty()).await.is_err() {
        thread.for_each(|entry| {
            entry.tracker.set_action(IdleAction::Close(Close::Stopped));
            entry.link.wake();
        });
        // They end at their next turn, and a turn does not block; a service that breaks this rule is abandoned.
        drop(timeout(Duration::from_secs(1), thread.is_empty()).await);
    }
}

/// Checks every connection at each tick.
async fn sweep<S: Service>(thread: Rc<IoThread<S>>) {
    let timeouts = Timeouts::new(&thread.options);
    let mut ticks = interval(thread.options.sweep_interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let tick = thread.tick.get().wrapping_add(1);
        thread.tick.set(tick);
        thread.for_each(|entry| {
            if let Some(action) = entry.tracker.check(tick, &timeouts) {
                entry.tracker.set_action(action);
                entry.link.wake();
            }
        });
    }
}

fn listen<S: Service>(thread: &Rc<IoThread<S>>, listener: std::net::TcpListener, is_vip: bool) {
    // Register with this thread's reactor; `Server::listen` has bound the socket.
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let task = spawn_local(accept(Rc::clone(thread), listener, is_vip));
    thread.acceptors.borrow_mut().push(task.abort_handle());
}

/// Accepts connections, a few at a time, until the task is aborted.
async fn accept<S: Service>(thread: Rc<IoThread<S>>, listener: TcpListener, is_vip: bool) {
    let mut turns = (0..thread.threads.len()).cycle();
    for number in 0_usize.. {
        if number.is_multiple_of(PASSES_MAX) {
            yield_now().await;
        }
        let Ok((stream, peer)) = listener.accept().await else {
            // Mostly out of descriptors; an immediate retry would only burn CPU.
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let descriptor = usize::try_from(stream.as_raw_fd()).unwrap_or(0);
        let Some(permit) = thread.shared.admit(peer.ip(), descriptor) else { continue };
        let (Ok(local), Ok(())) = (stream.local_addr(), stream.set_nodelay(true)) else { continue };
        let Ok(socket) = stream.into_std().map(Socket::Tcp) else { continue };
        let to = turns.next().and_then(|turn| thread.threads.get(turn));
        if let Some(to) = to {
            // A missing thread means that the server is stopping.
            drop(to.send(ThreadCommand::Adopt(Arrival { socket, peer, local, is_vip, permit })));
        }
    }
}

fn adopt<S: Service>(thread: &Rc<IoThread<S>>, arrival: Arrival) {
    let Arrival { socket, peer, local, is_vip, permit } = arrival;
    let stream = match socket {
        Socket::Tcp(socket) => TcpStream::from_std(socket).map(Stream::Plain),
        Socket::Memory(pipe) => Ok(Stream::Memory(pipe)),
    };
    let Ok(stream) = stream else { return };
    let link = thread.shared.link(peer, local, is_vip);
    let tracker = Rc::new(IdleTracker::new(thread.tick()));
    let entry = ConnectionEntry { link: Arc::clone(&link), tracker: Rc::clone(&tracker) };
    thread.connections.borrow_mut().insert(link.id(), entry);
    let guard = ConnectionGuard {
        thread: Rc::clone(thread),
        id: link.id(),
        why: Cell::new(Close::Panicked),
        _permit: permit,
    };
    let thread = Rc::clone(thread);
    spawn_local(async move {
        let greeted = match stream {
            Stream::Plain(socket) => greet(&thread, &link, &tracker, socket).await,
            stream => Ok(stream),
        };
        guard.why.set(match greeted {
            Ok(stream) => match Connection::open(thread, link, tracker, stream) {
                Some(connection) => connection.run().await,
                None => Close::Panicked,
            },
            Err(why) => why,
        });
    });
}

/// Removes a connection's entries from every list, however it ends.
struct ConnectionGuard<S: Service> {
    thread: Rc<IoThread<S>>,
    id: LinkId,
    why: Cell<Close>,
    _permit: Permit,
}

impl<S: Service> Drop for ConnectionGuard<S> {
    fn drop(&mut self) {
        self.thread.shared.forget(self.id, self.why.get());
        self.thread.connections.borrow_mut().remove(&self.id);
        self.thread.emptied.notify_one();
    }
}
