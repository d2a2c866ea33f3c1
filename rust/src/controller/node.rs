//! Node: a core over a log.
//!
//! Threads: one at a time, the owner's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::core::{Action, Core, Heartbeat, Settings};
use super::log::{Log, Report};
use super::requests::{Asked, Outcome, SetView};

/// What a node wants its owner to do.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Answers by the token of their request.
    pub answers: Vec<(u64, Outcome)>,
    /// Brokers to notify of their set.
    pub notices: Vec<(String, SetView)>,
    /// Lines for the log; true for a warning.
    pub notes: Vec<(bool, String)>,
    /// The reason that the node cannot go on.
    pub fault: Option<String>,
    /// Calls to other controllers.
    pub calls: Vec<OutgoingCall>,
    /// Replies to calls of other controllers, by their token.
    pub replies: Vec<(u64, Vec<u8>)>,
}

/// A call to another controller.
#[derive(Debug)]
pub struct OutgoingCall {
    /// Its number, which the reply is handed in with.
    pub number: u64,
    /// The name of the other controller.
    pub target: String,
    /// The call.
    pub body: Vec<u8>,
    /// The time for the reply.
    pub limit: Duration,
}

/// One controller.
pub struct Node {
    core: Core,
    log: Arc<dyn Log>,
}

impl Node {
    /// `run` is a number that no other run of a controller uses.
    #[must_use]
    pub fn new(settings: Settings, run: u64, log: Arc<dyn Log>) -> Self {
        Self { core: Core::new(settings, run), log }
    }

    /// The core.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Replaces the settings.
    pub fn set_settings(&mut self, settings: Settings) {
        self.core.set_settings(settings);
    }

    /// Takes a request.
    pub fn request(&mut self, token: u64, asked: Asked, now: Duration) {
        self.core.request(token, asked, now);
    }

    /// Takes a heartbeat.
    pub fn heartbeat(&mut self, token: Option<u64>, heartbeat: Heartbeat, now: Duration) {
        self.core.heartbeat(token, heartbeat, now);
    }

    /// Notes the end of a connection.
    pub fn closed(&mut self, connection: u64, now: Duration) {
        self.core.closed(connection, now);
    }

    /// Carries out possible actions, and returns the others for the owner.
    pub fn pump(&mut self, now: Duration) -> Outbox {
        let mut outbox = Outbox::default();
        self.core.tick(now);
        loop {
            for action in self.core.take_actions() {
                match action {
                    Action::Append { proposal, entry } => self.log.append(proposal, entry),
                    Action::Confirm { round } => self.log.confirm(round),
                    Action::Answer { token, outcome } => outbox.answers.push((token, *outcome)),
                    Action::Notify { address, set } => outbox.notices.push((address, *set)),
                    Action::Note { is_warning, text } => outbox.notes.push((is_warning, text)),
                }
            }
            let reports = self.log.mailbox().take();
            if reports.is_empty() {
                return outbox;
            }
            self.report(reports, &mut outbox, now);
        }
    }

    fn report(&mut self, reports: VecDeque<Report>, outbox: &mut Outbox, now: Duration) {
        for report in reports {
            match report {
                Report::Restored(state) => {
                    if !self.core.restored(&state) {
                        outbox.fault = Some("a snapshot of the controller's state is damaged".to_owned());
                    }
                }
                Report::Committed(entry) => self.core.committed(&entry, now),
                Report::Failed { proposal, reason } => self.core.failed(proposal, &reason, now),
                Report::Leads => self.core.leads(now),
                Report::Follows => self.core.follows(now),
                Report::Confirmed { round, is_leader } => self.core.confirmed(round, is_leader, now),
                Report::Broken(reason) => {
                    self.core.follows(now);
                    outbox.fault = Some(reason);
                }
                Report::Call { call, target, body, limit } => {
                    outbox.calls.push(OutgoingCall { number: call, target, body, limit });
                }
                Report::Replied { token, body } => outbox.replies.push((token, body)),
            }
        }
    }
}
