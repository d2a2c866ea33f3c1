//! I/O thread of a client: the state its connections share, and the receiver of the peers' requests.
//!
//! Threads: everything except the pool stays on that thread.

use std::cell::Cell;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::call::CallError;
use super::header::Header;
use super::large_frames::LargeFrames;
use super::limits::ClientOptions;
use super::peer::Peer;

/// Receives requests from peers.
pub trait Requests: Send + Sync + 'static {
    /// Handles a request from the peer. To reply, call `Peer::send` with the request's opaque.
    fn request(&self, peer: &Arc<Peer>, header: &Header, body: &[u8]);

    /// The connection ended; its calls have already failed.
    fn closed(&self, peer: &Arc<Peer>, why: &CallError) {
        let _ = (peer, why);
    }
}

/// Ignores requests, for clients of servers that never send any.
impl Requests for () {
    fn request(&self, _: &Arc<Peer>, _: &Header, _: &[u8]) {}
}

pub(super) type Pool = RwLock<HashMap<Arc<str>, Arc<Peer>>>;

/// The state that a client's connections share.
pub(super) struct ClientThread {
    pub(super) options: ClientOptions,
    pub(super) requests: Arc<dyn Requests>,
    pub(super) large_frames: LargeFrames,
    pub(super) pool: Arc<Pool>,
    pub(super) connections: Cell<usize>,
    pub(super) deadline: Cell<Option<Instant>>,
    pub(super) emptied: Notify,
}

impl ClientThread {
    /// Returns whether a connection must end because the client stops.
    pub(super) fn must_end(&self, is_settled: bool) -> bool {
        self.deadline.get().is_some_and(|deadline| is_settled || deadline <= Instant::now())
    }

    pub(super) fn forget(&self, peer: &Arc<Peer>) {
        let mut pool = self.pool.write();
        // A successor may already be in the pool.
        if pool.get(peer.key()).is_some_and(|known| Arc::ptr_eq(known, peer)) {
            pool.remove(peer.key());
        }
    }

    pub(super) fn wake_all(&self) {
        self.pool.read().values().for_each(|peer| peer.wake());
    }

    pub(super) async fn is_empty(&self) {
        while self.connections.get() > 0 {
            self.emptied.notified().await;
        }
    }
}
