//! Failures of maintenance: one report for each failing step.
//!
//! Owns the set of steps that fail now. A step runs twenty times a second, so only changes are reported: that it
//! begins to fail, fails for another reason, or has recovered.
//!
//! Threads: those of maintenance, under a lock.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::store::error::StoreError;
use crate::store::reports::events::{Event, Events, Step};

/// The time without a failure after which a step has recovered, and the minimum time between reports of other
/// reasons.
const CALM: Duration = Duration::from_secs(5);

pub(super) struct Failures {
    events: Arc<Events>,
    failing: Vec<Failing>,
}

struct Failing {
    step: Step,
    reason: Option<io::ErrorKind>,
    told_at: Duration,
    failed_at: Duration,
}

impl Failures {
    pub(super) fn new(events: Arc<Events>) -> Self {
        Self { events, failing: Vec::new() }
    }

    /// Records the outcome of a step.
    pub(super) fn note(&mut self, step: Step, now: Duration, outcome: &Result<(), StoreError>) {
        let known = self.failing.iter().position(|failing| failing.step == step);
        let known = known.and_then(|index| Some((index, self.failing.get_mut(index)?)));
        match (outcome, known) {
            (Ok(()), None) => {}
            (Ok(()), Some((index, failing))) => {
                if now.saturating_sub(failing.failed_at) >= CALM {
                    self.failing.swap_remove(index);
                    self.events.add(Event::StepRecovered { step });
                }
            }
            (Err(error), None) => {
                self.failing.push(Failing { step, reason: error.kind(), told_at: now, failed_at: now });
                self.events.add(Event::StepFailed { step, error: error.to_string() });
            }
            (Err(error), Some((_, failing))) => {
                failing.failed_at = now;
                if failing.reason != error.kind() && now.saturating_sub(failing.told_at) >= CALM {
                    (failing.reason, failing.told_at) = (error.kind(), now);
                    self.events.add(Event::StepFailed { step, error: error.to_string() });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn failed(kind: io::ErrorKind) -> Result<(), StoreError> {
        Err(StoreError::io(Path::new("/a"), "write")(kind.into()))
    }

    /// Checks the number of events after outcomes at the given seconds.
    fn check(outcomes: &[(u64, Result<(), StoreError>)], expected: usize) {
        let events = Arc::new(Events::default());
        let mut failures = Failures::new(Arc::clone(&events));
        for (second, outcome) in outcomes {
            failures.note(Step::Queues, Duration::from_secs(*second), outcome);
        }
        let added = events.take();
        assert_eq!(added.len(), expected, "{added:?}");
    }

    #[test]
    fn a_failure_is_reported_when_it_begins_when_its_reason_changes_and_when_it_ends() {
        let (full, broken) = (|| failed(io::ErrorKind::StorageFull), || failed(io::ErrorKind::Other));
        check(&[(0, Ok(()))], 0);
        check(&[(0, full()), (1, full()), (100, full())], 1);
        check(&[(0, full()), (1, Ok(())), (2, full()), (3, Ok(())), (6, Ok(()))], 1);
        check(&[(0, full()), (1, Ok(())), (2, full()), (7, Ok(())), (8, full())], 3);
        check(&[(0, full()), (1, broken()), (2, full()), (4, broken())], 1);
        check(&[(0, full()), (5, broken()), (6, broken())], 2);
    }
}
