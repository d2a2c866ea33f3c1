//! Limits: how much one user may ask for, over all connections that are theirs. Super users have none.
//!
//! A second's worth may come at once; what is beyond is refused until time has made up for it. Counting costs a user one
//! atomic operation for each limit that is set.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// What may be used in a second, in nanoseconds of it.
const BURST_NANOS: u64 = 1_000_000_000;

/// How much each user may use; 0 is without a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections: u32,
    /// Requests in a second.
    pub requests_per_second: u32,
    /// Bytes of requests in a second.
    pub bytes_per_second: u64,
}

impl Limits {
    /// Whether anything is limited.
    #[must_use]
    pub fn is_any(self) -> bool {
        self != Self::default()
    }
}

/// A rate: the time up to which what was used is paid for.
#[derive(Debug, Default)]
struct Rate(AtomicU64);

impl Rate {
    /// Uses `amount` of `per_second` at `now`; false where a second's worth is in use already.
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

/// What one user uses now; kept while rules change.
#[derive(Debug, Default)]
pub struct Usage {
    connections: AtomicU32,
    requests: Rate,
    bytes: Rate,
}

impl Usage {
    /// Counts a request of so many bytes; what is exceeded where it may not be made now.
    ///
    /// # Errors
    /// The name of the limit, and its value.
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

/// A connection that counts as a user's, until it is dropped.
#[derive(Debug)]
pub struct UserConnection(Arc<Usage>);

impl UserConnection {
    /// Counts one more; `None` where the user has `max` of them, unless that is 0.
    #[must_use]
    pub fn of(usage: &Arc<Usage>, max: u32) -> Option<Self> {
        let taken = usage.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (max == 0 || count < max).then(|| count.saturating_add(1))
        });
        taken.ok().map(|_| Self(Arc::clone(usage)))
    }

    /// Whether it counts there.
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
