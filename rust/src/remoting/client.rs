//! The calling end: connections to any number of addresses, one for each, on one I/O thread.
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

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, timeout_at};

use super::frame::FrameLimits;
use super::header::Header;
use super::inbox::LargeFrames;
use super::line;
use super::peer::{CallError, Peer};

/// What a `Client` may use.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// How long a connection may take to be made.
    pub connect: Duration,
    /// A connection that neither read nor wrote for this long is closed; give or take five seconds.
    pub idle: Duration,
    /// What one frame from a peer may be.
    pub frame: FrameLimits,
    /// Memory of all frames too large for an ordinary read buffer; the next such frame waits for its turn.
    pub large_frames_bytes_max: usize,
    /// Bytes that may wait to be written to one peer; a call beyond fails as overloaded.
    pub outgoing_bytes_max: usize,
    /// Calls to one peer that may wait for a reply.
    pub calls_max: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            idle: Duration::from_secs(120),
            frame: FrameLimits::default(),
            large_frames_bytes_max: 256 << 20,
            outgoing_bytes_max: 64 << 20,
            calls_max: 65_536,
        }
    }
}

/// Receives what peers send without being asked.
pub trait Requests: Send + Sync + 'static {
    /// A request of the peer's; answer it, if at all, with `Peer::send`, under its opaque.
    fn request(&self, peer: &Arc<Peer>, header: &Header, body: &[u8]);

    /// The connection ended; its calls have failed already.
    fn closed(&self, peer: &Arc<Peer>, why: &CallError) {
        let _ = (peer, why);
    }
}

/// Ignores them. For clients of servers that never ask.
impl Requests for () {
    fn request(&self, _: &Arc<Peer>, _: &Header, _: &[u8]) {}
}

/// Connections to servers; dropping it ends them without grace.
pub struct Client {
    options: ClientOptions,
    pool: Arc<Pool>,
    orders: UnboundedSender<Order>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

type Pool = RwLock<HashMap<Arc<str>, Arc<Peer>>>;

enum Order {
    Connect(Arc<Peer>),
    Stop { deadline: Instant },
}

/// What the lines of a client share.
pub(super) struct IoThread {
    pub options: ClientOptions,
    pub requests: Arc<dyn Requests>,
    pub large_frames: LargeFrames,
    pool: Arc<Pool>,
    lines: Cell<usize>,
    deadline: Cell<Option<Instant>>,
    emptied: Notify,
}

impl Client {
    /// Starts the I/O thread.
    ///
    /// # Errors
    /// When the system gives no thread or no reactor.
    pub fn start(options: ClientOptions, requests: Arc<dyn Requests>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let (orders, receiver) = unbounded_channel();
        let pool = Arc::<Pool>::default();
        let parts = (options.clone(), requests, Arc::clone(&pool));
        let thread = std::thread::Builder::new()
            .name("rmq-client".to_owned())
            .spawn(move || run(runtime, parts, receiver))?;
        Ok(Self { options, pool, orders, thread: Mutex::new(Some(thread)) })
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
        if self.orders.send(Order::Connect(Arc::clone(&peer))).is_err() {
            peer.end(&CallError::Stopped);
        }
        peer
    }

    /// Lets calls in flight finish and queued bytes leave within `grace`, ends every connection and joins the
    /// thread. Calls made from now on may fail as stopped. Idempotent.
    pub fn stop(&self, grace: Duration) {
        // A client that is stopped already takes no orders.
        drop(self.orders.send(Order::Stop { deadline: Instant::now() + grace }));
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
    orders: UnboundedReceiver<Order>,
) {
    let large_frames = LargeFrames::new(options.large_frames_bytes_max, &options.frame);
    let (lines, deadline, emptied) = (Cell::new(0), Cell::new(None), Notify::new());
    let thread = Rc::new(IoThread { options, requests, large_frames, pool, lines, deadline, emptied });
    LocalSet::new().block_on(&runtime, obey(thread, orders));
    // A name that is still being looked up must not hold us.
    runtime.shutdown_background();
}

async fn obey(thread: Rc<IoThread>, mut orders: UnboundedReceiver<Order>) {
    let deadline = loop {
        match orders.recv().await {
            Some(Order::Connect(peer)) => connect(&thread, peer),
            Some(Order::Stop { deadline }) => break deadline,
            None => break Instant::now(),
        }
    };
    orders.close();
    while let Some(order) = orders.recv().await {
        if let Order::Connect(peer) = order {
            peer.end(&CallError::Stopped);
        }
    }
    thread.deadline.set(Some(deadline));
    thread.wake_all();
    if timeout_at(deadline, thread.is_empty()).await.is_err() {
        // Past the deadline every line ends when it is woken.
        thread.wake_all();
        thread.is_empty().await;
    }
}

fn connect(thread: &Rc<IoThread>, peer: Arc<Peer>) {
    thread.lines.set(thread.lines.get() + 1);
    let thread = Rc::clone(thread);
    spawn_local(async move {
        let why = line::serve(Rc::clone(&thread), Arc::clone(&peer)).await;
        peer.end(&why);
        thread.forget(&peer);
        drop(catch_unwind(AssertUnwindSafe(|| thread.requests.closed(&peer, &why))));
        thread.lines.set(thread.lines.get() - 1);
        thread.emptied.notify_one();
    });
}

impl IoThread {
    /// Whether a line must end because the client stops.
    pub fn must_end(&self, is_settled: bool) -> bool {
        self.deadline.get().is_some_and(|deadline| is_settled || deadline <= Instant::now())
    }

    fn forget(&self, peer: &Arc<Peer>) {
        let mut pool = self.pool.write();
        // Its successor may be there already.
        if pool.get(peer.address()).is_some_and(|known| Arc::ptr_eq(known, peer)) {
            pool.remove(peer.address());
        }
    }

    fn wake_all(&self) {
        self.pool.read().values().for_each(|peer| peer.wake());
    }

    async fn is_empty(&self) {
        while self.lines.get() > 0 {
            self.emptied.notified().await;
        }
    }
}
