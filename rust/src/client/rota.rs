//! Whose turn it is: the queues that take a topic's messages, as Python last told.
//!
//! Owns a snapshot for each topic, believed for so long. Which queues there are, and for how long that may be believed,
//! is decided above; here are only the rules of turns and of sharding keys, which are asked with every message.
//!
//! Invariant: a rota is never empty. Any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hashbrown::HashMap;
use parking_lot::RwLock;

use super::shipment::Target;
use crate::message::tag::java_hash;

/// The queues of one topic.
#[derive(Debug)]
pub struct Rota {
    topic: Arc<str>,
    queues: Box<[Target]>,
    turn: AtomicUsize,
    fresh_until: Instant,
}

impl Rota {
    /// The topic.
    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// Each queue in turn.
    pub fn next(&self) -> Option<&Target> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.queues.get(turn % self.queues.len())
    }

    /// The queue of a sharding key: the one Java's clients take.
    pub fn of_key(&self, key: &str) -> Option<&Target> {
        let hash = java_hash(key.as_bytes()).unsigned_abs() as usize;
        self.queues.get(hash % self.queues.len())
    }
}

/// The rotas of one producer.
#[derive(Debug, Default)]
pub struct Rotas(RwLock<HashMap<Box<str>, Arc<Rota>>>);

impl Rotas {
    /// Believes that these are the queues of `topic`, sorted, until then. `first` is whose turn it is first, where
    /// nothing was known before.
    pub fn learn(&self, topic: &str, queues: Vec<Target>, first: usize, fresh_until: Instant) {
        if queues.is_empty() {
            return self.forget(topic);
        }
        let mut table = self.0.write();
        let turn = table.get(topic).map_or(first, |known| known.turn.load(Ordering::Relaxed));
        let rota = Rota { topic: topic.into(), queues: queues.into(), turn: turn.into(), fresh_until };
        table.insert(topic.into(), Arc::new(rota));
    }

    /// Believes nothing about `topic` any more.
    pub fn forget(&self, topic: &str) {
        self.0.write().remove(topic);
    }

    /// The rota of `topic`, if there is one that may be believed.
    pub fn get(&self, topic: &str, now: Instant) -> Option<Arc<Rota>> {
        self.0.read().get(topic).filter(|rota| now < rota.fresh_until).cloned()
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

    fn turns(rota: &Rota, count: usize) -> Vec<i32> {
        (0..count).filter_map(|_| rota.next().map(|target| target.queue_id)).collect()
    }

    #[test]
    fn each_queue_has_its_turn_and_a_new_rota_goes_on_where_the_old_one_was() {
        let (rotas, now) = (Rotas::default(), Instant::now());
        let soon = now + Duration::from_secs(1);
        rotas.learn("orders", queues(3), 5, soon);
        assert_eq!(turns(&rotas.get("orders", now).unwrap(), 4), [2, 0, 1, 2]);
        rotas.learn("orders", queues(3), 0, soon);
        assert_eq!(turns(&rotas.get("orders", now).unwrap(), 2), [0, 1]);
    }

    #[test]
    fn a_rota_is_believed_for_a_while_and_none_is_empty() {
        let (rotas, now) = (Rotas::default(), Instant::now());
        rotas.learn("orders", queues(1), 0, now + Duration::from_secs(1));
        assert!(rotas.get("orders", now).is_some());
        assert!(rotas.get("orders", now + Duration::from_secs(1)).is_none());
        rotas.learn("orders", queues(0), 0, now + Duration::from_secs(1));
        assert!(rotas.get("orders", now).is_none());
        assert!(rotas.get("refunds", now).is_none());
    }

    #[test]
    fn a_sharding_key_has_the_queue_java_gives_it() {
        let (rotas, now) = (Rotas::default(), Instant::now());
        rotas.learn("orders", queues(4), 0, now + Duration::from_secs(1));
        let rota = rotas.get("orders", now).unwrap();
        assert_eq!(rota.of_key("customer-7").map(|target| target.queue_id), Some(0));
    }
}
