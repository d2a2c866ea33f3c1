//! Options: the few values the store needs, checked by themselves.

use std::path::PathBuf;

use crate::store::derived::queue::unit::UNIT_BYTES;
use crate::store::durability::Durability;
use crate::store::error::StoreError;
use crate::store::retention::Retention;

/// Delay levels at most; Apache's list has 18, and each is a queue.
const DELAY_LEVELS_MAX: usize = 128;

/// Settings of a store; sizes in bytes. [`Options::new`] gives Apache's defaults.
#[derive(Clone, Debug)]
pub struct Options {
    /// Root directory of the store.
    pub root: PathBuf,
    /// Size of a CommitLog file. Files that are there decide; this is for the first one. 64 KiB to 1 GiB.
    pub segment_bytes: u64,
    /// Size of a ConsumeQueue file, a multiple of 20. Files that are there decide.
    pub queue_file_bytes: u64,
    /// Hash slots of an index file.
    pub index_slots: u32,
    /// Entries of an index file, the unused first one included.
    pub index_entries: u32,
    /// Whether keys are indexed.
    pub index_enabled: bool,
    /// What an answered message survives.
    pub durability: Durability,
    /// Longest time that an appended byte waits for its flush, in milliseconds.
    pub flush_interval_ms: u64,
    /// Pause between checkpoints, in milliseconds: what a crash makes recovery read again.
    pub checkpoint_interval_ms: u64,
    /// How long messages are kept, and what a full disk means.
    pub retention: Retention,
    /// How much of the machine's memory may hold the end of the log, in percent.
    pub in_memory_percent: u64,
    /// Delivery times of the delay levels 1, 2, …, in milliseconds: they are part of the queue entries of
    /// `SCHEDULE_TOPIC_XXXX`.
    pub delay_levels_ms: Vec<u64>,
    /// Whether the store runs its threads. Tests that decide about every step turn them off and call
    /// [`Store::flush`](super::Store::flush) and [`Store::keep`](super::Store::keep) themselves.
    pub threads: bool,
}

impl Options {
    /// Apache's defaults for a store in `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        const SECOND: u64 = 1000;
        const MINUTE: u64 = 60 * SECOND;
        const HOUR: u64 = 60 * MINUTE;
        Self {
            root: root.into(),
            segment_bytes: 1 << 30,
            queue_file_bytes: 6_000_000,
            index_slots: 5_000_000,
            index_entries: 20_000_000,
            index_enabled: true,
            durability: Durability::default(),
            flush_interval_ms: 50,
            checkpoint_interval_ms: 5000,
            retention: Retention::default(),
            in_memory_percent: 40,
            delay_levels_ms: [SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND]
                .into_iter()
                .chain((1..=10).map(|minutes| minutes * MINUTE))
                .chain([20 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR])
                .collect(),
            threads: true,
        }
    }

    /// Checks every value against its bounds.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let wrong = |option, reason: &str| Err(StoreError::Option { option, reason: reason.to_owned() });
        if !(1 << 16..=1 << 30).contains(&self.segment_bytes) || !self.segment_bytes.is_multiple_of(4096) {
            return wrong("segment_bytes", "must be a multiple of 4096 between 64 KiB and 1 GiB");
        }
        if self.queue_file_bytes == 0
            || self.queue_file_bytes > 1 << 30
            || !self.queue_file_bytes.is_multiple_of(UNIT_BYTES as u64)
        {
            return wrong("queue_file_bytes", "must be a multiple of 20 between 20 and 1 GiB");
        }
        if self.index_slots == 0 || self.index_slots > 1 << 26 {
            return wrong("index_slots", "must be between 1 and 2^26");
        }
        if !(2..=1 << 26).contains(&self.index_entries) {
            return wrong("index_entries", "must be between 2 and 2^26");
        }
        if self.in_memory_percent > 100 {
            return wrong("in_memory_percent", "must be at most 100");
        }
        if self.delay_levels_ms.is_empty() || self.delay_levels_ms.len() > DELAY_LEVELS_MAX {
            return wrong("delay_levels_ms", "there must be between 1 and 128 delay levels");
        }
        if self.flush_interval_ms == 0 || self.checkpoint_interval_ms == 0 {
            return wrong("flush_interval_ms", "intervals must be at least 1 ms");
        }
        Ok(())
    }
}
