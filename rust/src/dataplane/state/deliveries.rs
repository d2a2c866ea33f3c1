//! Deliveries: counters of messages that each group received from each queue and returned.
//!
//! A connection looks up the counter of a group and a queue once and caches it, so that a reply costs three
//! additions. The statistics take the counts every few seconds.
//!
//! *Invariant*: each count is taken once. An empty counter that no connection holds is removed.
//! Threads: counting on any I/O thread without a lock; the table's lock is for the first pull of a queue, for
//! returned messages, and for `take`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::message::topic::{LIGHT_PREFIX, is_light};
use crate::positions::QueueOffset;
use crate::store::ConsumeQueue;

/// Maximum number of counters that a connection caches; beyond it the cache is cleared.
const KEPT_MAX: usize = 8_192;

/// Counters that an idle connection caches, in less than 16 KiB.
const KEPT_IDLE_MAX: usize = 128;

/// Messages that a group received from a queue since the last `take`.
#[derive(Debug, Default)]
pub(in crate::dataplane) struct Delivery {
    pulls: AtomicU64,
    messages: AtomicU64,
    bytes: AtomicU64,
    returned: AtomicU64,
    /// Checkpoints of pops, and acknowledged messages.
    checkpoints: AtomicU64,
    acks: AtomicU64,
    /// Messages that were popped since the start, and are neither acknowledged nor due again.
    in_flight: AtomicI64,
    /// The offset after the last message received; 0 before the first.
    next: AtomicU64,
}

impl Delivery {
    pub(in crate::dataplane) fn count(&self, messages: u64, bytes: u64) {
        self.pulls.fetch_add(1, Ordering::Relaxed);
        self.messages.fetch_add(messages, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(in crate::dataplane) fn advance(&self, next: QueueOffset) {
        self.next.store(next.0, Ordering::Relaxed);
    }

    /// Counts a checkpoint with this number of messages.
    pub(in crate::dataplane) fn popped(&self, messages: usize) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(messages as i64, Ordering::Relaxed);
    }

    /// Messages were acknowledged.
    pub(in crate::dataplane) fn acked(&self, messages: usize) {
        self.acks.fetch_add(messages as u64, Ordering::Relaxed);
        self.ended(messages);
    }

    /// Counts messages as finished. A repeated acknowledgement counts each time, so the count stops at 0.
    pub(in crate::dataplane) fn ended(&self, messages: usize) {
        let left = |in_flight: i64| Some(in_flight.saturating_sub(messages as i64).max(0));
        // `left` always returns a number, so this is never an error.
        let _ = self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }

    /// A pop in order, or a reset, begins to count at this number.
    pub(in crate::dataplane) fn set_in_flight(&self, messages: usize) {
        self.in_flight.store(messages as i64, Ordering::Relaxed);
    }

    pub(in crate::dataplane) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed).max(0).unsigned_abs()
    }

    fn take(&self) -> [u64; 6] {
        [&self.pulls, &self.messages, &self.bytes, &self.returned, &self.checkpoints, &self.acks]
            .map(|counter| counter.swap(0, Ordering::Relaxed))
    }
}

/// The counts of a group and a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) group: Arc<str>,
    pub(crate) topic: Arc<str>,
    pub(crate) queue_id: u32,
    /// Replies with messages.
    pub(crate) pulls: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Messages that the group returned for redelivery.
    pub(crate) returned: u64,
    /// Checkpoints of what it popped.
    pub(crate) checkpoints: u64,
    /// Messages it acknowledged.
    pub(crate) acks: u64,
}

/// Messages of a queue that a group popped and has not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub(crate) group: Arc<str>,
    pub(crate) topic: Arc<str>,
    pub(crate) queue_id: u32,
    pub(crate) messages: u64,
}

/// The position up to which a group has received a queue, whether or not it has processed the messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FetchPosition {
    pub(crate) group: Arc<str>,
    pub(crate) topic: Arc<str>,
    pub(crate) queue_id: u32,
    /// The offset after the last message received.
    pub(crate) next: u64,
}

type Key = (Arc<str>, Arc<str>, u32);

#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    table: Mutex<HashMap<Key, Arc<Delivery>>>,
}

impl Deliveries {
    pub(in crate::dataplane) fn of(&self, group: &str, topic: &str, queue_id: u32) -> Arc<Delivery> {
        let key = (group.into(), topic.into(), queue_id);
        Arc::clone(self.table.lock().entry(key).or_default())
    }

    pub(in crate::dataplane) fn returned(&self, group: &str, topic: &str, queue_id: u32) {
        self.of(group, topic, queue_id).returned.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts messages of a queue as finished.
    pub(in crate::dataplane) fn ended(&self, group: &str, topic: &str, queue_id: u32, messages: usize) {
        if let Some(delivery) = self.table.lock().get(&(group.into(), topic.into(), queue_id)) {
            delivery.ended(messages);
        }
    }

    /// Returns the position of each group that receives messages or did recently.
    pub(crate) fn fetch_positions(&self) -> Vec<FetchPosition> {
        let table = self.table.lock();
        let positions = table.iter().map(|((group, topic, queue_id), delivery)| {
            let (group, topic) = (Arc::clone(group), Arc::clone(topic));
            FetchPosition { group, topic, queue_id: *queue_id, next: delivery.next.load(Ordering::Relaxed) }
        });
        positions.filter(|each| each.next > 0).collect()
    }

    /// The queues with messages in flight.
    pub(crate) fn in_flight(&self) -> Vec<InFlight> {
        let table = self.table.lock();
        let counts = table.iter().map(|((group, topic, queue_id), delivery)| {
            let (group, topic) = (Arc::clone(group), Arc::clone(topic));
            InFlight { group, topic, queue_id: *queue_id, messages: delivery.in_flight() }
        });
        counts.filter(|each| each.messages > 0).collect()
    }

    /// Takes the non-zero counts since the last call. Light queues, and the groups that only read those, count as one.
    pub(crate) fn take(&self) -> Vec<Delivered> {
        let mut taken = Vec::new();
        let light: Arc<str> = LIGHT_PREFIX.into();
        let folded = |name: &Arc<str>| Arc::clone(if is_light(name) { &light } else { name });
        self.table.lock().retain(|(group, topic, queue_id), delivery| {
            let [pulls, messages, bytes, returned, checkpoints, acks] = delivery.take();
            let is_idle = pulls == 0 && returned == 0 && acks == 0;
            if !is_idle {
                let (group, topic) = (folded(group), folded(topic));
                taken.push(Delivered {
                    group,
                    topic,
                    queue_id: *queue_id,
                    pulls,
                    messages,
                    bytes,
                    returned,
                    checkpoints,
                    acks,
                });
            }
            // An idle counter that no connection holds is removed; `of` creates it again.
            !is_idle || Arc::strong_count(delivery) > 1 || delivery.in_flight() > 0
        });
        taken
    }
}

/// The counters of a queue for the groups of one connection, usually one.
type OfGroups = Vec<(Box<str>, Arc<Delivery>)>;

/// The counters that a connection has cached.
#[derive(Debug, Default)]
pub(in crate::dataplane) struct KeptDeliveries {
    /// By the serial of the queue.
    by_queue: HashMap<u64, OfGroups>,
    count: usize,
}

impl KeptDeliveries {
    /// Returns the counter of a group and a queue; only the first call looks it up in the table.
    pub(in crate::dataplane) fn of(
        &mut self,
        all: &Deliveries,
        group: &str,
        queue: &ConsumeQueue,
    ) -> Arc<Delivery> {
        // A queue that was deleted and created again has another serial, so its old counter is not used.
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

    /// Returns the memory for more counters than a client of a few topics has.
    pub(in crate::dataplane) fn kept_bytes(&self) -> usize {
        if self.count > KEPT_IDLE_MAX { self.count * size_of::<(u64, OfGroups, OfGroups)>() } else { 0 }
    }

    /// Clears a large cache; counters are looked up again.
    pub(in crate::dataplane) fn shrink(&mut self) {
        if self.count > KEPT_IDLE_MAX {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_taken_once() {
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
    fn the_position_of_a_group_is_reported_with_every_call() {
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
    fn an_empty_counter_without_holders_is_removed() {
        let all = Deliveries::default();
        all.of("billing", "orders", 0).count(1, 1);
        assert_eq!(all.take().len(), 1);
        assert_eq!(all.table.lock().len(), 1);
        assert_eq!(all.take(), []);
        assert_eq!(all.table.lock().len(), 0);
    }
}
