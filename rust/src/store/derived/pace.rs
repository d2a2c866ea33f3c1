//! Pace: the arrival rate for which memory is preallocated.
//!
//! Threads: any.

use std::time::Duration;

/// Shortest time over which a pace is measured.
const PACE_INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Returns the number expected in `pause`, the longest time without a write, when `count` arrived in the time `since`.
pub(super) fn until_written(count: usize, since: Duration, pause: Duration) -> usize {
    let times = pause.div_duration_f32(since.max(PACE_INTERVAL_MIN)).max(1.0);
    (count as f32 * times) as usize
}
