//! Memory: the share of each part that is in use, by the rate of appends.
//!
//! At a low rate the writer continues in the next part before the current one is full, so that it uses the same few pages
//! again. Maintenance prefaults more pages when the rate grows, and releases them after it has fallen. A page that is not
//! resident costs the append a page fault, and nothing else.
//!
//! Threads: `share` any; the others maintenance.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// The share at rest, at most a quarter of a part.
const REST_BYTES: usize = 2 << 20;
/// A share has room for the appends of this number of rounds of maintenance at the highest rate.
const ROUNDS: u64 = 2;
/// Shares are multiples of this.
const STEP_BYTES: usize = 1 << 20;

pub(super) struct Memory {
    /// Bytes of a part, after which the writer continues in the next free one.
    share: AtomicUsize,
    rest: usize,
    part_bytes: usize,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// The end of the log in the last round.
    seen: Option<u64>,
    /// The largest number of bytes appended in a round since the last release.
    peak: u64,
}

impl Memory {
    /// Returns the memory of parts with room for `part_bytes` bytes of the log.
    pub(super) fn new(part_bytes: usize) -> Self {
        let rest = REST_BYTES.min(part_bytes / 4);
        Self { share: AtomicUsize::new(rest), rest, part_bytes, progress: Mutex::default() }
    }

    /// Returns the number of bytes after which the writer leaves a part if another is free.
    pub(super) fn share(&self) -> usize {
        self.share.load(Ordering::Relaxed)
    }

    /// Notes that the log reaches `end` in this round. Returns the bytes of each part to prefault, if the share must grow;
    /// `set` then takes it into use.
    pub(super) fn grown(&self, end: u64) -> Option<Range<usize>> {
        let mut progress = self.progress.lock();
        let appended = end.saturating_sub(progress.seen.replace(end).unwrap_or(end));
        progress.peak = progress.peak.max(appended);
        let (share, wanted) = (self.share(), self.wanted(progress.peak));
        (wanted > share).then_some(share..wanted)
    }

    /// Returns the bytes of each part to release, if the rounds since the last release did not need them.
    pub(super) fn shrunk(&self) -> Option<Range<usize>> {
        let peak = std::mem::take(&mut self.progress.lock().peak);
        let (share, wanted) = (self.share(), self.wanted(peak));
        (wanted < share).then_some(wanted..self.part_bytes)
    }

    pub(super) fn set(&self, share: usize) {
        self.share.store(share, Ordering::Relaxed);
    }

    fn wanted(&self, peak: u64) -> usize {
        let bytes = usize::try_from(peak.saturating_mul(ROUNDS)).unwrap_or(usize::MAX).min(self.part_bytes);
        bytes.next_multiple_of(STEP_BYTES).clamp(self.rest, self.part_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_share_follows_the_highest_rate_and_falls_back() {
        let memory = Memory::new(16 * MIB);
        assert_eq!(memory.share(), 2 * MIB);
        assert_eq!(memory.grown(5 << 30), None, "the log before the first round counts as old");
        assert_eq!(memory.grown((5 << 30) + (1 << 20)), None);
        assert_eq!(memory.grown((5 << 30) + (5 << 20)), Some(2 * MIB..8 * MIB));
        memory.set(8 * MIB);
        assert_eq!(memory.grown((5 << 30) + (6 << 20)), None);
        assert_eq!(memory.shrunk(), None, "it was needed since");
        assert_eq!(memory.shrunk(), Some(2 * MIB..16 * MIB));
        memory.set(2 * MIB);
        assert_eq!(memory.shrunk(), None);
        assert_eq!(memory.grown(6 << 30), Some(2 * MIB..16 * MIB));
    }

    #[test]
    fn a_small_part_is_used_in_quarters_at_rest() {
        let memory = Memory::new(64 << 10);
        assert_eq!(memory.share(), 16 << 10);
        memory.grown(0);
        assert_eq!(memory.grown(1 << 10), Some(16 << 10..64 << 10), "in steps of a MiB, up to the part");
    }
}
