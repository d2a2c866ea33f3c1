//! Listener: a master waits for slaves, and sends each what it lacks.
//!
//! Invariant: no more slaves than `slaves_max` are connected; who comes then is closed, and that is told.
//! Threads: its own, and one of senders for slaves that have caught up (`transfers`); `slaves` and `take_notes` from any.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::replication::epochs::Epochs;
use crate::replication::master::ConnectionId;
use crate::store::Store;
use crate::tls::{ServerTls, Stream};

use super::notes::Note;
use super::runtime::HaThread;
use super::slaves::{ListenerOptions, SlaveStatus, Slaves};
use super::transfers::{Ended, Transfers};

/// Pause after a connection could not be accepted, as when there is no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A master's side of replication.
#[derive(Debug)]
pub struct Listener {
    slaves: Arc<Slaves>,
    address: SocketAddr,
    thread: HaThread,
}

impl Listener {
    /// Listens on an address, port 0 for a free one, and serves slaves from the log of `store`, through `tls` those that
    /// begin so.
    ///
    /// # Errors
    /// The address cannot be listened on, or the system has no thread left.
    pub fn start(
        store: Arc<Store>,
        address: SocketAddr,
        options: ListenerOptions,
        tls: Option<Arc<ServerTls>>,
    ) -> io::Result<Self> {
        Self::start_with(store, address, options, Epochs::default(), tls, None)
    }

    /// The same, of a log of these epochs, with the runtime of the I/O thread that stores messages.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with(
        store: Arc<Store>,
        address: SocketAddr,
        options: ListenerOptions,
        epochs: Epochs,
        tls: Option<Arc<ServerTls>>,
        senders: Option<Handle>,
    ) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let slaves = Arc::new(Slaves::new(store, options, epochs, senders));
        let serving = Arc::clone(&slaves);
        let thread = HaThread::start(move || accept(listener, serving, tls))?;
        Ok(Self { slaves, address, thread })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The slaves that are connected, oldest connection first.
    #[must_use]
    pub fn slaves(&self) -> Vec<SlaveStatus> {
        self.slaves.status()
    }

    /// Why slaves were refused that do not fit this log, by address; one that comes back and does is not among them.
    #[must_use]
    pub fn refused(&self) -> Vec<(IpAddr, String)> {
        self.slaves.refused()
    }

    /// What happened since the last call that an operator should read about.
    #[must_use]
    pub fn take_notes(&self) -> Vec<Note> {
        self.slaves.notes.take()
    }

    /// Ends all connections.
    pub fn stop(&self) {
        self.thread.stop();
        self.slaves.store.growth().watch(None);
    }
}

async fn accept(listener: std::net::TcpListener, slaves: Arc<Slaves>, tls: Option<Arc<ServerTls>>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return slaves.notes.add(true, format!("slaves cannot connect: {error}")),
    };
    for number in 1.. {
        let id = ConnectionId(number);
        match listener.accept().await {
            Ok((socket, address)) => match slaves.connect(id, address) {
                Some(wakeup) => {
                    let (slaves, tls) = (Arc::clone(&slaves), tls.clone());
                    drop(tokio::spawn(async move { serve(slaves, tls, socket, id, address, wakeup).await }));
                }
                None => {
                    let most = slaves.options.slaves_max;
                    let refused = format!("the slave at {address} was refused: there are {most} already");
                    slaves.notes.add(true, refused);
                }
            },
            Err(error) => {
                slaves.notes.add(true, format!("a slave could not connect: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(
    slaves: Arc<Slaves>,
    tls: Option<Arc<ServerTls>>,
    socket: TcpStream,
    id: ConnectionId,
    address: SocketAddr,
    wakeup: Arc<Notify>,
) {
    slaves.notes.add(false, format!("a slave has connected from {address}"));
    let ended = match welcome(&slaves, tls, socket, address).await {
        Ok(stream) => Transfers::new(Arc::clone(&slaves), id, address.ip(), wakeup).serve(stream).await,
        Err(error) => Ended::Io(error),
    };
    slaves.disconnect(id);
    slaves.notes.add(true, format!("the connection of the slave at {address} has ended: {ended}"));
}

/// The stream of a connection, which begins in time.
async fn welcome(
    slaves: &Slaves,
    tls: Option<Arc<ServerTls>>,
    socket: TcpStream,
    address: SocketAddr,
) -> io::Result<Stream> {
    let Some(tls) = tls else { return Ok(Stream::Plain(socket)) };
    let welcomed = timeout(slaves.options.silence_max, tls.welcome(socket, address)).await;
    welcomed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
