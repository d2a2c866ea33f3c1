//! `Replication`: a broker's side of replication, as master or slave.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use super::errors::raise;
use super::owner_process::OwnerProcess;
use super::server::PyServer;
use super::store::PyStore;
use super::tls::{PyClientTls, PyServerTls};
use crate::ha::{
    self, Admission, AdmissionRules, Agreement, Connector, ConnectorOptions, Listener, ListenerOptions,
    MasterStatus, Proposal, Refusal,
};
use crate::positions::PhysicalOffset;
use crate::replication::alignment::LogState;
use crate::replication::epochs::{EpochStart, Epochs};
use crate::replication::master::{CopyFrom, InSyncSet, Standing};
use crate::replication::stream::{Protocol, TICKET_BYTES};
use crate::store::{ReplicaError, Store};
use crate::tls::{ClientTls, ServerTls};

/// The settings of `rmqpy.config.replication` that the native module needs, read by name.
#[derive(FromPyObject)]
struct ReplicationConfig {
    heartbeat_interval_ms: u64,
    silence_ms_max: u64,
    transfer_bytes_max: u32,
    gap_bytes_max: u64,
    copies: usize,
    copies_last_file: bool,
    trusted_addresses: Vec<String>,
    is_controlled: bool,
}

/// A slave that is connected to a master.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct ConnectedSlave {
    /// Its `ip:port`.
    address: String,
    /// The end of its log, as it last reported.
    end: u64,
    /// Whether it is in sync.
    is_in_sync: bool,
    /// Milliseconds since its last message.
    silent_ms: u64,
    /// Its broker id, if it is known.
    broker_id: Option<u64>,
    /// Whether it is Apache's, of a set with a controller.
    is_apache: bool,
}

/// A slave that a master refused.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct RefusedSlave {
    /// Its `ip:port`.
    address: String,
    /// The reason.
    reason: String,
    /// Whether its ticket was missing; otherwise the logs diverge.
    lacks_ticket: bool,
}

/// A slave's view of its master.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct FollowedMaster {
    /// Its `host:port`, if known.
    address: Option<String>,
    /// Whether there is a connection.
    is_connected: bool,
    /// The end of the slave's log.
    end: u64,
    /// Milliseconds since its last message.
    silent_ms: Option<u64>,
    /// The reason for a missing connection.
    fault: Option<String>,
    /// Whether the logs diverge.
    is_diverged: bool,
}

/// The part of a slave's log that must equal its master's.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct SharedRange {
    /// The position at which the slave cuts its log first, if it does.
    cut: Option<u64>,
    /// The start of the range.
    begin: u64,
    /// The end of the range.
    end: u64,
    /// The CRC-32 of the slave's bytes.
    digest: u32,
}

enum Side {
    None,
    Master(Listener),
    Slave(Connector),
}

/// A broker's side of replication: a master after `listen`, or a slave after `follow`.
#[pyclass(name = "Replication", module = "rmqpy._native", frozen)]
pub struct PyReplication {
    store: Arc<Store>,
    side: Mutex<Side>,
    owner: OwnerProcess,
    listener: ListenerOptions,
    connector: ConnectorOptions,
    admission: AdmissionRules,
    /// TLS of a master's port.
    server_tls: Option<Arc<ServerTls>>,
    client_tls: Option<Arc<ClientTls>>,
}

#[pymethods]
impl PyReplication {
    #[new]
    #[pyo3(signature = (store, config, *, slaves_max, needs_ticket=false, server_tls=None, client_tls=None))]
    fn new(
        store: &PyStore,
        config: ReplicationConfig,
        slaves_max: usize,
        needs_ticket: bool,
        server_tls: Option<&PyServerTls>,
        client_tls: Option<&PyClientTls>,
    ) -> PyResult<Self> {
        let heartbeat_interval = Duration::from_millis(config.heartbeat_interval_ms);
        let silence_max = Duration::from_millis(config.silence_ms_max);
        let copy_from = if config.copies_last_file { CopyFrom::LastFile } else { CopyFrom::First };
        let trusted: Result<Vec<IpAddr>, _> =
            config.trusted_addresses.iter().map(|address| address.parse()).collect();
        let trusted =
            trusted.map_err(|error| PyValueError::new_err(format!("invalid slave addresses: {error}")))?;
        Ok(Self {
            store: store.opened()?,
            side: Mutex::new(Side::None),
            owner: OwnerProcess::here(),
            listener: ListenerOptions {
                copies: config.copies,
                gap_bytes_max: config.gap_bytes_max,
                silence_max,
                heartbeat_interval,
                transfer_bytes_max: config.transfer_bytes_max,
                copy_from,
                slaves_max,
            },
            connector: ConnectorOptions { silence_max, heartbeat_interval, asks: true },
            admission: AdmissionRules { needs_ticket, trusted, is_elected: config.is_controlled },
            server_tls: server_tls.map(|tls| Arc::clone(&tls.tls)),
            client_tls: client_tls.map(|tls| Arc::clone(&tls.tls)),
        })
    }

    /// Accept slaves; port 0 selects a free port. Returns the bound address. The log continues in its last epoch, or
    /// begins `epoch`. `server`'s thread serves slaves that replies wait for while they keep up. `in_sync`: see
    /// `require`. Raises `OSError`, or `StoreError` when the epochs cannot be stored.
    #[pyo3(signature = (host, port, *, broker_id=0, epoch=None, server=None, in_sync=None))]
    fn listen(
        &self,
        py: Python<'_>,
        host: &str,
        port: u16,
        broker_id: u64,
        epoch: Option<u32>,
        server: Option<&PyServer>,
        in_sync: Option<Vec<u64>>,
    ) -> PyResult<(String, u16)> {
        self.owner.check("replication")?;
        let senders = server.and_then(PyServer::first_thread);
        let bound = py.detach(|| -> PyResult<SocketAddr> {
            let epochs = ha::lead(&self.store, broker_id, epoch)?;
            let addresses = (host, port).to_socket_addrs()?;
            let address = addresses.into_iter().next().ok_or_else(|| PyOSError::new_err("no such host"))?;
            let (store, tls) = (Arc::clone(&self.store), self.server_tls.clone());
            let admission = Admission::new(self.admission.clone());
            let listener =
                Listener::start_with(store, address, self.listener, epochs, admission, tls, senders)
                    .map_err(|error| {
                        let what = format!("cannot listen on {address} for slaves: {error}");
                        PyOSError::new_err((error.raw_os_error(), what))
                    })?;
            if let Some(slaves) = in_sync {
                let count = slaves.len() + 1;
                listener.require(InSyncSet { slaves: Some(slaves.into_iter().collect()), count });
            }
            let bound = listener.address();
            *self.side.lock() = Side::Master(listener);
            Ok(bound)
        })?;
        Ok((bound.ip().to_string(), bound.port()))
    }

    /// Copy the log of the master named by `set_master_address`. Raises `StoreError` for a store that is not a
    /// replica.
    fn follow(&self, py: Python<'_>) -> PyResult<()> {
        self.owner.check("replication")?;
        py.detach(|| {
            let mut side = self.side.lock();
            *side = Side::None;
            *side = Side::Slave(Connector::start(
                Arc::clone(&self.store),
                self.connector,
                self.client_tls.clone(),
            )?);
            Ok(())
        })
    }

    /// Set a slave's master as `host:port`; `None` for none. A connection to another master ends.
    fn set_master_address(&self, address: Option<String>) {
        if let Side::Slave(connector) = &*self.side.lock() {
            connector.set_master(address);
        }
    }

    /// Admit one connection of a slave that presents this ticket of 16 bytes soon, as the broker with this id. An
    /// observer reads the log and counts as no copy.
    #[pyo3(signature = (ticket, broker_id=None, *, is_observer=false))]
    fn expect(&self, ticket: [u8; TICKET_BYTES], broker_id: Option<u64>, is_observer: bool) {
        if let Side::Master(listener) = &*self.side.lock() {
            let standing = if is_observer { Standing::Observer } else { Standing::Slave };
            listener.expect(ticket, broker_id, standing);
        }
    }

    /// Set a master's replicas in sync: broker ids of slaves, all of which must have a message before it is
    /// confirmed, or `None` if the number of copies decides; and the number of replicas, the master included, that
    /// decides whether messages are accepted.
    #[pyo3(signature = (slaves, count))]
    fn require(&self, py: Python<'_>, slaves: Option<Vec<u64>>, count: usize) {
        py.detach(|| {
            if let Side::Master(listener) = &*self.side.lock() {
                let slaves = slaves.map(|slaves| slaves.into_iter().collect());
                listener.require(InSyncSet { slaves, count });
            }
        });
    }

    /// The position that the replicas in sync have confirmed.
    fn confirmed(&self) -> u64 {
        self.store.confirmed().0
    }

    /// Return the connected slaves of a master, without observers.
    fn slaves(&self) -> Vec<ConnectedSlave> {
        let Side::Master(listener) = &*self.side.lock() else { return Vec::new() };
        let slaves = listener.slaves().into_iter();
        slaves
            .map(|slave| ConnectedSlave {
                address: slave.address.to_string(),
                end: slave.has.0,
                is_in_sync: slave.is_in_sync,
                silent_ms: slave.silent_for.as_millis() as u64,
                broker_id: slave.broker_id,
                is_apache: slave.protocol == Protocol::Elected,
            })
            .collect()
    }

    /// Return a slave's view of its master; `None` on a master.
    fn master(&self) -> Option<FollowedMaster> {
        let Side::Slave(connector) = &*self.side.lock() else { return None };
        let status = connector.status();
        let silent_ms = status.silent_for.map(|time| time.as_millis() as u64);
        let MasterStatus { address, is_connected, end, fault, is_diverged, .. } = status;
        Some(FollowedMaster { address, is_connected, end: end.0, silent_ms, fault, is_diverged })
    }

    /// Return the refused slaves of a master.
    fn refused(&self) -> Vec<RefusedSlave> {
        let Side::Master(listener) = &*self.side.lock() else { return Vec::new() };
        let refused = listener.refused().into_iter();
        refused
            .map(|slave| RefusedSlave {
                address: slave.address.to_string(),
                reason: slave.reason,
                lacks_ticket: slave.lacks_ticket,
            })
            .collect()
    }

    /// The epochs of the log, oldest first: number and begin.
    fn epochs(&self) -> PyResult<Vec<(u32, u64)>> {
        let epochs = ha::epochs(&self.store)?;
        Ok(epochs.entries().iter().map(|entry| (entry.epoch, entry.start.0)).collect())
    }

    /// Begin and end of the part of the log that may be copied.
    fn range(&self) -> (u64, u64) {
        (self.store.range().0.0, self.store.copied_to().0)
    }

    /// Return the CRC-32 of a part of the log; `None` if some of it is missing.
    fn digest(&self, py: Python<'_>, begin: u64, end: u64) -> Option<u32> {
        py.detach(|| self.store.digest(PhysicalOffset(begin), PhysicalOffset(end)))
    }

    /// The pending question of a slave about its master's log; `None` if there is none.
    fn wanted(&self) -> Option<u64> {
        let Side::Slave(connector) = &*self.side.lock() else { return None };
        connector.wanted()
    }

    /// Compare a slave's log with a master's, given the start and end of each of its epochs: the range the master
    /// must share, or the reason not to follow it. Nothing before `confirmed`, the end of a record, is cut.
    #[pyo3(signature = (epochs, begin, end, confirmed=0))]
    fn propose(
        &self,
        py: Python<'_>,
        epochs: Vec<(u32, u64)>,
        begin: u64,
        end: u64,
        confirmed: u64,
    ) -> PyResult<(Option<SharedRange>, Option<String>)> {
        let master =
            LogState { epochs: epochs_of(epochs)?, first: PhysicalOffset(begin), end: PhysicalOffset(end) };
        py.detach(|| {
            let Side::Slave(connector) = &*self.side.lock() else { return Ok((None, None)) };
            Ok(match connector.propose(&master, PhysicalOffset(confirmed))? {
                Ok(Proposal { cut, range, digest }) => {
                    let (cut, begin, end) = (cut.map(|at| at.0), range.0.0, range.1.0);
                    (Some(SharedRange { cut, begin, end, digest }), None)
                }
                Err(divergence) => (None, Some(divergence.to_string())),
            })
        })
    }

    /// Answer a question: follow a master with these epochs, `None` if unknown, which admits this `ticket`.
    /// Without a ticket the question is asked again once there is a connection. `elected_as` is the id of this slave,
    /// to follow a master of Apache's that a controller elected.
    #[pyo3(signature = (question, epochs, ticket=None, *, elected_as=None))]
    fn accept(
        &self,
        question: u64,
        epochs: Vec<(u32, u64)>,
        ticket: Option<[u8; TICKET_BYTES]>,
        elected_as: Option<u64>,
    ) -> PyResult<()> {
        let epochs = epochs_of(epochs)?;
        if let Side::Slave(connector) = &*self.side.lock() {
            connector.answer(question, Ok(Agreement { epochs, ticket, elected_as }));
        }
        Ok(())
    }

    /// Answer a question: do not follow. `is_diverged` means that the logs diverge.
    #[pyo3(signature = (question, reason, *, is_diverged=false))]
    fn refuse(&self, question: u64, reason: String, is_diverged: bool) {
        if let Side::Slave(connector) = &*self.side.lock() {
            connector.answer(question, Err(Refusal { is_diverged, reason }));
        }
    }

    /// Take the log lines since the last call, oldest first: whether it is a warning, and the text.
    fn events(&self) -> Vec<(bool, String)> {
        match &*self.side.lock() {
            Side::None => Vec::new(),
            Side::Master(listener) => listener.take_notes(),
            Side::Slave(connector) => connector.take_notes(),
        }
    }

    /// Close all connections. Idempotent.
    fn stop(&self, py: Python<'_>) {
        if self.owner.is_here() {
            py.detach(|| match &*self.side.lock() {
                Side::None => {}
                Side::Master(listener) => listener.stop(),
                Side::Slave(connector) => connector.stop(),
            });
        }
    }
}

fn epochs_of(entries: Vec<(u32, u64)>) -> PyResult<Epochs> {
    let entries =
        entries.into_iter().map(|(epoch, start)| EpochStart { epoch, start: PhysicalOffset(start) });
    Epochs::from_entries(entries).map_err(|error| PyValueError::new_err(format!("invalid epochs: {error}")))
}

impl From<ReplicaError> for PyErr {
    fn from(error: ReplicaError) -> Self {
        raise("StoreError", &error.to_string())
    }
}
