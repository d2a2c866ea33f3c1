//! Election: chooses the master of a broker set.

use std::cmp::Reverse;
use std::time::Duration;

use super::liveness::{Beat, Liveness};
use super::state::{BrokerId, BrokerSet};

/// What an election may consider.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Replicas out of sync may be elected if no other is alive: acknowledged messages may be lost.
    pub is_unclean_allowed: bool,
}

/// Returns the winner among the living in-sync replicas, then, if allowed, among all that are alive.
#[must_use]
pub fn choose(
    name: &str,
    set: &BrokerSet,
    liveness: &Liveness,
    designated: Option<BrokerId>,
    rules: Rules,
    now: Duration,
) -> Option<BrokerId> {
    best(name, set, liveness, designated, set.electable().collect(), now).or_else(|| {
        // Whatever is alive.
        let all =
            set.replicas.keys().copied().filter(|id| liveness.alive(name, *id, now).is_some()).collect();
        if rules.is_unclean_allowed { best(name, set, liveness, designated, all, now) } else { None }
    })
}

/// Returns the replica with the newest epoch and the longest log, out of all that are alive, for a set that never had
/// a master. `requester` takes part with or without a heartbeat.
#[must_use]
pub fn choose_first(
    name: &str,
    set: &BrokerSet,
    liveness: &Liveness,
    requester: BrokerId,
    now: Duration,
) -> BrokerId {
    let others = set.replicas.keys().copied();
    let best = others.filter_map(|id| liveness.alive(name, id, now).map(|beat| (id, beat))).min_by_key(
        |(id, beat)| {
            // The requester wins against an equal log.
            (Reverse(beat.epoch), Reverse(beat.max_offset), beat.priority, *id != requester, *id)
        },
    );
    let has_log = |beat: &Beat| beat.max_offset > 0 || beat.epoch > 0;
    match best {
        Some((id, beat)) if liveness.alive(name, requester, now).is_some() || has_log(beat) => id,
        _ => requester,
    }
}

fn best(
    name: &str,
    set: &BrokerSet,
    liveness: &Liveness,
    designated: Option<BrokerId>,
    among: Vec<BrokerId>,
    now: Duration,
) -> Option<BrokerId> {
    let count = among.len();
    let candidates: Vec<_> =
        among.into_iter().filter_map(|id| Some((id, liveness.alive(name, id, now)?))).collect();
    if designated.is_some() {
        return candidates.iter().map(|(id, _)| *id).find(|id| Some(*id) == designated);
    }
    let intact = candidates.iter().filter(|(id, _)| !set.restarted.contains(id));
    // Every intact replica in sync has all acknowledged messages: the present master stays, if it is one of them.
    let kept = intact.min_by_key(|(id, beat)| (set.master != Some(*id), rank(*id, beat)));
    if let Some((id, _)) = kept {
        return Some(*id);
    }
    // Processes that have restarted may each have lost the end of their log in a power failure. Together they have
    // it, so the longest log counts, once all are back.
    let are_all_back = count == candidates.len();
    let longest = candidates.iter().min_by_key(|(id, beat)| rank(*id, beat));
    longest.filter(|_| are_all_back).map(|(id, _)| *id)
}

/// The order of candidates: the newest epoch, the longest log, the configured priority, the lowest id.
fn rank(id: BrokerId, beat: &Beat) -> (Reverse<i32>, Reverse<i64>, i32, BrokerId) {
    (Reverse(beat.epoch), Reverse(beat.max_offset), beat.priority, id)
}
