//! Leases: heartbeats of masters, and the leases that they are granted.

use std::time::Duration;

use super::Core;
use super::actions::Action;
use super::claims::{Claim, Heartbeat, silence_of_holder, with_margin};
use crate::controller::requests::Outcome;
use crate::controller::state::BrokerId;

impl Core {
    /// Takes a heartbeat. With a token the broker takes leases, and the answer is an action.
    pub fn heartbeat(&mut self, token: Option<u64>, heartbeat: Heartbeat, now: Duration) {
        let Heartbeat { name, id, mut beat, releases } = heartbeat;
        let set = self.state.get(&name).filter(|set| set.replicas.contains_key(&id));
        let is_master = set.is_some_and(|set| set.master == Some(id));
        let was_alive = self.liveness.alive(&name, id, now).is_some();
        let at = beat.at;
        if is_master && token.is_some() && !self.settings.lease.is_zero() {
            // Without a lease it serves no sends, so nothing is gained by a longer wait.
            beat.timeout = beat.timeout.min(silence_of_holder(self.settings.lease));
        }
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
                self.claims.add(token, &name, id, at);
                self.confirm();
            } else {
                self.answer_beat(token, &name, None, now);
            }
        }
        if releases || (is_fresh && !was_alive) {
            self.reconsider(now);
        }
    }

    fn release(&mut self, name: &str, id: BrokerId) {
        // Earlier heartbeats of the broker must not grant a lease any more.
        self.drop_claims(name, id);
        if self.liveness.release(name, id) {
            self.note(false, format!("{name}: broker {id} released its lease"));
        }
    }

    fn drop_claims(&mut self, name: &str, id: BrokerId) {
        for claim in self.claims.take(name, id) {
            self.answer(claim.token, Outcome::done(None));
        }
    }

    /// Drops all claims: this controller no longer leads.
    pub(super) fn drop_all_claims(&mut self, now: Duration) {
        for claim in self.claims.give_up() {
            self.answer_beat(claim.token, &claim.name, None, now);
        }
    }

    fn confirm(&mut self) {
        if let Some(round) = self.claims.open() {
            self.actions.push(Action::Confirm { round });
        }
    }

    fn answer_beat(&mut self, token: u64, name: &str, lease: Option<Duration>, now: Duration) {
        let set = if self.is_leader() { self.view(name, now) } else { None };
        let lease_ms = lease.map(|lease| lease.as_millis() as u64);
        self.answer(token, Outcome { lease_ms, ..Outcome::done(set) });
    }

    /// Notes the end of a round: a majority confirmed that this controller led after it had begun, or did not.
    pub fn confirmed(&mut self, round: u64, is_leader: bool, now: Duration) {
        let Some(claims) = self.claims.close(round) else { return };
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
}
