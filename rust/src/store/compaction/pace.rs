//! Pace: the limit of bytes a second for rounds, shared by their threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clock::SharedClock;

/// The most time that a round has saved up while it was waiting for something else.
const SAVED: Duration = Duration::from_millis(100);

pub(super) struct Pace {
    clock: SharedClock,
    bytes_per_second: u64,
    /// The time from which on the next bytes may be read or written.
    free_at: Mutex<Duration>,
    is_stopped: AtomicBool,
    stopping: Condvar,
}

impl Pace {
    /// Creates a limit; 0 is none.
    pub(super) fn new(clock: SharedClock, bytes_per_second: u64) -> Self {
        let free_at = Mutex::new(clock.elapsed());
        Self {
            clock,
            bytes_per_second,
            free_at,
            is_stopped: AtomicBool::new(false),
            stopping: Condvar::new(),
        }
    }

    /// Accounts for `bytes`, and waits until they are within the limit. Returns false if the rounds have to stop.
    pub(super) fn spend(&self, bytes: u64) -> bool {
        if self.bytes_per_second == 0 || self.is_stopped() {
            return !self.is_stopped();
        }
        let mut free_at = self.free_at.lock();
        let now = self.clock.elapsed();
        let mine = (*free_at).max(now.saturating_sub(SAVED));
        *free_at = mine + self.time_of(bytes);
        while !self.is_stopped() {
            let left = mine.saturating_sub(self.clock.elapsed());
            if left.is_zero() {
                return true;
            }
            self.stopping.wait_for(&mut free_at, left);
        }
        false
    }

    fn time_of(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Ends all rounds.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        let _free_at = self.free_at.lock();
        self.stopping.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn bytes_take_their_time_and_a_stop_ends_the_wait() {
        let pace = Pace::new(SystemClock::shared(), 1_000_000);
        let clock = SystemClock::shared();
        assert!((0..4).all(|_| pace.spend(100_000)));
        let took = clock.elapsed();
        // The first 100 ms are saved up, and the last bytes delay only later ones.
        assert!(took >= Duration::from_millis(190), "{took:?}");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| (pace.spend(1 << 40), pace.spend(1)));
            // No event shows that a thread waits; without the pause the stop may come first.
            std::thread::sleep(Duration::from_millis(20));
            pace.stop();
            assert_eq!(waiting.join().map(|(_, second)| second).ok(), Some(false));
        });
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let pace = Pace::new(SystemClock::shared(), 0);
        assert!(pace.spend(u64::MAX));
        pace.stop();
        assert!(!pace.spend(1));
    }
}
