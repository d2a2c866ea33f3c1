//! Client: connects to any number of addresses on one I/O thread: once each, or more often under names.
//!
//! Requests can be queued while the connection is still being made; they fail if it cannot be made. The next call of
//! `peer` replaces a peer that has ended: the caller decides whether and when to retry.
//!
//! Invariant: the pool holds at most one peer for an address or name, and every peer that has not ended.
//! Threads: any; callbacks and `Requests` run on the I/O thread `rmq-client` and must not block.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, timeout_at};

use super::call::CallError;
use super::client_thread::{ClientThread, Pool, Requests};
use super::large_frames::LargeFrames;
use super::limits::ClientOptions;
use super::peer::Peer;
use super::peer_task;
use crate::tls::Stream;

/// Connections to servers. Dropping it ends them without grace.
pub struct Client {
    options: ClientOptions,
    pool: Arc<Pool>,
    commands: UnboundedSender<Command>,
    runtime: Handle,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Command {
    Connect(Arc<Peer>),
    Adopt(Arc<Peer>, DuplexStream),
    Stop { deadline: Instant },
}

impl Client {
    /// Starts the I/O thread.
    ///
    /// # Errors
    /// When the system cannot create the thread or its reactor.
    pub fn start(options: ClientOptions, requests: Arc<dyn Requests>) -> io::Result<Self> {
        Self::start_as("rmq-client", options, requests)
    }

    /// Starts the I/O thread under this name.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_as(name: &str, options: ClientOptions, requests: Arc<dyn Requests>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let (commands, receiver) = unbounded_channel();
        let pool = Arc::<Pool>::default();
        let parts = (options.clone(), requests, Arc::clone(&pool));
        let handle = runtime.handle().clone();
        let thread =
            std::thread::Builder::new().name(name.to_owned()).spawn(move || run(runtime, parts, receiver))?;
        Ok(Self { options, pool, commands, runtime: handle, thread: Mutex::new(Some(thread)) })
    }

    /// Returns the connection to `host:port`, and starts a new one if there is none or the last one has ended.
    pub fn peer(&self, address: &str) -> Arc<Peer> {
        if let Some(peer) = self.pool.read().get(address).filter(|peer| peer.is_open()) {
            return Arc::clone(peer);
        }
        let mut pool = self.pool.write();
        if let Some(peer) = pool.get(address).filter(|peer| peer.is_open()) {
            return Arc::clone(peer);
        }
        let peer = Arc::new(Peer::new(address, self.options.outgoing_bytes_max, self.options.calls_max));
        pool.insert(Arc::clone(peer.address()), Arc::clone(&peer));
        drop(pool);
        if self.commands.send(Command::Connect(Arc::clone(&peer))).is_err() {
            peer.end(&CallError::Stopped);
        }
        peer
    }

    /// Returns every open connection.
    pub fn peers(&self) -> Vec<Arc<Peer>> {
        self.pool.read().values().filter(|peer| peer.is_open()).cloned().collect()
    }

    /// Starts another connection to `host:port`, under a name that no address and no other connection has.
    pub fn connect(&self, name: &str, address: &str) -> Arc<Peer> {
        let (bytes_max, calls_max) = (self.options.outgoing_bytes_max, self.options.calls_max);
        let peer = Arc::new(Peer::named(name, address, bytes_max, calls_max));
        self.pool.write().insert(Arc::clone(peer.key()), Arc::clone(&peer));
        if self.commands.send(Command::Connect(Arc::clone(&peer))).is_err() {
            peer.end(&CallError::Stopped);
        }
        peer
    }

    /// Returns the peer at the other end of `pipe`, under a name that no address and no other pipe has.
    pub fn adopt(&self, name: &str, pipe: DuplexStream) -> Arc<Peer> {
        let peer = Arc::new(Peer::new(name, self.options.outgoing_bytes_max, self.options.calls_max));
        self.pool.write().insert(Arc::clone(peer.key()), Arc::clone(&peer));
        if self.commands.send(Command::Adopt(Arc::clone(&peer), pipe)).is_err() {
            peer.end(&CallError::Stopped);
        }
        peer
    }

    /// Returns the runtime of the I/O thread, for tasks of the owner. It ends with the thread.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Lets calls in flight finish and queued bytes leave within `grace`, then ends every connection and joins the
    /// thread. Later calls may fail as stopped. Idempotent.
    pub fn stop(&self, grace: Duration) {
        // A stopped client takes no commands.
        drop(self.commands.send(Command::Stop { deadline: Instant::now() + grace }));
        let mut thread = self.thread.lock();
        // A callback that owned the last handle drops it on the I/O thread, which ends by itself.
        let is_own =
            thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id());
        if let Some(thread) = thread.take().filter(|_| !is_own) {
            // The panic hook has reported a panic; there is nothing left to stop.
            drop(thread.join());
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

fn run(
    runtime: Runtime,
    (options, requests, pool): (ClientOptions, Arc<dyn Requests>, Arc<Pool>),
    commands: UnboundedReceiver<Command>,
) {
    let large_frames = LargeFrames::new(options.large_frames_bytes_max, &options.frame);
    let (connections, deadline, emptied) = (Cell::new(0), Cell::new(None), Notify::new());
    let thread =
        Rc::new(ClientThread { options, requests, large_frames, pool, connections, deadline, emptied });
    LocalSet::new().block_on(&runtime, apply(thread, commands));
    // Do not wait for a pending name lookup.
    runtime.shutdown_background();
}

async fn apply(thread: Rc<ClientThread>, mut commands: UnboundedReceiver<Command>) {
    let deadline = loop {
        match commands.recv().await {
            Some(Command::Connect(peer)) => serve(&thread, peer, None),
            Some(Command::Adopt(peer, pipe)) => serve(&thread, peer, Some(Stream::Memory(pipe))),
            Some(Command::Stop { deadline }) => break deadline,
            None => break Instant::now(),
        }
    };
    commands.close();
    while let Some(command) = commands.recv().await {
        if let Command::Connect(peer) | Command::Adopt(peer, _) = command {
            peer.end(&CallError::Stopped);
        }
    }
    thread.deadline.set(Some(deadline));
    thread.wake_all();
    if timeout_at(deadline, thread.is_empty()).await.is_err() {
        // Past the deadline, a connection ends when it is woken.
        thread.wake_all();
        thread.is_empty().await;
    }
}

fn serve(thread: &Rc<ClientThread>, peer: Arc<Peer>, given: Option<Stream>) {
    thread.connections.set(thread.connections.get() + 1);
    let thread = Rc::clone(thread);
    spawn_local(async move {
        let why = peer_task::serve(Rc::clone(&thread), Arc::clone(&peer), given).await;
        peer.end(&why);
        thread.forget(&peer);
        drop(catch_unwind(AssertUnwindSafe(|| thread.requests.closed(&peer, &why))));
        thread.connections.set(thread.connections.get() - 1);
        thread.emptied.notify_one();
    });
}
