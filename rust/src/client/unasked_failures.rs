//! Unasked failures: failed sends of one producer whose outcome was never read.
//!
//! It counts all of them and keeps the last attempt of the oldest few, so that the producer can report them when it
//! is closed. Any thread; nothing waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::receipt::Attempt;

/// The number of failures kept in detail.
const KEPT_MAX: usize = 8;

/// The sequence number of a failure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FailureNumber(u64);

/// A topic, and the last attempt of a send.
pub(crate) type LastAttempt = (Arc<str>, Attempt);

#[derive(Debug, Default)]
pub(crate) struct UnaskedFailures {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    count: usize,
    oldest: BTreeMap<FailureNumber, LastAttempt>,
}

impl UnaskedFailures {
    pub(super) fn add(&self, topic: &Arc<str>, last: &Attempt) -> FailureNumber {
        let mut state = self.state.lock();
        let number = FailureNumber(state.next);
        state.next += 1;
        state.count += 1;
        if state.oldest.len() < KEPT_MAX {
            state.oldest.insert(number, (Arc::clone(topic), last.clone()));
        }
        number
    }

    /// Removes a failure whose outcome was read; called once for each number.
    pub(super) fn forget(&self, number: FailureNumber) {
        let mut state = self.state.lock();
        state.count -= 1;
        state.oldest.remove(&number);
    }

    /// Returns the number of failures, and the first one kept.
    pub(crate) fn look(&self) -> (usize, Option<LastAttempt>) {
        let state = self.state.lock();
        (state.count, state.oldest.values().next().cloned())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::receipt::SendFailure;
    use super::super::route_cache::Target;
    use super::*;

    fn attempt(text: &str) -> Attempt {
        Attempt {
            target: Target { address: "127.0.0.1:1".into(), broker: "broker-a".into(), queue_id: 0 },
            failure: SendFailure::Malformed(text.into()),
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn all_failures_are_counted_and_the_first_unread_one_is_reported() {
        let failures = UnaskedFailures::default();
        let topic: Arc<str> = "orders".into();
        assert_eq!(failures.look(), (0, None));
        let numbers: Vec<_> =
            (0..20).map(|number| failures.add(&topic, &attempt(&number.to_string()))).collect();
        assert_eq!(failures.look(), (20, Some((Arc::clone(&topic), attempt("0")))));
        for number in &numbers[..3] {
            failures.forget(*number);
        }
        assert_eq!(failures.look(), (17, Some((topic, attempt("3")))));
        for number in &numbers[3..] {
            failures.forget(*number);
        }
        assert_eq!(failures.look(), (0, None));
    }
}
