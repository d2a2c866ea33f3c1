//! Statistics: the counters of a store, in total and by queue.
//!
//! Threads: any; only one caller may take arrivals.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::message::MessageType;
use crate::message::topic::LIGHT_PREFIX;
use crate::positions::QueueKey;

use super::counters::Sizes;
use crate::store::Store;
use crate::store::derived::{Arrived, Index};

/// Messages of one type that became visible in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueArrivals {
    pub(crate) key: QueueKey,
    pub(crate) message_type: MessageType,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Store {
    /// Takes the arrivals since the last call, by queue and type. The first call includes those found by recovery. All
    /// light queues have one key.
    pub(crate) fn take_arrivals(&self) -> Vec<QueueArrivals> {
        let queues = &self.dispatcher.derived().queues;
        let light = QueueKey { topic: LIGHT_PREFIX.into(), queue_id: 0 };
        let light = (light, queues.take_light_arrivals());
        let ordinary = queues.ordinary();
        let ordinary = ordinary.iter().map(|queue| (queue.key().clone(), queue.take_arrivals()));
        let counted = ordinary.chain([light]).flat_map(|(key, arrivals)| {
            let arrivals = MessageType::ALL.into_iter().zip(arrivals);
            let present = arrivals.filter(|(_, arrived)| arrived.messages > 0);
            present.map(move |(message_type, Arrived { messages, bytes })| QueueArrivals {
                key: key.clone(),
                message_type,
                messages,
                bytes,
            })
        });
        counted.collect()
    }

    pub(crate) fn message_sizes(&self) -> Sizes {
        self.counters.sizes()
    }

    /// Counters and positions by name.
    #[must_use]
    pub fn statistics(&self) -> BTreeMap<&'static str, u64> {
        let (begin, end) = self.range();
        let index = self.dispatcher.derived().index.as_ref();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BTreeMap::from([
            ("min_physical", begin.0),
            ("max_physical", end.0),
            ("durable", self.durable().0),
            ("visible", self.visible().0),
            ("damaged_blocks", self.log.checksums().damaged()),
            ("unindexed_bytes", index.map_or(0, Index::skipped_bytes)),
            ("is_full", u64::from(self.log.is_full())),
            ("puts", count(&self.counters.puts)),
            ("put_bytes", count(&self.counters.put_bytes)),
            ("put_failures", count(&self.counters.put_failures)),
            ("gets", count(&self.counters.gets)),
            ("gets_missed", count(&self.counters.gets_missed)),
            ("gets_failed", count(&self.counters.gets_failed)),
            ("got_messages", count(&self.counters.got_messages)),
            ("undelivered", count(&self.counters.undelivered)),
        ])
    }
}
