//! High availability: the sockets between a master and its slaves.
//!
//! What either side does `replication` decides; here are the connections that its events come from and its bytes go to, and
//! the two stores: a master's, which is read where it lies, and a slave's, which takes its master's log as it is.
//!
//! - `listener`: a master waits for slaves, and sends each what it lacks.
//! - `connector`: a slave stays with its master, or tries again and again.
//!
//! Either has one thread of its own (`rmqpy-ha`), where all of its connections are. Senders and readers of messages never
//! wait for it: an append tells it that the log has grown, and only where somebody copies it. Bare TCP, as the original's:
//! it belongs on loopback or in a network that is trusted.

mod connector;
mod listener;
mod notes;
mod runtime;
mod slaves;
mod transfers;

pub use connector::{Connector, ConnectorOptions, MasterStatus};
pub use listener::Listener;
pub use slaves::{ListenerOptions, SlaveStatus};
