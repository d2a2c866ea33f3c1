//! Role: what a broker is to the others of its name, and what it promises of them.
//!
//! Values only; any thread.

use std::time::Duration;

/// Reading from slaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct SlaveReads {
    /// Whether consumers that are far behind are sent to a slave, and whether a slave answers them.
    pub is_served: bool,
    /// Whether a slave corrects consumers that ask for what it does not have.
    pub checks_offsets: bool,
    /// Whether a slave acts for its master while that is gone (`enableSlaveActingMaster`).
    pub may_act: bool,
}

/// What a broker is to the others of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It takes messages.
    Master,
    /// It copies a master, which answers.
    Slave,
    /// It copies a master, which does not answer at present.
    Orphan,
    /// It acts for its master, which is gone: consumers are shown it in the place of that.
    Acting,
}

impl Role {
    /// The role of this number; numbers are those of the variants.
    pub(super) fn of(number: u8) -> Self {
        match number {
            0 => Self::Master,
            1 => Self::Slave,
            2 => Self::Orphan,
            _ => Self::Acting,
        }
    }
}

/// What is promised of copies.
#[derive(Debug, Clone, Copy)]
pub struct CopyRules {
    /// Copies of a message, the master's own among them, that a reply waits for; 1 waits for nobody (`inSyncReplicas`).
    pub copies: usize,
    /// With fewer replicas in sync messages are refused (`minInSyncReplicas`).
    pub copies_min: usize,
    /// How long a reply waits for slaves (`slaveTimeout`).
    pub timeout: Duration,
}

impl Default for CopyRules {
    fn default() -> Self {
        Self { copies: 1, copies_min: 1, timeout: Duration::from_secs(3) }
    }
}
