//! CPU usage: the CPU time of this process, of watched processes, and of the machine, on Linux.

use std::time::{Duration, Instant};

/// Interval at which the watch thread checks whether all workers are done.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// CPU seconds used up to one moment.
#[derive(Clone, Debug)]
pub(super) struct Usage {
    pub(super) at: Instant,
    pub(super) own: f64,
    /// Each watched process; `None` if unknown.
    pub(super) watched: Vec<Option<f64>>,
    /// All CPUs together, busy.
    pub(super) machine: Option<f64>,
}

impl Usage {
    pub(super) fn now(pids: &[u32]) -> Self {
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        let process = |name: &str| {
            let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
            Some(process_ticks(&stat)? as f64 / ticks_per_second)
        };
        let machine = std::fs::read_to_string("/proc/stat").ok();
        Self {
            at: Instant::now(),
            own: process("self").unwrap_or_default(),
            watched: pids.iter().map(|pid| process(&pid.to_string())).collect(),
            machine: machine.and_then(|stat| Some(busy_ticks(&stat)? as f64 / ticks_per_second)),
        }
    }
}

/// Reads user and system time from `/proc/PID/stat`. The name in parentheses may contain anything.
fn process_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut field = || fields.next()?.parse::<u64>().ok();
    Some(field()? + field()?)
}

/// Reads the time of all CPUs neither idle nor waiting for I/O from `/proc/stat`.
fn busy_ticks(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    // user nice system idle iowait irq softirq steal; guests are part of user.
    let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
    (ticks.len() == 8).then(|| ticks.iter().sum::<u64>() - ticks[3] - ticks[4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0";
        assert_eq!(process_ticks(stat), Some(42));
        assert_eq!(process_ticks("7 (a"), None);
    }

    #[test]
    fn idle_and_waiting_processors_are_not_busy() {
        assert_eq!(busy_ticks("cpu  1 2 3 1000 500 4 5 6 7 8\ncpu0 1"), Some(21));
        assert_eq!(busy_ticks("nothing"), None);
    }
}
