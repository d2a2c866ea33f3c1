//! Failures: counts failed authentications of each address, and delays its next answers.
//!
//! The first few are not delayed, since people mistype. After them each answer is delayed longer than the last, one
//! at a time for all connections of an address, so that more connections do not guess faster. Authenticated requests
//! are never delayed.
//!
//! Invariant: the number of addresses is limited; others share one count.

use std::net::IpAddr;
use std::time::Duration;

use hashbrown::HashMap;

use super::network::host_of;

/// Failures of an address that are answered without delay.
const FREE: u32 = 5;
/// The first delay, which doubles.
const DELAY_MIN: Duration = Duration::from_millis(100);
/// Maximum time between two answers.
const DELAY_MAX: Duration = Duration::from_secs(2);
/// Maximum delay of an answer: clients time out after three seconds, and should receive the reason.
const WAIT_MAX: Duration = Duration::from_millis(2_500);
/// An address without a failure for this long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);
/// Maximum number of addresses.
const ADDRESSES_MAX: usize = 10_000;

#[derive(Debug, Default)]
struct Failed {
    count: u32,
    last: Duration,
    /// Time of the last answer, sent or delayed.
    next: Duration,
}

/// The failures of all addresses.
#[derive(Debug, Default)]
pub struct Failures {
    by_address: HashMap<IpAddr, Failed>,
    /// Failures of addresses beyond the limit.
    others: Failed,
}

impl Failures {
    /// Counts a failure of `address` at `now`; returns the delay of its answer.
    pub fn add(&mut self, address: IpAddr, now: Duration) -> Duration {
        let host = host_of(address);
        if self.by_address.len() >= ADDRESSES_MAX && !self.by_address.contains_key(&host) {
            self.by_address.retain(|_, failed| now.saturating_sub(failed.last) < FORGOTTEN_AFTER);
        }
        let has_room = self.by_address.len() < ADDRESSES_MAX || self.by_address.contains_key(&host);
        let failed = if has_room { self.by_address.entry(host).or_default() } else { &mut self.others };
        if now.saturating_sub(failed.last) >= FORGOTTEN_AFTER {
            *failed = Failed::default();
        }
        failed.count = failed.count.saturating_add(1);
        failed.last = now;
        let Some(late) = failed.count.checked_sub(FREE + 1) else { return Duration::ZERO };
        let delay = DELAY_MIN.saturating_mul(1 << late.min(16)).min(DELAY_MAX);
        failed.next = (failed.next.max(now) + delay).min(now + WAIT_MAX);
        failed.next - now
    }
}
