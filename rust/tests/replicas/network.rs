//! Network: connections that deliver bytes in pieces, or not at all, and the reaction of both ends.

use std::collections::VecDeque;

use rmqpy::positions::PhysicalOffset;
use rmqpy::replication::alignment::{Alignment, Divergence, align};
use rmqpy::replication::master::{ConnectionId, CopyFrom};
use rmqpy::replication::slave::{Slave, SlaveRules};
use rmqpy::replication::stream::{Piece, ReportReader, TransferReader, report};

use super::node::{Role, begin};
use super::{HEARTBEAT, Mistake, SILENCE_MAX, Violation, World};

/// Bytes in flight.
pub(super) struct Link {
    pub(super) slave: usize,
    pub(super) master: usize,
    pub(super) to_master: VecDeque<u8>,
    pub(super) to_slave: VecDeque<u8>,
    pub(super) reports: ReportReader,
}

impl World {
    /// Delivers some bytes of some connection.
    pub(super) fn deliver(&mut self) -> Result<(), Violation> {
        let Some(id) = self.any_link() else { return Ok(()) };
        let up = self.random.one_in(2);
        let bytes_max = 1 + self.random.below(60);
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let way = if up { &mut link.to_master } else { &mut link.to_slave };
        let bytes: Vec<u8> = way.drain(..bytes_max.min(way.len())).collect();
        if up { self.master_hears(id, &bytes) } else { self.slave_hears(id, &bytes) }
    }

    pub(super) fn master_hears(&mut self, id: ConnectionId, mut bytes: &[u8]) -> Result<(), Violation> {
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let at = link.master;
        while let Some((end, rest)) =
            link.reports.next(bytes).map_err(|error| Violation::Refused(error.to_string()))?
        {
            bytes = rest;
            let Role::Master(master) = &mut self.nodes[at].role else { continue };
            if let Err(distrust) = master.reported(id, end, self.now) {
                // Aligned logs that stay connected give no reason for distrust.
                return Err(Violation::Refused(distrust.to_string()));
            }
        }
        self.promise(at)
    }

    pub(super) fn slave_hears(&mut self, id: ConnectionId, mut bytes: &[u8]) -> Result<(), Violation> {
        let Some(link) = self.links.get(&id) else { return Ok(()) };
        let (at, of) = (link.slave, link.master);
        let refused = |error: String| Violation::Refused(error);
        let node = &mut self.nodes[at];
        let Role::Slave { core, reader, .. } = &mut node.role else { return Ok(()) };
        while let Some((piece, rest)) = reader.next(bytes).map_err(|error| refused(error.to_string()))? {
            bytes = rest;
            match piece {
                Piece::Header(header) => {
                    let before = core.header(header, self.now).map_err(|gap| refused(gap.to_string()))?;
                    begin(&mut node.epochs, before.epoch_begins)?;
                }
                Piece::Bytes(some) => {
                    node.log.extend_from_slice(some);
                    begin(&mut node.epochs, core.appended(some.len(), self.now))?;
                }
            }
        }
        if node.log.len() >= node.remembers_at {
            node.has_forgotten = false;
        }
        self.compare(at, of)
    }

    pub(super) fn compare(&self, slave: usize, master: usize) -> Result<(), Violation> {
        let (own, other) = (&self.nodes[slave].log, &self.nodes[master].log);
        match own.iter().zip(other).position(|(one, other)| one != other) {
            None if own.len() <= other.len() => Ok(()),
            at => Err(Violation::Differs { slave, master, at: at.unwrap_or(other.len()) }),
        }
    }

    /// Lets a master write to its slaves, and sometimes report what is confirmed.
    pub(super) fn pump(&mut self, at: usize) -> Result<(), Violation> {
        let ids: Vec<_> =
            self.links.iter().filter(|(_, link)| link.master == at).map(|(id, _)| *id).collect();
        for id in ids {
            let tells = self.random.one_in(3);
            let Role::Master(master) = &mut self.nodes[at].role else { return Ok(()) };
            let Some(link) = self.links.get_mut(&id) else { continue };
            let confirmed = master.confirmed().0 as usize;
            if let Some(header) = master.next(id, self.now) {
                let from = header.at.0 as usize;
                link.to_slave.extend(header.encode());
                link.to_slave.extend(&self.nodes[at].log[from..from + header.bytes as usize]);
            }
            let slave = &mut self.nodes[link.slave];
            if tells {
                slave.confirmed = slave.confirmed.max(confirmed.min(slave.log.len()));
            }
        }
        Ok(())
    }

    /// Lets a slave report.
    pub(super) fn say(&mut self, at: usize) -> Result<(), Violation> {
        let kept = PhysicalOffset(self.nodes[at].log.len() as u64);
        if let Role::Slave { core, connection, .. } = &mut self.nodes[at].role
            && let Some(link) = self.links.get_mut(connection)
            && let Some(end) = core.report(kept, self.now)
        {
            link.to_master.extend(report(end));
        }
        Ok(())
    }

    pub(super) fn can_talk(&self, one: usize, other: usize) -> bool {
        [one, other].iter().all(|at| self.nodes[*at].is_up && !self.nodes[*at].is_cut_off)
    }

    pub(super) fn any_link(&mut self) -> Option<ConnectionId> {
        let count = self.links.len();
        (count > 0).then(|| self.random.below(count)).and_then(|nth| self.links.keys().nth(nth).copied())
    }

    pub(super) fn cut_one(&mut self) {
        if let Some(id) = self.any_link() {
            self.disconnect(id);
        }
    }

    pub(super) fn disconnect_all(&mut self, at: usize) {
        let of_it = |link: &Link| link.slave == at || link.master == at;
        let ids: Vec<_> = self.links.iter().filter(|(_, link)| of_it(link)).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.disconnect(id));
    }

    pub(super) fn disconnect(&mut self, id: ConnectionId) {
        let Some(link) = self.links.remove(&id) else { return };
        // Bytes in flight to the master may still arrive before it notices.
        if let Role::Master(master) = &mut self.nodes[link.master].role {
            master.disconnected(id);
        }
        if let Role::Slave { connection, .. } = &self.nodes[link.slave].role
            && *connection == id
        {
            self.nodes[link.slave].role = Role::Alone;
        }
    }

    pub(super) fn end_silence(&mut self) {
        let now = self.now;
        let mut ended = Vec::new();
        for node in &self.nodes {
            match &node.role {
                Role::Master(master) => ended.extend(master.silent(now)),
                Role::Slave { core, connection, .. } if core.is_deserted(now) => ended.push(*connection),
                Role::Slave { .. } | Role::Alone => {}
            }
        }
        ended.into_iter().for_each(|id| self.disconnect(id));
    }

    /// Lets a replica look for a master and follow it.
    pub(super) fn follow(&mut self, at: usize) -> Result<(), Violation> {
        let of = self.random.below(self.nodes.len());
        if of == at || !self.can_talk(at, of) {
            return Ok(());
        }
        let (node, other) = (&self.nodes[at], &self.nodes[of]);
        let Role::Master(_) = &other.role else { return Ok(()) };
        match &node.role {
            Role::Slave { .. } => return Ok(()),
            // A master yields to a newer one.
            Role::Master(_) if node.epochs.number() >= other.epochs.number() => return Ok(()),
            Role::Master(_) | Role::Alone => {}
        }
        if other.epochs.number() < node.pledged {
            return Ok(());
        }
        let confirmed = PhysicalOffset(node.boundary(node.confirmed) as u64);
        let mut slave = node.state();
        let master = other.state();
        match align(&slave, &master, confirmed) {
            Ok(Alignment::Follow) => {}
            Ok(Alignment::Truncate(_)) if self.mistake == Mistake::NeverTruncates => {
                if self.nodes[at].log.len() > self.nodes[of].log.len() {
                    return Ok(());
                }
            }
            Ok(Alignment::Truncate(to)) => {
                self.disconnect_all(at);
                self.nodes[at].cut(to.0 as usize);
                self.life.truncations += 1;
            }
            // Two that each began alone and promised nothing: the operator empties the folder of one.
            Err(Divergence::NothingInCommon) if self.may_be_emptied(at, of) => {
                self.disconnect_all(at);
                self.nodes[at].cut(0);
                self.nodes[at].has_forgotten = true;
            }
            // The operator has to decide.
            Err(
                Divergence::MasterShorter { .. }
                | Divergence::OlderEpoch { .. }
                | Divergence::NothingInCommon,
            ) => {
                return Ok(());
            }
            Err(divergence) => return Err(Violation::Refused(divergence.to_string())),
        }
        self.disconnect_all(at);
        let node = &mut self.nodes[at];
        let end = PhysicalOffset(node.log.len() as u64);
        node.epochs.take_over(&master.epochs, end);
        node.pledged = node.pledged.max(master.epochs.number());
        node.remembers_at = master.end.0 as usize;
        slave = node.state();
        let id = ConnectionId(self.next_connection);
        self.next_connection += 1;
        let rules = SlaveRules { silence_max: SILENCE_MAX, heartbeat_interval: HEARTBEAT };
        let core = Slave::connected(rules, &slave, master.epochs, self.now);
        node.role = Role::Slave { core, connection: id, reader: TransferReader::default() };
        let (to_master, to_slave) = (VecDeque::new(), VecDeque::new());
        let reports = ReportReader::default();
        self.links.insert(id, Link { slave: at, master: of, to_master, to_slave, reports });
        if let Role::Master(master) = &mut self.nodes[of].role {
            master.connected(id, CopyFrom::First, self.now);
        }
        self.compare(at, of)
    }
}
