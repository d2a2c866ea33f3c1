//! Reports: one event when copying or compacting begins to fail, and one when it works again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::store::error::StoreError;
use crate::store::reports::events::{Event, Events, Step};

pub(super) struct Report {
    step: Step,
    events: Arc<Events>,
    is_failing: AtomicBool,
}

impl Report {
    pub(super) fn new(step: Step, events: &Arc<Events>) -> Self {
        Self { step, events: Arc::clone(events), is_failing: AtomicBool::new(false) }
    }

    pub(super) fn note(&self, outcome: &Result<(), StoreError>) {
        let was_failing = self.is_failing.swap(outcome.is_err(), Ordering::AcqRel);
        match outcome {
            Err(error) if !was_failing => {
                self.events.add(Event::StepFailed { step: self.step, error: error.to_string() });
            }
            Ok(()) if was_failing => self.events.add(Event::StepRecovered { step: self.step }),
            _ => {}
        }
    }
}
