//! High availability: the sockets between a master and its slaves.
//!
//! `replication` makes the decisions of either side. Here are the connections that deliver its events and transfer
//! its bytes, and the two stores: the master's, which is read in place, and the slave's, which appends the bytes of
//! the master's log.
//!
//! - `listener` accepts slaves at a master and sends each the log it lacks.
//! - `connector` keeps a slave connected to its master, with the task in `following`.
//!
//! Each has a separate thread (`rmqpy-ha`) for its connections. Slaves that have caught up and that replies wait for
//! are served by the I/O thread that stores messages. Producers and consumers never wait for replication: an append
//! only notifies it of new log data, and only if a slave is connected. `admission` decides which connections are
//! slaves; with access control they need a ticket from the ordinary port. Plain TCP, as with Apache's broker, belongs
//! on loopback or in a trusted network; two rmqpy brokers may use TLS.

mod admission;
mod connector;
mod ended;
mod epoch_file;
mod following;
mod handshake;
mod listener;
mod notes;
mod runtime;
mod slaves;
mod transfers;

use crate::replication::epochs::Epochs;
use crate::store::{Store, StoreError};

pub use admission::{Admission, AdmissionRules};
pub use connector::{Connector, ConnectorOptions, MasterStatus, Proposal};
pub use handshake::{Agreement, Refusal};
pub use listener::Listener;
pub use slaves::{ListenerOptions, RefusedSlave, SlaveStatus};

/// Returns the epochs of the log of a broker that becomes master: with `epoch` if it was agreed with other replicas,
/// or a new epoch if there is none.
///
/// # Errors
/// The file of epochs cannot be read or written.
pub fn lead(store: &Store, broker_id: u64, epoch: Option<u32>) -> Result<Epochs, StoreError> {
    epoch_file::lead(store, broker_id, epoch)
}

/// Returns the known epochs of a store's log.
///
/// # Errors
/// The file of epochs cannot be read.
pub fn epochs(store: &Store) -> Result<Epochs, StoreError> {
    Ok(epoch_file::load(store)?.epochs)
}
