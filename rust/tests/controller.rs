//! Simulation of controllers and brokers: elections, leases, clocks of different speed, lost and late messages, crashes,
//! power failures and controllers that change. One seed gives one history.
//!
//! The controllers are the real ones (`Core`) over a log that this file keeps for them. The brokers are a small model of
//! what `docs/internals/controller.md` demands of them. After each step the history is checked: what was acknowledged is
//! in the log of every later master, no position is acknowledged twice, and after an acknowledgement in an epoch no
//! earlier master takes or acknowledges messages. In half of the histories masters promise to wait for all replicas in sync, and are replaced
//! within their lease; there a late acknowledgement of an earlier epoch must be of a record that the later master has
//! begun with.
//!
//! `RMQPY_SEEDS=1000000 cargo test --release --test controller` runs a campaign.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use rmqpy::controller::core::{Action, Core, Heartbeat, Settings};
use rmqpy::controller::liveness::Beat;
use rmqpy::controller::requests::{Asked, Code, Outcome, Request, SetView};
use rmqpy::controller::state::{BrokerId, State};

const CONTROLLERS: usize = 3;
const BROKERS: usize = 3;
const LEASE_MS: u64 = 1_500;
const END_MS: u64 = 30_000;
const QUIET_MS: u64 = 22_000;
const SET: &str = "b";

/// A fault put in by hand, which the checks must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// Masters acknowledge without a lease.
    NoLease,
    /// One replica is enough to acknowledge.
    MinOne,
    /// A slave keeps its own tail when it follows another master.
    NoTruncation,
    /// A restarted controller has lost the end of its log.
    EpochNotDurable,
    /// Masters that promise to wait for all replicas in sync wait for one.
    BrokenPromise,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A record: the epoch of its master, and a number that no other has.
type Record = (i32, u64);

/// An epoch in the log of a broker: number and start.
type Start = (i32, usize);

#[derive(Debug, Clone)]
enum Message {
    ToController {
        to: usize,
        from: usize,
        connection: u64,
        ask: Ask,
        sent: u64,
    },
    ToBroker {
        to: usize,
        process: u64,
        sent: u64,
        reply: Reply,
    },
    Closed {
        to: usize,
        connection: u64,
    },
    /// A slave reports the end of its log, and its epochs.
    Report {
        to: usize,
        from: usize,
        epoch: i32,
        end: usize,
        starts: Vec<Start>,
    },
    /// The master's records from a position.
    Transfer {
        to: usize,
        from: usize,
        epoch: i32,
        at: usize,
        records: Vec<Record>,
        starts: Vec<Start>,
        confirmed: usize,
    },
}

#[derive(Debug, Clone)]
enum Ask {
    Register,
    Elect,
    Info,
    Alter { epoch: i32, in_sync: BTreeSet<BrokerId>, in_sync_epoch: i32 },
    Beat { epoch: i32, end: usize, releases: bool },
}

#[derive(Debug, Clone)]
enum Reply {
    Registered(Outcome),
    Elected(Outcome),
    Info(Outcome),
    Altered(Outcome),
    Beaten(Outcome),
    Role(SetView),
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a history has few steps at a time")]
enum Step {
    Deliver(Message),
    Broker(usize),
    Controller(usize),
    Fault,
    Follows { controller: usize },
}

struct Timed {
    at: u64,
    order: u64,
    step: Step,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

struct Controller {
    core: Core,
    run: u64,
    applied: usize,
    /// The term in which it believes to lead.
    term: u64,
    /// Token → broker, its process, the time of sending, the kind.
    asked: BTreeMap<u64, (usize, u64, u64, Ask)>,
    token: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Down,
    Starting,
    Fenced,
    Slave(BrokerId),
    Master,
}

struct Broker {
    /// Speed of its clock in thousandths.
    speed: u64,
    role: Role,
    process: u64,
    epoch: i32,
    log: Vec<Record>,
    starts: Vec<Start>,
    /// The part of the log that survives a power failure.
    durable: usize,
    confirmed: usize,
    /// The connections to the controllers.
    connections: [u64; CONTROLLERS],
    /// The earliest start after a failure.
    starts_at: u64,
    /// The end of the lease on its own clock, and its epoch.
    lease: u64,
    lease_epoch: i32,
    in_sync: BTreeSet<BrokerId>,
    in_sync_epoch: i32,
    wanted: Option<BTreeSet<BrokerId>>,
    /// It has asked for a set of itself alone: until that is settled, it flushes before it acknowledges.
    may_be_alone: bool,
    /// The controllers have a set that it reported in this epoch.
    has_reported: bool,
    /// Reported ends of slaves with the time.
    reports: BTreeMap<BrokerId, (usize, u64)>,
    acked: usize,
}

struct Simulation {
    bug: Bug,
    random: Random,
    now: u64,
    order: u64,
    steps: BinaryHeap<Timed>,
    controllers: Vec<Controller>,
    brokers: Vec<Broker>,
    log: Vec<Vec<u8>>,
    term: u64,
    leader: usize,
    connection: u64,
    record: u64,
    /// The last arrival of a connection's messages, which keep their order.
    arrivals: BTreeMap<(usize, usize, bool), u64>,
    /// Directions that are cut, controllers behind the brokers.
    cuts: BTreeSet<(usize, usize)>,
    /// Acknowledged records by position.
    acked: BTreeMap<usize, Record>,
    last_acked_epoch: i32,
    /// The logs with which masters began to lead, by epoch.
    begins: BTreeMap<i32, Vec<Record>>,
    /// Masters promise to acknowledge only what all replicas in sync have.
    waits_for_all: bool,
    elections: u64,
    violation: Option<String>,
}

fn settings(bug: Bug) -> Settings {
    Settings {
        is_unclean_allowed: false,
        lease: Duration::from_millis(if bug == Bug::NoLease { 0 } else { LEASE_MS }),
        first_election_wait: Duration::from_secs(2),
    }
}

impl Simulation {
    fn new(seed: u64, bug: Bug) -> Self {
        let mut random = Random(seed);
        let controllers = (0..CONTROLLERS)
            .map(|at| Controller {
                core: Core::new(settings(bug), at as u64 + 1),
                run: at as u64 + 1,
                applied: 0,
                term: 0,
                asked: BTreeMap::new(),
                token: 0,
            })
            .collect();
        let brokers = (0..BROKERS)
            .map(|_| Broker {
                // The bound is a tenth: clocks within it.
                speed: 960 + random.below(81),
                role: Role::Down,
                process: 0,
                epoch: 0,
                log: Vec::new(),
                starts: Vec::new(),
                durable: 0,
                confirmed: 0,
                connections: [0; CONTROLLERS],
                starts_at: 0,
                lease: 0,
                lease_epoch: 0,
                in_sync: BTreeSet::new(),
                in_sync_epoch: 0,
                wanted: None,
                may_be_alone: false,
                has_reported: false,
                reports: BTreeMap::new(),
                acked: 0,
            })
            .collect();
        let mut simulation = Self {
            bug,
            random,
            now: 1_000,
            order: 0,
            steps: BinaryHeap::new(),
            controllers,
            brokers,
            log: Vec::new(),
            term: 1,
            leader: 0,
            connection: 0,
            record: 0,
            arrivals: BTreeMap::new(),
            cuts: BTreeSet::new(),
            acked: BTreeMap::new(),
            last_acked_epoch: 0,
            begins: BTreeMap::new(),
            waits_for_all: matches!(bug, Bug::BrokenPromise) || seed % 2 == 1,
            elections: 0,
            violation: None,
        };
        simulation.begin();
        simulation
    }

    fn begin(&mut self) {
        // The ids are given already: applying for them is tested elsewhere.
        for id in 1..=BROKERS as i64 {
            let entry = format!(r#"[0,0,[["apply","{SET}","c",{id},"{id}","{id};1"]]]"#);
            self.log.push(entry.into_bytes());
        }
        self.controllers[0].term = 1;
        for at in 0..CONTROLLERS {
            self.catch_up(at);
            let pause = self.random_in(50);
            self.at(pause, Step::Controller(at));
        }
        let now = self.time();
        self.controllers[0].core.leads(now);
        self.act(0);
        for broker in 0..BROKERS {
            self.start(broker);
        }
        self.at(500, Step::Fault);
    }

    fn random_in(&mut self, limit: u64) -> u64 {
        1 + self.random.below(limit)
    }

    fn at(&mut self, delay: u64, step: Step) {
        self.order += 1;
        self.steps.push(Timed { at: self.now + delay, order: self.order, step });
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.now)
    }

    fn fail(&mut self, text: String) {
        if self.violation.is_none() {
            self.violation = Some(format!("at {} ms: {text}", self.now));
        }
    }

    fn run(&mut self) -> Option<String> {
        while let Some(Timed { at, step, .. }) = self.steps.pop() {
            if at > END_MS || self.violation.is_some() {
                break;
            }
            self.now = at;
            self.step(step);
        }
        self.violation.take()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Deliver(message) => self.deliver(message),
            Step::Broker(at) => self.broker_turn(at),
            Step::Controller(at) => {
                self.catch_up(at);
                let now = self.time();
                self.controllers[at].core.tick(now);
                self.act(at);
                self.at(100, Step::Controller(at));
            }
            Step::Fault => {
                self.fault();
                let pause = 300 + self.random.below(1_500);
                self.at(pause, Step::Fault);
            }
            Step::Follows { controller } => self.depose(controller),
        }
    }

    // ---- network ----

    fn delay(&mut self) -> u64 {
        match self.random.below(100) {
            0..80 => self.random_in(5),
            80..97 => self.random_in(60),
            _ => self.random_in(2_000),
        }
    }

    /// Sends between nodes; controllers are numbered behind the brokers. Messages of one connection keep their order.
    fn send(&mut self, from: usize, to: usize, is_ordered: bool, message: Message) {
        if self.cuts.contains(&(from, to)) || (!is_ordered && self.random.is(1)) {
            return;
        }
        let mut arrival = self.now + self.delay();
        if is_ordered {
            let last = self.arrivals.entry((from, to, true)).or_default();
            arrival = arrival.max(*last + 1);
            *last = arrival;
        }
        self.order += 1;
        self.steps.push(Timed { at: arrival, order: self.order, step: Step::Deliver(message) });
    }

    fn connect(&mut self, broker: usize, controller: usize) {
        self.connection += 1;
        let old = std::mem::replace(&mut self.brokers[broker].connections[controller], self.connection);
        // What is in flight on the old connection may arrive later than what is sent on the new one.
        self.arrivals.remove(&(broker, BROKERS + controller, true));
        if old != 0 {
            self.send(
                broker,
                BROKERS + controller,
                false,
                Message::Closed { to: controller, connection: old },
            );
        }
    }

    fn ask(&mut self, broker: usize, controller: usize, ask: Ask) {
        let message = Message::ToController {
            to: controller,
            from: broker,
            connection: self.brokers[broker].connections[controller],
            ask,
            sent: self.now,
        };
        self.send(broker, BROKERS + controller, true, message);
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::ToController { to, from, connection, ask, sent } => {
                self.controller_asked(to, from, connection, ask, sent);
            }
            Message::Closed { to, connection } => {
                let now = self.time();
                self.controllers[to].core.closed(connection, now);
                self.act(to);
            }
            Message::ToBroker { to, process, sent, reply } => {
                if self.brokers[to].process == process && self.brokers[to].role != Role::Down {
                    self.replied(to, sent, reply);
                }
            }
            Message::Report { to, from, epoch, end, starts } => self.reported(to, from, epoch, end, &starts),
            Message::Transfer { to, from, epoch, at, records, starts, confirmed } => {
                self.transferred(to, from, epoch, at, &records, &starts, confirmed);
            }
        }
    }

    // ---- controllers ----

    fn controller_asked(&mut self, at: usize, broker: usize, connection: u64, ask: Ask, sent: u64) {
        let now = self.time();
        let process = self.brokers[broker].process;
        let id = broker as i64 + 1;
        let controller = &mut self.controllers[at];
        controller.token += 1;
        let token = controller.token;
        controller.asked.insert(token, (broker, process, sent, ask.clone()));
        let request = match ask {
            Ask::Beat { epoch, end, releases } => {
                let beat = Beat {
                    connection,
                    at: now,
                    timeout: Duration::from_secs(3),
                    epoch,
                    max_offset: end as i64,
                    confirm_offset: 0,
                    priority: i32::MAX,
                    takes_leases: true,
                };
                let heartbeat = Heartbeat { name: SET.to_owned(), id, beat, releases };
                controller.core.heartbeat(Some(token), heartbeat, now);
                return self.act(at);
            }
            Ask::Register => {
                Request::Register { id, address: id.to_string(), connection, has_started: false }
            }
            Ask::Elect => Request::Elect { id, is_designated: false },
            Ask::Info => Request::ReplicaInfo,
            Ask::Alter { epoch, in_sync, in_sync_epoch } => {
                let waits_for_all = self.waits_for_all;
                Request::AlterSyncStateSet {
                    master: id,
                    master_epoch: epoch,
                    in_sync,
                    in_sync_epoch,
                    waits_for_all,
                }
            }
        };
        let asked = Asked { cluster: "c".to_owned(), name: SET.to_owned(), request };
        controller.core.request(token, asked, now);
        self.act(at);
    }

    /// Applies what is committed.
    fn catch_up(&mut self, at: usize) {
        let now = self.time();
        while self.controllers[at].applied < self.log.len() {
            let entry = self.log[self.controllers[at].applied].clone();
            self.controllers[at].applied += 1;
            self.controllers[at].core.committed(&entry, now);
        }
    }

    fn act(&mut self, at: usize) {
        let now = self.time();
        loop {
            let actions = self.controllers[at].core.take_actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                let leads = self.controllers[at].term == self.term;
                match action {
                    Action::Append { entry, .. } if leads => {
                        self.log.push(entry);
                        self.catch_up(at);
                    }
                    // The others have voted for another leader: nothing of this one is committed.
                    Action::Append { .. } => {}
                    Action::Confirm { round } => self.controllers[at].core.confirmed(round, leads, now),
                    Action::Answer { token, outcome } => self.answer(at, token, *outcome),
                    Action::Notify { address, set } => {
                        let to = address.parse::<usize>().unwrap_or(1) - 1;
                        let process = self.brokers[to].process;
                        let reply = Reply::Role(*set);
                        let message = Message::ToBroker { to, process, sent: self.now, reply };
                        self.send(BROKERS + at, to, false, message);
                    }
                    Action::Note { .. } => {}
                }
            }
        }
    }

    fn answer(&mut self, at: usize, token: u64, outcome: Outcome) {
        let Some((to, process, sent, ask)) = self.controllers[at].asked.remove(&token) else { return };
        let reply = match ask {
            Ask::Register => Reply::Registered(outcome),
            Ask::Elect => Reply::Elected(outcome),
            Ask::Info => Reply::Info(outcome),
            Ask::Alter { .. } => Reply::Altered(outcome),
            Ask::Beat { .. } => Reply::Beaten(outcome),
        };
        self.send(BROKERS + at, to, false, Message::ToBroker { to, process, sent, reply });
    }

    /// Another controller leads; the present one learns of it later.
    fn change_leader(&mut self) {
        let old = self.leader;
        self.leader = (old + 1 + self.random.below(CONTROLLERS as u64 - 1) as usize) % CONTROLLERS;
        self.term += 1;
        let (leader, term, now) = (self.leader, self.term, self.time());
        let delay = self.random.below(3_000);
        self.at(delay, Step::Follows { controller: old });
        self.depose(leader);
        self.catch_up(leader);
        self.controllers[leader].term = term;
        self.controllers[leader].core.leads(now);
        self.act(leader);
    }

    fn depose(&mut self, at: usize) {
        if self.controllers[at].term != self.term {
            let now = self.time();
            self.controllers[at].core.follows(now);
            self.act(at);
        }
    }

    fn restart_controller(&mut self, at: usize) {
        if at == self.leader {
            self.change_leader();
        }
        let run = self.controllers[at].run + CONTROLLERS as u64;
        if self.bug == Bug::EpochNotDurable && self.log.len() > BROKERS + 1 {
            // The whole group forgets what it had agreed on last.
            self.log.pop();
            let leader = self.leader;
            self.rebuild(leader, self.controllers[leader].run + 100);
            let now = self.time();
            self.controllers[leader].core.leads(now);
            self.act(leader);
        }
        self.rebuild(at, run);
        self.controllers[at].term = 0;
        for broker in 0..BROKERS {
            if self.brokers[broker].role != Role::Down {
                self.connect(broker, at);
            }
        }
    }

    fn rebuild(&mut self, at: usize, run: u64) {
        let controller = &mut self.controllers[at];
        controller.core = Core::new(settings(self.bug), run);
        controller.run = run;
        controller.applied = 0;
        controller.asked.clear();
        self.catch_up(at);
        self.act(at);
    }

    // ---- brokers ----

    fn clock(&self, at: usize) -> u64 {
        self.now * self.brokers[at].speed / 1_000
    }

    fn start(&mut self, at: usize) {
        let broker = &mut self.brokers[at];
        broker.process += 1;
        broker.role = Role::Starting;
        broker.epoch = 0;
        broker.lease = 0;
        broker.in_sync.clear();
        broker.in_sync_epoch = 0;
        broker.wanted = None;
        broker.reports.clear();
        for controller in 0..CONTROLLERS {
            self.connect(at, controller);
        }
        self.at(1, Step::Broker(at));
    }

    fn stop(&mut self, at: usize, loses_power: bool) {
        let broker = &mut self.brokers[at];
        broker.role = Role::Down;
        broker.process += 1;
        if loses_power {
            // A machine takes longer to start than the messages of its last life are on their way.
            broker.starts_at = self.now + 5_000;
            let kept = broker.durable.min(broker.log.len());
            broker.log.truncate(kept);
            broker.starts.retain(|(_, start)| *start <= kept);
        }
        for controller in 0..CONTROLLERS {
            let connection = self.brokers[at].connections[controller];
            let message = Message::Closed { to: controller, connection };
            if !loses_power {
                self.send(at, BROKERS + controller, true, message);
            }
        }
    }

    fn last_epoch(&self, at: usize) -> i32 {
        self.brokers[at].starts.last().map_or(0, |(epoch, _)| *epoch)
    }

    fn broker_turn(&mut self, at: usize) {
        if self.brokers[at].role == Role::Down {
            return;
        }
        let process = self.brokers[at].process;
        for controller in 0..CONTROLLERS {
            // A process registers before it sends a heartbeat: only then the controllers know that it is another.
            if self.brokers[at].role == Role::Starting {
                self.ask(at, controller, Ask::Register);
                continue;
            }
            let ask =
                Ask::Beat { epoch: self.last_epoch(at), end: self.brokers[at].log.len(), releases: false };
            self.ask(at, controller, ask);
            if self.brokers[at].role == Role::Fenced {
                self.ask(at, controller, Ask::Elect);
            } else if self.random.is(20) {
                self.ask(at, controller, Ask::Info);
            }
        }
        match self.brokers[at].role {
            Role::Master => self.lead(at),
            Role::Slave(master) if master != at as i64 + 1 => self.report(at, master),
            _ => {}
        }
        if self.random.is(30) {
            // A flush of the page cache.
            self.brokers[at].durable = self.brokers[at].log.len();
        }
        if self.brokers[at].process == process {
            let pause = 250 + self.random.below(60);
            self.at(pause, Step::Broker(at));
        }
    }

    fn replied(&mut self, at: usize, sent: u64, reply: Reply) {
        match reply {
            Reply::Registered(outcome) => {
                if outcome.code == Code::Success && self.brokers[at].role == Role::Starting {
                    self.brokers[at].role = Role::Fenced;
                }
            }
            Reply::Elected(outcome) | Reply::Info(outcome) => {
                let has_role = matches!(outcome.code, Code::Success | Code::MasterStillExist);
                if let Some(set) = outcome.set.filter(|_| has_role) {
                    self.take_role(at, &set);
                }
            }
            Reply::Role(set) => self.take_role(at, &set),
            Reply::Altered(outcome) => {
                let Some(set) = outcome.set else { return };
                let broker = &mut self.brokers[at];
                if outcome.code == Code::Success {
                    self.take_set(at, &set);
                } else if outcome.code == Code::AlterSyncStateSetFailed
                    && (set.master_epoch, set.in_sync_epoch) == (broker.epoch, broker.in_sync_epoch)
                {
                    // The same set.
                    broker.has_reported = true;
                }
            }
            Reply::Beaten(outcome) => {
                let (Some(set), Some(lease)) = (outcome.set, outcome.lease_ms) else { return };
                let from = sent * self.brokers[at].speed / 1_000;
                let broker = &mut self.brokers[at];
                if set.master_epoch != broker.epoch {
                    return;
                }
                broker.lease_epoch = set.master_epoch;
                broker.lease = if lease == 0 { 0 } else { broker.lease.max(from + lease) };
            }
        }
    }

    fn take_set(&mut self, at: usize, set: &SetView) {
        let broker = &mut self.brokers[at];
        if broker.role == Role::Master
            && set.master_epoch == broker.epoch
            && set.in_sync_epoch > broker.in_sync_epoch
        {
            broker.in_sync = set.in_sync.iter().copied().collect();
            broker.in_sync_epoch = set.in_sync_epoch;
            broker.has_reported = true;
            broker.wanted = None;
            broker.may_be_alone = broker.in_sync.len() < 2;
        }
    }

    fn take_role(&mut self, at: usize, set: &SetView) {
        if self.brokers[at].role == Role::Starting {
            return;
        }
        self.take_set(at, set);
        if set.master_epoch <= self.brokers[at].epoch {
            return;
        }
        let Some((master, _)) = &set.master else {
            for controller in 0..CONTROLLERS {
                self.ask(at, controller, Ask::Elect);
            }
            return;
        };
        let id = at as i64 + 1;
        let broker = &mut self.brokers[at];
        broker.epoch = set.master_epoch;
        broker.lease = 0;
        broker.reports.clear();
        broker.wanted = None;
        broker.may_be_alone = false;
        if *master != id {
            broker.role = Role::Slave(*master);
            return;
        }
        broker.role = Role::Master;
        broker.has_reported = false;
        broker.in_sync = set.in_sync.iter().copied().collect();
        broker.in_sync_epoch = set.in_sync_epoch;
        let end = broker.log.len();
        broker.starts.retain(|(_, start)| *start < end);
        broker.starts.push((set.master_epoch, end));
        // What others had acknowledged must survive a power failure before this one leads alone.
        broker.durable = end;
        broker.acked = 0;
        self.elections += 1;
        self.begins.insert(set.master_epoch, self.brokers[at].log.clone());
        for (position, record) in &self.acked {
            if self.brokers[at].log.get(*position) != Some(record) {
                let text =
                    format!("broker {id} leads in epoch {} without position {position}", set.master_epoch);
                return self.fail(text);
            }
        }
    }

    fn lead(&mut self, at: usize) {
        let id = at as i64 + 1;
        let min = if self.bug == Bug::MinOne { 1 } else { 2 };
        let epoch = self.brokers[at].epoch;
        let has_lease = self.has_lease(at);
        let union = self.union(at);
        if has_lease && union.len() >= min {
            if !self.waits_for_all && epoch < self.last_acked_epoch {
                let text =
                    format!("broker {id} takes messages in epoch {epoch} after {}", self.last_acked_epoch);
                return self.fail(text);
            }
            for _ in 0..1 + self.random.below(3) {
                self.record += 1;
                let record = (epoch, self.record);
                self.brokers[at].log.push(record);
            }
        }
        self.acknowledge(at);
        let now = self.now;
        let broker = &self.brokers[at];
        let end = broker.log.len();
        let mut wanted = broker.in_sync.clone();
        wanted.insert(id);
        wanted.retain(|other| {
            *other == id || broker.reports.get(other).is_some_and(|(_, seen)| seen + 1_500 > now)
        });
        for (other, (reported, seen)) in &broker.reports {
            let start = broker.starts.last().map_or(0, |(_, start)| *start);
            if *reported >= broker.confirmed.max(start) && *reported + 6 >= end && seen + 1_000 > now {
                wanted.insert(*other);
            }
        }
        if wanted != broker.in_sync || !broker.has_reported {
            let ask = Ask::Alter { epoch, in_sync: wanted.clone(), in_sync_epoch: broker.in_sync_epoch };
            let broker = &mut self.brokers[at];
            if wanted.len() < 2 {
                // Alone in the set, its disk is the only copy that counts.
                broker.durable = broker.log.len();
                broker.may_be_alone = true;
            }
            broker.wanted = Some(wanted.union(&broker.wanted.clone().unwrap_or_default()).copied().collect());
            for controller in 0..CONTROLLERS {
                self.ask(at, controller, ask.clone());
            }
        }
    }

    fn has_lease(&self, at: usize) -> bool {
        let broker = &self.brokers[at];
        let is_granted = broker.lease > self.clock(at) && broker.lease_epoch == broker.epoch;
        broker.has_reported && (self.bug == Bug::NoLease || is_granted)
    }

    fn union(&self, at: usize) -> BTreeSet<BrokerId> {
        let broker = &self.brokers[at];
        broker.in_sync.union(&broker.wanted.clone().unwrap_or_default()).copied().collect()
    }

    fn acknowledge(&mut self, at: usize) {
        let id = at as i64 + 1;
        let union = self.union(at);
        let min = if self.bug == Bug::MinOne { 1 } else { 2 };
        if self.brokers[at].role != Role::Master || union.len() < min || !self.has_lease(at) {
            return;
        }
        let broker = &self.brokers[at];
        let ends = union.iter().filter(|other| **other != id);
        let others = ends.map(|other| broker.reports.get(other).map_or(0, |(end, _)| *end));
        let others = if self.bug == Bug::BrokenPromise { others.max() } else { others.min() };
        let to = others.unwrap_or(usize::MAX).min(broker.log.len());
        let (epoch, from) = (broker.epoch, broker.acked);
        if broker.may_be_alone {
            self.brokers[at].durable = self.brokers[at].durable.max(to);
        }
        self.brokers[at].confirmed = self.brokers[at].confirmed.max(to);
        for position in from..to {
            let record = self.brokers[at].log[position];
            if record.0 != epoch {
                continue;
            }
            if epoch < self.last_acked_epoch && !self.is_in_later_logs(record, position) {
                let text =
                    format!("broker {id} acknowledges in epoch {epoch} after {}", self.last_acked_epoch);
                return self.fail(text);
            }
            self.last_acked_epoch = self.last_acked_epoch.max(epoch);
            let known = self.acked.insert(position, record);
            if known.is_some_and(|known| known != record) {
                return self.fail(format!("position {position} was acknowledged twice"));
            }
        }
        self.brokers[at].acked = to.max(from);
    }

    /// Whether a late acknowledgement does no harm: every later master began with that record.
    fn is_in_later_logs(&self, record: Record, position: usize) -> bool {
        let has = |(_, log): (&i32, &Vec<Record>)| log.get(position) == Some(&record);
        self.waits_for_all && self.begins.range(record.0 + 1..).all(has)
    }

    // ---- the stream ----

    fn report(&mut self, at: usize, master: BrokerId) {
        let broker = &self.brokers[at];
        let message = Message::Report {
            to: master as usize - 1,
            from: at,
            epoch: broker.epoch,
            end: broker.log.len(),
            starts: broker.starts.clone(),
        };
        self.send(at, master as usize - 1, false, message);
    }

    fn reported(&mut self, at: usize, from: usize, epoch: i32, end: usize, starts: &[Start]) {
        let broker = &self.brokers[at];
        if broker.role != Role::Master || broker.epoch != epoch {
            return;
        }
        let common = if self.bug == Bug::NoTruncation {
            end
        } else {
            common_point(&broker.starts, broker.log.len(), starts, end)
        };
        if common == end && end <= broker.log.len() {
            let now = self.now;
            self.brokers[at].reports.insert(from as i64 + 1, (end, now));
            self.acknowledge(at);
        }
        let broker = &self.brokers[at];
        let first = common.min(broker.log.len());
        let records = broker.log[first..].iter().take(40).copied().collect();
        let (starts, confirmed) = (broker.starts.clone(), broker.confirmed);
        let message = Message::Transfer { to: from, from: at, epoch, at: first, records, starts, confirmed };
        self.send(at, from, false, message);
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one message")]
    fn transferred(
        &mut self,
        at: usize,
        from: usize,
        epoch: i32,
        first: usize,
        records: &[Record],
        starts: &[Start],
        confirmed: usize,
    ) {
        let broker = &mut self.brokers[at];
        if broker.role != Role::Slave(from as i64 + 1) || broker.epoch != epoch || first > broker.log.len() {
            return;
        }
        if self.bug != Bug::NoTruncation {
            // What an older master wrote beyond the begin of this epoch is not in the log of the present one.
            let common = common_point(&broker.starts, broker.log.len(), starts, usize::MAX);
            broker.log.truncate(common);
            broker.durable = broker.durable.min(common);
            if first > common {
                return self.report(at, from as i64 + 1);
            }
        }
        let is_same = broker.log[first..].iter().zip(records).all(|(own, other)| own == other);
        let covers = first + records.len() >= broker.log.len();
        if self.bug != Bug::NoTruncation && (!is_same || (covers && first < broker.log.len())) {
            broker.log.truncate(first);
            broker.durable = broker.durable.min(first);
        }
        // A late transfer may be older than what is in the log already.
        let known = broker.log.len().saturating_sub(first).min(records.len());
        broker.log.extend_from_slice(&records[known..]);
        let end = broker.log.len();
        broker.starts = starts.iter().filter(|(_, start)| *start < end).copied().collect();
        broker.confirmed = broker.confirmed.max(confirmed.min(end));
        let master = from as i64 + 1;
        self.report(at, master);
    }

    // ---- faults ----

    fn fault(&mut self) {
        if self.now > QUIET_MS {
            self.cuts.clear();
            for at in 0..BROKERS {
                if self.brokers[at].role == Role::Down && self.brokers[at].starts_at <= self.now {
                    self.start(at);
                }
            }
            return;
        }
        let at = self.random.below(BROKERS as u64) as usize;
        let down = self.brokers.iter().filter(|broker| broker.role == Role::Down).count();
        match self.random.below(12) {
            0 | 1 if down < 2 && self.brokers[at].role != Role::Down => self.stop(at, false),
            // One power failure at a time; the others are up.
            2 if down == 0 => self.stop(at, true),
            3..6 => {
                let is_ready = |broker: &Broker| broker.role == Role::Down && broker.starts_at <= self.now;
                if let Some(down) = self.brokers.iter().position(is_ready) {
                    self.start(down);
                }
            }
            6 => {
                let (from, to) = (self.random.below(6) as usize, self.random.below(6) as usize);
                self.cuts.insert((from, to));
            }
            7 => {
                // Both directions to every controller.
                for controller in BROKERS..BROKERS + CONTROLLERS {
                    self.cuts.insert((at, controller));
                    self.cuts.insert((controller, at));
                }
            }
            8 | 9 => {
                self.cuts.clear();
                for controller in 0..CONTROLLERS {
                    if self.brokers[at].role != Role::Down {
                        self.connect(at, controller);
                    }
                }
            }
            10 => self.change_leader(),
            11 => {
                let controller = self.random.below(CONTROLLERS as u64) as usize;
                self.restart_controller(controller);
            }
            _ => {}
        }
    }
}

/// Returns the end of the part that two logs share: the newest epoch both have with the same start.
fn common_point(ours: &[Start], our_end: usize, theirs: &[Start], their_end: usize) -> usize {
    let end_of = |starts: &[Start], at: usize, end| starts.get(at + 1).map_or(end, |(_, start)| *start);
    for (at, start) in theirs.iter().enumerate().rev() {
        if let Some(own) = ours.iter().position(|other| other == start) {
            return end_of(theirs, at, their_end).min(end_of(ours, own, our_end));
        }
    }
    0
}

fn history(seed: u64, bug: Bug) -> (Option<String>, usize, u64) {
    let mut simulation = Simulation::new(seed, bug);
    let violation = simulation.run();
    (violation, simulation.acked.len(), simulation.elections)
}

fn seeds(default: u64) -> u64 {
    std::env::var("RMQPY_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn first_seed() -> u64 {
    std::env::var("RMQPY_FIRST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[test]
fn no_history_loses_an_acknowledged_message_or_has_two_acknowledging_masters() {
    let (mut acked, mut elections) = (0, 0);
    let count = seeds(200);
    for seed in first_seed()..first_seed() + count {
        let (violation, messages, elected) = history(seed, Bug::None);
        assert_eq!(violation, None, "seed {seed}");
        acked += messages as u64;
        elections += elected;
    }
    println!("{count} seeds: {acked} messages acknowledged, {elections} elections");
    assert!(acked > count * 20 && elections > count * 2, "{acked} messages, {elections} elections");
}

#[test]
fn every_fault_put_in_by_hand_is_found() {
    let bugs = [Bug::NoLease, Bug::MinOne, Bug::NoTruncation, Bug::EpochNotDurable, Bug::BrokenPromise];
    for bug in bugs {
        let found = (0..1_000).find_map(|seed| Some((seed, history(seed, bug).0?)));
        let (seed, violation) = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?}: seed {seed}: {violation}");
    }
}

#[test]
fn a_state_survives_its_encoding() {
    assert_eq!(State::decode(&State::default().encode()), Some(State::default()));
}
