//! Routes of a producer: the queues that take a topic's messages, as Python last told.
//!
//! Owns a snapshot for each topic, valid for so long. Which queues there are, and for how long that is valid, is decided
//! above; here are only rotation and the rule of sharding keys, which are needed with every message.
//!
//! Invariant: a rotation is never empty. Any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::message::tag::java_hash;

/// Where one attempt of a send goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// `host:port` to connect to.
    pub(crate) address: Arc<str>,
    pub(crate) broker: Arc<str>,
    pub(crate) queue_id: i32,
}

/// The queues of one topic.
#[derive(Debug)]
pub(crate) struct QueueRotation {
    topic: Arc<str>,
    queues: Box<[Target]>,
    turn: AtomicUsize,
    valid_until: Instant,
    is_doubted: AtomicBool,
}

impl QueueRotation {
    pub(crate) fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    pub(crate) fn next(&self) -> Option<&Target> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.queues.get(turn % self.queues.len())
    }

    /// The next queue of a broker that is available; where none is, the next one.
    pub(crate) fn next_at(&self, is_available: impl Fn(&str) -> bool) -> Option<&Target> {
        let first = self.next()?;
        let others = (1..self.queues.len()).filter_map(|_| self.next());
        std::iter::once(first).chain(others).find(|target| is_available(&target.broker)).or(Some(first))
    }

    /// The queue of a sharding key: the one Java's clients take.
    pub(crate) fn of_key(&self, key: &str) -> Option<&Target> {
        let hash = java_hash(key.as_bytes()).unsigned_abs() as usize;
        self.queues.get(hash % self.queues.len())
    }
}

/// The routes of one producer.
#[derive(Debug, Default)]
pub(crate) struct RouteCache(RwLock<HashMap<Box<str>, Arc<QueueRotation>>>);

impl RouteCache {
    /// These are the queues of `topic`, sorted, until then. `first` is the queue to begin with where nothing was known
    /// before.
    pub(crate) fn learn(&self, topic: &str, queues: Vec<Target>, first: usize, valid_until: Instant) {
        let mut table = self.0.write();
        if queues.is_empty() {
            table.remove(topic);
            return;
        }
        let turn = table.get(topic).map_or(first, |known| known.turn.load(Ordering::Relaxed));
        let rotation = QueueRotation {
            topic: topic.into(),
            queues: queues.into(),
            turn: turn.into(),
            valid_until,
            is_doubted: AtomicBool::new(false),
        };
        table.insert(topic.into(), Arc::new(rotation));
    }

    /// What was learnt of `topic` is not valid any more; the rotation goes on where it is.
    pub(crate) fn doubt(&self, topic: &str) {
        if let Some(rotation) = self.0.read().get(topic) {
            rotation.is_doubted.store(true, Ordering::Relaxed);
        }
    }

    /// The rotation of `topic`, if there is one that is still valid.
    pub(crate) fn get(&self, topic: &str, now: Instant) -> Option<Arc<QueueRotation>> {
        let is_valid = |rotation: &&Arc<QueueRotation>| {
            now < rotation.valid_until && !rotation.is_doubted.load(Ordering::Relaxed)
        };
        self.0.read().get(topic).filter(is_valid).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn queues(count: i32) -> Vec<Target> {
        let target = |queue_id| Target { address: "127.0.0.1:1".into(), broker: "broker-a".into(), queue_id };
        (0..count).map(target).collect()
    }

    fn turns(rotation: &QueueRotation, count: usize) -> Vec<i32> {
        (0..count).filter_map(|_| rotation.next().map(|target| target.queue_id)).collect()
    }

    #[test]
    fn each_queue_has_its_turn_and_a_new_rotation_goes_on_where_the_old_one_was() {
        let (routes, now) = (RouteCache::default(), Instant::now());
        let soon = now + Duration::from_secs(1);
        routes.learn("orders", queues(3), 5, soon);
        assert_eq!(turns(&routes.get("orders", now).unwrap(), 4), [2, 0, 1, 2]);
        routes.doubt("orders");
        assert!(routes.get("orders", now).is_none());
        routes.learn("orders", queues(3), 0, soon);
        assert_eq!(turns(&routes.get("orders", now).unwrap(), 2), [0, 1]);
    }

    #[test]
    fn a_broker_that_is_not_available_is_passed_over_where_there_is_another() {
        let (routes, now) = (RouteCache::default(), Instant::now());
        let of = |queue: Target| {
            ["broker-a", "broker-b"].map(|broker| Target { broker: broker.into(), ..queue.clone() })
        };
        let both = queues(2).into_iter().flat_map(of).collect();
        routes.learn("orders", both, 0, now + Duration::from_secs(1));
        let rotation = routes.get("orders", now).unwrap();
        for available in ["broker-a", "broker-b"] {
            for _ in 0..8 {
                let target = rotation.next_at(|broker| broker == available);
                assert_eq!(target.map(|target| &*target.broker), Some(available));
            }
        }
        assert!(rotation.next_at(|_| false).is_some());
    }

    #[test]
    fn a_rotation_is_valid_for_a_while_and_none_is_empty() {
        let (routes, now) = (RouteCache::default(), Instant::now());
        routes.learn("orders", queues(1), 0, now + Duration::from_secs(1));
        assert!(routes.get("orders", now).is_some());
        assert!(routes.get("orders", now + Duration::from_secs(1)).is_none());
        routes.learn("orders", queues(0), 0, now + Duration::from_secs(1));
        assert!(routes.get("orders", now).is_none());
        assert!(routes.get("refunds", now).is_none());
    }

    #[test]
    fn a_sharding_key_has_the_queue_java_gives_it() {
        let (routes, now) = (RouteCache::default(), Instant::now());
        routes.learn("orders", queues(4), 0, now + Duration::from_secs(1));
        let rotation = routes.get("orders", now).unwrap();
        assert_eq!(rotation.of_key("customer-7").map(|target| target.queue_id), Some(0));
    }
}
