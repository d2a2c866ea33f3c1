//! Route cache: the queues of each topic, as Python last published them.
//!
//! Python decides which queues there are and how long a snapshot is valid. Rotation and the sharding-key rule live
//! here, because every message needs them.
//!
//! Invariant: a rotation is never empty. Any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use hashbrown::HashMap;
use parking_lot::RwLock;

use super::message_fields::QueueKey;
use crate::message::lite;
use crate::message::tag::java_hash;

/// The target of one attempt.
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

    /// Returns the next queue of an available broker, or simply the next one if none is available.
    pub(crate) fn next_at(&self, is_available: impl Fn(&str) -> bool) -> Option<&Target> {
        let first = self.next()?;
        let others = (1..self.queues.len()).filter_map(|_| self.next());
        std::iter::once(first).chain(others).find(|target| is_available(&target.broker)).or(Some(first))
    }

    /// Returns the queue of a sharding key, the same as in Java's clients, or of a lite topic, as Apache's proxy.
    pub(crate) fn of_key(&self, key: QueueKey<'_>) -> Option<&Target> {
        match key {
            QueueKey::Sharding(key) => {
                let hash = java_hash(key.as_bytes()).unsigned_abs() as usize;
                self.queues.get(hash % self.queues.len())
            }
            QueueKey::LiteTopic(name) => {
                self.queues.get(lite::bucket(name, self.queues.len() as u32) as usize)
            }
        }
    }
}

/// The routes of one producer.
#[derive(Debug, Default)]
pub(crate) struct RouteCache(RwLock<HashMap<Box<str>, Arc<QueueRotation>>>);

impl RouteCache {
    /// Stores the sorted queues of `topic`. `first` is the queue to begin with if the topic was unknown.
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

    /// Marks the queues of `topic` as stale; the rotation keeps its position.
    pub(crate) fn doubt(&self, topic: &str) {
        if let Some(rotation) = self.0.read().get(topic) {
            rotation.is_doubted.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the rotation of `topic`, if it is valid.
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
    fn queues_rotate_and_a_new_rotation_continues_the_old_one() {
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
    fn an_unavailable_broker_is_skipped_if_there_is_another() {
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
        assert_eq!(rotation.of_key(QueueKey::Sharding("customer-7")).map(|target| target.queue_id), Some(0));
    }
}
