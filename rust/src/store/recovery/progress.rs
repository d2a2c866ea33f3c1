//! Recovery progress: how far opening a store is, for another thread to read.
//!
//! Threads: written by the one that opens the store; read from any.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum RecoveryPhase {
    Locking,
    /// Reading what files there are.
    Loading,
    /// Reading the log from the last checkpoint on.
    Scanning,
    /// Reading the log from its begin, for queues or keys that are missing.
    Rebuilding,
    /// Bringing what was found to disk.
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
    /// Phase, bytes of the log read in it, and bytes to read in all.
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
