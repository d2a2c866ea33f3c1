//! Changes: requests and successions before their decision, and the one change that the log has not agreed yet.

use std::collections::VecDeque;
use std::time::Duration;

use crate::controller::requests::Asked;

/// A request that is not answered yet.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) token: u64,
    pub(super) asked: Asked,
    pub(super) since: Duration,
}

/// Work of the leader.
#[derive(Debug)]
pub(super) enum Work {
    Request(Waiting),
    Succession(String),
    /// A request whose sender has been answered that the controllers did not agree in time.
    Late,
}

/// A change that is not in the log yet.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) proposal: u64,
    /// The broker set whose master it elects.
    pub(super) elects: Option<String>,
    pub(super) work: Work,
}

/// Requests and elections before their decision, and the one change that is decided.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) queue: VecDeque<Work>,
    pub(super) flight: Option<Flight>,
    /// Elections that wait for the end of a lease, or for heartbeats.
    pub(super) waiting: Vec<Waiting>,
    proposals: u64,
}

impl Changes {
    /// Returns the number of the next proposal.
    pub(super) fn next_proposal(&mut self) -> u64 {
        self.proposals += 1;
        self.proposals
    }

    /// Returns the number of requests that wait.
    pub(super) fn pending(&self) -> usize {
        self.queue.len() + self.waiting.len()
    }

    /// Drops all work, and returns its requests.
    pub(super) fn give_up(&mut self) -> Vec<Waiting> {
        let flight = self.flight.take().map(|flight| flight.work);
        let work = flight.into_iter().chain(self.queue.drain(..));
        let requests = work.filter_map(|work| match work {
            Work::Request(waiting) => Some(waiting),
            Work::Succession(_) | Work::Late => None,
        });
        requests.chain(self.waiting.drain(..)).collect()
    }
}

/// The number of elections by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elections {
    /// A new master was elected.
    pub elected: u64,
    /// The present master stayed.
    pub kept: u64,
    /// No replica could be elected.
    pub none: u64,
}
