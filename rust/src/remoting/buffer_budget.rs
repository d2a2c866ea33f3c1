//! Buffer budget: bounds the memory of all connection buffers together, filled or not.
//!
//! Each connection counts its own buffers. While the budget is spent, a connection keeps only the buffers it needs,
//! and a frame that outgrows a small buffer needs a reservation, like a large frame.
//!
//! Invariant: a connection's count returns to the budget when the connection ends.
//! Threads: any; a connection whose count is unchanged does not touch shared data.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The budget of all connections. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct BufferBudget {
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl BufferBudget {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes: Arc::default(), bytes_max }
    }

    /// Returns whether the buffers exceed the budget. A hint: each connection updates its count at the end of its
    /// turn.
    pub(super) fn is_spent(&self) -> bool {
        self.bytes() > self.bytes_max
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the share of a new connection, initially zero.
    pub(super) fn share(&self) -> BufferShare {
        BufferShare { budget: self.clone(), bytes: 0 }
    }
}

/// The bytes that one connection counts.
#[derive(Debug)]
pub(super) struct BufferShare {
    budget: BufferBudget,
    bytes: usize,
}

impl BufferShare {
    /// Replaces the connection's count with `bytes`.
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
