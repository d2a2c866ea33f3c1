//! State: broker sets as a group of controllers agrees on them, and the events that change them.
//!
//! Invariant: the state is a function of the events applied, in their order. Nothing here knows time, liveness or
//! which controller leads.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// The most broker sets of a group of controllers.
pub const SETS_MAX: usize = 10_000;
/// The most replicas of a broker set.
pub const REPLICAS_MAX: usize = 64;
/// The most bytes of a name or an address.
pub const TEXT_BYTES_MAX: usize = 255;

/// The identity of a broker within its set: 1, 2, 3 and so on.
pub type BrokerId = i64;

/// A registered replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Its `host:port`.
    pub address: String,
    /// The code that proves that it applied for its id.
    pub check_code: String,
}

/// A broker set: the replicas of one broker name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerSet {
    /// The cluster of all its replicas.
    pub cluster: String,
    /// The id for the next applicant.
    pub next_id: BrokerId,
    /// Every replica by id.
    pub replicas: BTreeMap<BrokerId, Replica>,
    /// The number of elections so far, failed ones included; 0 before the first.
    pub master_epoch: i32,
    /// The elected master, if there is one.
    pub master: Option<BrokerId>,
    /// The replicas that have every acknowledged message.
    pub in_sync: BTreeSet<BrokerId>,
    /// The version of `in_sync`.
    pub in_sync_epoch: i32,
    /// Until the next election, the master acknowledges only messages that all of `in_sync` have.
    pub waits_for_all: bool,
    /// The replicas that were in sync before the last election, until the new master reports a set: until then it
    /// acknowledges nothing, so that each of them has every acknowledged message.
    pub before: BTreeSet<BrokerId>,
    /// Members of `in_sync` and `before` whose process has started since they were elected or joined: a power loss may
    /// have taken the end of their log.
    pub restarted: BTreeSet<BrokerId>,
}

/// A change that was agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The master reported another set of in-sync replicas.
    SyncStateSetAltered {
        /// The broker set.
        name: String,
        /// The new set.
        in_sync: BTreeSet<BrokerId>,
        /// The master acknowledges only messages that the whole set has.
        waits_for_all: bool,
    },
    /// A replica received an id.
    BrokerIdApplied {
        /// The broker set.
        name: String,
        /// Its cluster.
        cluster: String,
        /// The id.
        id: BrokerId,
        /// The replica.
        replica: Replica,
    },
    /// An election ended, with a master or without one.
    MasterElected {
        /// The broker set.
        name: String,
        /// The winner.
        master: Option<BrokerId>,
        /// It acknowledges nothing before it has reported a set.
        reports_first: bool,
    },
    /// Replicas were removed; without ids the whole set.
    Cleaned {
        /// The broker set.
        name: String,
        /// The ids.
        ids: Option<BTreeSet<BrokerId>>,
    },
    /// The process of a replica has started.
    Restarted {
        /// The broker set.
        name: String,
        /// The replica.
        id: BrokerId,
    },
    /// A replica moved.
    AddressUpdated {
        /// The broker set.
        name: String,
        /// The replica.
        id: BrokerId,
        /// Its new `host:port`.
        address: String,
    },
}

/// All broker sets by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    sets: BTreeMap<String, BrokerSet>,
}

impl State {
    /// Returns a broker set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&BrokerSet> {
        self.sets.get(name)
    }

    /// Every broker set with its name.
    pub fn sets(&self) -> impl Iterator<Item = (&String, &BrokerSet)> {
        self.sets.iter()
    }

    /// The number of broker sets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether the state has no broker set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Applies an event. An event about an unknown set or replica changes nothing.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::BrokerIdApplied { name, cluster, id, replica } => {
                let set = self.sets.entry(name.clone()).or_insert_with(|| BrokerSet::new(cluster));
                if !set.replicas.contains_key(id) {
                    set.replicas.insert(*id, replica.clone());
                    set.next_id = set.next_id.max(*id).saturating_add(1);
                }
            }
            Event::SyncStateSetAltered { name, in_sync, waits_for_all } => {
                if let Some(set) = self.sets.get_mut(name) {
                    // A restarted replica that stays in the set has not caught up again.
                    let BrokerSet { restarted, in_sync: before, .. } = set;
                    restarted.retain(|id| before.contains(id) && in_sync.contains(id));
                    set.before.clear();
                    set.in_sync.clone_from(in_sync);
                    set.in_sync_epoch += 1;
                    set.waits_for_all = *waits_for_all;
                }
            }
            Event::MasterElected { name, master, reports_first } => {
                if let Some(set) = self.sets.get_mut(name) {
                    set.master = *master;
                    set.master_epoch += 1;
                    if let Some(id) = master {
                        set.before = if *reports_first { set.others_before(*id) } else { BTreeSet::new() };
                        set.in_sync = BTreeSet::from([*id]);
                        set.in_sync_epoch += 1;
                        set.waits_for_all = false;
                        let BrokerSet { restarted, before, .. } = set;
                        restarted.retain(|id| before.contains(id));
                    }
                }
            }
            Event::Cleaned { name, ids: None } => {
                self.sets.remove(name);
            }
            Event::Cleaned { name, ids: Some(ids) } => {
                if let Some(set) = self.sets.get_mut(name) {
                    set.replicas.retain(|id, _| !ids.contains(id));
                    set.master = set.master.filter(|id| !ids.contains(id));
                    let count = set.in_sync.len();
                    set.in_sync.retain(|id| !ids.contains(id));
                    set.in_sync_epoch += i32::from(set.in_sync.len() != count);
                    set.restarted.retain(|id| !ids.contains(id));
                    set.before.retain(|id| !ids.contains(id));
                    if set.replicas.is_empty() {
                        self.sets.remove(name);
                    }
                }
            }
            Event::Restarted { name, id } => {
                if let Some(set) = self.sets.get_mut(name).filter(|set| set.is_electable(*id)) {
                    set.restarted.insert(*id);
                }
            }
            Event::AddressUpdated { name, id, address } => {
                if let Some(replica) = self.sets.get_mut(name).and_then(|set| set.replicas.get_mut(id)) {
                    replica.address.clone_from(address);
                }
            }
        }
    }

    /// Encodes the state for a snapshot.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let sets = self.sets.iter().map(|(name, set)| {
            let replicas = set.replicas.iter().map(|(id, replica)| json!([id, replica.address, replica.check_code]));
            json!({
                "name": name, "cluster": set.cluster, "nextId": set.next_id,
                "replicas": replicas.collect::<Vec<_>>(), "masterEpoch": set.master_epoch, "master": set.master,
                "inSync": set.in_sync, "inSyncEpoch": set.in_sync_epoch, "waitsForAll": set.waits_for_all,
                "before": set.before, "restarted": set.restarted,
            })
        });
        json!({ "format": 1, "sets": sets.collect::<Vec<_>>() }).to_string().into_bytes()
    }

    /// Decodes a snapshot; `None` if it is damaged.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        if value["format"] != 1 {
            return None;
        }
        let mut sets = BTreeMap::new();
        for each in value["sets"].as_array()? {
            let mut replicas = BTreeMap::new();
            for replica in each["replicas"].as_array()? {
                let (address, check_code) = (text(&replica[1])?, text(&replica[2])?);
                replicas.insert(replica[0].as_i64()?, Replica { address, check_code });
            }
            let set = BrokerSet {
                cluster: text(&each["cluster"])?,
                next_id: each["nextId"].as_i64()?,
                replicas,
                master_epoch: number(&each["masterEpoch"])?,
                master: each["master"].as_i64(),
                in_sync: ids(&each["inSync"])?,
                in_sync_epoch: number(&each["inSyncEpoch"])?,
                // Snapshots of older releases do not have it.
                waits_for_all: each["waitsForAll"] == true,
                before: ids(&each["before"]).unwrap_or_default(),
                restarted: ids(&each["restarted"])?,
            };
            sets.insert(text(&each["name"])?, set);
        }
        Some(Self { sets })
    }
}

impl BrokerSet {
    fn new(cluster: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            next_id: 1,
            replicas: BTreeMap::new(),
            master_epoch: 0,
            master: None,
            in_sync: BTreeSet::new(),
            in_sync_epoch: 0,
            waits_for_all: false,
            before: BTreeSet::new(),
            restarted: BTreeSet::new(),
        }
    }

    /// Returns the replicas that may have every acknowledged message.
    pub fn electable(&self) -> impl Iterator<Item = BrokerId> + '_ {
        self.in_sync.union(&self.before).copied().filter(|id| self.replicas.contains_key(id))
    }

    /// Whether a replica may have every acknowledged message.
    #[must_use]
    pub fn is_electable(&self, id: BrokerId) -> bool {
        self.in_sync.contains(&id) || self.before.contains(&id)
    }

    /// Returns the replicas besides the winner of an election that may have every acknowledged message. There are none
    /// if the winner has restarted: then its log, the longest, counts.
    fn others_before(&self, winner: BrokerId) -> BTreeSet<BrokerId> {
        if !self.is_electable(winner) || self.restarted.contains(&winner) {
            return BTreeSet::new();
        }
        self.electable().filter(|id| *id != winner).collect()
    }

    /// Returns the `host:port` of a replica.
    #[must_use]
    pub fn address(&self, id: BrokerId) -> Option<&str> {
        self.replicas.get(&id).map(|replica| replica.address.as_str())
    }
}

impl Event {
    /// The broker set it changes.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::SyncStateSetAltered { name, .. }
            | Self::BrokerIdApplied { name, .. }
            | Self::MasterElected { name, .. }
            | Self::Cleaned { name, .. }
            | Self::Restarted { name, .. }
            | Self::AddressUpdated { name, .. } => name,
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::SyncStateSetAltered { name, in_sync, waits_for_all } => {
                json!(["alter", name, in_sync, waits_for_all])
            }
            Self::BrokerIdApplied { name, cluster, id, replica } => {
                json!(["apply", name, cluster, id, replica.address, replica.check_code])
            }
            Self::MasterElected { name, master, reports_first } => {
                json!(["elect", name, master, reports_first])
            }
            Self::Cleaned { name, ids } => json!(["clean", name, ids]),
            Self::Restarted { name, id } => json!(["restart", name, id]),
            Self::AddressUpdated { name, id, address } => json!(["address", name, id, address]),
        }
    }

    fn from_json(value: &Value) -> Option<Self> {
        let name = text(&value[1])?;
        Some(match value[0].as_str()? {
            "alter" => Self::SyncStateSetAltered {
                name,
                in_sync: ids(&value[2])?,
                // Entries of older releases do not have it.
                waits_for_all: value[3] == true,
            },
            "apply" => Self::BrokerIdApplied {
                name,
                cluster: text(&value[2])?,
                id: value[3].as_i64()?,
                replica: Replica { address: text(&value[4])?, check_code: text(&value[5])? },
            },
            "elect" => {
                Self::MasterElected { name, master: value[2].as_i64(), reports_first: value[3] == true }
            }
            "clean" if value[2].is_null() => Self::Cleaned { name, ids: None },
            "clean" => Self::Cleaned { name, ids: Some(ids(&value[2])?) },
            "restart" => Self::Restarted { name, id: value[2].as_i64()? },
            "address" => Self::AddressUpdated { name, id: value[2].as_i64()?, address: text(&value[3])? },
            _ => return None,
        })
    }
}

/// An entry of the log: the events of one proposal, and the marks by which its proposer recognises it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// A number that no other run of a controller uses.
    pub proposer: u64,
    /// The number of the proposal within that run.
    pub proposal: u64,
    /// The events, applied together.
    pub events: Vec<Event>,
}

impl Entry {
    /// Encodes the entry for the log.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let events: Vec<Value> = self.events.iter().map(Event::to_json).collect();
        json!([self.proposer, self.proposal, events]).to_string().into_bytes()
    }

    /// Decodes an entry; `None` if it is damaged.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let events: Option<Vec<Event>> = value[2].as_array()?.iter().map(Event::from_json).collect();
        Some(Self { proposer: value[0].as_u64()?, proposal: value[1].as_u64()?, events: events? })
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn number(value: &Value) -> Option<i32> {
    i32::try_from(value.as_i64()?).ok()
}

fn ids(value: &Value) -> Option<BTreeSet<BrokerId>> {
    value.as_array()?.iter().map(Value::as_i64).collect()
}
