//! Confirmation: the position that enough copies of the log have reached, and the number of copies.
//!
//! Replication sets both, and the listener of the store is notified, because replies may wait for it.
//!
//! Threads: set by the thread that serves the slaves; read from any.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::positions::PhysicalOffset;

#[derive(Debug)]
pub(in crate::store) struct Confirmation {
    position: AtomicU64,
    in_sync: AtomicUsize,
}

impl Default for Confirmation {
    /// Returns a log without copies.
    fn default() -> Self {
        Self { position: AtomicU64::new(0), in_sync: AtomicUsize::new(1) }
    }
}

impl Confirmation {
    pub(in crate::store) fn position(&self) -> PhysicalOffset {
        PhysicalOffset(self.position.load(Ordering::Acquire))
    }

    pub(in crate::store) fn in_sync(&self) -> usize {
        self.in_sync.load(Ordering::Acquire)
    }

    /// Sets both. Returns whether the position has moved.
    pub(in crate::store) fn note(&self, position: PhysicalOffset, in_sync: usize) -> bool {
        self.in_sync.store(in_sync, Ordering::Release);
        self.position.fetch_max(position.0, Ordering::AcqRel) < position.0
    }
}
