//! Operator: promotions, failures of processes and machines, and starts.

use rmqpy::positions::PhysicalOffset;
use rmqpy::replication::epochs::EpochStart;
use rmqpy::replication::leadership::{Candidate, leader, next_epoch};
use rmqpy::replication::master::{Master, MasterRules};

use super::node::{Role, begin, records};
use super::{COPIES, HEARTBEAT, Mistake, SILENCE_MAX, Violation, World};

impl World {
    /// Promotes a replica, asking the reachable ones; the operator may not know whether the master is alive.
    pub(super) fn promote(&mut self) -> Result<(), Violation> {
        let skipped = self.random.below(self.nodes.len() + 1);
        let asked: Vec<usize> = (0..self.nodes.len())
            .filter(|at| *at != skipped && self.nodes[*at].is_up && !self.nodes[*at].is_cut_off)
            .collect();
        let candidate = |at: &usize| {
            let node = &self.nodes[*at];
            Candidate {
                id: *at as u64,
                epoch: node.epochs.number(),
                end: PhysicalOffset(node.boundary(node.log.len()) as u64),
                has_forgotten: node.has_forgotten,
            }
        };
        let candidates: Vec<Candidate> = asked.iter().map(candidate).collect();
        let Ok(chosen) = leader(&candidates, self.nodes.len(), COPIES) else { return Ok(()) };
        let at = chosen.id as usize;
        let highest = asked.iter().map(|at| self.nodes[*at].pledged).max().unwrap_or(0);
        let epoch = next_epoch(highest.max(chosen.epoch), chosen.id);
        for asked in asked {
            self.nodes[asked].pledged = epoch;
            self.disconnect_all(asked);
            self.nodes[asked].role = Role::Alone;
        }
        self.life.promotions += 1;
        let promised = self.promised.len();
        let node = &mut self.nodes[at];
        node.cut(chosen.end.0 as usize);
        begin(&mut node.epochs, Some(EpochStart { epoch, start: chosen.end }))?;
        if node.log.len() < promised {
            return Err(Violation::Lost { promised, leader: at, has: node.log.len() });
        }
        if let Some(at) = (0..promised).find(|at| self.promised[*at] != node.log[*at]) {
            return Err(Violation::Rewritten { at });
        }
        if self.mistake != Mistake::CountsOnFromMemory {
            node.next_queue_offset = records(&node.log, 0).count() as u64;
        }
        self.lead(at)
    }

    pub(super) fn lead(&mut self, at: usize) -> Result<(), Violation> {
        let node = &mut self.nodes[at];
        let rules = MasterRules {
            copies: COPIES,
            gap_bytes_max: 200,
            silence_max: SILENCE_MAX,
            heartbeat_interval: HEARTBEAT,
            transfer_bytes_max: 48,
            unreported_bytes_max: 150,
            file_bytes: 256,
        };
        let confirmed = PhysicalOffset(node.confirmed as u64);
        node.role = Role::Master(Master::new(rules, node.state(), confirmed));
        self.promise(at)
    }

    /// Kills the process; the page cache remains.
    pub(super) fn kill(&mut self, at: usize) {
        self.disconnect_all(at);
        self.nodes[at].is_up = false;
    }

    /// Kills the machine, losing bytes that were not on disk. No second machine fails before that is repaired: with
    /// two copies, that would exceed the promise.
    pub(super) fn lose_power(&mut self, at: usize) {
        let others_remember =
            self.nodes.iter().enumerate().all(|(other, node)| other == at || !node.has_forgotten);
        if !others_remember {
            return;
        }
        self.kill(at);
        let unsafe_bytes = self.nodes[at].log.len() - self.nodes[at].durable;
        let kept = self.nodes[at].durable + self.random.below(unsafe_bytes + 1);
        let node = &mut self.nodes[at];
        if kept < node.log.len() {
            node.has_forgotten = true;
            node.remembers_at = usize::MAX;
            node.cut(kept);
        }
        node.durable = kept;
    }

    pub(super) fn restart(&mut self, at: usize) -> Result<(), Violation> {
        let node = &mut self.nodes[at];
        if node.is_up {
            return Ok(());
        }
        node.is_up = true;
        let was_master = matches!(node.role, Role::Master(_));
        node.role = Role::Alone;
        let boundary = node.boundary(node.log.len());
        // The master of the newest known epoch continues with it, if it has lost nothing.
        if was_master
            && !node.has_forgotten
            && node.pledged == node.epochs.number()
            && boundary == node.log.len()
        {
            return self.lead(at);
        }
        Ok(())
    }

    /// Returns whether a folder may be emptied: the others have everything, and follow no epoch newer than that of
    /// `of`.
    pub(super) fn may_be_emptied(&self, at: usize, of: usize) -> bool {
        let mut others = self.nodes.iter().enumerate().filter(|(other, _)| *other != at);
        let newest = self.nodes[of].epochs.number();
        others.all(|(_, node)| !node.has_forgotten && node.pledged <= newest)
    }
}
