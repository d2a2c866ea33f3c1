//! Broker latency: skips brokers that were slow or failed, for a while.
//!
//! The rule is Java's: a reply within half a second has no effect, a slow one suspends its broker for 2 to 30 s, a
//! failed attempt for 10 s. Any thread; a producer without this option has none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::RwLock;

/// Suspension by response time: thresholds and durations in milliseconds, the longest first.
const RESTS_MS: [(u64, u64); 5] =
    [(15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000)];
/// Suspension after a failed attempt.
const FAILED: Duration = Duration::from_secs(10);

/// The suspended brokers of one producer, and until when.
#[derive(Debug, Default)]
pub(crate) struct BrokerLatency(RwLock<HashMap<Arc<str>, Instant>>);

impl BrokerLatency {
    /// Returns whether `broker` may be used now.
    pub(crate) fn is_available(&self, broker: &str, now: Instant) -> bool {
        self.0.read().get(broker).is_none_or(|until| *until <= now)
    }

    /// Records the duration of an attempt at `broker`.
    pub(crate) fn note(&self, broker: &Arc<str>, elapsed: Duration, is_failure: bool, now: Instant) {
        let slow = RESTS_MS.iter().find(|(from_ms, _)| elapsed >= Duration::from_millis(*from_ms));
        let rest = slow.map(|(_, rest_ms)| Duration::from_millis(*rest_ms));
        let rest = if is_failure { rest.max(Some(FAILED)) } else { rest };
        if let Some(rest) = rest {
            self.0.write().insert(Arc::clone(broker), now + rest);
        } else if self.0.read().contains_key(broker) {
            self.0.write().remove(broker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_broker_is_suspended_longer_until_it_is_quick() {
        let (latency, now) = (BrokerLatency::default(), Instant::now());
        let broker: Arc<str> = "broker-a".into();
        let is_available = |after_ms| latency.is_available(&broker, now + Duration::from_millis(after_ms));
        for (elapsed_ms, rest_ms) in [(549, 0), (550, 2_000), (2_000, 5_000), (20_000, 30_000)] {
            latency.note(&broker, Duration::from_millis(elapsed_ms), false, now);
            assert_eq!(is_available(0), rest_ms == 0, "{elapsed_ms}");
            assert!(rest_ms == 0 || !is_available(rest_ms - 1), "{elapsed_ms}");
            assert!(is_available(rest_ms), "{elapsed_ms}");
        }
        latency.note(&broker, Duration::from_millis(1), false, now);
        assert!(is_available(0));
        latency.note(&broker, Duration::from_millis(1), true, now);
        assert!(!is_available(9_999) && is_available(10_000));
    }
}
