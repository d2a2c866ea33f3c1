//! Claims: heartbeats that may extend a lease, and the rounds that confirm the leader.

use std::time::Duration;

use crate::controller::liveness::Beat;
use crate::controller::state::BrokerId;

/// A heartbeat with its sender.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// The broker name.
    pub name: String,
    /// The replica.
    pub id: BrokerId,
    /// What it reports.
    pub beat: Beat,
    /// The broker has stopped acknowledging.
    pub releases: bool,
}

/// A heartbeat that may extend a lease.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) token: u64,
    pub(super) name: String,
    pub(super) id: BrokerId,
    pub(super) at: Duration,
    /// The round that confirms leadership; 0 before it has begun.
    round: u64,
}

/// The heartbeats that wait for a round, and the round.
#[derive(Debug, Default)]
pub(super) struct Claims {
    waiting: Vec<Claim>,
    round: u64,
    is_open: bool,
}

impl Claims {
    pub(super) fn add(&mut self, token: u64, name: &str, id: BrokerId, at: Duration) {
        self.waiting.push(Claim { token, name: name.to_owned(), id, at, round: 0 });
    }

    /// Ends the round, if there is one, and takes all claims.
    pub(super) fn give_up(&mut self) -> Vec<Claim> {
        self.is_open = false;
        std::mem::take(&mut self.waiting)
    }

    /// Takes the claims of a replica.
    pub(super) fn take(&mut self, name: &str, id: BrokerId) -> Vec<Claim> {
        self.waiting.extract_if(.., |claim| claim.name == name && claim.id == id).collect()
    }

    /// Begins a round, for all claims so far, unless one is open; returns its number.
    pub(super) fn open(&mut self) -> Option<u64> {
        if self.is_open || self.waiting.is_empty() {
            return None;
        }
        self.round += 1;
        self.is_open = true;
        for claim in &mut self.waiting {
            claim.round = self.round;
        }
        Some(self.round)
    }

    /// Ends a round, unless it has ended already, and takes its claims.
    pub(super) fn close(&mut self, round: u64) -> Option<Vec<Claim>> {
        if round != self.round || !self.is_open {
            return None;
        }
        self.is_open = false;
        Some(self.waiting.extract_if(.., |claim| claim.round == round).collect())
    }
}

/// The silence after which a master that takes leases counts as dead: a little longer than its lease.
pub(super) fn silence_of_holder(lease: Duration) -> Duration {
    lease + lease / 3
}

/// A lease as the controller counts it: clocks of brokers may run slower by a tenth.
pub(super) fn with_margin(lease: Duration) -> Duration {
    lease + lease / 10
}
