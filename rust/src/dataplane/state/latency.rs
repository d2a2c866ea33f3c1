//! Latency: histograms of the time from request to reply.
//!
//! There is one histogram for each request code, response code and kind of wait. A connection buffers its replies
//! and adds them at the end of a burst, so a read of many requests costs two readings of the clock and a few
//! additions.
//!
//! *Invariant*: each sample is counted once, and the number of kinds is bounded for any codes a peer sends.
//! Threads: a buffer belongs to its connection; counting is lock-free; the table's lock is for a connection's first
//! reply of a kind, and for `read`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::request::{RequestContext, RequestKind};

/// Upper bounds of the buckets in microseconds; one more bucket holds the rest. They include the bounds of
/// Apache's broker and tools, which have none below a millisecond, where most replies are.
pub(crate) const BOUNDS_US: [u64; 28] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 3_000, 5_000, 7_000, 10_000, 20_000, 50_000, 100_000,
    200_000, 500_000, 1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000, 10_000_000, 20_000_000,
    60_000_000,
];
/// Maximum number of kinds; further kinds are counted as one.
const KINDS_MAX: usize = 1_024;
/// Histograms that a connection caches; a client has a handful of kinds.
const KEPT_MAX: usize = 16;

/// Replies of one kind by latency.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
    max_us: AtomicU64,
}

impl Histogram {
    fn add(&self, count: u64, took: Duration) {
        let took_us = took.as_micros() as u64;
        let at = BOUNDS_US.partition_point(|bound| *bound < took_us);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(count, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(took_us * count, Ordering::Relaxed);
        if took_us > self.max_us.load(Ordering::Relaxed) {
            self.max_us.fetch_max(took_us, Ordering::Relaxed);
        }
    }

    /// Returns the count of each bucket, and the sum and the maximum in microseconds.
    pub(crate) fn read(&self) -> (Vec<u64>, u64, u64) {
        let buckets = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        (buckets, self.sum_us.load(Ordering::Relaxed), self.max_us.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Latencies {
    table: Mutex<Vec<(RequestKind, Arc<Histogram>)>>,
}

impl Latencies {
    /// Counts a reply that was not sent by a connection's burst.
    pub(in crate::dataplane) fn add(&self, kind: RequestKind, took: Duration) {
        self.of(kind).add(1, took);
    }

    pub(crate) fn read(&self) -> Vec<(RequestKind, Arc<Histogram>)> {
        self.table.lock().clone()
    }

    fn of(&self, kind: RequestKind) -> Arc<Histogram> {
        let mut table = self.table.lock();
        let kind = if table.len() < KINDS_MAX { kind } else { known(&table, kind) };
        if let Some((_, histogram)) = table.iter().find(|(each, _)| *each == kind) {
            return Arc::clone(histogram);
        }
        let histogram = Arc::<Histogram>::default();
        table.push((kind, Arc::clone(&histogram)));
        histogram
    }
}

/// Returns the kind if it has a histogram, otherwise the kind for all others.
fn known(table: &[(RequestKind, Arc<Histogram>)], kind: RequestKind) -> RequestKind {
    let is_known = table.iter().any(|(each, _)| *each == kind);
    if is_known { kind } else { RequestKind { code: -1, answer: -1, is_long_polling: false } }
}

/// Replies of a connection that are not in a histogram yet.
#[derive(Debug, Default)]
pub(in crate::dataplane) struct LatencyBuffer {
    /// The start of the current burst.
    pub(in crate::dataplane) began: Duration,
    noted: Vec<(RequestKind, u64)>,
    /// The cached histograms.
    kept: Vec<(RequestKind, Arc<Histogram>)>,
}

impl LatencyBuffer {
    /// Adds a reply within the burst. One-way requests have none and are not counted.
    pub(in crate::dataplane) fn note(&mut self, context: RequestContext, answer: i32) {
        if context.is_oneway {
            return;
        }
        let kind = RequestKind::of(context, answer);
        match self.noted.iter_mut().find(|(each, _)| *each == kind) {
            Some((_, count)) => *count += 1,
            None => self.noted.push((kind, 1)),
        }
    }

    pub(in crate::dataplane) fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }

    /// Counts the buffered replies with the time from `began` to `now`.
    pub(in crate::dataplane) fn settle(&mut self, all: &Latencies, now: Duration) {
        let took = now.saturating_sub(self.began);
        let mut noted = std::mem::take(&mut self.noted);
        for (kind, count) in noted.drain(..) {
            self.add(all, kind, count, took);
        }
        self.noted = noted;
    }

    /// Counts a reply that had to wait.
    pub(in crate::dataplane) fn waited(&mut self, all: &Latencies, kind: RequestKind, took: Duration) {
        self.add(all, kind, 1, took);
    }

    fn add(&mut self, all: &Latencies, kind: RequestKind, count: u64, took: Duration) {
        if let Some((_, histogram)) = self.kept.iter().find(|(each, _)| *each == kind) {
            histogram.add(count, took);
            return;
        }
        let histogram = all.of(kind);
        histogram.add(count, took);
        // A peer that invents codes pays for the lookups itself.
        if self.kept.len() < KEPT_MAX {
            self.kept.push((kind, histogram));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remoting::codes::request::SEND_MESSAGE_V2;
    use crate::remoting::codes::response::TOPIC_NOT_EXIST;
    use crate::remoting::frame::Encoding;

    fn context(code: i32) -> RequestContext {
        RequestContext {
            code,
            came_at: Duration::ZERO,
            opaque: 1,
            encoding: Encoding::Json,
            is_oneway: false,
        }
    }

    fn totals(all: &Latencies) -> Vec<(i32, i32, u64)> {
        let count = |histogram: &Histogram| histogram.read().0.iter().sum();
        all.read().iter().map(|(kind, each)| (kind.code, kind.answer, count(each))).collect()
    }

    #[test]
    fn a_bucket_includes_its_upper_bound() {
        let histogram = Histogram::default();
        for took_us in [0, 1, 2, 1_000, 1_001, 2_999_999, 10_000_000, 70_000_000] {
            histogram.add(1, Duration::from_micros(took_us));
        }
        let (buckets, sum_us, max_us) = histogram.read();
        let filled: Vec<_> =
            BOUNDS_US.into_iter().chain([u64::MAX]).zip(buckets).filter(|one| one.1 > 0).collect();
        let expected =
            [(1, 2), (2, 1), (1_000, 1), (2_000, 1), (3_000_000, 1), (10_000_000, 1), (u64::MAX, 1)];
        assert_eq!(filled, expected);
        assert_eq!((sum_us, max_us), (83_002_003, 70_000_000));
    }

    #[test]
    fn replies_of_a_burst_are_counted_once_by_kind() {
        let all = Latencies::default();
        let mut latency = LatencyBuffer { began: Duration::from_millis(10), ..LatencyBuffer::default() };
        for _ in 0..3 {
            latency.note(context(SEND_MESSAGE_V2), 0);
        }
        latency.note(context(SEND_MESSAGE_V2), TOPIC_NOT_EXIST);
        latency.note(RequestContext { is_oneway: true, ..context(SEND_MESSAGE_V2) }, 0);
        latency.settle(&all, Duration::from_millis(12));
        assert!(latency.is_empty());
        latency.settle(&all, Duration::from_millis(99));
        assert_eq!(totals(&all), [(SEND_MESSAGE_V2, 0, 3), (SEND_MESSAGE_V2, TOPIC_NOT_EXIST, 1)]);
        let (_, first) = &all.read()[0];
        let (buckets, sum_us, max_us) = first.read();
        assert_eq!((buckets.iter().sum::<u64>(), sum_us, max_us), (3, 6_000, 2_000));
    }

    #[test]
    fn codes_that_a_peer_invents_do_not_grow_the_table_without_bound() {
        let all = Latencies::default();
        let mut latency = LatencyBuffer::default();
        for code in 0..10_000 {
            latency.note(context(code), 3);
            latency.settle(&all, Duration::ZERO);
        }
        latency.note(context(0), 3);
        latency.settle(&all, Duration::ZERO);
        assert!(all.read().len() <= KINDS_MAX + 1);
        assert_eq!(totals(&all)[0], (0, 3, 2), "a known kind keeps its own histogram");
        assert_eq!(totals(&all).iter().map(|(_, _, count)| count).sum::<u64>(), 10_001);
    }
}
