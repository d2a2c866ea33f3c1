//! Turnstile: lets connections do expensive work a few at a time, and other requests run in between.
//!
//! When many connections end together, each takes some ten microseconds; without the turnstile a request would wait
//! for all of them. Turns full of expensive requests take longer, and have a turnstile that admits one at a time.
//!
//! Invariant: waiters pass in order of arrival, for as long as the thread runs its tasks.
//! Threads: the I/O thread.

use std::cell::Cell;

use tokio::sync::{Notify, Semaphore};
use tokio::task::yield_now;

/// Connections that end or handshake before other ready tasks run.
pub(super) const PASSES_MAX: usize = 4;

pub(super) struct Turnstile {
    /// Waiters that pass before other ready tasks run.
    passes_max: usize,
    waiting: Cell<usize>,
    passes: Semaphore,
    has_waiting: Notify,
}

impl Turnstile {
    pub(super) fn new(passes_max: usize) -> Self {
        let (waiting, passes, has_waiting) = (Cell::new(0), Semaphore::const_new(0), Notify::const_new());
        Self { passes_max, waiting, passes, has_waiting }
    }

    /// Waits for a turn.
    pub(super) async fn pass(&self) {
        self.waiting.set(self.waiting.get() + 1);
        self.has_waiting.notify_one();
        // Never closed; the semaphore is fair.
        if let Ok(pass) = self.passes.acquire().await {
            pass.forget();
        }
    }

    /// Admits waiters forever; runs as a separate task.
    pub(super) async fn turn(&self) {
        loop {
            while self.waiting.get() > 0 {
                let count = self.waiting.get().min(self.passes_max);
                self.waiting.set(self.waiting.get() - count);
                self.passes.add_permits(count);
                // Run after the next poll of the sockets and the tasks it makes ready.
                yield_now().await;
            }
            self.has_waiting.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::runtime::Builder;
    use tokio::task::LocalSet;

    use super::*;

    #[test]
    fn work_waits_for_a_few_leavers_which_leave_in_order() {
        let order = Rc::new(RefCell::new(Vec::new()));
        let turnstile = Rc::new(Turnstile::new(PASSES_MAX));
        let tasks = LocalSet::new();
        for number in 0..100 {
            let (order, turnstile) = (Rc::clone(&order), Rc::clone(&turnstile));
            tasks.spawn_local(async move {
                turnstile.pass().await;
                order.borrow_mut().push(Some(number));
            });
        }
        let keeper = Rc::clone(&turnstile);
        tasks.spawn_local(async move { keeper.turn().await });
        let runtime = Builder::new_current_thread().build().unwrap();
        tasks.block_on(&runtime, async {
            while order.borrow().iter().flatten().count() < 100 {
                order.borrow_mut().push(None);
                yield_now().await;
            }
        });
        let order = order.borrow();
        let left: Vec<i32> = order.iter().copied().flatten().collect();
        assert!(left.is_sorted(), "{left:?}");
        let together = order.split(Option::is_none).map(<[_]>::len).max();
        assert!(together <= Some(2 * PASSES_MAX), "{together:?} left between two turns of the worker");
    }
}
