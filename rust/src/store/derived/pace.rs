//! Pace of what comes while nothing can be written, for which memory is made early.
//!
//! Threads: any.

use std::time::Duration;

/// Time that a pace is measured over, at least.
const PACE_INTERVAL_MIN: Duration = Duration::from_millis(50);

/// How many come in `pause`, the longest time without a write, where `count` came in the time `since`.
pub(super) fn until_written(count: usize, since: Duration, pause: Duration) -> usize {
    let times = pause.div_duration_f32(since.max(PACE_INTERVAL_MIN)).max(1.0);
    (count as f32 * times) as usize
}
