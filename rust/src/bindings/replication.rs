//! `Replication`: a broker's side of replication, a master's or a slave's.

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
use crate::replication::master::CopyFrom;
use crate::replication::stream::TICKET_BYTES;
use crate::store::{ReplicaError, Store};
use crate::tls::{ClientTls, ServerTls};

/// Address, number of the connection, what it has, bytes it lacks, whether it is in sync, milliseconds of silence.
type SlaveRow = (String, u64, u64, u64, bool, u64);

/// Address, whether connected, end of the own log, milliseconds of silence, why there is no connection, whether the logs do
/// not fit together.
type MasterRow = (Option<String>, bool, u64, Option<u64>, Option<String>, bool);

/// Where to cut first, if anywhere; begin, end and digest of what both should have.
type ProposalRow = (Option<u64>, u64, u64, u32);

enum Side {
    None,
    Master(Listener),
    Slave(Connector),
}

/// A broker's side of replication: a master that has called `listen`, or a slave that has called `follow`.
#[pyclass(name = "Replication", module = "rmqpy._native", frozen)]
pub struct PyReplication {
    store: Arc<Store>,
    side: Mutex<Side>,
    owner: OwnerProcess,
    listener: ListenerOptions,
    connector: ConnectorOptions,
    admission: AdmissionRules,
    /// Of a master's port, and of a slave's connection to it.
    server_tls: Option<Arc<ServerTls>>,
    client_tls: Option<Arc<ClientTls>>,
}

#[pymethods]
impl PyReplication {
    #[new]
    #[pyo3(signature = (store, *, heartbeat_interval_ms, silence_ms_max, transfer_bytes_max, gap_bytes_max, copies,
                        slaves_max, copies_last_file=false, needs_ticket=false, trusted=None, server_tls=None,
                        client_tls=None))]
    fn new(
        store: &PyStore,
        heartbeat_interval_ms: u64,
        silence_ms_max: u64,
        transfer_bytes_max: u32,
        gap_bytes_max: u64,
        copies: usize,
        slaves_max: usize,
        copies_last_file: bool,
        needs_ticket: bool,
        trusted: Option<Vec<String>>,
        server_tls: Option<&PyServerTls>,
        client_tls: Option<&PyClientTls>,
    ) -> PyResult<Self> {
        let heartbeat_interval = Duration::from_millis(heartbeat_interval_ms);
        let silence_max = Duration::from_millis(silence_ms_max);
        let copy_from = if copies_last_file { CopyFrom::LastFile } else { CopyFrom::First };
        let trusted: Result<Vec<IpAddr>, _> =
            trusted.unwrap_or_default().iter().map(|address| address.parse()).collect();
        let trusted =
            trusted.map_err(|error| PyValueError::new_err(format!("no addresses of slaves: {error}")))?;
        Ok(Self {
            store: store.opened()?,
            side: Mutex::new(Side::None),
            owner: OwnerProcess::here(),
            listener: ListenerOptions {
                copies,
                gap_bytes_max,
                silence_max,
                heartbeat_interval,
                transfer_bytes_max,
                copy_from,
                slaves_max,
            },
            connector: ConnectorOptions { silence_max, heartbeat_interval, asks: true },
            admission: AdmissionRules { needs_ticket, trusted },
            server_tls: server_tls.map(|tls| Arc::clone(&tls.tls)),
            client_tls: client_tls.map(|tls| Arc::clone(&tls.tls)),
        })
    }

    /// Wait for slaves; port 0 picks a free one. Returns the bound address. The log goes on in its last epoch, or
    /// begins `epoch`. Slaves that replies wait for are served by `server`'s thread while they keep up. Raises
    /// `OSError`, or `StoreError` where the epochs cannot be kept.
    #[pyo3(signature = (host, port, *, broker_id=0, epoch=None, server=None))]
    fn listen(
        &self,
        py: Python<'_>,
        host: &str,
        port: u16,
        broker_id: u64,
        epoch: Option<u32>,
        server: Option<&PyServer>,
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
            let bound = listener.address();
            *self.side.lock() = Side::Master(listener);
            Ok(bound)
        })?;
        Ok((bound.ip().to_string(), bound.port()))
    }

    /// Copy the log of the master that `set_master_address` names. Raises `StoreError` for a store that is no
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

    /// Say where a slave's master waits for it, as `host:port`; `None`: nowhere. A connection to another one
    /// ends.
    fn set_master_address(&self, address: Option<String>) {
        if let Side::Slave(connector) = &*self.side.lock() {
            connector.set_master(address);
        }
    }

    /// Let in the connection of a slave that shows this ticket of 16 bytes, once and soon.
    fn expect(&self, ticket: [u8; TICKET_BYTES]) {
        if let Side::Master(listener) = &*self.side.lock() {
            listener.expect(ticket);
        }
    }

    /// The slaves that are connected to a master: address, number of the connection, what it has of the log, bytes
    /// it lacks, whether it is in sync, milliseconds since it said something.
    fn slaves(&self) -> Vec<SlaveRow> {
        let Side::Master(listener) = &*self.side.lock() else { return Vec::new() };
        let slaves = listener.slaves().into_iter();
        slaves
            .map(|slave| {
                let silent_ms = slave.silent_for.as_millis() as u64;
                (
                    slave.address.to_string(),
                    slave.id,
                    slave.has.0,
                    slave.lag_bytes,
                    slave.is_in_sync,
                    silent_ms,
                )
            })
            .collect()
    }

    /// What a slave knows of its master, `None` for a master: its address, whether it is connected, the end of the
    /// own log, milliseconds since the master said something, why there is no connection, whether the logs do not fit
    /// together.
    fn master(&self) -> Option<MasterRow> {
        let Side::Slave(connector) = &*self.side.lock() else { return None };
        let status = connector.status();
        let silent_ms = status.silent_for.map(|time| time.as_millis() as u64);
        let MasterStatus { address, is_connected, end, fault, is_diverged, .. } = status;
        Some((address, is_connected, end.0, silent_ms, fault, is_diverged))
    }

    /// Slaves that were refused: address, reason, and whether it is that they showed no ticket; otherwise their logs
    /// do not fit that of this master.
    fn refused(&self) -> Vec<(String, String, bool)> {
        let Side::Master(listener) = &*self.side.lock() else { return Vec::new() };
        let refused = listener.refused().into_iter();
        refused.map(|slave| (slave.address.to_string(), slave.reason, slave.lacks_ticket)).collect()
    }

    /// The epochs of the log, oldest first: number and begin.
    fn epochs(&self) -> PyResult<Vec<(u32, u64)>> {
        let epochs = ha::epochs(&self.store)?;
        Ok(epochs.entries().iter().map(|entry| (entry.epoch, entry.start.0)).collect())
    }

    /// Where the log begins and ends, as far as others may copy it.
    fn range(&self) -> (u64, u64) {
        (self.store.range().0.0, self.store.copied_to().0)
    }

    /// CRC-32 of a part of the log; `None` where some of it is not there.
    fn digest(&self, py: Python<'_>, begin: u64, end: u64) -> Option<u32> {
        py.detach(|| self.store.digest(PhysicalOffset(begin), PhysicalOffset(end)))
    }

    /// The question of a slave about its master's log that waits for an answer; `None`: none does.
    fn wanted(&self) -> Option<u64> {
        let Side::Slave(connector) = &*self.side.lock() else { return None };
        connector.wanted()
    }

    /// What a slave does beside a master whose log has these epochs, begin and end: where it cuts its own first, if
    /// anywhere, and begin, end and digest of what the master must have, too; or why it does not follow.
    fn propose(
        &self,
        py: Python<'_>,
        epochs: Vec<(u32, u64)>,
        begin: u64,
        end: u64,
    ) -> PyResult<(Option<ProposalRow>, Option<String>)> {
        let master =
            LogState { epochs: epochs_of(epochs)?, first: PhysicalOffset(begin), end: PhysicalOffset(end) };
        py.detach(|| {
            let Side::Slave(connector) = &*self.side.lock() else { return Ok((None, None)) };
            Ok(match connector.propose(&master)? {
                Ok(Proposal { cut, range, digest }) => {
                    (Some((cut.map(|at| at.0), range.0.0, range.1.0, digest)), None)
                }
                Err(divergence) => (None, Some(divergence.to_string())),
            })
        })
    }

    /// Answer a question: follow a master of these epochs, none where they are not known, which lets in by the
    /// ticket that it gave. Without one the question comes again once there is a connection.
    #[pyo3(signature = (question, epochs, ticket=None))]
    fn accept(
        &self,
        question: u64,
        epochs: Vec<(u32, u64)>,
        ticket: Option<[u8; TICKET_BYTES]>,
    ) -> PyResult<()> {
        let epochs = epochs_of(epochs)?;
        if let Side::Slave(connector) = &*self.side.lock() {
            connector.answer(question, Ok(Agreement { epochs, ticket }));
        }
        Ok(())
    }

    /// Answer a question: do not follow; `is_diverged`: the two logs do not fit together.
    #[pyo3(signature = (question, reason, *, is_diverged=false))]
    fn refuse(&self, question: u64, reason: String, is_diverged: bool) {
        if let Side::Slave(connector) = &*self.side.lock() {
            connector.answer(question, Err(Refusal { is_diverged, reason }));
        }
    }

    /// What happened since the last call and belongs into a log, oldest first: whether it warns, and the text.
    fn events(&self) -> Vec<(bool, String)> {
        match &*self.side.lock() {
            Side::None => Vec::new(),
            Side::Master(listener) => listener.take_notes(),
            Side::Slave(connector) => connector.take_notes(),
        }
    }

    /// End all connections. Idempotent.
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
    Epochs::from_entries(entries)
        .map_err(|error| PyValueError::new_err(format!("no epochs of a log: {error}")))
}

impl From<ReplicaError> for PyErr {
    fn from(error: ReplicaError) -> Self {
        raise("StoreError", &error.to_string())
    }
}
