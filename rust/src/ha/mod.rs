//! High availability: the sockets between a master and its slaves.
//!
//! What either side does `replication` decides; here are the connections that its events come from and its bytes go to, and
//! the two stores: a master's, which is read where it lies, and a slave's, which takes its master's log as it is.
//!
//! - `listener`: a master waits for slaves, and sends each what it lacks.
//! - `connector`: a slave stays with its master, or tries again and again.
//!
//! Either has one thread of its own (`rmqpy-ha`), where its connections are, but for slaves that have caught up and that
//! replies wait for: these are served by the I/O thread that stores messages. Senders and readers of messages never
//! wait for it: an append tells it that the log has grown, and only where somebody copies it. What comes to the port is a
//! slave once it has said so (`admission`): with a ticket from the ordinary port where access control is on. Bare TCP, as
//! the original's, belongs on loopback or in a network that is trusted; between two of ours it may go through TLS.

mod admission;
mod connector;
mod ended;
mod epoch_file;
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

/// The epochs of the log of a broker that leads from now on: `epoch` where that was agreed with others, and one of its own
/// where there was none.
///
/// # Errors
/// The file of epochs cannot be read or written.
pub fn lead(store: &Store, broker_id: u64, epoch: Option<u32>) -> Result<Epochs, StoreError> {
    epoch_file::lead(store, broker_id, epoch)
}

/// The epochs of the log of a store, as far as they are known.
///
/// # Errors
/// The file of epochs cannot be read.
pub fn epochs(store: &Store) -> Result<Epochs, StoreError> {
    Ok(epoch_file::load(store)?.epochs)
}
