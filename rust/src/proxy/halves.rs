//! Half messages whose places at brokers are remembered, from sends and checks.
//!
//! Threads: any; one short lock.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Half messages whose place is remembered.
const HALVES_MAX: usize = 100_000;
/// Lookups at the same time: further ones wait.
const LOOKUPS_MAX: usize = 64;

/// The place of a half message: its broker, its offset in the queue of half messages, and its position in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HalfPlace {
    pub(super) broker: Arc<str>,
    pub(super) offset: i64,
    pub(super) position: i64,
}

/// Half messages by topic and transaction id; the oldest are forgotten first.
pub(super) struct Halves {
    known: Mutex<Places>,
    /// Turns of lookups.
    pub(super) lookups: Semaphore,
}

#[derive(Default)]
struct Places {
    places: HashMap<(String, String), HalfPlace>,
    order: VecDeque<(String, String)>,
}

impl Halves {
    pub(super) fn new() -> Self {
        Self { known: Mutex::default(), lookups: Semaphore::new(LOOKUPS_MAX) }
    }

    pub(super) fn remember(&self, topic: &str, transaction_id: &str, place: HalfPlace) {
        let mut known = self.known.lock();
        let key = (topic.to_owned(), transaction_id.to_owned());
        if known.places.insert(key.clone(), place).is_none() {
            known.order.push_back(key);
        }
        while known.order.len() > HALVES_MAX {
            if let Some(oldest) = known.order.pop_front() {
                known.places.remove(&oldest);
            }
        }
    }

    pub(super) fn find(&self, topic: &str, transaction_id: &str) -> Option<HalfPlace> {
        self.known.lock().places.get(&(topic.to_owned(), transaction_id.to_owned())).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_places_are_forgotten() {
        let halves = Halves::new();
        let place = |offset| HalfPlace { broker: "a".into(), offset, position: 0 };
        for number in 0..=HALVES_MAX {
            halves.remember("t", &number.to_string(), place(0));
        }
        halves.remember("t", "1", place(7));
        assert_eq!(halves.find("t", "0"), None);
        assert_eq!(halves.find("t", "1"), Some(place(7)));
        assert_eq!(halves.find("u", "1"), None);
    }
}
