//! Shared state of all I/O threads of a server: connections, how many there may be, and what they hold together.
//!
//! Invariant: each `Permit` is counted, and counted once.
//! Threads: any. The map is locked to open, find and close a connection, never for a frame.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use super::large_frames::LargeFrames;
use super::limits::ServerOptions;
use super::link::{Link, LinkId};
use super::service::Close;

pub(super) struct Shared<E> {
    links: RwLock<HashMap<LinkId, Arc<Link<E>>>>,
    last_id: AtomicU64,
    events_max: usize,
    limits: Arc<AdmissionLimits>,
    pending_bytes: AtomicUsize,
    pub(super) large_frames: LargeFrames,
    ended: Ended,
}

struct AdmissionLimits {
    connections_max: usize,
    connections_per_address_max: usize,
    connected: Mutex<ConnectionCount>,
    accepted: AtomicU64,
    refused: AtomicU64,
}

#[derive(Default)]
struct ConnectionCount {
    count: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// The right to be connected; given back when dropped.
pub(super) struct Permit {
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

/// Counters of a server, taken at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerStatistics {
    /// Connections open now.
    pub connections: usize,
    /// Connections accepted and admitted so far.
    pub accepted: u64,
    /// Connections closed as they came, because there were too many.
    pub refused: u64,
    /// Connections closed because what came was no frame, or no header, or broke another rule.
    pub closed_broken: u64,
    /// Connections closed after silence.
    pub closed_idle: u64,
    /// Connections closed because a frame did not come on.
    pub closed_slow: u64,
    /// Connections lost to a panic of the service.
    pub panics: u64,
    /// Bytes that wait for peers which do not take them.
    pub pending_bytes: usize,
}

impl<E: Send + 'static> Shared<E> {
    pub(super) fn new(options: &ServerOptions) -> Self {
        let limits = AdmissionLimits {
            connections_max: options.connections_max,
            connections_per_address_max: options.connections_per_address_max,
            connected: Mutex::default(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        Self {
            links: RwLock::default(),
            last_id: AtomicU64::new(0),
            events_max: options.events_max,
            limits: Arc::new(limits),
            pending_bytes: AtomicUsize::new(0),
            large_frames: LargeFrames::new(options.large_frames_bytes_max, &options.frame),
            ended: Ended::default(),
        }
    }

    /// A place for a connection from this address, if there is one.
    pub(super) fn admit(&self, address: IpAddr) -> Option<Permit> {
        let limits = &self.limits;
        let mut connected = limits.connected.lock();
        let from_address = connected.by_address.get(&address).copied().unwrap_or(0);
        if connected.count >= limits.connections_max || from_address >= limits.connections_per_address_max {
            limits.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        connected.count += 1;
        connected.by_address.insert(address, from_address + 1);
        limits.accepted.fetch_add(1, Ordering::Relaxed);
        Some(Permit { limits: Arc::clone(limits), address })
    }

    /// A new connection's handle, to be found from now on.
    pub(super) fn link(&self, peer: SocketAddr, local: SocketAddr, is_vip: bool) -> Arc<Link<E>> {
        let id = LinkId(self.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let link = Arc::new(Link::new(id, peer, local, is_vip, self.events_max));
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

    /// What waits in all outboxes together. A hint: each connection adds its part when it falls behind.
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

    pub(super) fn statistics(&self) -> ServerStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerStatistics {
            connections: self.limits.connected.lock().count,
            accepted: read(&self.limits.accepted),
            refused: read(&self.limits.refused),
            closed_broken: read(&self.ended.broken),
            closed_idle: read(&self.ended.idle),
            closed_slow: read(&self.ended.slow),
            panics: read(&self.ended.panicked),
            pending_bytes: self.pending_bytes(),
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
