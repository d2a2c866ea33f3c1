//! Waits from Python: in slices that look for signals, never holding the interpreter.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Longest sleep between two looks for Ctrl-C.
const SLICE: Duration = Duration::from_millis(100);

/// Calls `sleep` with slices of `timeout` (`None`: for ever) until it says that what was waited for is there.
/// False when time is up. Raises what a signal handler raises.
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

/// Longest time there is: a century, which every clock can add.
const FOREVER_S: f64 = 100.0 * 365.0 * 86_400.0;

/// Seconds as Python counts them; what is negative or no number is no time.
pub(super) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(if seconds > FOREVER_S { FOREVER_S } else { seconds }).unwrap_or_default()
}
