//! Decisions: requests and successions one at a time, and their answers once the log has agreed.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Core;
use super::actions::Action;
use super::changes::{Flight, Waiting, Work};
use crate::controller::decisions::{Decision, Situation, decide, decide_succession};
use crate::controller::election::Rules;
use crate::controller::requests::{Code, Outcome, Request};
use crate::controller::state::{BrokerId, Entry, Event};

/// A lost master without a successor stays recorded for this long, so that a reconnection does not cost an epoch.
const RECONNECTION: Duration = Duration::from_secs(1);
/// The longest wait for the first heartbeat of a master after this controller began to lead.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The same for a master that waits for all replicas in sync: brokers of rmqpy send several heartbeats within it, to every
/// controller.
const SILENCE: Duration = Duration::from_secs(1);

impl Core {
    /// Decides again what waits, and looks for masters that are lost.
    pub(super) fn reconsider(&mut self, now: Duration) {
        if !self.is_leader() {
            return;
        }
        for waiting in std::mem::take(&mut self.changes.waiting) {
            self.changes.queue.push_back(Work::Request(waiting));
        }
        self.work(now);
        if self.changes.flight.is_some() || !self.changes.queue.is_empty() {
            return;
        }
        let lost: Vec<String> = self
            .state
            .sets()
            .map(|(name, _)| name)
            .filter(|name| self.wants_master(name, now))
            .cloned()
            .collect();
        for name in lost {
            self.changes.queue.push_back(Work::Succession(name));
        }
        self.work(now);
    }

    /// Whether a broker set needs an election that no broker asked for.
    fn wants_master(&self, name: &str, now: Duration) -> bool {
        let (Some(set), Some(since)) = (self.state.get(name), self.leads_since) else { return false };
        if set.master_epoch == 0 {
            return false;
        }
        let situation = self.situation(now, now);
        let Decision::Propose(events) = decide_succession(name, &situation) else { return false };
        let has_winner = matches!(events.first(), Some(Event::MasterElected { master: Some(_), .. }));
        let Some(master) = set.master else { return has_winner };
        if self.liveness.alive(name, master, now).is_some() {
            // A restarted master that can be replaced is replaced.
            let other = |event: &Event| matches!(event, Event::MasterElected { master: Some(id), .. } if *id != master);
            return events.iter().any(other);
        }
        match self.liveness.lost_at(name, master) {
            Some(lost) => has_winner || now >= lost + RECONNECTION,
            None => has_winner && now >= since + self.silence(name, set.waits_for_all, now),
        }
    }

    /// The time after which a master that this controller never received a heartbeat from counts as lost: that of the
    /// other replicas.
    fn silence(&self, name: &str, waits_for_all: bool, now: Duration) -> Duration {
        let timeout = self.liveness.timeout_max(name, now).unwrap_or(SILENCE_MAX).min(SILENCE_MAX);
        if waits_for_all { timeout.min(SILENCE) } else { timeout }
    }

    fn situation(&self, now: Duration, first_election_end: Duration) -> Situation<'_> {
        let rules = Rules { is_unclean_allowed: self.settings.is_unclean_allowed };
        let leads_since = self.leads_since.unwrap_or(now);
        Situation {
            state: &self.state,
            liveness: &self.liveness,
            rules,
            now,
            first_election_end,
            leads_since,
        }
    }

    /// Decides queued requests, up to the next change.
    pub(super) fn work(&mut self, now: Duration) {
        while self.changes.flight.is_none() {
            let Some(work) = self.changes.queue.pop_front() else { return };
            let decision = match &work {
                Work::Request(waiting) => {
                    let end = waiting.since + self.settings.first_election_wait;
                    decide(&waiting.asked, &self.situation(now, end))
                }
                Work::Succession(name) => decide_succession(name, &self.situation(now, now)),
                Work::Late => continue,
            };
            match (decision, work) {
                (Decision::Propose(events), work) => self.propose(events, work),
                (Decision::Answer(code, remark), Work::Request(waiting)) => {
                    self.answer_request(&waiting, code, remark, now);
                }
                (Decision::Wait, Work::Request(waiting)) => self.changes.waiting.push(waiting),
                (Decision::Answer(..) | Decision::Wait, Work::Succession(_) | Work::Late) => {}
            }
        }
    }

    fn propose(&mut self, events: Vec<Event>, work: Work) {
        let proposal = self.changes.next_proposal();
        let elects = events.iter().find_map(|event| match event {
            Event::MasterElected { name, .. } => Some(name.clone()),
            _ => None,
        });
        let entry = Entry { proposer: self.run, proposal, events }.encode();
        self.changes.flight = Some(Flight { proposal, elects, work });
        self.actions.push(Action::Append { proposal, entry });
    }

    pub(super) fn succeeded(&mut self, work: Work, events: &[Event], now: Duration) {
        for event in events {
            if let Event::MasterElected { name, master, .. } = event {
                let reason =
                    if matches!(work, Work::Request(_)) { "on request" } else { "by the controller" };
                self.elected(name, *master, reason, now);
            }
            if let Event::SyncStateSetAltered { name, in_sync, .. } = event {
                self.note(false, format!("{name}: in sync are {}", listed(in_sync)));
            }
        }
        if let Work::Request(waiting) = work {
            self.answer_request(&waiting, Code::Success, String::new(), now);
        }
    }

    fn elected(&mut self, name: &str, master: Option<BrokerId>, reason: &str, now: Duration) {
        let Some(set) = self.view(name, now) else { return };
        let epoch = set.master_epoch;
        match master {
            Some(id) => {
                self.elections.elected += 1;
                self.note(false, format!("{name}: broker {id} is elected {reason}, epoch {epoch}"));
            }
            None => {
                self.elections.none += 1;
                let text = format!(
                    "{name}: without a living in-sync replica it has no master, epoch {epoch}; start one of its \
                     in-sync replicas, or elect another by electMaster with enableElectUncleanMaster=true"
                );
                self.note(true, text);
            }
        }
        for replica in set.replicas.iter().filter(|replica| replica.is_alive) {
            let (address, set) = (replica.address.clone(), Box::new(set.clone()));
            self.actions.push(Action::Notify { address, set });
        }
    }

    fn answer_request(&mut self, waiting: &Waiting, code: Code, remark: String, now: Duration) {
        self.elections.kept += u64::from(code == Code::MasterStillExist);
        let mut set = self.view(&waiting.asked.name, now);
        if let (Request::Register { id, connection, .. }, Some(set)) = (&waiting.asked.request, &mut set) {
            if code == Code::Success {
                self.liveness.registration_agreed(&set.name, *id, *connection);
            }
            // A broker must not follow a master that is gone.
            let is_alive = |id| self.liveness.alive(&set.name, id, now).is_some();
            set.master = set.master.take().filter(|(id, _)| is_alive(*id));
        }
        self.answer(waiting.token, Outcome { code, remark, set, lease_ms: None });
    }

    /// Whether `id` must not get a lease: an election of another broker waits for it to end, or is in the log already.
    pub(super) fn is_withdrawn(&self, name: &str, id: BrokerId) -> bool {
        let is_waiting = |waiting: &Waiting| {
            let Request::Elect { id: other, is_designated } = waiting.asked.request else { return false };
            waiting.asked.name == name && is_designated && other != id
        };
        self.changes.waiting.iter().any(is_waiting)
            || self.changes.flight.as_ref().is_some_and(|flight| flight.elects.as_deref() == Some(name))
    }
}

fn listed(ids: &BTreeSet<BrokerId>) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
