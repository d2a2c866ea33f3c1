//! Positions: distinct types for offsets in the log and in a queue, and the key of a queue.
//!
//! A physical offset and a queue offset cannot be added, and no function here converts one to the other.

use std::fmt;

/// Byte position in the address space of the CommitLog, counted over all its segments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct PhysicalOffset(pub u64);

/// Ordinal of a message in one queue of one topic, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct QueueOffset(pub u64);

impl PhysicalOffset {
    /// Returns the bytes from `earlier` to here; 0 if `earlier` is not earlier.
    #[must_use]
    pub const fn bytes_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl QueueOffset {
    /// Returns the offset `count` messages later.
    pub(crate) const fn advanced(self, count: u64) -> Self {
        Self(self.0 + count)
    }
}

impl fmt::Display for PhysicalOffset {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Display for QueueOffset {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// Topic and queue id: the key of one queue on one broker.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueueKey {
    /// Topic name, validated on input (`[%|a-zA-Z0-9_-]`, at most 255 bytes).
    pub(crate) topic: std::sync::Arc<str>,
    /// Queue id, from 0.
    pub queue_id: u32,
}

impl QueueKey {
    /// The queue `queue_id` of `topic`.
    #[cfg(test)]
    pub(crate) fn new(topic: &str, queue_id: u32) -> Self {
        Self { topic: topic.into(), queue_id }
    }
}

impl fmt::Display for QueueKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.topic, self.queue_id)
    }
}
