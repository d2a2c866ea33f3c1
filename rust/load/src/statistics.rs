//! Load statistics: the counts of one thread, and their sum over threads.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::plan::Plan;

/// Maximum recorded latency: an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Three digits: an error of 0.1 %.
const PRECISION: u8 = 3;
/// A request sent later than this after its due time counts as late.
const LATE_NS: u64 = 1_000_000;

/// Requests that a broker refused.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals {
    pub(super) count: u64,
    /// The remark of the first one.
    pub(super) remark: String,
}

#[derive(Clone, Debug)]
pub(super) struct LoadStatistics {
    warm_up_ns: u64,
    /// The planned end of the measured interval.
    pub(super) end_ns: u64,
    is_open_loop: bool,
    /// The latency of each measured request, in nanoseconds.
    pub(super) latency_ns: Histogram<u64>,
    /// The messages of measured requests.
    pub(super) messages: u64,
    /// Their bytes: bodies as sent, or records as received.
    pub(super) bytes: u64,
    /// All messages accepted or received, including warm-up and tail.
    pub(super) messages_total: u64,
    /// All requests sent.
    pub(super) requests_total: u64,
    /// Pulls that returned no message.
    pub(super) empty: u64,
    pub(super) refused: BTreeMap<i32, Refusals>,
    /// Requests without a response at the end.
    pub(super) unanswered: u64,
    /// Open loop: requests due before the end that were never sent.
    pub(super) unsent: u64,
    /// Open loop: measured requests sent more than a millisecond after they were due.
    pub(super) late: u64,
    /// Open loop: the maximum delay of a measured request.
    pub(super) lag_ns_max: u64,
    /// The actual end of the measured interval: earlier than planned if the count was reached.
    pub(super) until_ns: u64,
}

impl LoadStatistics {
    pub(super) fn new(plan: &Plan) -> Self {
        let nanoseconds =
            |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self {
            warm_up_ns: nanoseconds(plan.warm_up),
            end_ns: nanoseconds(plan.end()),
            is_open_loop: plan.rate.is_some(),
            latency_ns: Histogram::new_with_bounds(1, LATENCY_NS_MAX, PRECISION)
                .unwrap_or_else(|_| unreachable!("bounds and precision are valid constants")),
            messages: 0,
            bytes: 0,
            messages_total: 0,
            requests_total: 0,
            empty: 0,
            refused: BTreeMap::new(),
            unanswered: 0,
            unsent: 0,
            late: 0,
            lag_ns_max: 0,
            until_ns: 0,
        }
    }

    pub(super) fn interval_s(&self) -> f64 {
        self.until_ns.saturating_sub(self.warm_up_ns) as f64 / 1e9
    }

    /// Stops sending at `now_ns`; only responses to requests in flight follow.
    pub(super) fn close(&mut self, now_ns: u64) {
        self.until_ns = now_ns.min(self.end_ns);
    }

    /// Records that a request that began (or was due) at `begin_ns` completed at `now_ns` with `messages` of `bytes`.
    ///
    /// The closed loop measures responses within the interval; the open loop measures requests due within it, however
    /// late the response.
    pub(super) fn complete(&mut self, begin_ns: u64, now_ns: u64, messages: u64, bytes: u64) {
        self.messages_total += messages;
        if self.is_measured(if self.is_open_loop { begin_ns } else { now_ns }) {
            // Responses to the last requests of a counted run arrive after its close.
            if self.until_ns > 0 {
                self.until_ns = self.until_ns.max(now_ns.min(self.end_ns));
            }
            self.messages += messages;
            self.bytes += bytes;
            self.latency_ns.saturating_record(now_ns.saturating_sub(begin_ns));
        }
    }

    /// Records that a request due at `due_ns` is sent at `now_ns`.
    pub(super) fn send(&mut self, due_ns: u64, now_ns: u64) {
        self.requests_total += 1;
        let lag_ns = now_ns.saturating_sub(due_ns);
        if self.is_open_loop && self.is_measured(due_ns) {
            self.late += u64::from(lag_ns > LATE_NS);
            self.lag_ns_max = self.lag_ns_max.max(lag_ns);
        }
    }

    pub(super) fn refuse(&mut self, code: i32, remark: impl FnOnce() -> String) {
        let refusals = self.refused.entry(code).or_default();
        if refusals.count == 0 {
            refusals.remark = remark();
        }
        refusals.count += 1;
    }

    /// Records that a request that began at `begin_ns` is given up at `now_ns`. Its wait is counted where omitting it
    /// would make a stalled broker look fast.
    pub(super) fn give_up(&mut self, begin_ns: u64, now_ns: u64) {
        if self.is_open_loop && self.is_measured(begin_ns) {
            self.latency_ns.saturating_record(now_ns.saturating_sub(begin_ns));
        }
    }

    /// Adds the statistics of another thread.
    pub(super) fn merge(&mut self, other: &Self) {
        // Equal bounds: cannot fail.
        let _ = self.latency_ns.add(&other.latency_ns);
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.messages_total += other.messages_total;
        self.requests_total += other.requests_total;
        self.empty += other.empty;
        for (code, refusals) in &other.refused {
            let sum = self.refused.entry(*code).or_default();
            if sum.count == 0 {
                sum.remark.clone_from(&refusals.remark);
            }
            sum.count += refusals.count;
        }
        self.unanswered += other.unanswered;
        self.unsent += other.unsent;
        self.late += other.late;
        self.lag_ns_max = self.lag_ns_max.max(other.lag_ns_max);
        self.until_ns = self.until_ns.max(other.until_ns);
    }

    fn is_measured(&self, moment_ns: u64) -> bool {
        (self.warm_up_ns..self.end_ns).contains(&moment_ns)
    }
}
