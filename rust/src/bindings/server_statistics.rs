//! Counts of a server by the names under which Python reads them: those of its data plane, and of its connections.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::dataplane::data_plane::DataPlane;
use crate::remoting::ServerStatistics;

/// Without `server`, which has stopped, those of its connections are not there.
pub(super) fn counts(
    data_plane: &DataPlane,
    server: Option<ServerStatistics>,
) -> BTreeMap<&'static str, u64> {
    let counters = &data_plane.counters;
    let parked = data_plane.broker.as_ref().map_or(0, |broker| broker.polls.count());
    let transactions = data_plane.transaction_counts();
    let refusals = &data_plane.guard.counts;
    let mut statistics = BTreeMap::from([
        ("connections", server.map_or(0, |server| server.connections as u64)),
        ("requests", counters.requests.load(Ordering::Relaxed)),
        ("upcalls", counters.upcalls.load(Ordering::Relaxed)),
        ("sends", counters.sends.load(Ordering::Relaxed)),
        ("pulls", counters.pulls.load(Ordering::Relaxed)),
        ("overloads", counters.overloads.load(Ordering::Relaxed)),
        ("oneway_drops", counters.oneway_drops.load(Ordering::Relaxed)),
        ("refused_answers", counters.refused_answers.load(Ordering::Relaxed)),
        ("parked_pulls", parked as u64),
        ("unauthenticated", refusals.unauthenticated.load(Ordering::Relaxed)),
        ("unauthorized", refusals.unauthorized.load(Ordering::Relaxed)),
        ("limited_requests", refusals.limited.load(Ordering::Relaxed)),
        ("delayed_refusals", refusals.delayed.load(Ordering::Relaxed)),
        ("open_transactions", data_plane.open_transactions() as u64),
        ("checked_transactions", transactions.checks),
        ("discarded_transactions", transactions.discarded),
        ("lost_transactions", transactions.lost),
        ("waiting_upcalls", data_plane.upcalls.waiting() as u64),
    ]);
    if let Some(server) = server {
        statistics.extend([
            ("refused_connections", server.refused),
            ("refused_of_address", server.refused_of_address),
            ("refused_for_descriptors", server.refused_for_descriptors),
            ("closed_slow", server.closed_slow),
            ("closed_idle", server.closed_idle),
            ("closed_broken", server.closed_broken),
            ("refused_frames", server.refused_frames),
            ("buffer_bytes", server.buffers_bytes as u64),
            ("mailbox_bytes", server.mailbox_bytes as u64),
            ("dropped_notices", server.dropped_notices),
        ]);
    }
    statistics
}
