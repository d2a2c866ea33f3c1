//! A world of replicas: what each has on disk and in memory, what is under way between them, and what was promised.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rmqpy::positions::PhysicalOffset;
use rmqpy::replication::alignment::{Alignment, Divergence, LogState, align};
use rmqpy::replication::epochs::{EpochStart, Epochs};
use rmqpy::replication::leadership::{Candidate, leader, next_epoch};
use rmqpy::replication::master::{ConnectionId, CopyFrom, Master, MasterRules};
use rmqpy::replication::slave::{Slave, SlaveRules};
use rmqpy::replication::stream::{Piece, ReportReader, TransferReader, report};

const STEPS: usize = 1500;
const COPIES: usize = 2;
const HEARTBEAT: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// What a broker might do wrong around the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// Promises what it has appended.
    AcknowledgesEarly,
    /// Follows with what it should have given up.
    NeverTruncates,
    /// Goes on with the queue offsets it last knew, not with those of its log.
    CountsOnFromMemory,
}

/// A promise that was broken.
#[derive(Debug)]
#[allow(dead_code, reason = "what is in them is printed")]
pub enum Violation {
    /// A replica leads whose log lacks what was promised.
    Lost { promised: usize, leader: usize, has: usize },
    /// What was promised is another message now.
    Rewritten { at: usize },
    /// A slave's log is no prefix of its master's.
    Differs { slave: usize, master: usize, at: usize },
    /// Two promised messages have one queue offset.
    OffsetTwice { queue_offset: u64 },
    /// The core refused what it must take.
    Refused(String),
}

/// What became of a life without a violation.
#[derive(Debug, Default)]
pub struct Life {
    pub promised: usize,
    pub promotions: usize,
    pub truncations: usize,
}

/// Numbers without pattern (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize) % bound
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// A record: its size, its message, its queue offset, and bytes that make sizes differ.
fn record(message: u64, queue_offset: u64, padding: usize) -> Vec<u8> {
    let mut bytes = vec![(17 + padding) as u8];
    bytes.extend(message.to_be_bytes());
    bytes.extend(queue_offset.to_be_bytes());
    bytes.resize(17 + padding, message as u8);
    bytes
}

/// Ends and queue offsets of the whole records of a log, from a boundary on.
fn records(log: &[u8], from: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
    let mut at = from;
    std::iter::from_fn(move || {
        let size = usize::from(*log.get(at)?);
        let record = log.get(at..at + size)?;
        at += size;
        Some((at, u64::from_be_bytes(record.get(9..17)?.try_into().ok()?)))
    })
}

fn begin(epochs: &mut Epochs, epoch: Option<EpochStart>) -> Result<(), Violation> {
    let begun = epoch.map_or(Ok(()), |epoch| epochs.begin(epoch.epoch, epoch.start));
    begun.map_err(|error| Violation::Refused(error.to_string()))
}

enum Role {
    Alone,
    Master(Master),
    Slave { core: Slave, connection: ConnectionId, reader: TransferReader },
}

struct Node {
    is_up: bool,
    /// Cut off from the others and from the operator.
    is_cut_off: bool,
    role: Role,
    log: Vec<u8>,
    durable: usize,
    epochs: Epochs,
    /// It follows no older epoch than this one.
    pledged: u32,
    has_forgotten: bool,
    /// What it has to reach so that it counts again.
    remembers_at: usize,
    /// What it has heard to be confirmed.
    confirmed: usize,
    next_queue_offset: u64,
}

impl Node {
    fn state(&self) -> LogState {
        let end = PhysicalOffset(self.log.len() as u64);
        LogState { epochs: self.epochs.clone(), first: PhysicalOffset(0), end }
    }

    fn cut(&mut self, end: usize) {
        self.log.truncate(end);
        self.durable = self.durable.min(end);
        self.confirmed = self.confirmed.min(end);
        self.epochs.cut(PhysicalOffset(end as u64));
    }

    /// End of the last whole record up to `end`.
    fn boundary(&self, end: usize) -> usize {
        records(&self.log, 0).map(|(ends, _)| ends).take_while(|ends| *ends <= end).last().unwrap_or(0)
    }
}

/// Bytes on their way.
struct Link {
    slave: usize,
    master: usize,
    to_master: VecDeque<u8>,
    to_slave: VecDeque<u8>,
    reports: ReportReader,
}

pub struct World {
    random: Random,
    mistake: Mistake,
    now: Duration,
    nodes: Vec<Node>,
    links: BTreeMap<ConnectionId, Link>,
    next_connection: u64,
    next_message: u64,
    /// The log as far as it was promised, to whole records.
    promised: Vec<u8>,
    offsets: BTreeMap<u64, usize>,
    life: Life,
}

impl World {
    pub fn live(seed: u64, mistake: Mistake) -> Result<Life, Violation> {
        let mut random = Random((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let count = 2 + random.below(2);
        let node = |_| Node {
            is_up: true,
            is_cut_off: false,
            role: Role::Alone,
            log: Vec::new(),
            durable: 0,
            epochs: Epochs::default(),
            pledged: 0,
            has_forgotten: false,
            remembers_at: 0,
            confirmed: 0,
            next_queue_offset: 0,
        };
        let mut world = Self {
            random,
            mistake,
            now: Duration::from_secs(1000),
            nodes: (0..count).map(node).collect(),
            links: BTreeMap::new(),
            next_connection: 0,
            next_message: 0,
            promised: Vec::new(),
            offsets: BTreeMap::new(),
            life: Life::default(),
        };
        world.promote()?;
        for _ in 0..STEPS {
            world.step()?;
        }
        world.life.promised = world.promised.len();
        Ok(world.life)
    }

    fn step(&mut self) -> Result<(), Violation> {
        self.now += Duration::from_millis(self.random.below(400) as u64);
        let node = self.random.below(self.nodes.len());
        match self.random.below(1000) {
            0..180 => self.append(node),
            180..480 => self.deliver(),
            480..680 => self.pump(node),
            680..830 => self.say(node),
            830..930 => self.follow(node),
            930..955 => {
                self.nodes[node].durable = self.nodes[node].log.len();
                Ok(())
            }
            955..958 => self.promote(),
            958..961 => {
                self.kill(node);
                Ok(())
            }
            961..963 => {
                self.lose_power(node);
                Ok(())
            }
            963..980 => self.restart(node),
            980..983 => {
                self.nodes[node].is_cut_off = true;
                self.disconnect_all(node);
                Ok(())
            }
            983..990 => {
                self.nodes[node].is_cut_off = false;
                Ok(())
            }
            990..993 => {
                self.cut_one();
                Ok(())
            }
            // Long enough for somebody to be missed, or nothing but a pause.
            _ => {
                self.now += Duration::from_secs(self.random.below(25) as u64);
                self.end_silence();
                Ok(())
            }
        }
    }

    /// A producer sends to whoever takes it for the master.
    fn append(&mut self, at: usize) -> Result<(), Violation> {
        let padding = self.random.below(20);
        let node = &mut self.nodes[at];
        let Role::Master(master) = &mut node.role else { return Ok(()) };
        if !node.is_up {
            return Ok(());
        }
        node.log.extend(record(self.next_message, node.next_queue_offset, padding));
        self.next_message += 1;
        node.next_queue_offset += 1;
        master.grown(PhysicalOffset(node.log.len() as u64));
        self.promise(at)
    }

    /// Notes what a master lets its producers and consumers see.
    fn promise(&mut self, at: usize) -> Result<(), Violation> {
        let node = &self.nodes[at];
        let Role::Master(master) = &node.role else { return Ok(()) };
        let confirmed =
            if self.mistake == Mistake::AcknowledgesEarly { master.end() } else { master.confirmed() };
        let before = self.promised.len();
        for (end, queue_offset) in records(&node.log, before) {
            if end > confirmed.0 as usize {
                break;
            }
            if self.offsets.insert(queue_offset, end).is_some() {
                return Err(Violation::OffsetTwice { queue_offset });
            }
            self.promised.extend_from_slice(&node.log[self.promised.len()..end]);
        }
        let known = node.boundary(before.min(confirmed.0 as usize).min(node.log.len()));
        if self.promised[..known] != node.log[..known] {
            let at = (0..known).find(|at| self.promised[*at] != node.log[*at]).unwrap_or(known);
            return Err(Violation::Rewritten { at });
        }
        Ok(())
    }

    /// Some bytes of some connection arrive.
    fn deliver(&mut self) -> Result<(), Violation> {
        let Some(id) = self.any_link() else { return Ok(()) };
        let up = self.random.one_in(2);
        let bytes_max = 1 + self.random.below(60);
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let way = if up { &mut link.to_master } else { &mut link.to_slave };
        let bytes: Vec<u8> = way.drain(..bytes_max.min(way.len())).collect();
        if up { self.master_hears(id, &bytes) } else { self.slave_hears(id, &bytes) }
    }

    fn master_hears(&mut self, id: ConnectionId, mut bytes: &[u8]) -> Result<(), Violation> {
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let at = link.master;
        while let Some((end, rest)) =
            link.reports.next(bytes).map_err(|error| Violation::Refused(error.to_string()))?
        {
            bytes = rest;
            let Role::Master(master) = &mut self.nodes[at].role else { continue };
            if let Err(distrust) = master.reported(id, end, self.now) {
                // Between aligned logs that stay connected nobody has reason for distrust.
                return Err(Violation::Refused(distrust.to_string()));
            }
        }
        self.promise(at)
    }

    fn slave_hears(&mut self, id: ConnectionId, mut bytes: &[u8]) -> Result<(), Violation> {
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

    fn compare(&self, slave: usize, master: usize) -> Result<(), Violation> {
        let (own, other) = (&self.nodes[slave].log, &self.nodes[master].log);
        match own.iter().zip(other).position(|(one, other)| one != other) {
            None if own.len() <= other.len() => Ok(()),
            at => Err(Violation::Differs { slave, master, at: at.unwrap_or(other.len()) }),
        }
    }

    /// A master writes to its slaves, and tells them now and then what is confirmed.
    fn pump(&mut self, at: usize) -> Result<(), Violation> {
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

    /// A slave says how far it is.
    fn say(&mut self, at: usize) -> Result<(), Violation> {
        let kept = PhysicalOffset(self.nodes[at].log.len() as u64);
        if let Role::Slave { core, connection, .. } = &mut self.nodes[at].role
            && let Some(link) = self.links.get_mut(connection)
            && let Some(end) = core.report(kept, self.now)
        {
            link.to_master.extend(report(end));
        }
        Ok(())
    }

    /// A replica looks for a master, and follows it.
    fn follow(&mut self, at: usize) -> Result<(), Violation> {
        let of = self.random.below(self.nodes.len());
        if of == at || !self.can_talk(at, of) {
            return Ok(());
        }
        let (node, other) = (&self.nodes[at], &self.nodes[of]);
        let Role::Master(_) = &other.role else { return Ok(()) };
        match &node.role {
            Role::Slave { .. } => return Ok(()),
            // A master gives way to a younger one.
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
            // Two that each began alone, and promised nothing: the operator empties the folder of one.
            Err(Divergence::NothingInCommon) if self.may_be_emptied(at, of) => {
                self.disconnect_all(at);
                self.nodes[at].cut(0);
                self.nodes[at].has_forgotten = true;
            }
            // An operator's matter.
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

    /// The operator promotes, asking whom he reaches; he need not know that the master lives.
    fn promote(&mut self) -> Result<(), Violation> {
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

    fn lead(&mut self, at: usize) -> Result<(), Violation> {
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

    /// The process dies; the page cache stays.
    fn kill(&mut self, at: usize) {
        self.disconnect_all(at);
        self.nodes[at].is_up = false;
    }

    /// The machine dies, with what was not on disk. No second one does before that is made good: with two copies, that
    /// would be more than anybody promised.
    fn lose_power(&mut self, at: usize) {
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

    fn restart(&mut self, at: usize) -> Result<(), Violation> {
        let node = &mut self.nodes[at];
        if node.is_up {
            return Ok(());
        }
        node.is_up = true;
        let was_master = matches!(node.role, Role::Master(_));
        node.role = Role::Alone;
        let boundary = node.boundary(node.log.len());
        // The master of the youngest epoch it knows of goes on with it, when it has lost nothing.
        if was_master
            && !node.has_forgotten
            && node.pledged == node.epochs.number()
            && boundary == node.log.len()
        {
            return self.lead(at);
        }
        Ok(())
    }

    /// Whether a folder is not needed: the others remember, and follow nobody younger than `of`.
    fn may_be_emptied(&self, at: usize, of: usize) -> bool {
        let mut others = self.nodes.iter().enumerate().filter(|(other, _)| *other != at);
        let youngest = self.nodes[of].epochs.number();
        others.all(|(_, node)| !node.has_forgotten && node.pledged <= youngest)
    }

    fn can_talk(&self, one: usize, other: usize) -> bool {
        [one, other].iter().all(|at| self.nodes[*at].is_up && !self.nodes[*at].is_cut_off)
    }

    fn any_link(&mut self) -> Option<ConnectionId> {
        let count = self.links.len();
        (count > 0).then(|| self.random.below(count)).and_then(|nth| self.links.keys().nth(nth).copied())
    }

    fn cut_one(&mut self) {
        if let Some(id) = self.any_link() {
            self.disconnect(id);
        }
    }

    fn disconnect_all(&mut self, at: usize) {
        let of_it = |link: &Link| link.slave == at || link.master == at;
        let ids: Vec<_> = self.links.iter().filter(|(_, link)| of_it(link)).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.disconnect(id));
    }

    fn disconnect(&mut self, id: ConnectionId) {
        let Some(link) = self.links.remove(&id) else { return };
        // What was under way to the master may still arrive before it notices.
        if let Role::Master(master) = &mut self.nodes[link.master].role {
            master.disconnected(id);
        }
        if let Role::Slave { connection, .. } = &self.nodes[link.slave].role
            && *connection == id
        {
            self.nodes[link.slave].role = Role::Alone;
        }
    }

    fn end_silence(&mut self) {
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
}
