//! Open-loop schedule: the fixed times at which requests are due.
//!
//! Times are nanoseconds since the load began.

/// Due times of one thread's requests.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    interval_ns: f64,
    /// Offset of this thread, so that threads do not send simultaneously.
    phase_ns: f64,
    next: u64,
}

impl Schedule {
    /// Schedules the `index`th of `threads` threads, which share `rate` requests per second.
    pub(super) fn new(rate: f64, threads: usize, index: usize) -> Self {
        let interval_ns = 1e9 * threads as f64 / rate;
        Self { interval_ns, phase_ns: interval_ns * index as f64 / threads as f64, next: 0 }
    }

    pub(super) fn due_ns(&self) -> u64 {
        // Multiplication avoids the drift of added intervals.
        (self.phase_ns + self.interval_ns * self.next as f64) as u64
    }

    /// Moves on after the next request was sent or given up.
    pub(super) fn advance(&mut self) {
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_rate_evenly_and_do_not_drift() {
        let mut due: Vec<u64> = (0..2)
            .flat_map(|index| {
                let mut schedule = Schedule::new(3.0, 2, index);
                (0..3).map(move |_| (schedule.due_ns(), schedule.advance()).0)
            })
            .collect();
        due.sort_unstable();
        assert_eq!(due, [0, 333_333_333, 666_666_666, 1_000_000_000, 1_333_333_333, 1_666_666_666]);
    }
}
