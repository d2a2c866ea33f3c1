//! Time, real or set by hand. Nothing below `bindings` reads the system clock in another way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of wall-clock and monotonic time.
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch; may jump either way.
    fn wall_ms(&self) -> u64;
    /// Time since some fixed moment; never goes back. For timeouts.
    fn elapsed(&self) -> Duration;
}

/// A clock that many parts share.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    pub fn shared() -> SharedClock {
        Arc::new(Self { origin: Instant::now() })
    }
}

impl Clock for SystemClock {
    fn wall_ms(&self) -> u64 {
        // Before 1970 there is no sensible answer; 0 keeps records valid.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// A wall clock that stands still until a test of a user moves it. Monotonic time is the machine's, so that timeouts,
/// long polls and leases go on as ever.
#[derive(Debug)]
pub struct HandClock {
    wall_ms: AtomicU64,
    machine: SystemClock,
}

impl HandClock {
    /// A clock standing at `wall_ms`, or at the machine's time.
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

    /// A clock that stands still until it is moved: wall and monotonic time advance together, unless the wall clock is
    /// set.
    #[derive(Debug)]
    pub struct ManualClock {
        /// Wall time when the monotonic time was 0, as far as can be told now.
        start_ms: AtomicU64,
        elapsed_ms: AtomicU64,
    }

    impl ManualClock {
        /// A clock standing at `wall_ms`.
        #[must_use]
        pub fn at(wall_ms: u64) -> Arc<Self> {
            Arc::new(Self { start_ms: AtomicU64::new(wall_ms), elapsed_ms: AtomicU64::new(0) })
        }

        /// Moves both times forward.
        pub fn advance(&self, by: Duration) {
            self.elapsed_ms.fetch_add(by.as_millis() as u64, Ordering::AcqRel);
        }

        /// Sets the wall clock to `wall_ms`, as an operator or a time server does; monotonic time goes on.
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
