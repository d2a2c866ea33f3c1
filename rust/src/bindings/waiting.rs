//! Waiting: waits for Python callers in slices that check for signals, with the interpreter released.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Longest sleep between two checks for Ctrl-C.
const SLICE: Duration = Duration::from_millis(100);

/// Calls `sleep` with slices of `timeout` (`None`: forever) until it returns true. Returns false on timeout. Raises
/// what a signal handler raises.
pub(super) fn wait(
    py: Python<'_>,
    timeout: Option<f64>,
    mut sleep: impl FnMut(Duration) -> bool + Send,
) -> PyResult<bool> {
    let deadline = timeout.and_then(|seconds| Instant::now().checked_add(duration(seconds)));
    loop {
        let left = deadline.map_or(SLICE, |deadline| deadline.saturating_duration_since(Instant::now()));
        if py.detach(|| sleep(left.min(SLICE))) {
            return Ok(true);
        }
        py.check_signals()?;
        if left <= SLICE && deadline.is_some() {
            return Ok(false);
        }
    }
}

/// The longest timeout: a century, which every clock can add.
const FOREVER_S: f64 = 100.0 * 365.0 * 86_400.0;

/// Converts Python seconds to a duration; negative numbers and NaN become zero.
pub(super) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(if seconds > FOREVER_S { FOREVER_S } else { seconds }).unwrap_or_default()
}
