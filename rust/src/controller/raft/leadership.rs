//! Leadership: reports when this controller leads and when it does not.
//!
//! openraft's leader stays one until it learns of another. Here it stops leading when no majority has replied for
//! `QUORUM_MS`, so that brokers that reach both look for the other one.
//!
//! Invariant: *leads* and *follows* are reported in the order in which they happened.

use std::sync::Arc;
use std::time::Duration;

use openraft::ServerState;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::types::{ControllerId, ELECTION_MS, Group, HEARTBEAT_MS, Raft};
use crate::controller::log::{Mailbox, Report};

/// The silence of a majority after which a leader no longer counts as one.
const QUORUM_MS: u64 = ELECTION_MS * 3;
/// The interval of looking, without news of openraft.
const LOOK: Duration = Duration::from_millis(HEARTBEAT_MS);

/// The latest reports.
pub(super) struct Leadership {
    mailbox: Arc<Mailbox>,
    latest: Mutex<Latest>,
}

#[derive(Default)]
struct Latest {
    /// The term in which this controller leads, if that was reported.
    term: Option<u64>,
    leader: Option<ControllerId>,
}

impl Leadership {
    pub(super) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self { mailbox, latest: Mutex::default() }
    }

    pub(super) fn leader(&self) -> Option<ControllerId> {
        self.latest.lock().leader
    }

    /// Reports that a proposal will not be committed.
    pub(super) fn refused(&self, proposal: u64, reason: &str) {
        self.mailbox.push(Report::Failed { proposal, reason: reason.to_owned() });
    }

    /// Notes that this controller does not lead.
    pub(super) fn lost(&self) {
        let mut latest = self.latest.lock();
        if latest.term.take().is_some() {
            self.mailbox.push(Report::Follows);
        }
    }

    /// Asks a majority whether this controller leads, and reports it.
    pub(super) async fn confirm(&self, raft: &Raft, round: u64) {
        let limit = Duration::from_millis(QUORUM_MS);
        let is_leader = matches!(timeout(limit, raft.ensure_linearizable()).await, Ok(Ok(_)));
        self.mailbox.push(Report::Confirmed { round, is_leader });
    }

    fn leads(&self, term: u64) {
        let mut latest = self.latest.lock();
        if latest.term == Some(term) {
            return;
        }
        if latest.term.is_some() {
            self.mailbox.push(Report::Follows);
        }
        latest.term = Some(term);
        self.mailbox.push(Report::Leads);
    }

    fn knows(&self, leader: Option<ControllerId>) {
        self.latest.lock().leader = leader;
    }
}

/// Follows openraft until it stops.
pub(super) async fn watch(raft: Raft, leadership: Arc<Leadership>, group: Group) {
    let mut metrics = raft.metrics();
    loop {
        let (term, leads, leader, fault) = {
            let now = metrics.borrow_and_update();
            let has_quorum = now.millis_since_quorum_ack.is_none_or(|silence| silence < QUORUM_MS);
            let leads = now.state == ServerState::Leader && has_quorum;
            let leader = now.current_leader.filter(|leader| leads || *leader != group.own);
            (now.current_term, leads, leader, now.running_state.clone().err())
        };
        if let Some(fault) = fault {
            leadership.knows(None);
            leadership.lost();
            leadership.mailbox.push(Report::Broken(format!("the controller's log failed: {fault}")));
            return;
        }
        leadership.knows(leader);
        if !leads {
            leadership.lost();
        } else if leadership.latest.lock().term != Some(term) {
            // It ends once every entry of earlier leaders is applied, or when another controller leads.
            let limit = Duration::from_millis(QUORUM_MS);
            let is_confirmed = matches!(timeout(limit, raft.ensure_linearizable()).await, Ok(Ok(_)));
            let is_current = {
                let now = metrics.borrow();
                now.state == ServerState::Leader && now.current_term == term
            };
            if is_confirmed && is_current {
                leadership.leads(term);
            }
        }
        tokio::select! {
            changed = metrics.changed() => if changed.is_err() { return },
            () = sleep(LOOK) => {}
        }
    }
}
