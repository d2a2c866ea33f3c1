//! Connector: a slave's side of replication. The task in `following` keeps it connected to its master.
//!
//! Threads: any.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::positions::PhysicalOffset;
use crate::replication::alignment::{Alignment, Divergence, LogState, align};
use crate::replication::slave::SlaveRules;
use crate::store::{ReplicaError, Store, StoreError};
use crate::tls::ClientTls;

use super::epoch_file;
use super::following::{Shared, follow};
use super::handshake::{Agreement, Handshake, Refusal};
use super::notes::{Note, Notes};
use super::runtime::HaThread;

/// Bytes at the end of the common log that are compared before the stream begins.
const COMPARED_BYTES: u64 = 1 << 20;
/// The options of a slave.
#[derive(Debug, Clone, Copy)]
pub struct ConnectorOptions {
    /// `haHousekeepingInterval`.
    pub silence_max: Duration,
    /// `haSendHeartbeatInterval`.
    pub heartbeat_interval: Duration,
    /// Whether an external task compares the logs before a connection follows; see [`Connector::wanted`].
    pub asks: bool,
}

/// The change that a slave would make to its log if the master's digest matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposal {
    /// Where to truncate the log first; `None` to follow as it is.
    pub cut: Option<PhysicalOffset>,
    /// The range at the end of the common log: start and end.
    pub range: (PhysicalOffset, PhysicalOffset),
    /// The CRC-32 of that range here.
    pub digest: u32,
}

/// The state of a slave and its master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterStatus {
    /// The address of the master; `None` while it is unknown.
    pub address: Option<String>,
    /// Whether a connection exists.
    pub is_connected: bool,
    /// The end of the slave's log.
    pub end: PhysicalOffset,
    /// The time since the master's last bytes; `None` before the first connection.
    pub silent_for: Option<Duration>,
    /// The reason why the connection failed or ended.
    pub fault: Option<String>,
    /// Whether the logs diverge, so that an operator must decide.
    pub is_diverged: bool,
}

/// A slave's side of replication.
#[derive(Debug)]
pub struct Connector {
    shared: Arc<Shared>,
    thread: HaThread,
}

impl Connector {
    /// Follows the master set by [`set_master`](Self::set_master), through `tls` if given.
    ///
    /// # Errors
    /// The store cannot be a replica, or the system cannot start a thread.
    pub fn start(
        store: Arc<Store>,
        options: ConnectorOptions,
        tls: Option<Arc<ClientTls>>,
    ) -> Result<Self, ReplicaError> {
        let replica = store.replica()?;
        let ConnectorOptions { silence_max, heartbeat_interval, asks } = options;
        let shared = Arc::new(Shared {
            store: Arc::clone(&store),
            rules: SlaveRules { silence_max, heartbeat_interval },
            tls,
            address: Mutex::default(),
            moved: Notify::new(),
            handshake: Handshake::default(),
            asks,
            kept: Arc::new(Notify::new()),
            started: Instant::now(),
            contact: Mutex::default(),
            notes: Notes::default(),
        });
        let kept = Arc::clone(&shared.kept);
        store.growth().watch(Some(Arc::new(move || kept.notify_one())));
        let following = Arc::clone(&shared);
        let thread = HaThread::start(move || async move { follow(&following, replica).await })
            .map_err(|error| StoreError::io(store.root(), "start a thread")(error))?;
        Ok(Self { shared, thread })
    }

    /// Sets the address of the master as `host:port`, or `None`. A connection to another master ends.
    pub fn set_master(&self, address: Option<String>) {
        let mut current = self.shared.address.lock();
        if *current != address {
            *current = address;
            self.shared.moved.notify_one();
        }
    }

    /// Returns the number of the pending question about the master's log.
    #[must_use]
    pub fn wanted(&self) -> Option<u64> {
        self.shared.handshake.wanted()
    }

    /// Returns the change that this slave would make for a master with this log. It cuts nothing before `confirmed`.
    ///
    /// # Errors
    /// The file of epochs cannot be read.
    pub fn propose(
        &self,
        master: &LogState,
        confirmed: PhysicalOffset,
    ) -> Result<Result<Proposal, Divergence>, StoreError> {
        let store = &self.shared.store;
        let (first, end) = store.range();
        let log = LogState { epochs: epoch_file::load(store)?.epochs, first, end };
        let cut = match align(&log, master, confirmed) {
            Ok(Alignment::Follow) => None,
            Ok(Alignment::Truncate(at)) => Some(at),
            Err(divergence) => return Ok(Err(divergence)),
        };
        // Without the bytes that are not durable yet, which are compared the next time.
        let end = cut.unwrap_or(end).min(store.copied_to());
        let begin =
            PhysicalOffset(end.0.saturating_sub(COMPARED_BYTES)).max(first).max(master.first).min(end);
        let digest = store.digest(begin, end);
        let range = digest.map_or((end, end), |_| (begin, end));
        Ok(Ok(Proposal { cut, range, digest: digest.unwrap_or_default() }))
    }

    /// Answers a question: the agreement to follow, or a refusal.
    pub fn answer(&self, question: u64, answer: Result<Agreement, Refusal>) {
        self.shared.handshake.answer(question, answer);
    }

    /// Returns the current state.
    #[must_use]
    pub fn status(&self) -> MasterStatus {
        let (shared, contact) = (&self.shared, self.shared.contact.lock());
        MasterStatus {
            address: shared.address.lock().clone(),
            is_connected: contact.is_connected,
            end: shared.store.range().1,
            silent_for: contact.heard_at.map(|at| shared.now().saturating_sub(at)),
            fault: contact.fault.clone(),
            is_diverged: contact.is_diverged,
        }
    }

    /// Takes the notes for the operator since the last call.
    #[must_use]
    pub fn take_notes(&self) -> Vec<Note> {
        self.shared.notes.take()
    }

    /// Ends the connection.
    pub fn stop(&self) {
        self.shared.store.growth().watch(None);
        self.thread.stop();
    }
}
