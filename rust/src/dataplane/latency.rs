//! Latency: the time from request to answer.
//!
//! Owns one histogram for each request code, answer and way to it. A connection notes its answers in a buffer of its own,
//! which goes into the histograms at the end of a burst: however many requests one read brings, they cost two looks at
//! the clock and a few additions.
//!
//! Invariant: what is noted is counted once, and kinds are bounded, whatever codes a peer makes up.
//! Threads: a buffer belongs to its connection; counting is free of locks; the table's lock is for the first answer of a
//! kind on a connection, and for `read`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::request::{RequestContext, RequestKind};

/// Upper ends of the buckets in microseconds; one more holds what took longer. Those of the original are among them, and
/// the ones by which its tools tell put times apart; below a millisecond, where most answers are, it has none.
pub(crate) const BOUNDS_US: [u64; 28] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 3_000, 5_000, 7_000, 10_000, 20_000, 50_000, 100_000,
    200_000, 500_000, 1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000, 10_000_000, 20_000_000,
    60_000_000,
];
/// Kinds that are told apart; later ones are counted as one.
const KINDS_MAX: usize = 1_024;
/// Histograms that one connection remembers: a client has a handful of kinds.
const KEPT_MAX: usize = 16;

/// Answers of one kind by how long they took.
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

    /// How many fell into each bucket, the microseconds of all together, and those of the longest.
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
    /// Counts one answer that came from elsewhere.
    pub(super) fn add(&self, kind: RequestKind, took: Duration) {
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

/// The kind itself where it has a histogram, otherwise the one for all the others.
fn known(table: &[(RequestKind, Arc<Histogram>)], kind: RequestKind) -> RequestKind {
    let is_known = table.iter().any(|(each, _)| *each == kind);
    if is_known { kind } else { RequestKind { code: -1, answer: -1, is_long_polling: false } }
}

/// The answers of one connection that no histogram has yet.
#[derive(Debug, Default)]
pub(super) struct LatencyBuffer {
    /// When the burst began that is being served.
    pub(super) began: Duration,
    noted: Vec<(RequestKind, u64)>,
    /// Histograms this connection has used.
    kept: Vec<(RequestKind, Arc<Histogram>)>,
}

impl LatencyBuffer {
    /// Notes an answer within the burst. One-way requests have none and are not counted.
    pub(super) fn note(&mut self, context: RequestContext, answer: i32) {
        if context.is_oneway {
            return;
        }
        let kind = RequestKind::of(context, answer);
        match self.noted.iter_mut().find(|(each, _)| *each == kind) {
            Some((_, count)) => *count += 1,
            None => self.noted.push((kind, 1)),
        }
    }

    /// Whether anything was noted since `settle`.
    pub(super) fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }

    /// Counts what was noted: all of it took from `began` to `now`.
    pub(super) fn settle(&mut self, all: &Latencies, now: Duration) {
        let took = now.saturating_sub(self.began);
        let mut noted = std::mem::take(&mut self.noted);
        for (kind, count) in noted.drain(..) {
            self.add(all, kind, count, took);
        }
        self.noted = noted;
    }

    /// Counts an answer that had to wait for something.
    pub(super) fn waited(&mut self, all: &Latencies, kind: RequestKind, took: Duration) {
        self.add(all, kind, 1, took);
    }

    fn add(&mut self, all: &Latencies, kind: RequestKind, count: u64, took: Duration) {
        if let Some((_, histogram)) = self.kept.iter().find(|(each, _)| *each == kind) {
            histogram.add(count, took);
            return;
        }
        let histogram = all.of(kind);
        histogram.add(count, took);
        // More would be a peer that makes codes up: looking each up in the table is its own loss.
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
    fn a_bucket_holds_what_took_as_long_as_its_bound_and_no_longer() {
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
    fn what_a_burst_answered_is_counted_once_and_by_kind() {
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
    fn codes_that_a_peer_makes_up_do_not_grow_the_table_for_ever() {
        let all = Latencies::default();
        let mut latency = LatencyBuffer::default();
        for code in 0..10_000 {
            latency.note(context(code), 3);
            latency.settle(&all, Duration::ZERO);
        }
        latency.note(context(0), 3);
        latency.settle(&all, Duration::ZERO);
        assert!(all.read().len() <= KINDS_MAX + 1);
        assert_eq!(totals(&all)[0], (0, 3, 2), "one that is known stays apart");
        assert_eq!(totals(&all).iter().map(|(_, _, count)| count).sum::<u64>(), 10_001);
    }
}
