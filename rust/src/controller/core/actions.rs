//! Actions: instructions of the core to its caller.

use crate::controller::requests::{Outcome, SetView};

/// An instruction to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Append this entry to the log, then report it by `committed`, or `failed`.
    Append {
        /// The number of the proposal.
        proposal: u64,
        /// The encoded entry.
        entry: Vec<u8>,
    },
    /// Confirm by a majority that this controller leads, then report it by `confirmed`.
    Confirm {
        /// The number of the round.
        round: u64,
    },
    /// Answer a request or a heartbeat.
    Answer {
        /// As the caller gave it.
        token: u64,
        /// The outcome.
        outcome: Box<Outcome>,
    },
    /// Notify a broker of its set.
    Notify {
        /// Its `host:port`.
        address: String,
        /// The set.
        set: Box<SetView>,
    },
    /// A line for the log.
    Note {
        /// Whether it is a warning.
        is_warning: bool,
        /// The line.
        text: String,
    },
}
