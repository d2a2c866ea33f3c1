//! Scanned ranges: recent filter results of a connection, by queue.
//!
//! Each message wakes all parked pulls that have the same SQL filter and queue. The first one evaluates the filter,
//! and the others use its result.
//!
//! Threads: the I/O thread of the connection.

use std::sync::Arc;

use arrayvec::ArrayVec;

use super::filter::Filter;
use crate::positions::QueueOffset;
use crate::store::ConsumeQueue;

/// Maximum number of results: a connection has the pulls of a few groups.
const RANGES_MAX: usize = 4;

/// The last results, oldest first.
#[derive(Debug, Default)]
pub(in crate::dataplane) struct ScannedRanges {
    known: ArrayVec<ScannedRange, RANGES_MAX>,
}

/// A range without a match.
#[derive(Debug)]
struct ScannedRange {
    filter: Arc<Filter>,
    queue: Arc<ConsumeQueue>,
    from: QueueOffset,
    until: QueueOffset,
}

impl ScannedRange {
    fn is_of(&self, filter: &Arc<Filter>, queue: &Arc<ConsumeQueue>) -> bool {
        Arc::ptr_eq(&self.filter, filter) && Arc::ptr_eq(&self.queue, queue)
    }
}

impl ScannedRanges {
    /// Returns the end of the known range from `offset` on that `filter` does not match; `offset` if unknown.
    pub(in crate::dataplane) fn until(
        &self,
        filter: &Arc<Filter>,
        queue: &Arc<ConsumeQueue>,
        offset: QueueOffset,
    ) -> QueueOffset {
        let look = self.known.iter().find(|look| look.is_of(filter, queue));
        let known = look.filter(|look| look.from <= offset && offset < look.until);
        known.map_or(offset, |look| look.until)
    }

    /// Records that no message from `from` up to `until` matches this filter.
    pub(in crate::dataplane) fn note(
        &mut self,
        filter: &Arc<Filter>,
        queue: &Arc<ConsumeQueue>,
        from: QueueOffset,
        until: QueueOffset,
    ) {
        if let Some(look) = self.known.iter_mut().find(|look| look.is_of(filter, queue)) {
            // A range that continues the last one extends it.
            if look.until != from {
                look.from = from;
            }
            look.until = until;
            return;
        }
        if self.known.is_full() {
            self.known.remove(0);
        }
        self.known.push(ScannedRange { filter: Arc::clone(filter), queue: Arc::clone(queue), from, until });
    }

    /// Clears the results and releases their filters and queues.
    pub(in crate::dataplane) fn clear(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clock::ManualClock;
    use crate::dataplane::state::filter::SqlSupport;
    use crate::store::disk::simulated::SimDisk;
    use crate::store::{Options, RecoveryProgress, Store};

    fn filter(expression: &str) -> Arc<Filter> {
        Arc::new(Filter::parse(SqlSupport::Strict, "SQL92", expression).expect("an expression"))
    }

    #[test]
    fn a_scanned_range_serves_pulls_with_the_same_filter_and_queue() {
        let options = Options { threads: false, segment_bytes: 1 << 20, ..Options::new(Path::new("/store")) };
        let disk = SimDisk::new();
        let store = Store::open(
            options,
            disk.shared(),
            ManualClock::at(1_700_000_000_000),
            &RecoveryProgress::default(),
        )
        .expect("the store opens");
        let queue = |number| store.queue_or_create("orders", number).expect("a queue");
        let (first, second, a, b) = (queue(0), queue(1), filter("a = 1"), filter("a = 1"));
        let mut scanned = ScannedRanges::default();
        let at = QueueOffset;
        assert_eq!(scanned.until(&a, &first, at(3)), at(3));
        scanned.note(&a, &first, at(3), at(5));
        scanned.note(&a, &first, at(5), at(8));
        for (from, until) in [(3, 8), (5, 8), (7, 8), (8, 8), (9, 9), (2, 2)] {
            assert_eq!(scanned.until(&a, &first, at(from)), at(until), "from {from}");
        }
        assert_eq!(scanned.until(&b, &first, at(3)), at(3), "another filter");
        assert_eq!(scanned.until(&a, &second, at(3)), at(3), "another queue");
        // A range that does not continue the last one replaces it.
        scanned.note(&a, &first, at(20), at(21));
        assert_eq!((scanned.until(&a, &first, at(3)), scanned.until(&a, &first, at(20))), (at(3), at(21)));
        for other in 0..RANGES_MAX {
            scanned.note(&filter(&format!("a = {other}")), &first, at(0), at(1));
        }
        assert_eq!(scanned.until(&a, &first, at(20)), at(20), "the oldest was evicted");
    }
}
