//! Client: the calling end, with connections to any number of addresses, one for each, on one I/O thread.
//!
//! A `Peer` is made by asking for its address. Requests may be queued at once, while the connection is still being
//! made; when it cannot be made, they fail. An ended peer is replaced by the next `peer` of its address: whether and
//! when to try again is for the caller to say.
//!
//! Invariant: the pool holds one peer for an address, and every peer that has not ended.
//! Threads: any; callbacks and `Requests` run on the I/O thread `rmq-client` and must not block.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
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

/// Connections to servers; dropping it ends them without grace.
pub struct Client {
    options: ClientOptions,
    pool: Arc<Pool>,
    commands: UnboundedSender<Command>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Command {
    Connect(Arc<Peer>),
    Stop { deadline: Instant },
}

impl Client {
    /// Starts the I/O thread.
    ///
    /// # Errors
    /// When the system gives no thread or no reactor.
    pub fn start(options: ClientOptions, requests: Arc<dyn Requests>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let (commands, receiver) = unbounded_channel();
        let pool = Arc::<Pool>::default();
        let parts = (options.clone(), requests, Arc::clone(&pool));
        let thread = std::thread::Builder::new()
            .name("rmq-client".to_owned())
            .spawn(move || run(runtime, parts, receiver))?;
        Ok(Self { options, pool, commands, thread: Mutex::new(Some(thread)) })
    }

    /// The connection to `host:port`; a new one is begun when there is none, or the last one ended.
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

    /// Lets calls in flight finish and queued bytes leave within `grace`, ends every connection and joins the
    /// thread. Calls made from now on may fail as stopped. Idempotent.
    pub fn stop(&self, grace: Duration) {
        // A client that is stopped already takes no commands.
        drop(self.commands.send(Command::Stop { deadline: Instant::now() + grace }));
        let mut thread = self.thread.lock();
        // A callback that owned the last handle drops it on the I/O thread, which ends by itself.
        let is_own =
            thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id());
        if let Some(thread) = thread.take().filter(|_| !is_own) {
            // Its panic was reported by the panic hook; there is nothing left to stop.
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
    // A name that is still being looked up must not hold us.
    runtime.shutdown_background();
}

async fn apply(thread: Rc<ClientThread>, mut commands: UnboundedReceiver<Command>) {
    let deadline = loop {
        match commands.recv().await {
            Some(Command::Connect(peer)) => connect(&thread, peer),
            Some(Command::Stop { deadline }) => break deadline,
            None => break Instant::now(),
        }
    };
    commands.close();
    while let Some(command) = commands.recv().await {
        if let Command::Connect(peer) = command {
            peer.end(&CallError::Stopped);
        }
    }
    thread.deadline.set(Some(deadline));
    thread.wake_all();
    if timeout_at(deadline, thread.is_empty()).await.is_err() {
        // Past the deadline every connection ends when it is woken.
        thread.wake_all();
        thread.is_empty().await;
    }
}

fn connect(thread: &Rc<ClientThread>, peer: Arc<Peer>) {
    thread.connections.set(thread.connections.get() + 1);
    let thread = Rc::clone(thread);
    spawn_local(async move {
        let why = peer_task::serve(Rc::clone(&thread), Arc::clone(&peer)).await;
        peer.end(&why);
        thread.forget(&peer);
        drop(catch_unwind(AssertUnwindSafe(|| thread.requests.closed(&peer, &why))));
        thread.connections.set(thread.connections.get() - 1);
        thread.emptied.notify_one();
    });
}
