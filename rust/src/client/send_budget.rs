//! Send budget: bounds the outstanding messages and bytes of one producer.
//!
//! Invariant: a reservation is released exactly once, when the send has ended. Any thread; only `take_within` and
//! `drained` may sleep.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

#[derive(Debug)]
pub(crate) struct SendBudget {
    messages_max: usize,
    bytes_max: usize,
    used: Mutex<Used>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy)]
struct Used {
    messages: usize,
    bytes: usize,
}

impl Used {
    fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes;
    }
}

impl SendBudget {
    pub(crate) fn new(messages_max: usize, bytes_max: usize) -> Self {
        Self { messages_max, bytes_max, used: Mutex::default(), changed: Condvar::new() }
    }

    /// Reserves room for one message, if available. A message larger than the whole budget is admitted alone.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let mut used = self.used.lock();
        let fits = self.fits(*used, bytes);
        if fits {
            used.add(bytes);
        }
        fits
    }

    /// Reserves room like `take`, waiting up to `timeout`.
    pub(crate) fn take_within(&self, bytes: usize, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut used = self.used.lock();
        while !self.fits(*used, bytes) {
            if self.changed.wait_until(&mut used, deadline).timed_out() && !self.fits(*used, bytes) {
                return false;
            }
        }
        used.add(bytes);
        true
    }

    /// Returns whether `take` would succeed now.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.fits(*self.used.lock(), bytes)
    }

    fn fits(&self, used: Used, bytes: usize) -> bool {
        used.messages == 0 || (used.messages < self.messages_max && used.bytes + bytes <= self.bytes_max)
    }

    pub(crate) fn give(&self, bytes: usize) {
        let mut used = self.used.lock();
        debug_assert!(used.messages > 0 && used.bytes >= bytes, "released more than was reserved");
        used.messages = used.messages.saturating_sub(1);
        used.bytes = used.bytes.saturating_sub(bytes);
        drop(used);
        self.changed.notify_all();
    }

    /// Sleeps until nothing is outstanding; false when `timeout` passed first.
    pub(crate) fn drained(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut used = self.used.lock();
        while used.messages > 0 {
            if self.changed.wait_until(&mut used, deadline).timed_out() {
                return used.messages == 0;
            }
        }
        true
    }

    pub(crate) fn messages(&self) -> usize {
        self.used.lock().messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_full_budget_refuses_until_room_is_released() {
        let budget = Arc::new(SendBudget::new(2, 100));
        assert!(budget.take(60));
        assert!(!budget.take(60), "too many bytes");
        assert!(budget.take(40));
        assert!(!budget.take(0), "too many messages");
        let sleeper = {
            let budget = Arc::clone(&budget);
            std::thread::spawn(move || budget.take_within(50, Duration::from_secs(30)))
        };
        budget.give(60);
        assert!(sleeper.join().unwrap());
        assert_eq!(budget.messages(), 2);
    }

    #[test]
    fn a_message_larger_than_the_budget_passes_alone() {
        let budget = SendBudget::new(10, 100);
        assert!(budget.take(1_000));
        assert!(!budget.take(1));
        budget.give(1_000);
        assert!(budget.drained(Duration::ZERO));
    }
}
