//! Large pages for the file that is appended to: while they pay.
//!
//! One of 2 MiB comes in a sixth of the time that small ones for its bytes take, but in one piece, which nothing else that
//! waits for the processor interrupts. Where a machine under this one has to find the memory first that is milliseconds.
//!
//! Threads: the one that makes pages ready.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::store::log::Segment;

/// Bytes from look to look from which on a mapping gets large pages, and below which it gets small ones again: a flush of one
/// byte writes all of its page.
const LARGE_PACE: u64 = 1 << 20;
const SMALL_PACE: u64 = 512 << 10;
/// Processor time for a MiB from which on large pages are dear: ten times what one takes out of memory that is there.
const DEAR: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(super) struct LargePages {
    /// The file that gets them.
    of: Option<Arc<Segment>>,
    /// Begin of the last file in which they were dear.
    dear: Option<u64>,
}

impl LargePages {
    /// Large pages for `active`, while `pace` bytes are appended from look to look.
    pub(super) fn choose(&mut self, active: Option<Arc<Segment>>, pace: u64) {
        let active = active.filter(|active| self.pay(active.base(), pace));
        let base = |segment: &Option<Arc<Segment>>| segment.as_ref().map(|segment| segment.base());
        if base(&active) == base(&self.of) {
            return;
        }
        if let Some(before) = self.of.take() {
            // Where that fails readers get 2 MiB at a time, and nothing ahead of that.
            let _ = before.use_large_pages(false);
        }
        // Where there are none small ones do.
        self.of = active.filter(|active| active.use_large_pages(true).is_ok());
    }

    /// Makes `bytes` ready by `prepare`, and sees whether large pages were dear; then the rest of the file gets small ones,
    /// and the next one begins anew: memory may be there by then.
    pub(super) fn timed<T>(&mut self, bytes: u64, prepare: impl FnOnce() -> T) -> T {
        let Some(base) = self.of.as_ref().map(|segment| segment.base()) else { return prepare() };
        let began = processor_time();
        let prepared = prepare();
        self.took(base, bytes, processor_time().saturating_sub(began));
        prepared
    }

    fn pay(&self, base: u64, pace: u64) -> bool {
        let least = if self.of.is_some() { SMALL_PACE } else { LARGE_PACE };
        pace >= least && self.dear != Some(base)
    }

    fn took(&mut self, base: u64, bytes: u64, time: Duration) {
        if time > DEAR.saturating_mul(bytes.div_ceil(1 << 20).max(1) as u32) {
            self.dear = Some(base);
        }
    }
}

/// What this thread has had of a processor: that others had it meanwhile says nothing of pages.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_appended_to_much_gets_large_pages_unless_they_were_dear_in_that_file() {
        let mut pages = LargePages::default();
        assert_eq!([MIB, MIB - 1].map(|pace| pages.pay(0, pace)), [true, false]);
        // As dear as small ones out of memory that is there; and a look at which nothing was to be done.
        for (bytes, millis) in [(3 * MIB, 3), (0, 1)] {
            pages.took(0, bytes, Duration::from_millis(millis));
            assert!(pages.pay(0, MIB));
        }
        pages.took(0, MIB / 2, Duration::from_micros(1001));
        assert_eq!([0, 16 * MIB].map(|base| pages.pay(base, MIB)), [false, true]);
    }

    #[test]
    fn processor_time_passes_only_for_who_has_the_processor() {
        let began = processor_time();
        // What is tested, and no wait for anything.
        std::thread::sleep(Duration::from_millis(20));
        let slept = processor_time() - began;
        assert!(slept < Duration::from_millis(20), "{slept:?}");
        while processor_time() - began <= slept {
            std::hint::spin_loop();
        }
    }
}
