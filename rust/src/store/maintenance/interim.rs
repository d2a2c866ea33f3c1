//! Interim: the steps that sends wait for, run during a long checkpoint.
//!
//! A checkpoint syncs files, which may take seconds. During that time a separate thread writes queue units, which
//! would otherwise pile up until the dispatching thread had to write them, and creates the next file of the log.
//!
//! *Invariant*: the thread works only during a checkpoint, whose end waits for the current step.
//! Threads: `during` on the thread that makes a checkpoint, one at a time; `run` is a separate thread.

use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Pause before the first run of the steps, and between runs. Most checkpoints are over before.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Interim {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    is_open: bool,
    is_stopped: bool,
}

impl Interim {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { is_open: false, is_stopped: false }), changed: Condvar::new() }
    }

    /// Runs `work` while the thread runs the steps.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.set_open(true);
        let _closing = Closing(self);
        work()
    }

    fn set_open(&self, is_open: bool) {
        self.state.lock().is_open = is_open;
        if is_open {
            self.changed.notify_one();
        }
    }

    /// Repeats `steps` during checkpoints, until it is stopped. Runs on its own thread.
    pub(super) fn run(&self, steps: impl Fn()) {
        let mut state = self.state.lock();
        while !state.is_stopped {
            if state.is_open {
                self.changed.wait_for(&mut state, PAUSE);
            } else {
                self.changed.wait(&mut state);
                continue;
            }
            if state.is_open && !state.is_stopped {
                steps();
                // The thread that ends the checkpoint takes the lock first.
                MutexGuard::bump(&mut state);
            }
        }
    }

    pub(super) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_one();
    }
}

/// Ends `during`, even if its work panics.
struct Closing<'a>(&'a Interim);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.set_open(false);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn steps_run_only_during_a_checkpoint() {
        let interim = Interim::new();
        let steps = AtomicUsize::new(0);
        let done = || steps.load(Ordering::SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                interim.run(|| {
                    steps.fetch_add(1, Ordering::SeqCst);
                })
            });
            for _ in 0..3 {
                let before = done();
                interim.during(|| {
                    while done() < before + 2 {
                        std::thread::yield_now();
                    }
                });
                let after = done();
                // No event shows that a thread does nothing; a step would come within one pause.
                std::thread::sleep(3 * PAUSE);
                assert_eq!(done(), after);
            }
            interim.stop();
        });
    }
}
