//! Liveness: the last heartbeat of every replica, and the leases of masters, as one controller knows them.
//!
//! Each controller keeps its own table, because brokers send heartbeats to all of them. Times are the controller's
//! monotonic clock.
//!
//! Invariant: `lease_end` of a broker set is not before any moment at which a broker may still acknowledge messages
//! because of a reply from this controller.

use std::collections::BTreeMap;
use std::time::Duration;

use super::state::BrokerId;

/// The smallest priority a broker can have: larger numbers are elected later.
pub const PRIORITY_LAST: i32 = i32::MAX;

/// A heartbeat of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// The connection it came on; later connections have larger numbers.
    pub connection: u64,
    /// Its arrival.
    pub at: Duration,
    /// The time without a heartbeat after which the replica counts as dead.
    pub timeout: Duration,
    /// The newest epoch of its log.
    pub epoch: i32,
    /// The end of its log.
    pub max_offset: i64,
    /// The end of the confirmed part of its log.
    pub confirm_offset: i64,
    /// Smaller numbers are elected first.
    pub priority: i32,
    /// It takes leases, and as a master acknowledges nothing before it has reported an in-sync set.
    pub takes_leases: bool,
}

#[derive(Debug, Clone)]
struct Observed {
    beat: Option<Beat>,
    /// The moment its heartbeats ended or its connection closed.
    lost_at: Option<Duration>,
    /// The connection of its last registration.
    registration: Option<u64>,
}

/// The right of one replica to acknowledge messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The holder; `None` if an earlier leader of the controllers may have granted it to any replica.
    pub holder: Option<BrokerId>,
    /// The moment from which another replica may be elected.
    pub end: Duration,
}

/// The tables of one controller.
#[derive(Debug, Default)]
pub struct Liveness {
    known: BTreeMap<String, BTreeMap<BrokerId, Observed>>,
    leases: BTreeMap<String, Lease>,
}

impl Liveness {
    /// Notes a heartbeat. A heartbeat that comes late on an older connection is stale and is ignored; returns false.
    pub fn received(&mut self, name: &str, id: BrokerId, beat: Beat) -> bool {
        let known = self.entry(name, id);
        if known.beat.as_ref().is_some_and(|last| beat.connection < last.connection) {
            return false;
        }
        known.beat = Some(beat);
        known.lost_at = None;
        true
    }

    /// Notes that a replica registers. On another connection than its last registration its process has started:
    /// heartbeats on other connections describe an earlier process. Returns whether it has.
    pub fn registered(&mut self, name: &str, id: BrokerId, connection: u64, now: Duration) -> bool {
        let observed = self.entry(name, id);
        if observed.beat.take_if(|last| last.connection != connection).is_some() {
            observed.lost_at = Some(now);
        }
        observed.registration != Some(connection)
    }

    /// Notes that a registration is agreed on; until then a repetition counts as the same start.
    pub fn registration_agreed(&mut self, name: &str, id: BrokerId, connection: u64) {
        self.entry(name, id).registration = Some(connection);
    }

    /// Notes that a connection has ended: the replicas that last used it are lost. Returns them.
    pub fn closed(&mut self, connection: u64, now: Duration) -> Vec<(String, BrokerId)> {
        self.lose(now, |beat| beat.connection == connection)
    }

    /// Gives every replica more time for its next heartbeat.
    pub fn excuse(&mut self, time: Duration) {
        let beats = self.known.values_mut().flat_map(BTreeMap::values_mut);
        beats.filter_map(|known| known.beat.as_mut()).for_each(|beat| beat.timeout += time);
    }

    /// Returns the replicas whose last heartbeat has just become too old.
    pub fn expired(&mut self, now: Duration) -> Vec<(String, BrokerId)> {
        self.lose(now, |beat| beat.at + beat.timeout < now)
    }

    fn lose(&mut self, now: Duration, is_lost: impl Fn(&Beat) -> bool) -> Vec<(String, BrokerId)> {
        let mut lost = Vec::new();
        for (name, set) in &mut self.known {
            for (id, known) in set {
                if known.beat.as_ref().is_some_and(&is_lost) {
                    known.beat = None;
                    known.lost_at = Some(now);
                    lost.push((name.clone(), *id));
                }
            }
        }
        lost
    }

    /// Returns when a replica was lost; `None` while it is alive, and before its first heartbeat.
    #[must_use]
    pub fn lost_at(&self, name: &str, id: BrokerId) -> Option<Duration> {
        self.known.get(name)?.get(&id)?.lost_at
    }

    /// Returns the longest timeout of the replicas of a set that are alive.
    #[must_use]
    pub fn timeout_max(&self, name: &str, now: Duration) -> Option<Duration> {
        let beats = self.known.get(name)?.values().filter_map(|known| known.beat.as_ref());
        beats.filter(|beat| beat.at + beat.timeout >= now).map(|beat| beat.timeout).max()
    }

    /// Returns the last heartbeat of a replica that is alive.
    #[must_use]
    pub fn alive(&self, name: &str, id: BrokerId, now: Duration) -> Option<&Beat> {
        let beat = self.known.get(name)?.get(&id)?.beat.as_ref()?;
        (beat.at + beat.timeout >= now).then_some(beat)
    }

    /// Drops entries of replicas outside `keep`.
    pub fn retain(&mut self, keep: impl Fn(&str, BrokerId) -> bool) {
        self.known.retain(|name, set| {
            set.retain(|id, _| keep(name, *id));
            !set.is_empty()
        });
    }

    /// Returns the lease that prevents the election of another replica than its holder.
    #[must_use]
    pub fn lease(&self, name: &str, now: Duration) -> Option<Lease> {
        self.leases.get(name).copied().filter(|lease| lease.end > now)
    }

    /// Grants or extends a lease.
    pub fn grant(&mut self, name: &str, holder: Option<BrokerId>, end: Duration) {
        let lease = self.leases.entry(name.to_owned()).or_insert(Lease { holder, end });
        *lease = Lease { holder, end: end.max(lease.end) };
    }

    /// Ends the lease of `holder`. A lease of unknown holder stays: another broker may have it.
    pub fn release(&mut self, name: &str, holder: BrokerId) -> bool {
        if self.leases.get(name).is_some_and(|lease| lease.holder == Some(holder)) {
            self.leases.remove(name);
            return true;
        }
        false
    }

    /// Drops leases that have ended.
    pub fn expire(&mut self, now: Duration) {
        self.leases.retain(|_, lease| lease.end > now);
    }

    /// Forgets every lease: this controller does not lead.
    pub fn forget_leases(&mut self) {
        self.leases.clear();
    }

    fn entry(&mut self, name: &str, id: BrokerId) -> &mut Observed {
        let set = self.known.entry(name.to_owned()).or_default();
        set.entry(id).or_insert(Observed { beat: None, lost_at: None, registration: None })
    }
}
