//! Core: one controller's decisions about requests, heartbeats, leases and elections over an agreed log, without I/O.
//!
//! # Theory of operation
//!
//! The caller reports what happens (a request, a heartbeat, a closed connection, a committed entry, the gain or loss of
//! leadership, time) and carries out the returned actions. The same core runs in a controller and in the simulator.
//!
//! The leader decides one change at a time from the committed state. It appends the events to the log and answers when
//! they are committed. Requests behind it wait in a bounded queue.
//!
//! A master may acknowledge messages while it has a *lease*, which replies to its heartbeats extend. The leader grants
//! one only after a round that began when the heartbeat had arrived confirmed that it still leads, and elects no other
//! broker before the lease has ended on its own clock, with a margin for clocks of different speed. A new leader
//! assumes that every master has a full lease.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::decisions::{Decision, Situation, decide, decide_succession};
use super::election::Rules;
use super::liveness::{Beat, Liveness};
use super::requests::{Asked, Code, Outcome, Request, SetView};
use super::state::{BrokerId, Entry, Event, State};

/// The most requests that wait for a decision.
pub const QUEUE_MAX: usize = 1_024;
/// The longest time from a request to its answer, besides the wait for a lease.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// A lost master without a successor stays recorded for this long, so that a reconnection does not cost an epoch.
const RECONNECTION: Duration = Duration::from_secs(1);
/// Time for the first heartbeat of a broker after this controller began to lead.
const SILENCE: Duration = Duration::from_secs(10);

/// The settings of a controller that its decisions depend on.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Replicas out of sync may be elected.
    pub is_unclean_allowed: bool,
    /// The lease of a master; zero grants none.
    pub lease: Duration,
    /// The longest wait for silent replicas before the first election of a broker set.
    pub first_election_wait: Duration,
}

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

#[derive(Debug)]
struct Waiting {
    token: u64,
    asked: Asked,
    since: Duration,
}

#[derive(Debug)]
enum Work {
    Request(Waiting),
    Succession(String),
    /// A request whose sender has been answered that the controllers did not agree in time.
    Late,
}

#[derive(Debug)]
struct Flight {
    proposal: u64,
    /// The broker set whose master it elects.
    elects: Option<String>,
    work: Work,
}

/// A heartbeat that may extend a lease.
#[derive(Debug)]
struct Claim {
    token: u64,
    name: String,
    id: BrokerId,
    at: Duration,
    /// The round that confirms leadership; 0 before it has begun.
    round: u64,
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

/// One controller.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    state: State,
    liveness: Liveness,
    run: u64,
    leads_since: Option<Duration>,
    queue: VecDeque<Work>,
    flight: Option<Flight>,
    /// Elections that wait for the end of a lease, or for heartbeats.
    waiting: Vec<Waiting>,
    claims: Vec<Claim>,
    round: u64,
    is_round_open: bool,
    proposals: u64,
    actions: Vec<Action>,
    elections: Elections,
}

impl Core {
    /// `run` is a number that no other run of a controller uses.
    #[must_use]
    pub fn new(settings: Settings, run: u64) -> Self {
        Self {
            settings,
            state: State::default(),
            liveness: Liveness::default(),
            run,
            leads_since: None,
            queue: VecDeque::new(),
            flight: None,
            waiting: Vec::new(),
            claims: Vec::new(),
            round: 0,
            is_round_open: false,
            proposals: 0,
            actions: Vec::new(),
            elections: Elections::default(),
        }
    }

    /// Replaces the settings.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The agreed state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether this controller leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leads_since.is_some()
    }

    /// The elections this controller decided.
    #[must_use]
    pub fn elections(&self) -> Elections {
        self.elections
    }

    /// Takes the actions since the last call, in order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Shows a broker set.
    #[must_use]
    pub fn view(&self, name: &str, now: Duration) -> Option<SetView> {
        let set = self.state.get(name)?;
        let is_alive = |id| self.liveness.alive(name, id, now).is_some();
        let lease = self.liveness.lease(name, now).map_or(Duration::ZERO, |lease| lease.end - now);
        Some(SetView::of(name, set, is_alive, lease.as_millis() as u64))
    }

    // ---- brokers and tools ----

    /// Takes a request. Its answer is an action with this token.
    pub fn request(&mut self, token: u64, mut asked: Asked, now: Duration) {
        if !self.is_leader() {
            self.answer(token, Outcome::refused(Code::NotLeader, "The controller is not in leader state"));
            return;
        }
        if let Request::Register { id, connection, has_started, .. } = &mut asked.request {
            let is_known = self.state.get(&asked.name).is_some_and(|set| set.replicas.contains_key(id));
            *has_started = is_known && self.liveness.registered(&asked.name, *id, *connection, now);
        }
        if self.queue.len() + self.waiting.len() >= QUEUE_MAX {
            let remark = format!("more than {QUEUE_MAX} requests wait for the controller");
            self.answer(token, Outcome::refused(Code::SystemBusy, remark));
            return;
        }
        self.queue.push_back(Work::Request(Waiting { token, asked, since: now }));
        self.work(now);
    }

    /// Takes a heartbeat. With a token the broker takes leases, and the answer is an action.
    pub fn heartbeat(&mut self, token: Option<u64>, heartbeat: Heartbeat, now: Duration) {
        let Heartbeat { name, id, beat, releases } = heartbeat;
        let set = self.state.get(&name).filter(|set| set.replicas.contains_key(&id));
        let is_master = set.is_some_and(|set| set.master == Some(id));
        let was_alive = self.liveness.alive(&name, id, now).is_some();
        let at = beat.at;
        // A replica that is not registered must not fill the table.
        let is_fresh = set.is_some() && self.liveness.received(&name, id, beat);
        if releases {
            self.release(&name, id);
        }
        if let Some(token) = token {
            let takes = is_fresh && is_master && !releases && self.is_leader();
            if takes && !self.settings.lease.is_zero() {
                // A broker that sends another heartbeat no longer waits for the reply to the last.
                self.drop_claims(&name, id);
                self.claims.push(Claim { token, name: name.clone(), id, at, round: 0 });
                self.confirm();
            } else {
                self.answer_beat(token, &name, None, now);
            }
        }
        if releases || (is_fresh && !was_alive) {
            self.reconsider(now);
        }
    }

    /// Notes the end of a connection.
    pub fn closed(&mut self, connection: u64, now: Duration) {
        let lost = self.liveness.closed(connection, now);
        self.note_lost(&lost, "its connection closed", now);
    }

    fn release(&mut self, name: &str, id: BrokerId) {
        // Earlier heartbeats of the broker must not grant a lease any more.
        self.drop_claims(name, id);
        if self.liveness.release(name, id) {
            self.note(false, format!("{name}: broker {id} released its lease"));
        }
    }

    fn drop_claims(&mut self, name: &str, id: BrokerId) {
        let dropped: Vec<Claim> =
            self.claims.extract_if(.., |claim| claim.name == name && claim.id == id).collect();
        for claim in dropped {
            self.answer(claim.token, Outcome::done(None));
        }
    }

    fn confirm(&mut self) {
        if self.is_round_open || self.claims.is_empty() {
            return;
        }
        self.round += 1;
        self.is_round_open = true;
        for claim in &mut self.claims {
            claim.round = self.round;
        }
        self.actions.push(Action::Confirm { round: self.round });
    }

    fn answer_beat(&mut self, token: u64, name: &str, lease: Option<Duration>, now: Duration) {
        let set = if self.is_leader() { self.view(name, now) } else { None };
        let lease_ms = lease.map(|lease| lease.as_millis() as u64);
        self.answer(token, Outcome { lease_ms, ..Outcome::done(set) });
    }

    // ---- the log ----

    /// Applies a committed entry. A damaged entry, which no controller writes, is skipped.
    pub fn committed(&mut self, entry: &[u8], now: Duration) {
        let Some(entry) = Entry::decode(entry) else {
            self.note(true, "an entry of the controller's log is damaged and has no effect".to_owned());
            return;
        };
        for event in &entry.events {
            self.state.apply(event);
        }
        let flight = self.flight.take();
        match flight {
            Some(flight) if (entry.proposer, entry.proposal) == (self.run, flight.proposal) => {
                self.succeeded(flight.work, &entry.events, now);
            }
            other => self.flight = other,
        }
        if entry.events.iter().any(|event| matches!(event, Event::Cleaned { .. })) {
            let state = &self.state;
            self.liveness
                .retain(|name, id| state.get(name).is_some_and(|set| set.replicas.contains_key(&id)));
        }
        self.reconsider(now);
    }

    /// Replaces the state by that of a snapshot; false if it is damaged.
    pub fn restored(&mut self, snapshot: &[u8]) -> bool {
        let Some(state) = State::decode(snapshot) else { return false };
        self.state = state;
        true
    }

    /// Notes that the log did not take a proposal.
    pub fn failed(&mut self, proposal: u64, reason: &str, now: Duration) {
        if let Some(flight) = self.flight.take_if(|flight| flight.proposal == proposal) {
            if let Work::Request(waiting) = flight.work {
                self.answer(waiting.token, Outcome::refused(Code::SystemError, reason));
            }
            self.note(true, format!("the controller's log refused an entry: {reason}"));
            self.work(now);
        }
    }

    /// Notes that this controller leads; every entry of earlier leaders is applied.
    pub fn leads(&mut self, now: Duration) {
        if self.is_leader() {
            return;
        }
        self.leads_since = Some(now);
        if !self.settings.lease.is_zero() {
            let end = now + with_margin(self.settings.lease);
            let masters: Vec<_> = self.state.sets().map(|(name, set)| (name.clone(), set.master)).collect();
            for (name, master) in masters {
                self.liveness.grant(&name, master, end);
            }
        }
        self.note(false, "this controller leads".to_owned());
        self.reconsider(now);
    }

    /// Notes that another controller may lead: pending requests are answered.
    pub fn follows(&mut self, now: Duration) {
        if self.leads_since.take().is_none() {
            return;
        }
        self.note(false, "this controller no longer leads".to_owned());
        self.liveness.forget_leases();
        self.is_round_open = false;
        let flight = self.flight.take().map(|flight| flight.work);
        let work: Vec<Work> = flight.into_iter().chain(self.queue.drain(..)).collect();
        let waiting = std::mem::take(&mut self.waiting);
        let pending = work.into_iter().filter_map(|work| match work {
            Work::Request(waiting) => Some(waiting),
            Work::Succession(_) | Work::Late => None,
        });
        for Waiting { token, .. } in pending.chain(waiting).collect::<Vec<_>>() {
            self.answer(token, Outcome::refused(Code::NotLeader, "The controller is not in leader state"));
        }
        for claim in std::mem::take(&mut self.claims) {
            self.answer_beat(claim.token, &claim.name, None, now);
        }
    }

    /// Notes the end of a round: a majority confirmed that this controller led after it had begun, or did not.
    pub fn confirmed(&mut self, round: u64, is_leader: bool, now: Duration) {
        if round != self.round || !self.is_round_open {
            return;
        }
        self.is_round_open = false;
        let claims: Vec<Claim> = self.claims.extract_if(.., |claim| claim.round == round).collect();
        for Claim { token, name, id, at, .. } in claims {
            let is_master = self.state.get(&name).is_some_and(|set| set.master == Some(id));
            if !is_leader || !self.is_leader() || !is_master {
                self.answer_beat(token, &name, None, now);
            } else if self.is_withdrawn(&name, id) {
                self.answer_beat(token, &name, Some(Duration::ZERO), now);
            } else {
                self.liveness.grant(&name, Some(id), at + with_margin(self.settings.lease));
                self.answer_beat(token, &name, Some(self.settings.lease), now);
            }
        }
        self.confirm();
    }

    /// Whether `id` must not get a lease: an election of another broker waits for it to end, or is in the log already.
    fn is_withdrawn(&self, name: &str, id: BrokerId) -> bool {
        let is_waiting = |waiting: &Waiting| {
            let Request::Elect { id: other, is_designated } = waiting.asked.request else { return false };
            waiting.asked.name == name && is_designated && other != id
        };
        self.waiting.iter().any(is_waiting)
            || self.flight.as_ref().is_some_and(|flight| flight.elects.as_deref() == Some(name))
    }

    // ---- time and elections ----

    /// Notes the passing of time; to be called every 100 ms or more often.
    pub fn tick(&mut self, now: Duration) {
        let expired = self.liveness.expired(now);
        self.note_lost(&expired, "its heartbeats stopped", now);
        self.liveness.expire(now);
        let is_late =
            |work: &Work| matches!(work, Work::Request(waiting) if waiting.since + ANSWER_TIMEOUT < now);
        let (late, queue) = std::mem::take(&mut self.queue).into_iter().partition(is_late);
        self.queue = queue;
        let late: VecDeque<Work> = late;
        for work in late {
            self.time_out(&work);
        }
        // The entry may still be committed, so the next change waits for it. Its sender does not.
        if let Some(flight) = self.flight.as_mut().filter(|flight| is_late(&flight.work)) {
            let work = std::mem::replace(&mut flight.work, Work::Late);
            self.time_out(&work);
        }
        self.reconsider(now);
    }

    fn time_out(&mut self, work: &Work) {
        if let Work::Request(waiting) = work {
            let seconds = ANSWER_TIMEOUT.as_secs();
            let remark = format!("TimeoutException: the controllers did not agree within {seconds} s");
            self.answer(waiting.token, Outcome::refused(Code::SystemError, remark));
        }
    }

    fn note_lost(&mut self, lost: &[(String, BrokerId)], reason: &str, now: Duration) {
        for (name, id) in lost {
            self.note(true, format!("{name}: broker {id} is lost: {reason}"));
        }
        if !lost.is_empty() {
            self.reconsider(now);
        }
    }

    /// Decides again what waits, and looks for masters that are lost.
    fn reconsider(&mut self, now: Duration) {
        if !self.is_leader() {
            return;
        }
        for waiting in std::mem::take(&mut self.waiting) {
            self.queue.push_back(Work::Request(waiting));
        }
        self.work(now);
        if self.flight.is_some() || !self.queue.is_empty() {
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
            self.queue.push_back(Work::Succession(name));
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
            None => has_winner && now >= since + SILENCE,
        }
    }

    fn situation(&self, now: Duration, first_election_end: Duration) -> Situation<'_> {
        let rules = Rules { is_unclean_allowed: self.settings.is_unclean_allowed };
        Situation { state: &self.state, liveness: &self.liveness, rules, now, first_election_end }
    }

    /// Decides queued requests, up to the next change.
    fn work(&mut self, now: Duration) {
        while self.flight.is_none() {
            let Some(work) = self.queue.pop_front() else { return };
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
                (Decision::Wait, Work::Request(waiting)) => self.waiting.push(waiting),
                (Decision::Answer(..) | Decision::Wait, Work::Succession(_) | Work::Late) => {}
            }
        }
    }

    fn propose(&mut self, events: Vec<Event>, work: Work) {
        self.proposals += 1;
        let proposal = self.proposals;
        let elects = events.iter().find_map(|event| match event {
            Event::MasterElected { name, .. } => Some(name.clone()),
            _ => None,
        });
        let entry = Entry { proposer: self.run, proposal, events }.encode();
        self.flight = Some(Flight { proposal, elects, work });
        self.actions.push(Action::Append { proposal, entry });
    }

    fn succeeded(&mut self, work: Work, events: &[Event], now: Duration) {
        for event in events {
            if let Event::MasterElected { name, master } = event {
                let reason =
                    if matches!(work, Work::Request(_)) { "on request" } else { "by the controller" };
                self.elected(name, *master, reason, now);
            }
            if let Event::SyncStateSetAltered { name, in_sync } = event {
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

    fn answer(&mut self, token: u64, outcome: Outcome) {
        self.actions.push(Action::Answer { token, outcome: Box::new(outcome) });
    }

    fn note(&mut self, is_warning: bool, text: String) {
        self.actions.push(Action::Note { is_warning, text });
    }
}

/// A lease as the controller counts it: clocks of brokers may run slower by a tenth.
fn with_margin(lease: Duration) -> Duration {
    lease + lease / 10
}

fn listed(ids: &BTreeSet<BrokerId>) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
