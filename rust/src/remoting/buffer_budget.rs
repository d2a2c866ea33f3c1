//! Buffer budget: the memory that the buffers of all connections have together, filled or not.
//!
//! Each connection counts what its own buffers have. While the budget is spent, none keeps a buffer that it does not
//! need, and a frame that outgrows a small one needs a reservation like a large frame's.
//!
//! Invariant: what a connection counts is taken back when it ends.
//! Threads: any; a connection that counts what it counted before touches nothing that is shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The budget of all connections; clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct BufferBudget {
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl BufferBudget {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes: Arc::default(), bytes_max }
    }

    /// Whether buffers have more than they should. A hint: each connection counts at the end of its turn.
    pub(super) fn is_spent(&self) -> bool {
        self.bytes() > self.bytes_max
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The share of a new connection, nothing at first.
    pub(super) fn share(&self) -> BufferShare {
        BufferShare { budget: self.clone(), bytes: 0 }
    }
}

/// What one connection counts.
#[derive(Debug)]
pub(super) struct BufferShare {
    budget: BufferBudget,
    bytes: usize,
}

impl BufferShare {
    /// Counts `bytes` instead of what was counted before.
    pub(super) fn set(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.budget.bytes.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else if bytes < self.bytes {
            self.budget.bytes.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_spent(&self) -> bool {
        self.budget.is_spent()
    }
}

impl Drop for BufferShare {
    fn drop(&mut self) {
        self.set(0);
    }
}
