//! Clock: wall-clock and monotonic time, real or manual. Nothing below `bindings` reads the system clock directly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of wall-clock and monotonic time.
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch; may jump in either direction.
    fn wall_ms(&self) -> u64;
    /// Returns the time since a fixed moment, which never goes back. Used for timeouts.
    fn elapsed(&self) -> Duration;
}

/// A shared clock.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// Creates a clock whose monotonic time starts now.
    #[must_use]
    pub fn shared() -> SharedClock {
        Arc::new(Self { origin: Instant::now() })
    }
}

impl Clock for SystemClock {
    fn wall_ms(&self) -> u64 {
        // Before 1970 no value is right; 0 keeps records valid.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// A wall clock that moves only when a user's test advances it. Monotonic time is the machine's, so timeouts, long
/// polls and leases work as usual.
#[derive(Debug)]
pub struct HandClock {
    wall_ms: AtomicU64,
    machine: SystemClock,
}

impl HandClock {
    /// Creates a clock at `wall_ms`, or at the machine's time.
    #[must_use]
    pub fn at(wall_ms: Option<u64>) -> Arc<Self> {
        let machine = SystemClock { origin: Instant::now() };
        let wall_ms = AtomicU64::new(wall_ms.unwrap_or_else(|| machine.wall_ms()));
        Arc::new(Self { wall_ms, machine })
    }

    /// Moves the wall clock forward.
    pub fn advance(&self, by: Duration) {
        self.wall_ms.fetch_add(by.as_millis() as u64, Ordering::AcqRel);
    }
}

impl Clock for HandClock {
    fn wall_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::Acquire)
    }

    fn elapsed(&self) -> Duration {
        self.machine.elapsed()
    }
}

#[cfg(feature = "simulation")]
pub use manual::ManualClock;

#[cfg(feature = "simulation")]
mod manual {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::Clock;

    /// A clock that moves only when advanced: wall and monotonic time move together, unless the wall clock is set.
    #[derive(Debug)]
    pub struct ManualClock {
        /// The wall time at monotonic time 0.
        start_ms: AtomicU64,
        elapsed_ms: AtomicU64,
    }

    impl ManualClock {
        /// Creates a clock at `wall_ms`.
        #[must_use]
        pub fn at(wall_ms: u64) -> Arc<Self> {
            Arc::new(Self { start_ms: AtomicU64::new(wall_ms), elapsed_ms: AtomicU64::new(0) })
        }

        /// Moves both times forward.
        pub fn advance(&self, by: Duration) {
            self.elapsed_ms.fetch_add(by.as_millis() as u64, Ordering::AcqRel);
        }

        /// Sets the wall clock, as an operator or NTP does; monotonic time is unaffected.
        pub fn set_wall(&self, wall_ms: u64) {
            let elapsed_ms = self.elapsed_ms.load(Ordering::Acquire);
            self.start_ms.store(wall_ms.wrapping_sub(elapsed_ms), Ordering::Release);
        }
    }

    impl Clock for ManualClock {
        fn wall_ms(&self) -> u64 {
            self.start_ms.load(Ordering::Acquire).wrapping_add(self.elapsed_ms.load(Ordering::Acquire))
        }

        fn elapsed(&self) -> Duration {
            Duration::from_millis(self.elapsed_ms.load(Ordering::Acquire))
        }
    }
}
