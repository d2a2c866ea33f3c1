//! Slaves: those that are connected to a master, what it knows of each, and what the log tells their writers.
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
use crate::replication::epochs::Epochs;
use crate::replication::master::{ConnectionId, CopyFrom, Distrust, Master, MasterRules};
use crate::store::{RECORD_BYTES_MAX, Store};

use super::admission::Admission;
use super::ended::Ended;
use super::notes::Notes;

/// What a slave may lack of what it was sent before it reports: it reports whole records, the largest included.
const UNREPORTED_BYTES_MAX: u64 = 2 * RECORD_BYTES_MAX as u64;

/// What a master goes by.
#[derive(Debug, Clone, Copy)]
pub struct ListenerOptions {
    /// Copies that a confirmed message has, the master's own among them.
    pub copies: usize,
    /// A slave that lacks less is in sync (`haMaxGapNotInSync`).
    pub gap_bytes_max: u64,
    /// `haHousekeepingInterval`.
    pub silence_max: Duration,
    /// `haSendHeartbeatInterval`.
    pub heartbeat_interval: Duration,
    /// `haTransferBatchSize`.
    pub transfer_bytes_max: u32,
    /// Where a slave begins that has nothing.
    pub copy_from: CopyFrom,
    /// Slaves that may be connected at a time.
    pub slaves_max: usize,
}

/// What is known of a connected slave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlaveStatus {
    /// Number of its connection.
    pub id: u64,
    /// Where it has connected from.
    pub address: SocketAddr,
    /// What it has reported.
    pub has: PhysicalOffset,
    /// Bytes it lacks.
    pub lag_bytes: u64,
    /// Whether that is little enough.
    pub is_in_sync: bool,
    /// Time since it said something.
    pub silent_for: Duration,
}

/// A slave that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSlave {
    /// Where it has connected from.
    pub address: IpAddr,
    /// Why.
    pub reason: String,
    /// It showed no ticket, and may be no slave at all; otherwise its log does not fit this one.
    pub lacks_ticket: bool,
}

/// The slaves that are connected to a master.
#[derive(Debug)]
pub(super) struct Slaves {
    pub(super) store: Arc<Store>,
    pub(super) options: ListenerOptions,
    pub(super) core: Mutex<Master>,
    connected: Mutex<BTreeMap<ConnectionId, Connected>>,
    /// Those that were refused, until they are let in; the oldest are forgotten.
    refused: Mutex<VecDeque<RefusedSlave>>,
    /// Ends of slaves' logs behind the end of this one; the oldest are forgotten. Nothing but its end says of an Apache
    /// slave what it has, so that one of these is known by that when this log has grown past it.
    ahead: Mutex<VecDeque<(IpAddr, PhysicalOffset)>>,
    started: Instant,
    pub(super) notes: Notes,
    /// Decides which connections are slaves.
    pub(super) admission: Admission,
    /// The I/O thread that stores messages, where slaves are served that have caught up.
    pub(super) senders: Option<Handle>,
}

#[derive(Debug)]
struct Connected {
    address: SocketAddr,
    /// Tells its writer that there may be something to send.
    wakeup: Arc<Notify>,
}

impl Slaves {
    /// None yet, of the master of this store.
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

    /// What is known of each, oldest connection first.
    pub(super) fn status(&self) -> Vec<SlaveStatus> {
        self.grown();
        let now = self.now();
        let status = |(id, slave): (&ConnectionId, &Connected)| {
            let state = self.core.lock().state(*id)?;
            Some(SlaveStatus {
                id: id.0,
                address: slave.address,
                has: state.has?,
                lag_bytes: state.lag_bytes?,
                is_in_sync: state.is_in_sync,
                silent_for: now.saturating_sub(state.heard_at),
            })
        };
        self.connected.lock().iter().filter_map(status).collect()
    }

    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Tells the core how much there is of the log.
    pub(super) fn grown(&self) {
        let (first, end) = (self.store.range().0, self.store.copied_to());
        let mut core = self.core.lock();
        core.expired(first);
        core.grown(end);
    }

    /// Takes one in that has said where its log ends.
    pub(super) fn join(
        &self,
        id: ConnectionId,
        address: SocketAddr,
        end: PhysicalOffset,
    ) -> Result<Arc<Notify>, Ended> {
        self.grown();
        let mut connected = self.connected.lock();
        if connected.len() == self.options.slaves_max {
            return Err(Ended::Full(self.options.slaves_max));
        }
        self.core.lock().connected(id, self.options.copy_from, self.now());
        if let Err(distrust) = self.joined(id, address.ip(), end) {
            self.core.lock().disconnected(id);
            self.fits(address.ip(), Some(distrust.to_string()));
            return Err(Ended::Distrust(distrust));
        }
        let wakeup = Arc::new(Notify::new());
        connected.insert(id, Connected { address, wakeup: Arc::clone(&wakeup) });
        self.watch(&connected);
        drop(connected);
        self.confirm();
        Ok(wakeup)
    }

    /// Lets one go.
    pub(super) fn disconnect(&self, id: ConnectionId) {
        self.core.lock().disconnected(id);
        let mut connected = self.connected.lock();
        connected.remove(&id);
        self.watch(&connected);
        drop(connected);
        self.confirm();
    }

    /// Tells the store how far copies of its log reach, and how many there are.
    pub(super) fn confirm(&self) {
        let (confirmed, in_sync) = {
            let core = self.core.lock();
            (core.confirmed(), core.in_sync())
        };
        self.store.confirm(confirmed, in_sync);
    }

    /// Takes the first report of a connection: where the slave's log ends.
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

    /// Keeps why the slave at an address does not fit this log; `None`: it does.
    pub(super) fn fits(&self, address: IpAddr, mismatch: Option<String>) {
        let mut refused = self.refused.lock();
        refused.retain(|refused| refused.address != address);
        if let Some(mismatch) = mismatch {
            self.remember(&mut refused, RefusedSlave { address, reason: mismatch, lacks_ticket: false });
        }
    }

    /// Keeps that what came from an address showed no ticket, unless a log from there is known not to fit.
    pub(super) fn lacks_ticket(&self, address: IpAddr, reason: String) {
        let mut refused = self.refused.lock();
        if !refused.iter().any(|refused| refused.address == address) {
            self.remember(&mut refused, RefusedSlave { address, reason, lacks_ticket: true });
        }
    }

    /// Adds to a list of slaves, which is as long as there may be slaves.
    fn remember<T>(&self, list: &mut VecDeque<T>, one: T) {
        if list.len() == self.options.slaves_max {
            list.pop_front();
        }
        list.push_back(one);
    }

    /// Those that were refused.
    pub(super) fn refused(&self) -> Vec<RefusedSlave> {
        self.refused.lock().iter().cloned().collect()
    }

    /// Has the log wake the writers of those that are connected.
    fn watch(&self, connected: &BTreeMap<ConnectionId, Connected>) {
        let wakeups: Vec<_> = connected.values().map(|slave| Arc::clone(&slave.wakeup)).collect();
        let watcher = move || wakeups.iter().for_each(|wakeup| wakeup.notify_one());
        self.store.growth().watch(if connected.is_empty() { None } else { Some(Arc::new(watcher)) });
    }
}
