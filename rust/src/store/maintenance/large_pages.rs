//! Large pages: their use for the active file while they are faster.
//!
//! A page of 2 MiB is loaded in a sixth of the time of small ones, but in one uninterruptible step, during which
//! nothing else runs on that processor. On a virtual machine whose host has to find the memory first, a step takes
//! milliseconds.
//!
//! Threads: the one thread that prepares pages.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::store::log::Segment;

/// Bytes per check from which a mapping gets large pages, and below which it gets small ones again: a flush of one
/// byte writes all of its page.
const LARGE_PACE: u64 = 1 << 20;
const SMALL_PACE: u64 = 512 << 10;
/// Processor time per MiB from which large pages are slow: ten times the usual.
const SLOW: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(super) struct LargePages {
    /// The file with large pages.
    of: Option<Arc<Segment>>,
    /// The beginning of the last file in which they were slow.
    slow: Option<u64>,
}

impl LargePages {
    /// Enables large pages for `active`, while `pace` bytes are appended per check.
    pub(super) fn choose(&mut self, active: Option<Arc<Segment>>, pace: u64) {
        let active = active.filter(|active| self.pay(active.base(), pace));
        let base = |segment: &Option<Arc<Segment>>| segment.as_ref().map(|segment| segment.base());
        if base(&active) == base(&self.of) {
            return;
        }
        if let Some(before) = self.of.take() {
            // If that fails, readers load 2 MiB at a time without readahead.
            let _ = before.use_large_pages(false);
        }
        // Small pages are used if large ones are unavailable.
        self.of = active.filter(|active| active.use_large_pages(true).is_ok());
    }

    /// Prepares `bytes` with `prepare`, and measures whether large pages are slow. If so, the rest of the file gets
    /// small pages; the next file tries large ones again, because memory may be free by then.
    pub(super) fn timed<T>(&mut self, bytes: u64, prepare: impl FnOnce() -> T) -> T {
        let Some(base) = self.of.as_ref().map(|segment| segment.base()) else { return prepare() };
        let began = processor_time();
        let prepared = prepare();
        self.took(base, bytes, processor_time().saturating_sub(began));
        prepared
    }

    fn pay(&self, base: u64, pace: u64) -> bool {
        let least = if self.of.is_some() { SMALL_PACE } else { LARGE_PACE };
        pace >= least && self.slow != Some(base)
    }

    fn took(&mut self, base: u64, bytes: u64, time: Duration) {
        if time > SLOW.saturating_mul(bytes.div_ceil(1 << 20).max(1) as u32) {
            self.slow = Some(base);
        }
    }
}

/// Returns the processor time of this thread, which excludes the time that others had the processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_busy_file_gets_large_pages_unless_they_were_slow_in_it() {
        let mut pages = LargePages::default();
        assert_eq!([MIB, MIB - 1].map(|pace| pages.pay(0, pace)), [true, false]);
        // As fast as small pages from free memory; and a check with nothing to do.
        for (bytes, millis) in [(3 * MIB, 3), (0, 1)] {
            pages.took(0, bytes, Duration::from_millis(millis));
            assert!(pages.pay(0, MIB));
        }
        pages.took(0, MIB / 2, Duration::from_micros(1001));
        assert_eq!([0, 16 * MIB].map(|base| pages.pay(base, MIB)), [false, true]);
    }

    #[test]
    fn processor_time_counts_only_while_the_thread_runs() {
        let began = processor_time();
        // The test is about the sleep itself.
        std::thread::sleep(Duration::from_millis(20));
        let slept = processor_time() - began;
        assert!(slept < Duration::from_millis(20), "{slept:?}");
        while processor_time() - began <= slept {
            std::hint::spin_loop();
        }
    }
}
