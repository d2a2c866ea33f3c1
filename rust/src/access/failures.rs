//! Failures: how often an address could not be authenticated, and how long its next answer waits for it.
//!
//! The first few cost nothing: people mistype. After them each answer comes later than the one before, one at a time for
//! all connections of an address, so that more connections do not guess faster. What is authenticated is never delayed.
//!
//! Invariant: so many addresses are remembered at most; those beyond share one count.

use std::net::IpAddr;
use std::time::Duration;

use hashbrown::HashMap;

use super::network::host_of;

/// Failures of an address that are answered at once.
const FREE: u32 = 5;
/// The first delay; it doubles.
const DELAY_MIN: Duration = Duration::from_millis(100);
/// The longest time from one answer to the next.
const DELAY_MAX: Duration = Duration::from_secs(2);
/// The longest that one answer waits: clients give up after three seconds, and are to learn the reason.
const WAIT_MAX: Duration = Duration::from_millis(2_500);
/// After so long without a failure an address is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);
/// Addresses remembered.
const ADDRESSES_MAX: usize = 10_000;

#[derive(Debug, Default)]
struct Failed {
    count: u32,
    last: Duration,
    /// When the last answer leaves.
    next: Duration,
}

/// The failures of all addresses.
#[derive(Debug, Default)]
pub struct Failures {
    by_address: HashMap<IpAddr, Failed>,
    /// Of those for which there is no room.
    others: Failed,
}

impl Failures {
    /// Counts a failure of `address` at `now`; how long its answer is to wait.
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
