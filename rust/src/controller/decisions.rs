//! Decisions: for each request the outcome and the events, as a function of state, liveness and time.

use std::collections::BTreeSet;
use std::time::Duration;

use super::election::{Rules, choose, choose_first};
use super::liveness::Liveness;
use super::requests::{Asked, Code, Request};
use super::state::{BrokerId, BrokerSet, Event, REPLICAS_MAX, Replica, SETS_MAX, State, TEXT_BYTES_MAX};

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The outcome is final; nothing changes.
    Answer(Code, String),
    /// The events are to be agreed on; then the request has succeeded.
    Propose(Vec<Event>),
    /// The same request is to be decided again later: a lease has not ended, or replicas have not sent a heartbeat yet.
    Wait,
}

/// What a decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The agreed state.
    pub state: &'a State,
    /// The table of heartbeats and leases.
    pub liveness: &'a Liveness,
    /// The rules of elections.
    pub rules: Rules,
    /// Time on the monotonic clock.
    pub now: Duration,
    /// The moment at which a first election no longer waits for silent replicas.
    pub first_election_end: Duration,
    /// The moment at which this controller began to lead.
    pub leads_since: Duration,
}

/// The time for a master whose connection closed to send a heartbeat on another one: its interval, a quarter of the
/// default lease, and some more.
const RECONNECTION: Duration = Duration::from_millis(450);
/// The additional time for a master from which this controller never received a heartbeat.
const UNKNOWN_MASTER: Duration = Duration::from_millis(550);

const DONE: Decision = Decision::Answer(Code::Success, String::new());

fn refuse(code: Code, remark: impl Into<String>) -> Decision {
    Decision::Answer(code, remark.into())
}

/// Decides a request.
#[must_use]
pub fn decide(asked: &Asked, situation: &Situation<'_>) -> Decision {
    let Asked { cluster, name, request } = asked;
    if name.is_empty() {
        return refuse(Code::InvalidRequest, "brokerName is missing");
    }
    let set = situation.state.get(name);
    if let (Some(set), Request::NextBrokerId | Request::ApplyBrokerId { .. } | Request::Register { .. }) =
        (set, request)
        && !cluster.is_empty()
        && *cluster != set.cluster
    {
        let used = &set.cluster;
        let remark = format!(
            "brokerName {name} belongs to cluster {used}: give the brokers of cluster {cluster} another name"
        );
        return refuse(Code::InvalidRequest, remark);
    }
    match request {
        Request::NextBrokerId => DONE,
        Request::ApplyBrokerId { id, check_code } => apply_id(cluster, name, set, *id, check_code, situation),
        Request::Register { id, address, has_started, .. } => register(name, set, *id, address, *has_started),
        Request::ReplicaInfo => match set {
            Some(_) => DONE,
            None => refuse(Code::BrokerMetadataNotExist, format!("Broker {name} is not existed")),
        },
        Request::Elect { id, is_designated } => elect(name, set, Some(*id), *is_designated, situation),
        Request::AlterSyncStateSet { master, master_epoch, in_sync, in_sync_epoch, waits_for_all } => {
            let known = (*master, *master_epoch, *in_sync_epoch);
            alter(name, set, known, in_sync, *waits_for_all, situation)
        }
        Request::Clean { ids, may_live } => clean(name, set, ids.as_ref(), *may_live, situation),
    }
}

/// Decides an election that the controller begins because a master is lost.
#[must_use]
pub fn decide_succession(name: &str, situation: &Situation<'_>) -> Decision {
    elect(name, situation.state.get(name), None, false, situation)
}

fn apply_id(
    cluster: &str,
    name: &str,
    set: Option<&BrokerSet>,
    id: BrokerId,
    check_code: &str,
    situation: &Situation<'_>,
) -> Decision {
    let address = check_code.split(';').next().unwrap_or_default();
    if [cluster, name, check_code].iter().any(|text| text.is_empty() || text.len() > TEXT_BYTES_MAX) {
        let remark = format!("cluster, broker name and check code have 1 to {TEXT_BYTES_MAX} bytes");
        return refuse(Code::InvalidRequest, remark);
    }
    let replica = Replica { address: address.to_owned(), check_code: check_code.to_owned() };
    let (name, cluster) = (name.to_owned(), cluster.to_owned());
    match set {
        None if id != 1 => refuse(
            Code::BrokerIdInvalid,
            format!(
                "Broker-set: {name} hasn't been registered in controller, but broker try to apply brokerId: {id}"
            ),
        ),
        None if situation.state.len() >= SETS_MAX => {
            refuse(Code::BrokerIdInvalid, format!("the controller has {SETS_MAX} broker sets already"))
        }
        Some(set) => match set.replicas.get(&id) {
            Some(known) if known.check_code == check_code => DONE,
            Some(_) => {
                refuse(Code::BrokerIdInvalid, format!("Fail to apply brokerId: {id} in broker-set: {name}"))
            }
            None if id < 1 || set.replicas.len() >= REPLICAS_MAX => refuse(
                Code::BrokerIdInvalid,
                format!(
                    "Fail to apply brokerId: {id} in broker-set: {name}: at most {REPLICAS_MAX} replicas"
                ),
            ),
            None => Decision::Propose(vec![Event::BrokerIdApplied { name, cluster, id, replica }]),
        },
        None => Decision::Propose(vec![Event::BrokerIdApplied { name, cluster, id, replica }]),
    }
}

fn register(name: &str, set: Option<&BrokerSet>, id: BrokerId, address: &str, has_started: bool) -> Decision {
    let Some(replica) = set.and_then(|set| set.replicas.get(&id)) else {
        return needs_registration(name, set, id);
    };
    if address.is_empty() || address.len() > TEXT_BYTES_MAX {
        return refuse(Code::InvalidRequest, format!("brokerAddress has 1 to {TEXT_BYTES_MAX} bytes"));
    }
    let mut events = Vec::new();
    if replica.address != address {
        events.push(Event::AddressUpdated { name: name.to_owned(), id, address: address.to_owned() });
    }
    // Through the log, whatever this controller knows about the set: a deposed leader must not confirm a start that the
    // present one never learns of.
    if has_started {
        events.push(Event::Restarted { name: name.to_owned(), id });
    }
    if events.is_empty() { DONE } else { Decision::Propose(events) }
}

fn needs_registration(name: &str, set: Option<&BrokerSet>, id: BrokerId) -> Decision {
    let remark = match set {
        None => format!("Broker-set: {name} hasn't been registered in controller"),
        Some(_) => format!("BrokerId: {id} hasn't been registered in broker-set: {name}"),
    };
    refuse(Code::BrokerNeedToBeRegistered, remark)
}

/// Elects; without `requester` for the controller itself.
fn elect(
    name: &str,
    set: Option<&BrokerSet>,
    requester: Option<BrokerId>,
    is_designated: bool,
    situation: &Situation<'_>,
) -> Decision {
    let Situation { liveness, rules, now, .. } = *situation;
    let Some(set) = set else { return needs_registration(name, None, requester.unwrap_or(-1)) };
    let requester = requester.filter(|id| *id >= 0);
    if let Some(id) = requester.filter(|id| !set.replicas.contains_key(id)) {
        return needs_registration(name, Some(set), id);
    }
    let winner = match requester {
        Some(id) if set.master_epoch == 0 => {
            let is_alive = |id: &BrokerId| liveness.alive(name, *id, now).is_some();
            let others_are_alive = set.replicas.keys().filter(|other| **other != id).all(is_alive);
            if !is_designated && !others_are_alive && now < situation.first_election_end {
                return Decision::Wait;
            }
            Some(if is_designated { id } else { choose_first(name, set, liveness, id, now) })
        }
        None if set.master_epoch == 0 => None,
        _ => choose(name, set, liveness, requester.filter(|_| is_designated), rules, now),
    };
    match winner {
        // A master whose process has restarted may have lost records that others have in its epoch: it needs another.
        Some(id) if set.master == Some(id) && !set.restarted.contains(&id) => refuse(
            Code::MasterStillExist,
            format!("The old master {id} is still alive, not need to elect new master for broker {name}"),
        ),
        Some(id)
            if liveness.lease(name, now).is_some_and(|lease| lease.holder != Some(id))
                && !blocks_the_master(name, set, id, situation) =>
        {
            Decision::Wait
        }
        Some(id) => {
            let reports_first = liveness.alive(name, id, now).is_some_and(|beat| beat.takes_leases);
            elected(name, Some(id), reports_first)
        }
        None if requester.is_none() && set.master.is_some() => elected(name, None, false),
        None => {
            let code = if requester.is_none() { Code::MasterNotAvailable } else { Code::ElectMasterFailed };
            refuse(
                code,
                format!("Failed to elect a new master for broker {name}: no in-sync replica is alive"),
            )
        }
    }
}

fn elected(name: &str, master: Option<BrokerId>, reports_first: bool) -> Decision {
    Decision::Propose(vec![Event::MasterElected { name: name.to_owned(), master, reports_first }])
}

/// Whether the lost master acknowledges nothing once `winner` leads, even within its lease: it waits for the copies of
/// all replicas in sync, and `winner`, one of them, no longer gives it any; or it has not reported a set yet. A heartbeat
/// after the loss shows that `winner` is alive.
fn blocks_the_master(name: &str, set: &BrokerSet, winner: BrokerId, situation: &Situation<'_>) -> bool {
    let Situation { liveness, now, leads_since, .. } = *situation;
    let Some(master) = set.master.filter(|master| *master != winner) else { return false };
    let waits_for_winner = set.waits_for_all && set.in_sync.contains(&winner);
    if !waits_for_winner && !set.before.contains(&winner) {
        return false;
    }
    if set.restarted.contains(&master) {
        return true;
    }
    if liveness.alive(name, master, now).is_some() {
        return false;
    }
    let lost = liveness.lost_at(name, master).unwrap_or(leads_since + UNKNOWN_MASTER);
    let has_shown_life = liveness.alive(name, winner, now).is_some_and(|beat| beat.at > lost);
    has_shown_life && now >= lost + RECONNECTION
}

fn alter(
    name: &str,
    set: Option<&BrokerSet>,
    (master, master_epoch, in_sync_epoch): (BrokerId, i32, i32),
    in_sync: &BTreeSet<BrokerId>,
    waits_for_all: bool,
    situation: &Situation<'_>,
) -> Decision {
    let failed = Code::AlterSyncStateSetFailed;
    let Some(set) = set else {
        return refuse(failed, format!("Broker {name} is not existed, alter syncStateSet failure"));
    };
    if *in_sync == set.in_sync && set.before.is_empty() {
        return refuse(failed, format!("The newSyncStateSet of {name} is equal with the present one"));
    }
    if set.master != Some(master) {
        let remark = format!(
            "Rejecting alter syncStateSet of {name}: the current master is {}, not {master}",
            set.master.map_or_else(|| "none".to_owned(), |id| id.to_string())
        );
        return refuse(Code::InvalidMaster, remark);
    }
    if set.master_epoch != master_epoch {
        let remark = format!(
            "Rejecting alter syncStateSet of {name}: the current master epoch is {}, not {master_epoch}",
            set.master_epoch
        );
        return refuse(Code::FencedMasterEpoch, remark);
    }
    if set.in_sync_epoch != in_sync_epoch {
        let remark = format!(
            "Rejecting alter syncStateSet of {name}: the current epoch of the set is {}, not {in_sync_epoch}",
            set.in_sync_epoch
        );
        return refuse(Code::FencedSyncStateSetEpoch, remark);
    }
    for id in in_sync {
        if !set.replicas.contains_key(id) {
            let remark = format!("Rejecting alter syncStateSet of {name}: broker {id} doesn't exist");
            return refuse(Code::InvalidReplicas, remark);
        }
        if situation.liveness.alive(name, *id, situation.now).is_none() {
            let remark = format!("Rejecting alter syncStateSet of {name}: broker {id} is not alive");
            return refuse(Code::BrokerNotAlive, remark);
        }
    }
    if !in_sync.contains(&master) {
        let remark =
            format!("Rejecting alter syncStateSet of {name}: the set must contain the master {master}");
        return refuse(failed, remark);
    }
    let (name, in_sync) = (name.to_owned(), in_sync.clone());
    Decision::Propose(vec![Event::SyncStateSetAltered { name, in_sync, waits_for_all }])
}

fn clean(
    name: &str,
    set: Option<&BrokerSet>,
    ids: Option<&BTreeSet<BrokerId>>,
    may_live: bool,
    situation: &Situation<'_>,
) -> Decision {
    let code = Code::InvalidCleanBrokerMetadata;
    let Some(set) = set else {
        return refuse(code, format!("Broker {name} is not existed,clean broker data failure."));
    };
    let lease = situation.liveness.lease(name, situation.now);
    let is_held = lease
        .is_some_and(|lease| lease.holder.is_none_or(|holder| ids.is_none_or(|ids| ids.contains(&holder))));
    match ids {
        _ if is_held && !may_live => {
            refuse(code, format!("Broker {name} may hold a lease for some seconds, clean up failure"))
        }
        None if set.master.is_some() => refuse(code, format!("Broker {name} has a master, clean up failure")),
        Some(ids) if !may_live => {
            let alive = ids.iter().find(|id| situation.liveness.alive(name, **id, situation.now).is_some());
            match alive {
                Some(id) => refuse(code, format!("Broker [{name},  {id}] is still alive, clean up failure")),
                None => cleaned(name, Some(ids)),
            }
        }
        ids => cleaned(name, ids),
    }
}

fn cleaned(name: &str, ids: Option<&BTreeSet<BrokerId>>) -> Decision {
    Decision::Propose(vec![Event::Cleaned { name: name.to_owned(), ids: ids.cloned() }])
}
