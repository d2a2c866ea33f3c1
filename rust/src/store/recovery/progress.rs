//! How far opening a store is, for another thread to look at.
//!
//! Threads: written by whoever opens the store; read from any.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What opening a store is busy with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Phase {
    /// Taking the lock.
    Locking,
    /// Reading what files there are.
    Loading,
    /// Reading the log from the last checkpoint on.
    Scanning,
    /// Reading the log from its begin, for queues or keys that are missing.
    Rebuilding,
    /// Bringing what was found to disk.
    Syncing,
    /// The store is open.
    Open,
}

const PHASES: [Phase; 6] =
    [Phase::Locking, Phase::Loading, Phase::Scanning, Phase::Rebuilding, Phase::Syncing, Phase::Open];

/// How far opening a store has come, for another thread to look at.
#[derive(Default, Debug)]
pub struct Progress {
    phase: AtomicUsize,
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Phase, bytes of the log read in it, and bytes to read in all.
    #[must_use]
    pub fn now(&self) -> (Phase, u64, u64) {
        let phase = PHASES.get(self.phase.load(Ordering::Relaxed)).copied().unwrap_or(Phase::Open);
        (phase, self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    pub(crate) fn enter(&self, phase: Phase, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.phase.store(phase as usize, Ordering::Relaxed);
    }

    pub(crate) fn reached(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }
}
