//! Interim: what sends come to next, seen to while a checkpoint takes its time.
//!
//! A checkpoint syncs files, which may take seconds. Meanwhile a thread of its own writes queue units, which would pile up
//! until who dispatches had to write them, and makes the next file of the log.
//!
//! Invariant: the thread does nothing but while a checkpoint is made, and that ends after the step it was at.
//! Threads: `during` from who makes a checkpoint, one at a time; `run` is a thread of its own.

use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// From the begin of a checkpoint to the first look, and from look to look. Most checkpoints are over before.
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

    /// Lets the thread do the steps while `work` is done.
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

    /// The thread: does `steps` again and again while it may, until it is stopped.
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
                // Who waits to close it goes first.
                MutexGuard::bump(&mut state);
            }
        }
    }

    pub(super) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_one();
    }
}

/// Ends what `during` began, however its work ended.
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
    fn steps_go_on_while_a_checkpoint_is_made_and_at_no_other_time() {
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
                std::thread::sleep(3 * PAUSE);
                assert_eq!(done(), after);
            }
            interim.stop();
        });
    }
}
