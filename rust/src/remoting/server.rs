//! A remoting server: listeners, I/O threads, and a stop that loses no reply it can still deliver.
//!
//! The listeners live on the first I/O thread and deal connections to all of them in turn; a connection stays where
//! it was dealt. Nothing is handed between threads after that but events, through `Link`.
//!
//! Threads: `start`, `listen`, `link`, `statistics` from any thread; `stop` from any but the server's own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::foreign::ForeignClient;
use super::io_loop;
use super::io_thread::ThreadCommand;
use super::limits::{BACKLOG, ServerOptions};
use super::link::{Link, LinkId};
use super::service::Service;
use super::shared::{ServerStatistics, Shared};
use super::time_slice;

/// A running server; dropping it stops it without grace.
pub struct Server<S: Service> {
    shared: Arc<Shared<S::Event>>,
    /// One for each I/O thread; the first one listens.
    commands: Vec<UnboundedSender<ThreadCommand>>,
    first_thread: Option<Handle>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<S: Service> Server<S> {
    /// Starts the I/O threads; no connection is accepted before `listen`.
    ///
    /// # Errors
    /// When the system gives no thread or no reactor.
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
                // Where it is not to be had the thread waits its turn.
                drop(time_slice::shorten());
                io_loop::run(&runtime, service, shared, options, threads, receiver);
            })?;
            server.threads.lock().push(thread);
        }
        Ok(server)
    }

    /// Binds and serves; port 0 takes a free one. Returns the bound address.
    ///
    /// # Errors
    /// When the address cannot be bound, or the server was stopped.
    pub fn listen(&self, address: SocketAddr, is_vip: bool) -> io::Result<SocketAddr> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // A restarted broker must not wait for the connections of its predecessor to be forgotten.
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

    /// The handle of a connection; `None` when it is gone.
    pub fn link(&self, id: LinkId) -> Option<Arc<Link<S::Event>>> {
        self.shared.find(id)
    }

    /// Where work of another part runs on the first I/O thread, among its connections and as brief as theirs. It ends with
    /// the thread. `None` for a server without threads.
    pub fn first_thread(&self) -> Option<&Handle> {
        self.first_thread.as_ref()
    }

    /// Counters, now.
    pub fn statistics(&self) -> ServerStatistics {
        self.shared.statistics()
    }

    /// Clients of other protocols that were closed since the last call, each address once a minute.
    pub fn take_foreign_clients(&self) -> Vec<ForeignClient> {
        self.shared.foreign_clients.take()
    }

    /// Stops accepting and reading, writes what is owed within `grace`, closes every connection and joins the
    /// threads. What is owed is what `Service::is_settled` says, and what waits in outboxes. Idempotent.
    pub fn stop(&self, grace: Duration) {
        let mut threads = self.threads.lock();
        let deadline = Instant::now() + grace;
        for thread in &self.commands {
            // A thread that is gone has stopped.
            drop(thread.send(ThreadCommand::Stop { deadline }));
        }
        for thread in threads.drain(..) {
            // A panic outside any connection was reported by the panic hook; there is nothing left to stop.
            drop(thread.join());
        }
    }
}

impl<S: Service> Drop for Server<S> {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}
