//! Checks of open halves: export and import of the counts, so that a restart continues them.

use super::{CheckedHalves, Transactions};

/// Halves read under one hold of the lock.
const HALVES_MAX: usize = 4_096;

impl Transactions {
    /// Returns the halves with at least one check. Concurrent changes may be missing.
    pub(in crate::dataplane) fn checked(&self) -> Vec<CheckedHalves> {
        let mut found: Vec<CheckedHalves> = Vec::new();
        let (mut from, mut before) = (0, (0, 0));
        loop {
            let state = self.state.lock();
            let mut looked_at = 0;
            for (offset, half) in state.open.range(from..).take(HALVES_MAX) {
                looked_at += 1;
                from = offset + 1;
                match found.last_mut().filter(|_| (half.checks, half.answers) == before) {
                    _ if half.checks == 0 => {}
                    Some(run) => run.last = half.physical,
                    None => {
                        found.push(CheckedHalves {
                            first: half.physical,
                            last: half.physical,
                            checks: half.checks,
                            answers: half.answers,
                        });
                    }
                }
                before = (half.checks, half.answers);
            }
            if looked_at < HALVES_MAX {
                return found;
            }
        }
    }

    /// Restores saved counts; called after `recover` and before the first request.
    pub(in crate::dataplane) fn restore_checks(&self, checked: &[CheckedHalves]) {
        let mut state = self.state.lock();
        let mut halves = state.open.values_mut().peekable();
        // Both lists are in log order.
        for run in checked {
            while halves.next_if(|half| half.physical < run.first).is_some() {}
            while let Some(half) = halves.next_if(|half| half.physical <= run.last) {
                half.checks = half.checks.max(run.checks);
                half.answers = half.answers.max(run.answers).min(half.checks);
            }
        }
    }
}
