//! Confirmation: how far enough copies of the log reach, and how many copies there are.
//!
//! Who sends the log to slaves says so here, and the listener of the store is told: replies may wait for it.
//!
//! Threads: told by one, the one that talks to the slaves; read from any.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::positions::PhysicalOffset;

#[derive(Debug)]
pub(super) struct Confirmation {
    position: AtomicU64,
    in_sync: AtomicUsize,
}

impl Default for Confirmation {
    /// A log without copies.
    fn default() -> Self {
        Self { position: AtomicU64::new(0), in_sync: AtomicUsize::new(1) }
    }
}

impl Confirmation {
    pub(super) fn position(&self) -> PhysicalOffset {
        PhysicalOffset(self.position.load(Ordering::Acquire))
    }

    pub(super) fn in_sync(&self) -> usize {
        self.in_sync.load(Ordering::Acquire)
    }

    /// Notes both; whether the position has moved.
    pub(super) fn note(&self, position: PhysicalOffset, in_sync: usize) -> bool {
        self.in_sync.store(in_sync, Ordering::Release);
        self.position.fetch_max(position.0, Ordering::AcqRel) < position.0
    }
}
