//! Server statistics: counters of the data plane and its connections, by their Python names, and rows of counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use crate::dataplane::service::data_plane::DataPlane;
use crate::dataplane::state::deliveries::Delivered;
use crate::dataplane::state::latency::Histogram;
use crate::dataplane::state::request::RequestKind;
use crate::remoting::ServerStatistics;

/// Counts of the deliveries from one queue to one group.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct DeliveryCounts {
    /// The group.
    group: String,
    /// The topic.
    topic: String,
    /// The id of the queue.
    queue_id: u32,
    /// Pulls that were answered with messages.
    pulls: u64,
    /// The number of messages.
    messages: u64,
    /// The size of the messages in bytes.
    bytes: u64,
    /// Messages that the group sent back.
    returned: u64,
    /// Checkpoints of popped messages.
    checkpoints: u64,
    /// Acknowledged messages.
    acks: u64,
}

/// The latencies of the replies to one kind of request.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct ReplyLatencies {
    /// The request code.
    code: i32,
    /// The response code.
    answer: i32,
    /// Whether the requests waited for a message.
    is_long_polling: bool,
    /// Replies in the buckets of `LATENCY_BOUNDS_US`, and one for longer times.
    counts: Vec<u64>,
    /// Total microseconds.
    sum_us: u64,
    /// The maximum in microseconds.
    max_us: u64,
}

impl From<Delivered> for DeliveryCounts {
    fn from(one: Delivered) -> Self {
        let Delivered { queue_id, pulls, messages, bytes, returned, checkpoints, acks, .. } = one;
        let (group, topic) = (one.group.to_string(), one.topic.to_string());
        Self { group, topic, queue_id, pulls, messages, bytes, returned, checkpoints, acks }
    }
}

impl From<(RequestKind, Arc<Histogram>)> for ReplyLatencies {
    fn from((kind, histogram): (RequestKind, Arc<Histogram>)) -> Self {
        let RequestKind { code, answer, is_long_polling } = kind;
        let (counts, sum_us, max_us) = histogram.read();
        Self { code, answer, is_long_polling, counts, sum_us, max_us }
    }
}

/// After the server has stopped, `server` is `None` and the connection counters are omitted.
pub(super) fn counts(
    data_plane: &DataPlane,
    server: Option<ServerStatistics>,
) -> BTreeMap<&'static str, u64> {
    let counters = &data_plane.counters;
    let parked = data_plane.broker.as_ref().map_or(0, |broker| broker.polls.count() + broker.pops.parked());
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
