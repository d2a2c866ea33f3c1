//! Limits: rate limits of a user over all connections. Super users have none.
//!
//! A burst of one second's worth is accepted; requests beyond the rate are refused. Counting takes one atomic
//! operation per configured limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Burst, in nanoseconds of the rate.
const BURST_NANOS: u64 = 1_000_000_000;

/// Limits of each user; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent connections.
    pub connections: u32,
    /// Requests per second.
    pub requests_per_second: u32,
    /// Bytes of requests per second.
    pub bytes_per_second: u64,
}

impl Limits {
    /// Returns whether any limit is set.
    #[must_use]
    pub fn is_any(self) -> bool {
        self != Self::default()
    }
}

/// A rate limiter: the time up to which the past use is paid for.
#[derive(Debug, Default)]
struct Rate(AtomicU64);

impl Rate {
    /// Uses `amount` of `per_second` at `now`; returns `false` if the burst is used up.
    fn take(&self, amount: u64, per_second: u64, now: Duration) -> bool {
        if per_second == 0 {
            return true;
        }
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let cost = u128::from(amount) * u128::from(BURST_NANOS) / u128::from(per_second);
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        let paid = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid_until| {
            let from = paid_until.max(now);
            (from - now < BURST_NANOS).then(|| from.saturating_add(cost))
        });
        paid.is_ok()
    }
}

/// Current use of one user; kept when the rules change.
#[derive(Debug, Default)]
pub struct Usage {
    connections: AtomicU32,
    requests: Rate,
    bytes: Rate,
}

impl Usage {
    /// Counts a request of `bytes`, if the limits allow it now.
    ///
    /// # Errors
    /// The name and value of the exceeded limit.
    pub fn take(&self, limits: Limits, bytes: usize, now: Duration) -> Result<(), (&'static str, u64)> {
        let requests = u64::from(limits.requests_per_second);
        if !self.requests.take(1, requests, now) {
            return Err(("requests a second", requests));
        }
        if !self.bytes.take(bytes as u64, limits.bytes_per_second, now) {
            return Err(("bytes a second", limits.bytes_per_second));
        }
        Ok(())
    }
}

/// A connection counted for a user, until it is dropped.
#[derive(Debug)]
pub struct UserConnection(Arc<Usage>);

impl UserConnection {
    /// Counts one more connection; returns `None` if the user already has `max`, unless `max` is 0.
    #[must_use]
    pub fn of(usage: &Arc<Usage>, max: u32) -> Option<Self> {
        let taken = usage.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (max == 0 || count < max).then(|| count.saturating_add(1))
        });
        taken.ok().map(|_| Self(Arc::clone(usage)))
    }

    /// Returns whether it is counted in `usage`.
    #[must_use]
    pub fn is_of(&self, usage: &Arc<Usage>) -> bool {
        Arc::ptr_eq(&self.0, usage)
    }
}

impl Drop for UserConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
