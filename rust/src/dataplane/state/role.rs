//! Role: master or slave, and the number of copies that a reply waits for.
//!
//! Values only; any thread.

use std::time::Duration;

/// Settings for reading from slaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct SlaveReads {
    /// Whether consumers that are far behind are redirected to a slave, and whether a slave serves them.
    pub is_served: bool,
    /// Whether a slave corrects the offset of consumers that request messages it lacks.
    pub checks_offsets: bool,
    /// Whether a slave acts for an absent master (`enableSlaveActingMaster`).
    pub may_act: bool,
}

/// The role of a broker among the brokers of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Accepts messages.
    Master,
    /// Copies a master that is alive.
    Slave,
    /// Copies a master that does not answer at present.
    Orphan,
    /// Acts for an absent master, and is advertised to consumers in its place.
    Acting,
}

impl Role {
    /// Returns the role with this number.
    pub(in crate::dataplane) fn of(number: u8) -> Self {
        match number {
            0 => Self::Master,
            1 => Self::Slave,
            2 => Self::Orphan,
            _ => Self::Acting,
        }
    }
}

/// The number of copies that a reply promises, and the limits of its wait.
#[derive(Debug, Clone, Copy)]
pub struct CopyRules {
    /// Copies of a message, the master's included, that a reply waits for; 1 does not wait (`inSyncReplicas`).
    pub copies: usize,
    /// The number of replicas in sync below which messages are refused (`minInSyncReplicas`).
    pub copies_min: usize,
    /// Maximum time that a reply waits for slaves (`slaveTimeout`).
    pub timeout: Duration,
    /// Whether a controller keeps the set of replicas in sync (`enableControllerMode`). A reply then waits for all of
    /// them, and for none if this broker is the only one.
    pub is_controlled: bool,
}

impl Default for CopyRules {
    fn default() -> Self {
        Self { copies: 1, copies_min: 1, timeout: Duration::from_secs(3), is_controlled: false }
    }
}
