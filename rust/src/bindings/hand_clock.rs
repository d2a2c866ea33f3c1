//! `HandClock`: a manual clock for brokers in tests.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::waiting;
use crate::clock::{Clock, HandClock, SharedClock, SystemClock};
use crate::dataplane::service::data_plane::DataPlane;

/// A clock for brokers in tests that moves only when `advance` is called.
///
/// It starts at the machine's time, or at `wall_ms`. Timeouts and intervals of connections still use the machine's
/// clock.
#[pyclass(name = "HandClock", module = "rmqpy._native", frozen)]
pub struct PyHandClock {
    clock: Arc<HandClock>,
    followers: Mutex<Vec<Weak<DataPlane>>>,
}

#[pymethods]
impl PyHandClock {
    #[new]
    #[pyo3(signature = (wall_ms=None))]
    fn new(wall_ms: Option<u64>) -> Self {
        Self { clock: HandClock::at(wall_ms), followers: Mutex::default() }
    }

    /// Milliseconds since the epoch.
    fn wall_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    /// Seconds since the clock was made, measured by the machine's clock.
    fn elapsed(&self) -> f64 {
        self.clock.elapsed().as_secs_f64()
    }

    /// Advance the time, and wait until every delayed and timed message that became due can be consumed.
    ///
    /// Raises `ValueError` for a negative or unrepresentable time.
    fn advance(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let by = Duration::try_from_secs_f64(seconds).ok().filter(|by| by.as_millis() < 1 << 60);
        let by = by.ok_or_else(|| {
            PyValueError::new_err(format!("seconds must be finite and not negative, not {seconds}"))
        })?;
        self.clock.advance(by);
        let mut followers = self.followers.lock().clone();
        followers.retain(|follower| follower.strong_count() > 0);
        for follower in followers {
            waiting::wait(py, None, |limit| follower.upgrade().is_none_or(|one| one.catch_up(limit)))?;
        }
        Ok(())
    }
}

impl PyHandClock {
    /// Makes `advance` wait for this broker, too.
    pub(super) fn follow(&self, data_plane: &Arc<DataPlane>) {
        let mut followers = self.followers.lock();
        followers.retain(|follower| follower.strong_count() > 0);
        followers.push(Arc::downgrade(data_plane));
    }
}

/// Returns the given clock, or the machine's.
pub(super) fn given(clock: Option<&PyHandClock>) -> SharedClock {
    clock.map_or_else(SystemClock::shared, |given| Arc::clone(&given.clock) as SharedClock)
}
