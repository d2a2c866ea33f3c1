//! Turnstile: connections end, or shake hands, a few at a time, and requests that came meanwhile are served in between.
//!
//! A handshake of TLS passes here, too. A crowd that leaves at once would otherwise be seen off in one go, some ten microseconds each, while whoever has a
//! request waits for all of it.
//!
//! Invariant: who waits passes, in the order they came, for as long as the thread runs its tasks.
//! Threads: the I/O thread; one turnstile for each.

use std::cell::Cell;

use tokio::sync::{Notify, Semaphore};
use tokio::task::yield_now;

/// Who passes before everything else that is ready has its turn.
pub(super) const PASSES_MAX: usize = 4;

pub(super) struct Turnstile {
    waiting: Cell<usize>,
    passes: Semaphore,
    has_waiting: Notify,
}

impl Turnstile {
    pub(super) fn new() -> Self {
        Self { waiting: Cell::new(0), passes: Semaphore::const_new(0), has_waiting: Notify::const_new() }
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

    /// Lets through who comes, for ever; a task of its own.
    pub(super) async fn turn(&self) {
        loop {
            while self.waiting.get() > 0 {
                let count = self.waiting.get().min(PASSES_MAX);
                self.waiting.set(self.waiting.get() - count);
                self.passes.add_permits(count);
                // Behind the next look at the sockets, and all it finds ready.
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
    fn who_has_work_waits_for_a_few_who_leave_and_they_leave_in_order() {
        let order = Rc::new(RefCell::new(Vec::new()));
        let turnstile = Rc::new(Turnstile::new());
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
        assert!(together <= Some(2 * PASSES_MAX), "{together:?} between two turns of who has work");
    }
}
