//! Shared state of a server's I/O threads: connections, their limits, and their combined memory.
//!
//! Invariant: each `Permit` is counted exactly once.
//! Threads: any. The map is locked to open, find and close a connection, never for a frame.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use super::buffer_budget::BufferBudget;
use super::foreign::ForeignClients;
use super::large_frames::LargeFrames;
use super::limits::ServerOptions;
use super::link::{Link, LinkId};
use super::mailbox::Mailboxes;
use super::service::Close;

pub(super) struct Shared<E> {
    links: RwLock<HashMap<LinkId, Arc<Link<E>>>>,
    last_id: AtomicU64,
    pub(super) mailboxes: Arc<Mailboxes>,
    limits: Arc<AdmissionLimits>,
    pending_bytes: AtomicUsize,
    pub(super) large_frames: LargeFrames,
    pub(super) buffers: BufferBudget,
    refused_frames: AtomicU64,
    ended: Ended,
    pub(super) foreign_clients: ForeignClients,
}

struct AdmissionLimits {
    connections_max: usize,
    connections_per_address_max: usize,
    descriptors_max: usize,
    connected: Mutex<ConnectionCount>,
    accepted: AtomicU64,
    refused: Refused,
}

/// Connections closed on arrival.
#[derive(Default)]
struct Refused {
    too_many: AtomicU64,
    of_address: AtomicU64,
    descriptors: AtomicU64,
}

#[derive(Default)]
struct ConnectionCount {
    count: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// The right to be connected, released on drop.
pub struct Permit {
    limits: Arc<AdmissionLimits>,
    address: IpAddr,
}

#[derive(Default)]
struct Ended {
    broken: AtomicU64,
    idle: AtomicU64,
    slow: AtomicU64,
    panicked: AtomicU64,
}

/// A snapshot of a server's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerStatistics {
    /// Connections open now.
    pub connections: usize,
    /// Connections accepted and admitted so far.
    pub accepted: u64,
    /// Connections closed on arrival because there were too many.
    pub refused: u64,
    /// Connections closed on arrival because there were too many of their address.
    pub refused_of_address: u64,
    /// Connections closed on arrival because the process had too many open descriptors.
    pub refused_for_descriptors: u64,
    /// Connections closed because of an invalid frame or header, or another broken rule.
    pub closed_broken: u64,
    /// Connections closed as idle.
    pub closed_idle: u64,
    /// Connections closed because a frame stalled.
    pub closed_slow: u64,
    /// Connections closed by a panic of the service.
    pub panics: u64,
    /// Frames refused because they found no memory in time.
    pub refused_frames: u64,
    /// Bytes of replies that wait for peers to read, or for the disk.
    pub pending_bytes: usize,
    /// Memory of the buffers of all connections, filled or not.
    pub buffers_bytes: usize,
    /// Bytes in mailboxes, including requests with deferred replies.
    pub mailbox_bytes: usize,
    /// Notices dropped because their peers do not read.
    pub dropped_notices: u64,
}

impl<E: Send + 'static> Shared<E> {
    pub(super) fn new(options: &ServerOptions) -> Self {
        let limits = AdmissionLimits {
            connections_max: options.connections_max,
            connections_per_address_max: options.connections_per_address_max,
            descriptors_max: options.descriptors_max,
            connected: Mutex::default(),
            accepted: AtomicU64::new(0),
            refused: Refused::default(),
        };
        Self {
            links: RwLock::default(),
            last_id: AtomicU64::new(0),
            mailboxes: Arc::new(Mailboxes::new(options)),
            limits: Arc::new(limits),
            pending_bytes: AtomicUsize::new(0),
            large_frames: LargeFrames::new(options.large_frames_bytes_max, &options.frame),
            buffers: BufferBudget::new(options.buffers_bytes_max),
            refused_frames: AtomicU64::new(0),
            ended: Ended::default(),
            foreign_clients: ForeignClients::default(),
        }
    }

    /// Admits a connection from this address, if there is room.
    ///
    /// `descriptor` is its number. The system assigns the lowest free one, so it shows how many are open in the whole
    /// process.
    pub(super) fn admit(&self, address: IpAddr, descriptor: usize) -> Option<Permit> {
        let limits = &self.limits;
        let (is_loopback, address) = (address.to_canonical().is_loopback(), site_of(address));
        let mut connected = limits.connected.lock();
        let from_address = connected.by_address.get(&address).copied().unwrap_or(0);
        let refused = if connected.count >= limits.connections_max {
            Some(&limits.refused.too_many)
        } else if from_address >= limits.connections_per_address_max && !is_loopback {
            Some(&limits.refused.of_address)
        } else if descriptor >= limits.descriptors_max {
            Some(&limits.refused.descriptors)
        } else {
            None
        };
        if let Some(counter) = refused {
            counter.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        connected.count += 1;
        connected.by_address.insert(address, from_address + 1);
        limits.accepted.fetch_add(1, Ordering::Relaxed);
        Some(Permit { limits: Arc::clone(limits), address })
    }

    /// Registers a new connection and returns its handle.
    pub(super) fn link(&self, peer: SocketAddr, local: SocketAddr, is_vip: bool) -> Arc<Link<E>> {
        let id = LinkId(self.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let link = Arc::new(Link::new(id, peer, local, is_vip, &self.mailboxes));
        self.links.write().insert(id, Arc::clone(&link));
        link
    }

    pub(super) fn find(&self, id: LinkId) -> Option<Arc<Link<E>>> {
        self.links.read().get(&id).cloned()
    }

    pub(super) fn forget(&self, id: LinkId, why: Close) {
        let counter = match why {
            Close::Frame(_) | Close::Header(_) | Close::Protocol(_) => Some(&self.ended.broken),
            Close::Idle => Some(&self.ended.idle),
            Close::Slow => Some(&self.ended.slow),
            Close::Panicked => Some(&self.ended.panicked),
            Close::Peer | Close::Requested | Close::Stopped => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        let link = self.links.write().remove(&id);
        if let Some(link) = link {
            link.end();
        }
    }

    /// Returns the bytes pending in all outboxes. A hint: each connection adds its part when it falls behind.
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn count_pending(&self, before: usize, now: usize) {
        if now >= before {
            self.pending_bytes.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.pending_bytes.fetch_sub(before - now, Ordering::Relaxed);
        }
    }

    pub(super) fn count_refused_frame(&self) {
        self.refused_frames.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn statistics(&self) -> ServerStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerStatistics {
            connections: self.limits.connected.lock().count,
            accepted: read(&self.limits.accepted),
            refused: read(&self.limits.refused.too_many),
            refused_of_address: read(&self.limits.refused.of_address),
            refused_for_descriptors: read(&self.limits.refused.descriptors),
            closed_broken: read(&self.ended.broken),
            closed_idle: read(&self.ended.idle),
            closed_slow: read(&self.ended.slow),
            panics: read(&self.ended.panicked),
            refused_frames: read(&self.refused_frames),
            pending_bytes: self.pending_bytes(),
            buffers_bytes: self.buffers.bytes(),
            mailbox_bytes: self.mailboxes.bytes(),
            dropped_notices: self.mailboxes.dropped(),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut connected = self.limits.connected.lock();
        connected.count -= 1;
        if let Some(count) = connected.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                connected.by_address.remove(&self.address);
            }
        }
    }
}

/// Returns the unit in which connections are counted. An IPv6 machine can use any address of its /64 network, and an
/// IPv4 machine on an IPv6 socket is the same machine.
fn site_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn shared(connections_per_address_max: usize, descriptors_max: usize) -> Shared<()> {
        let options = ServerOptions { connections_max: 10, ..ServerOptions::default() };
        Shared::new(&ServerOptions { connections_per_address_max, descriptors_max, ..options })
    }

    /// Returns how many of 20 concurrent connections from `address` are admitted.
    fn admitted(shared: &Shared<()>, address: impl Into<IpAddr>) -> usize {
        let address = address.into();
        let permits: Vec<Permit> = (0..20).filter_map(|number| shared.admit(address, number)).collect();
        permits.len()
    }

    #[test]
    fn an_address_has_a_share_of_all_connections_except_loopback() {
        let shared = shared(5, usize::MAX);
        let (near, far) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let permits: Vec<Permit> = (0..20).filter_map(|number| shared.admit(near.into(), number)).collect();
        assert_eq!(permits.len(), 5);
        assert!(shared.admit(near.to_ipv6_mapped().into(), 0).is_none(), "the same machine");
        assert_eq!(admitted(&shared, far), 5);
        drop(permits);
        assert_eq!(admitted(&shared, near), 5, "a released place is available again");
        assert_eq!(admitted(&shared, Ipv4Addr::LOCALHOST), 10);
        assert_eq!(admitted(&shared, Ipv6Addr::LOCALHOST), 10);
        assert_eq!(admitted(&shared, Ipv4Addr::LOCALHOST.to_ipv6_mapped()), 10);
        let statistics = shared.statistics();
        assert_eq!((statistics.connections, statistics.refused, statistics.refused_of_address), (0, 45, 31));
    }

    #[test]
    fn addresses_of_one_ipv6_network_have_one_share() {
        let shared = shared(5, usize::MAX);
        let address = |network: u16, machine: u16| Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, machine);
        let permits: Vec<Permit> =
            (0..20).filter_map(|number| shared.admit(address(1, number).into(), 0)).collect();
        assert_eq!(permits.len(), 5);
        assert_eq!(admitted(&shared, address(2, 1)), 5);
    }

    #[test]
    fn connections_leave_the_last_descriptors_to_files() {
        let shared = shared(10, 7);
        assert_eq!(admitted(&shared, Ipv4Addr::LOCALHOST), 7);
        assert_eq!(shared.statistics().refused_for_descriptors, 13);
    }
}
