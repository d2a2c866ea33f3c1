//! Slaves: the connected slaves of a master, their state, and the wakeups of their writers.
//!
//! Threads: the listener's, and the I/O thread of senders; `status` from any.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::positions::PhysicalOffset;
use crate::replication::alignment::LogState;
use crate::replication::elected;
use crate::replication::epochs::Epochs;
use crate::replication::master::{
    ConnectionId, CopyFrom, Distrust, InSyncSet, Master, MasterRules, Standing,
};
use crate::replication::stream::Protocol;
use crate::store::{RECORD_BYTES_MAX, Store};

use super::admission::Admission;
use super::ended::Ended;
use super::notes::Notes;

/// Maximum number of bytes sent and not reported. A slave reports whole records, up to the largest.
const UNREPORTED_BYTES_MAX: u64 = 2 * RECORD_BYTES_MAX as u64;
/// Maximum number of connected observers. They occupy no slave's place.
const OBSERVERS_MAX: usize = 4;

/// The options of a master.
#[derive(Debug, Clone, Copy)]
pub struct ListenerOptions {
    /// Copies that make a message confirmed, the master's included.
    pub copies: usize,
    /// The lag below which a slave is in sync (`haMaxGapNotInSync`).
    pub gap_bytes_max: u64,
    /// `haHousekeepingInterval`.
    pub silence_max: Duration,
    /// `haSendHeartbeatInterval`.
    pub heartbeat_interval: Duration,
    /// `haTransferBatchSize`.
    pub transfer_bytes_max: u32,
    /// The position at which an empty slave begins.
    pub copy_from: CopyFrom,
    /// Maximum number of connected slaves.
    pub slaves_max: usize,
}

/// The state of a connected slave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlaveStatus {
    /// The id of the connection.
    pub id: u64,
    /// The remote address.
    pub address: SocketAddr,
    /// The position that it reported last.
    pub has: PhysicalOffset,
    /// The bytes that it lacks.
    pub lag_bytes: u64,
    /// Whether it lacks less than the limit.
    pub is_in_sync: bool,
    /// The time since its last report.
    pub silent_for: Duration,
    /// Its broker id, if it is known.
    pub broker_id: Option<u64>,
    /// The form of its reports.
    pub protocol: Protocol,
}

/// A refused slave, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSlave {
    /// The remote address.
    pub address: IpAddr,
    /// The reason, for operators.
    pub reason: String,
    /// Whether it showed no ticket; otherwise its log does not match this one.
    pub lacks_ticket: bool,
}

/// The slaves that are connected to a master.
#[derive(Debug)]
pub(super) struct Slaves {
    pub(super) store: Arc<Store>,
    pub(super) options: ListenerOptions,
    pub(super) core: Mutex<Master>,
    connected: Mutex<BTreeMap<ConnectionId, Connected>>,
    /// Refused slaves that were not admitted since; the oldest are evicted.
    refused: Mutex<VecDeque<RefusedSlave>>,
    /// Ends of slaves' logs that were ahead of this one; the oldest are evicted. The end identifies an Apache
    /// slave after this log has grown past it, because nothing else is known of its log.
    ahead: Mutex<VecDeque<(IpAddr, PhysicalOffset)>>,
    started: Instant,
    pub(super) notes: Notes,
    pub(super) admission: Admission,
    /// The I/O thread that stores messages; it serves slaves that have caught up.
    pub(super) senders: Option<Handle>,
}

#[derive(Debug)]
struct Connected {
    address: SocketAddr,
    standing: Standing,
    protocol: Protocol,
    /// Notifies its writer of new log data.
    wakeup: Arc<Notify>,
}

impl Slaves {
    /// Creates an empty set, for the master of this store.
    pub(super) fn new(
        store: Arc<Store>,
        options: ListenerOptions,
        epochs: Epochs,
        admission: Admission,
        senders: Option<Handle>,
    ) -> Self {
        let rules = MasterRules {
            copies: options.copies,
            gap_bytes_max: options.gap_bytes_max,
            silence_max: options.silence_max,
            heartbeat_interval: options.heartbeat_interval,
            transfer_bytes_max: options.transfer_bytes_max,
            unreported_bytes_max: UNREPORTED_BYTES_MAX,
            file_bytes: store.file_bytes(),
        };
        let log = LogState { epochs, first: store.range().0, end: store.copied_to() };
        Self {
            core: Mutex::new(Master::new(rules, log, PhysicalOffset(0))),
            store,
            options,
            connected: Mutex::default(),
            refused: Mutex::default(),
            ahead: Mutex::default(),
            started: Instant::now(),
            notes: Notes::default(),
            admission,
            senders,
        }
    }

    /// Returns the state of each slave without observers, oldest connection first.
    pub(super) fn status(&self) -> Vec<SlaveStatus> {
        self.grown();
        let now = self.now();
        let status = |(id, slave): (&ConnectionId, &Connected)| {
            let state = self.core.lock().state(*id).filter(|_| slave.standing == Standing::Slave)?;
            Some(SlaveStatus {
                id: id.0,
                address: slave.address,
                has: state.has?,
                lag_bytes: state.lag_bytes?,
                is_in_sync: state.is_in_sync,
                silent_for: now.saturating_sub(state.heard_at),
                broker_id: state.broker_id,
                protocol: slave.protocol,
            })
        };
        self.connected.lock().iter().filter_map(status).collect()
    }

    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Updates `core` with the range of the log.
    pub(super) fn grown(&self) {
        let (first, end) = (self.store.range().0, self.store.copied_to());
        let mut core = self.core.lock();
        core.expired(first);
        core.grown(end);
    }

    /// Returns the answer to the handshake of a slave of Apache's.
    pub(super) fn state(&self) -> Vec<u8> {
        self.grown();
        let core = self.core.lock();
        elected::state(core.end(), core.epochs())
    }

    /// Adds a slave, or an observer, that has reported the end of its log.
    pub(super) fn join(
        &self,
        id: ConnectionId,
        address: SocketAddr,
        end: PhysicalOffset,
        broker_id: Option<u64>,
        standing: Standing,
        protocol: Protocol,
    ) -> Result<Arc<Notify>, Ended> {
        self.grown();
        let mut connected = self.connected.lock();
        let (places, copy_from) = match standing {
            Standing::Slave => (self.options.slaves_max, self.options.copy_from),
            // A backup has the whole log.
            Standing::Observer => (OBSERVERS_MAX, CopyFrom::First),
        };
        if connected.values().filter(|other| other.standing == standing).count() >= places {
            return Err(Ended::Full(places, standing));
        }
        {
            let mut core = self.core.lock();
            core.connected(id, copy_from, self.now());
            if standing == Standing::Observer {
                core.observes(id);
            }
        }
        let joined = match standing {
            Standing::Slave => self.joined(id, address.ip(), end),
            Standing::Observer => self.core.lock().reported(id, end, self.now()),
        };
        if let Err(distrust) = joined {
            self.core.lock().disconnected(id);
            if standing == Standing::Slave {
                self.fits(address.ip(), Some(distrust.to_string()));
            }
            return Err(Ended::Distrust(distrust));
        }
        if let Some(broker_id) = broker_id {
            self.core.lock().identified(id, broker_id);
        }
        let wakeup = Arc::new(Notify::new());
        connected.insert(id, Connected { address, standing, protocol, wakeup: Arc::clone(&wakeup) });
        self.watch(&connected);
        drop(connected);
        self.confirm();
        Ok(wakeup)
    }

    /// Removes a slave.
    pub(super) fn disconnect(&self, id: ConnectionId) {
        self.core.lock().disconnected(id);
        let mut connected = self.connected.lock();
        connected.remove(&id);
        self.watch(&connected);
        drop(connected);
        self.confirm();
    }

    /// Sets the replicas in sync.
    pub(super) fn require(&self, set: InSyncSet) {
        self.grown();
        self.core.lock().require(set);
        self.confirm();
    }

    /// Reports to the store how far copies of its log reach and how many exist.
    pub(super) fn confirm(&self) {
        let (confirmed, in_sync) = {
            let core = self.core.lock();
            (core.confirmed(), core.in_sync())
        };
        self.store.confirm(confirmed, in_sync);
    }

    /// Checks the first report of a connection: the end of the slave's log.
    fn joined(&self, id: ConnectionId, address: IpAddr, end: PhysicalOffset) -> Result<(), Distrust> {
        let mut ahead = self.ahead.lock();
        let was_ahead = ahead.contains(&(address, end));
        let joined = match self.store.copied_to() {
            own if was_ahead && own >= end => Err(Distrust::WasAhead { slave: end }),
            _ => self.core.lock().reported(id, end, self.now()),
        };
        if matches!(joined, Err(Distrust::AheadOfMaster { .. })) && !was_ahead {
            self.remember(&mut ahead, (address, end));
        }
        if joined.is_ok() {
            self.fits(address, None);
        }
        joined
    }

    /// Records why the log of the slave at an address does not match this one; `None` if it does.
    pub(super) fn fits(&self, address: IpAddr, mismatch: Option<String>) {
        let mut refused = self.refused.lock();
        refused.retain(|refused| refused.address != address);
        if let Some(mismatch) = mismatch {
            self.remember(&mut refused, RefusedSlave { address, reason: mismatch, lacks_ticket: false });
        }
    }

    /// Records that a connection from an address showed no ticket, unless a mismatch of its log is known.
    pub(super) fn lacks_ticket(&self, address: IpAddr, reason: String) {
        let mut refused = self.refused.lock();
        if !refused.iter().any(|refused| refused.address == address) {
            self.remember(&mut refused, RefusedSlave { address, reason, lacks_ticket: true });
        }
    }

    /// Adds to a list, which has at most `slaves_max` entries.
    fn remember<T>(&self, list: &mut VecDeque<T>, one: T) {
        if list.len() == self.options.slaves_max {
            list.pop_front();
        }
        list.push_back(one);
    }

    pub(super) fn refused(&self) -> Vec<RefusedSlave> {
        self.refused.lock().iter().cloned().collect()
    }

    /// Makes new log data wake the writers of the connected slaves.
    fn watch(&self, connected: &BTreeMap<ConnectionId, Connected>) {
        let wakeups: Vec<_> = connected.values().map(|slave| Arc::clone(&slave.wakeup)).collect();
        let watcher = move || wakeups.iter().for_each(|wakeup| wakeup.notify_one());
        self.store.growth().watch(if connected.is_empty() { None } else { Some(Arc::new(watcher)) });
    }
}
