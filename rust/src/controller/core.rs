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
//! assumes that every master has a full lease. A master that waits for the copies of all replicas in sync is replaced
//! by one of them within its lease, since it acknowledges nothing without that one.
//!
//! From the bottom up: `actions` are instructions to the caller, `changes` and `claims` hold requests and heartbeats that
//! wait; this file is the state and the surface for the caller; `leases` answers heartbeats, `deciding` decides requests
//! and elections.

mod actions;
mod changes;
mod claims;
mod deciding;
mod leases;

use std::collections::VecDeque;
use std::time::Duration;

use super::liveness::Liveness;
use super::requests::{Asked, Code, Outcome, Request, SetView};
use super::state::{BrokerId, Entry, Event, State};

pub use actions::Action;
pub use changes::Elections;
use changes::{Changes, Waiting, Work};
pub use claims::Heartbeat;
use claims::{Claims, with_margin};

/// The most requests that wait for a decision.
pub const QUEUE_MAX: usize = 1_024;
/// The longest time from a request to its answer, besides the wait for a lease.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The time without a tick from which on this controller was paused, and does not know which brokers were silent.
const PAUSE: Duration = Duration::from_millis(500);

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

/// One controller.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    state: State,
    liveness: Liveness,
    run: u64,
    leads_since: Option<Duration>,
    ticked_at: Option<Duration>,
    changes: Changes,
    claims: Claims,
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
            ticked_at: None,
            changes: Changes::default(),
            claims: Claims::default(),
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
        if self.changes.pending() >= QUEUE_MAX {
            let remark = format!("more than {QUEUE_MAX} requests wait for the controller");
            self.answer(token, Outcome::refused(Code::SystemBusy, remark));
            return;
        }
        self.changes.queue.push_back(Work::Request(Waiting { token, asked, since: now }));
        self.work(now);
    }

    /// Notes the end of a connection.
    pub fn closed(&mut self, connection: u64, now: Duration) {
        let lost = self.liveness.closed(connection, now);
        self.note_lost(&lost, "its connection closed", now);
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
        let flight = self.changes.flight.take();
        match flight {
            Some(flight) if (entry.proposer, entry.proposal) == (self.run, flight.proposal) => {
                self.succeeded(flight.work, &entry.events, now);
            }
            other => self.changes.flight = other,
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
        if let Some(flight) = self.changes.flight.take_if(|flight| flight.proposal == proposal) {
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
        for Waiting { token, .. } in self.changes.give_up() {
            self.answer(token, Outcome::refused(Code::NotLeader, "The controller is not in leader state"));
        }
        self.drop_all_claims(now);
    }

    // ---- time and elections ----

    /// Notes the passing of time; to be called every 100 ms or more often.
    pub fn tick(&mut self, now: Duration) {
        let paused = now.saturating_sub(self.ticked_at.replace(now).unwrap_or(now));
        if paused > PAUSE {
            // Heartbeats that arrived meanwhile are behind this call.
            self.liveness.excuse(paused);
        }
        let expired = self.liveness.expired(now);
        self.note_lost(&expired, "its heartbeats stopped", now);
        self.liveness.expire(now);
        let is_late =
            |work: &Work| matches!(work, Work::Request(waiting) if waiting.since + ANSWER_TIMEOUT < now);
        let (late, queue) = std::mem::take(&mut self.changes.queue).into_iter().partition(is_late);
        self.changes.queue = queue;
        let late: VecDeque<Work> = late;
        for work in late {
            self.time_out(&work);
        }
        // The entry may still be committed, so the next change waits for it. Its sender does not.
        if let Some(flight) = self.changes.flight.as_mut().filter(|flight| is_late(&flight.work)) {
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

    fn answer(&mut self, token: u64, outcome: Outcome) {
        self.actions.push(Action::Answer { token, outcome: Box::new(outcome) });
    }

    fn note(&mut self, is_warning: bool, text: String) {
        self.actions.push(Action::Note { is_warning, text });
    }
}
