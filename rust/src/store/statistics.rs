//! What a store counts, and what it says of itself.
//!
//! Threads: any.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Store;
use super::counters::Sizes;

impl Store {
    pub(crate) fn message_sizes(&self) -> Sizes {
        self.counters.sizes()
    }

    /// Counters and positions by name.
    #[must_use]
    pub fn statistics(&self) -> BTreeMap<&'static str, u64> {
        let (begin, end) = self.range();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BTreeMap::from([
            ("min_physical", begin.0),
            ("max_physical", end.0),
            ("durable", self.durable().0),
            ("visible", self.visible().0),
            ("damaged_blocks", self.log.checksums().damaged()),
            ("is_full", u64::from(self.log.is_full())),
            ("puts", count(&self.counters.puts)),
            ("put_bytes", count(&self.counters.put_bytes)),
            ("put_failures", count(&self.counters.put_failures)),
            ("gets", count(&self.counters.gets)),
            ("gets_missed", count(&self.counters.gets_missed)),
            ("got_messages", count(&self.counters.got_messages)),
        ])
    }
}
