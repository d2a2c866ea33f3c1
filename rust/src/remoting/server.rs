//! Remoting server: listeners, I/O threads, and a stop that delivers every reply it can.
//!
//! The listeners live on the first I/O thread and deal connections round-robin to all threads. A connection stays on
//! its thread; afterwards threads exchange only events, through `Link`.
//!
//! Threads: `start`, `listen`, `link`, `statistics` from any thread; `stop` from any but the server's own.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{DuplexStream, duplex};
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::foreign::ForeignClient;
use super::io_loop;
use super::io_thread::{Arrival, Socket as Transport, ThreadCommand};
use super::limits::{BACKLOG, ServerOptions};
use super::link::{Link, LinkId};
use super::service::Service;
use super::shared::{Permit, ServerStatistics, Shared};
use super::time_slice;

/// Bytes in each direction of a connection within the process: several bursts of ordinary requests.
const PIPE_BYTES: usize = 64 << 10;

/// A running server; dropping it stops it without grace.
pub struct Server<S: Service> {
    shared: Arc<Shared<S::Event>>,
    /// One channel per I/O thread; the first thread listens.
    commands: Vec<UnboundedSender<ThreadCommand>>,
    first_thread: Option<Handle>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<S: Service> Server<S> {
    /// Starts the I/O threads; no connection is accepted before `listen`.
    ///
    /// # Errors
    /// When the system cannot create a thread or its reactor.
    pub fn start(service: Arc<S>, options: ServerOptions) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(&options));
        let (commands, receivers): (Vec<_>, Vec<_>) =
            (0..options.io_threads()).map(|_| unbounded_channel()).unzip();
        let mut server = Self { shared, commands, first_thread: None, threads: Mutex::default() };
        for (index, receiver) in receivers.into_iter().enumerate() {
            let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
            server.first_thread.get_or_insert_with(|| runtime.handle().clone());
            let (service, shared) = (Arc::clone(&service), Arc::clone(&server.shared));
            let (options, threads) = (options.clone(), server.commands.clone());
            let thread = std::thread::Builder::new().name(format!("rmq-io-{index}")).spawn(move || {
                // Without it the thread waits for an ordinary slice.
                drop(time_slice::shorten());
                io_loop::run(&runtime, service, shared, options, threads, receiver);
            })?;
            server.threads.lock().push(thread);
        }
        Ok(server)
    }

    /// Binds and serves; port 0 selects a free port. Returns the bound address.
    ///
    /// # Errors
    /// When the address cannot be bound, or the server was stopped.
    pub fn listen(&self, address: SocketAddr, is_vip: bool) -> io::Result<SocketAddr> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // A restarted broker must not wait for its predecessor's connections to leave TIME_WAIT.
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let listener: std::net::TcpListener = socket.into();
        let bound = listener.local_addr()?;
        let stopped = || io::Error::new(io::ErrorKind::NotConnected, "the server was stopped");
        let first = self.commands.first().ok_or_else(stopped)?;
        first.send(ThreadCommand::Listen { listener, is_vip }).map_err(|_| stopped())?;
        Ok(bound)
    }

    /// Returns what opens connections within the process.
    pub fn connector(&self) -> Connector<S::Event> {
        let (shared, threads) = (Arc::clone(&self.shared), self.commands.clone());
        Connector { shared, threads, turn: AtomicUsize::new(0) }
    }

    /// Returns the handle of a connection; `None` when it is gone.
    pub fn link(&self, id: LinkId) -> Option<Arc<Link<S::Event>>> {
        self.shared.find(id)
    }

    /// Returns the runtime of the first I/O thread, for short tasks of other parts. It ends with the thread. `None`
    /// for a server without threads.
    pub fn first_thread(&self) -> Option<&Handle> {
        self.first_thread.as_ref()
    }

    /// Returns the current counters.
    pub fn statistics(&self) -> ServerStatistics {
        self.shared.statistics()
    }

    /// Takes the clients of other protocols closed since the last call, each address once a minute.
    pub fn take_foreign_clients(&self) -> Vec<ForeignClient> {
        self.shared.foreign_clients.take()
    }

    /// Stops accepting and reading, writes owed replies within `grace`, closes every connection and joins the
    /// threads. Owed are the replies `Service::is_settled` waits for, and the bytes in outboxes. Idempotent.
    pub fn stop(&self, grace: Duration) {
        let mut threads = self.threads.lock();
        let deadline = Instant::now() + grace;
        for thread in &self.commands {
            // A missing thread has already stopped.
            drop(thread.send(ThreadCommand::Stop { deadline }));
        }
        for thread in threads.drain(..) {
            // The panic hook has reported a panic outside any connection; there is nothing left to stop.
            drop(thread.join());
        }
    }
}

/// Opens connections within the process, and counts those of other protocols against the server's limits.
pub struct Connector<E> {
    shared: Arc<Shared<E>>,
    threads: Vec<UnboundedSender<ThreadCommand>>,
    turn: AtomicUsize,
}

impl<E: Send + 'static> Connector<E> {
    /// Opens a connection that the server takes for one from `peer` to `local`.
    ///
    /// # Errors
    /// When the server has too many connections, or has stopped.
    pub fn connect(&self, peer: SocketAddr, local: SocketAddr) -> io::Result<DuplexStream> {
        let too_many = || io::Error::new(io::ErrorKind::QuotaExceeded, "too many connections");
        let permit = self.admit(peer.ip(), 0).ok_or_else(too_many)?;
        let (ours, theirs) = duplex(PIPE_BYTES);
        let arrival = Arrival { socket: Transport::Memory(theirs), peer, local, is_vip: false, permit };
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.threads.len().max(1);
        let stopped = || io::Error::new(io::ErrorKind::NotConnected, "the server was stopped");
        let thread = self.threads.get(turn).ok_or_else(stopped)?;
        thread.send(ThreadCommand::Adopt(arrival)).map_err(|_| stopped())?;
        Ok(ours)
    }

    /// Admits a connection from this address, whose socket has this descriptor; see `Shared::admit`.
    pub fn admit(&self, address: IpAddr, descriptor: usize) -> Option<Permit> {
        self.shared.admit(address, descriptor)
    }
}

impl<S: Service> Drop for Server<S> {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}
