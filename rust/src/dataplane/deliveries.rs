//! Deliveries: what each group took from each queue, and what it gave back.
//!
//! Owns the counters. A connection looks the counter of a group and a queue up once and keeps it, so that an answer costs
//! three additions; the statistics take the counts away every few seconds.
//!
//! Invariant: what is counted is taken once. A counter that no connection holds is forgotten once it is empty.
//! Threads: counting on any I/O thread without a lock; the table's lock is for the first pull of a queue, for returned
//! messages, and for `take`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::positions::QueueOffset;
use crate::store::ConsumeQueue;

/// Counters one connection remembers; beyond that it begins anew.
const KEPT_MAX: usize = 8_192;

/// Counters an idle connection remembers, in less than 16 KiB.
const KEPT_IDLE_MAX: usize = 128;

/// What one group took from one queue since the last `take`.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    pulls: AtomicU64,
    messages: AtomicU64,
    bytes: AtomicU64,
    returned: AtomicU64,
    /// The offset after the last message that was taken; 0 before the first.
    next: AtomicU64,
}

impl Delivery {
    pub(super) fn count(&self, messages: u64, bytes: u64) {
        self.pulls.fetch_add(1, Ordering::Relaxed);
        self.messages.fetch_add(messages, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn advance(&self, next: QueueOffset) {
        self.next.store(next.0, Ordering::Relaxed);
    }

    fn take(&self) -> [u64; 4] {
        [&self.pulls, &self.messages, &self.bytes, &self.returned]
            .map(|counter| counter.swap(0, Ordering::Relaxed))
    }
}

/// Counts of one group and one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) group: Arc<str>,
    pub(crate) topic: Arc<str>,
    pub(crate) queue_id: u32,
    /// Answers with messages.
    pub(crate) pulls: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Messages the group gave back to be delivered again.
    pub(crate) returned: u64,
}

/// How far a group has got in taking a queue, whatever it has finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FetchPosition {
    pub(crate) group: Arc<str>,
    pub(crate) topic: Arc<str>,
    pub(crate) queue_id: u32,
    /// The offset after the last message it was given.
    pub(crate) next: u64,
}

type Key = (Arc<str>, Arc<str>, u32);

#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    table: Mutex<HashMap<Key, Arc<Delivery>>>,
}

impl Deliveries {
    pub(super) fn of(&self, group: &str, topic: &str, queue_id: u32) -> Arc<Delivery> {
        let key = (group.into(), topic.into(), queue_id);
        Arc::clone(self.table.lock().entry(key).or_default())
    }

    pub(super) fn returned(&self, group: &str, topic: &str, queue_id: u32) {
        self.of(group, topic, queue_id).returned.fetch_add(1, Ordering::Relaxed);
    }

    /// How far each group has got, where it takes messages still or did a moment ago.
    pub(crate) fn fetch_positions(&self) -> Vec<FetchPosition> {
        let table = self.table.lock();
        let positions = table.iter().map(|((group, topic, queue_id), delivery)| {
            let (group, topic) = (Arc::clone(group), Arc::clone(topic));
            FetchPosition { group, topic, queue_id: *queue_id, next: delivery.next.load(Ordering::Relaxed) }
        });
        positions.filter(|each| each.next > 0).collect()
    }

    /// What happened since the last call, where something did.
    pub(crate) fn take(&self) -> Vec<Delivered> {
        let mut taken = Vec::new();
        self.table.lock().retain(|(group, topic, queue_id), delivery| {
            let [pulls, messages, bytes, returned] = delivery.take();
            let is_idle = pulls == 0 && returned == 0;
            if !is_idle {
                let (group, topic) = (Arc::clone(group), Arc::clone(topic));
                taken.push(Delivered { group, topic, queue_id: *queue_id, pulls, messages, bytes, returned });
            }
            // One that was idle, and that no connection holds, cannot be counted on any more: holders come by `of`.
            !is_idle || Arc::strong_count(delivery) > 1
        });
        taken
    }
}

/// The counters of the groups that one connection uses at one queue: one, or a few where a client is in several.
type OfGroups = Vec<(Box<str>, Arc<Delivery>)>;

/// The counters one connection has used.
#[derive(Debug, Default)]
pub(super) struct KeptDeliveries {
    /// By the serial of the queue.
    by_queue: HashMap<u64, OfGroups>,
    count: usize,
}

impl KeptDeliveries {
    /// The counter of a group and a queue; only the first time it is looked for in the table.
    pub(super) fn of(&mut self, all: &Deliveries, group: &str, queue: &ConsumeQueue) -> Arc<Delivery> {
        // A queue that was deleted and made again has another serial, so nothing is counted for the dead one.
        let kept = self.by_queue.entry(queue.serial()).or_default();
        if let Some((_, delivery)) = kept.iter().find(|(known, _)| **known == *group) {
            return Arc::clone(delivery);
        }
        let delivery = all.of(group, &queue.key().topic, queue.key().queue_id);
        kept.push((group.into(), Arc::clone(&delivery)));
        self.count += 1;
        if self.count >= KEPT_MAX {
            self.by_queue.clear();
            self.count = 0;
        }
        delivery
    }

    /// Memory of more counters than a client has that consumes a few topics.
    pub(super) fn kept_bytes(&self) -> usize {
        if self.count > KEPT_IDLE_MAX { self.count * size_of::<(u64, OfGroups, OfGroups)>() } else { 0 }
    }

    /// Forgets them where they are many; each is found again in the table.
    pub(super) fn shrink(&mut self) {
        if self.count > KEPT_IDLE_MAX {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_taken_once() {
        let all = Deliveries::default();
        let held = all.of("billing", "orders", 3);
        held.count(2, 300);
        held.count(1, 100);
        all.returned("billing", "orders", 3);
        let taken = all.take();
        let [delivered] = taken.as_slice() else { panic!("one line, not {taken:?}") };
        assert_eq!(
            (delivered.pulls, delivered.messages, delivered.bytes, delivered.returned),
            (2, 3, 400, 1)
        );
        assert_eq!(all.take(), []);
        held.count(1, 1);
        assert_eq!(all.take().len(), 1, "a counter that is held stays in the table");
    }

    #[test]
    fn how_far_a_group_has_got_is_reported_with_every_call() {
        let all = Deliveries::default();
        let held = all.of("billing", "orders", 3);
        assert_eq!(all.fetch_positions(), []);
        held.advance(QueueOffset(7));
        for _ in 0..2 {
            let positions = all.fetch_positions();
            let [each] = positions.as_slice() else { panic!("one line, not {positions:?}") };
            assert_eq!((&*each.group, &*each.topic, each.queue_id, each.next), ("billing", "orders", 3, 7));
        }
        assert_eq!(all.take(), []);
        assert_eq!(all.fetch_positions().len(), 1, "it is held");
    }

    #[test]
    fn a_counter_that_is_not_held_is_forgotten_when_it_is_empty() {
        let all = Deliveries::default();
        all.of("billing", "orders", 0).count(1, 1);
        assert_eq!(all.take().len(), 1);
        assert_eq!(all.table.lock().len(), 1);
        assert_eq!(all.take(), []);
        assert_eq!(all.table.lock().len(), 0);
    }
}
