//! Copied: the position of the log up to which the messages of compacted topics are durable in their copies.
//!
//! Files of the log before it may expire.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// No message has to be copied.
const EVERYTHING: u64 = u64::MAX;

pub(crate) struct Copied {
    until: AtomicU64,
    /// Whether nothing is copied at present, because copying fails or the topics are not known yet.
    is_stuck: AtomicBool,
}

impl Copied {
    /// Starts with a folder that may have copies, whose topics are unknown, or with none.
    pub(crate) fn new(has_copies: bool) -> Self {
        let until = if has_copies { 0 } else { EVERYTHING };
        Self { until: AtomicU64::new(until), is_stuck: AtomicBool::new(true) }
    }

    /// Records that there is a compacted topic.
    pub(crate) fn begin(&self) {
        let _ = self.until.compare_exchange(EVERYTHING, 0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Records the outcome of copying everything before `until`.
    pub(crate) fn note(&self, until: Option<u64>) {
        self.is_stuck.store(until.is_none(), Ordering::Release);
        if let Some(until) = until {
            self.until.fetch_max(until, Ordering::AcqRel);
        }
    }

    /// Returns whether a file of the log that ends at `end` is still needed. A full disk does not wait for copies that
    /// make no progress.
    pub(crate) fn holds(&self, end: u64, is_forced: bool) -> bool {
        self.until.load(Ordering::Acquire) < end && !(is_forced && self.is_stuck.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_needed_until_its_messages_are_copied() {
        let copied = Copied::new(false);
        assert!(!copied.holds(100, false), "no topic is compacted");
        copied.begin();
        assert!(copied.holds(100, false));
        assert!(!copied.holds(100, true), "nothing is copied, and the disk is full");
        copied.note(Some(99));
        assert!(copied.holds(100, true) && copied.holds(100, false));
        copied.note(None);
        assert!(!copied.holds(100, true) && copied.holds(100, false));
        copied.note(Some(100));
        copied.begin();
        assert!(!copied.holds(100, false));
        assert!(Copied::new(true).holds(1, false), "the topics are not known yet");
    }
}
