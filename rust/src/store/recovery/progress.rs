//! Recovery progress: phase and bytes of the opening of a store, for other threads.
//!
//! Threads: written by the opener of the store; read from any.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum RecoveryPhase {
    Locking,
    /// Listing files.
    Loading,
    /// Reading the log from the last checkpoint on.
    Scanning,
    /// Reading the log from its beginning, for missing queues or keys.
    Rebuilding,
    /// Making the result durable.
    Syncing,
    Open,
}

const PHASES: [RecoveryPhase; 6] = [
    RecoveryPhase::Locking,
    RecoveryPhase::Loading,
    RecoveryPhase::Scanning,
    RecoveryPhase::Rebuilding,
    RecoveryPhase::Syncing,
    RecoveryPhase::Open,
];

#[derive(Default, Debug)]
pub struct RecoveryProgress {
    phase: AtomicUsize,
    done: AtomicU64,
    total: AtomicU64,
}

impl RecoveryProgress {
    /// Returns the phase, the bytes of the log read in it, and the bytes to read in all.
    #[must_use]
    pub fn now(&self) -> (RecoveryPhase, u64, u64) {
        let phase = PHASES.get(self.phase.load(Ordering::Relaxed)).copied().unwrap_or(RecoveryPhase::Open);
        (phase, self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    pub(crate) fn enter(&self, phase: RecoveryPhase, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.phase.store(phase as usize, Ordering::Relaxed);
    }

    pub(crate) fn reached(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }
}
