//! Replicas: their disks and memory, bytes in flight between them, and the promises made.
#![allow(clippy::indexing_slicing, reason = "a failed expectation fails the test")]

mod network;
mod node;
mod operator;

use std::collections::BTreeMap;
use std::time::Duration;

use rmqpy::positions::PhysicalOffset;
use rmqpy::replication::epochs::Epochs;
use rmqpy::replication::master::ConnectionId;

use network::Link;
use node::{Node, Role, record, records};

const STEPS: usize = 1500;
const COPIES: usize = 2;
const HEARTBEAT: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Possible mistakes of a broker around the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// Promises appended records before they are confirmed.
    AcknowledgesEarly,
    /// Follows without cutting its log.
    NeverTruncates,
    /// Continues with cached queue offsets instead of those of its log.
    CountsOnFromMemory,
}

/// A promise that was broken.
#[derive(Debug)]
#[allow(dead_code, reason = "the fields are printed")]
pub enum Violation {
    /// A replica leads whose log lacks promised bytes.
    Lost { promised: usize, leader: usize, has: usize },
    /// A promised message was replaced by another.
    Rewritten { at: usize },
    /// A slave's log is not a prefix of its master's.
    Differs { slave: usize, master: usize, at: usize },
    /// Two promised messages have the same queue offset.
    OffsetTwice { queue_offset: u64 },
    /// The core refused valid input.
    Refused(String),
}

/// The result of a run without a violation.
#[derive(Debug, Default)]
pub struct Life {
    pub promised: usize,
    pub promotions: usize,
    pub truncations: usize,
}

/// A pseudo-random sequence (xorshift64*).
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

pub struct World {
    random: Random,
    mistake: Mistake,
    now: Duration,
    nodes: Vec<Node>,
    links: BTreeMap<ConnectionId, Link>,
    next_connection: u64,
    next_message: u64,
    /// The promised part of the log, in whole records.
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
            // A pause, possibly long enough for a timeout.
            _ => {
                self.now += Duration::from_secs(self.random.below(25) as u64);
                self.end_silence();
                Ok(())
            }
        }
    }

    /// Sends a message to a replica that believes it is the master.
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

    /// Records what a master shows to its producers and consumers.
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
}
