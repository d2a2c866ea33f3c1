//! What operators ask of queues: how much arrived in each, and their units as they are.
//!
//! Owns nothing; reads the queues. Threads: any, though only one caller may keep count of arrivals.

use crate::positions::{QueueKey, QueueOffset};
use crate::store::derived::{ConsumeQueue, Unit};

use super::Store;

pub(super) const UNITS_MAX: usize = 1_024;

/// Messages that became visible in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueArrivals {
    pub(crate) key: QueueKey,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Store {
    /// Queues that messages arrived in since the last call. The first call counts what recovery found as well.
    pub(crate) fn take_arrivals(&self) -> Vec<QueueArrivals> {
        let queues = self.dispatcher.derived().queues.all();
        let counted = queues.iter().map(|queue| {
            let (messages, bytes) = queue.take_arrivals();
            QueueArrivals { key: queue.key().clone(), messages, bytes }
        });
        counted.filter(|arrived| arrived.messages > 0 || arrived.bytes > 0).collect()
    }

    /// Units of a queue from `offset` on; fewer than `count` at its end, and at most `UNITS_MAX`.
    pub(crate) fn units(&self, queue: &ConsumeQueue, offset: QueueOffset, count: usize) -> Vec<Unit> {
        let queues = &self.dispatcher.derived().queues;
        let end = queue.max().0.min(offset.0.saturating_add(count.min(UNITS_MAX) as u64));
        (offset.0..end).map_while(|at| queues.unit(queue, at).ok().flatten()).collect()
    }
}
