//! Listener: acceptance of slaves at a master, which get the log that they lack.
//!
//! *Invariant*: at most `slaves_max` slaves are connected; a connection counts once it has reported the end of its
//! log.
//! Threads: its own, and one of senders for slaves that have caught up (`transfers`); `slaves` and `take_notes` from
//! any.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use crate::replication::epochs::Epochs;
use crate::replication::master::{ConnectionId, InSyncSet, Standing};
use crate::replication::stream::Ticket;
use crate::store::Store;
use crate::tls::ServerTls;

use super::admission::{Admission, Introduced, introduced};
use super::ended::Ended;
use super::notes::Note;
use super::runtime::HaThread;
use super::slaves::{ListenerOptions, RefusedSlave, SlaveStatus, Slaves};
use super::transfers::Transfers;

/// The pause after a failed accept, for instance for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The master's side of replication.
#[derive(Debug)]
pub struct Listener {
    slaves: Arc<Slaves>,
    address: SocketAddr,
    thread: HaThread,
}

impl Listener {
    /// Listens on an address, with port 0 on a free port, and serves slaves from the log of `store`. Connections
    /// that begin with TLS use `tls`.
    ///
    /// # Errors
    /// The address cannot be used, or the system cannot start a thread.
    pub fn start(
        store: Arc<Store>,
        address: SocketAddr,
        options: ListenerOptions,
        tls: Option<Arc<ServerTls>>,
    ) -> io::Result<Self> {
        Self::start_with(store, address, options, Epochs::default(), Admission::default(), tls, None)
    }

    /// Listens for a log of these epochs, with the runtime of the I/O thread that stores messages.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with(
        store: Arc<Store>,
        address: SocketAddr,
        options: ListenerOptions,
        epochs: Epochs,
        admission: Admission,
        tls: Option<Arc<ServerTls>>,
        senders: Option<Handle>,
    ) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let slaves = Arc::new(Slaves::new(store, options, epochs, admission, senders));
        let serving = Arc::clone(&slaves);
        let thread = HaThread::start(move || accept(listener, serving, tls))?;
        Ok(Self { slaves, address, thread })
    }

    /// Returns the local address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Admits the first connection that shows this ticket in time, as the slave with this broker id, if given, or as
    /// an observer.
    pub fn expect(&self, ticket: Ticket, broker_id: Option<u64>, standing: Standing) {
        self.slaves.admission.expect(ticket, broker_id, standing);
    }

    /// Sets the replicas in sync, all of which must have a message before it is confirmed.
    pub fn require(&self, set: InSyncSet) {
        self.slaves.require(set);
    }

    /// Returns the connected slaves without observers, oldest connection first.
    #[must_use]
    pub fn slaves(&self) -> Vec<SlaveStatus> {
        self.slaves.status()
    }

    /// Returns the refused slaves, one for each address, without those admitted since.
    #[must_use]
    pub fn refused(&self) -> Vec<RefusedSlave> {
        self.slaves.refused()
    }

    /// Takes the notes for the operator since the last call.
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
            Ok((socket, address)) => {
                let (slaves, tls) = (Arc::clone(&slaves), tls.clone());
                drop(tokio::spawn(async move { serve(slaves, tls, socket, id, address).await }));
            }
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
) {
    let silence_max = slaves.options.silence_max;
    let introduced =
        introduced(&slaves.admission, silence_max, tls, socket, id, address, || slaves.state()).await;
    let joined = introduced.and_then(|Introduced { stream, end, broker_id, standing, protocol }| {
        Ok((stream, standing, protocol, slaves.join(id, address, end, broker_id, standing, protocol)?))
    });
    let (stream, standing, protocol, wakeup) = match joined {
        Ok(joined) => joined,
        Err(ended) => {
            if matches!(ended, Ended::NoTicket) {
                slaves.lacks_ticket(address.ip(), ended.to_string());
            }
            let is_slave = matches!(ended, Ended::Distrust(_) | Ended::Full(..));
            if slaves.admission.should_report(address.ip(), is_slave) {
                let peer = if is_slave { "the slave" } else { "a connection to the replication port" };
                slaves.notes.add(true, format!("{peer} from {address} was refused: {ended}"));
            }
            return;
        }
    };
    let (what, is_warning) = match standing {
        Standing::Slave => ("slave", true),
        Standing::Observer => ("backup", false),
    };
    slaves.notes.add(false, format!("a {what} has connected from {address}"));
    let transfers = Transfers::new(Arc::clone(&slaves), id, address.ip(), wakeup, standing, protocol);
    let ended = transfers.serve(stream).await;
    slaves.disconnect(id);
    slaves.notes.add(is_warning, format!("the connection of the {what} at {address} has ended: {ended}"));
}
