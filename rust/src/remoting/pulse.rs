//! The signs of life of one connection, and the judgement of the sweep over them.
//!
//! A connection notes what happens to it in plain cells; once in a while (a *tick*) the sweep of its thread looks at
//! all of them. So there is no timer per connection, and none is moved with every read.
//!
//! Invariant: time is counted in sweeps, so a process that was suspended closes nobody when it goes on.
//! Threads: the I/O thread of the connection.

use std::cell::Cell;
use std::time::Duration;

use super::limits::{OPEN_FRAME_BYTES_MIN, ServerOptions};
use super::service::Close;

/// What the sweep tells a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Give back memory you did not use since the last time.
    Shrink,
    /// End.
    Close(Close),
}

/// Timeouts in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    idle: u32,
    first_frame: u32,
    open_frame: u32,
}

impl Patience {
    pub fn new(options: &ServerOptions) -> Self {
        let interval = options.sweep_interval();
        // One more than fits: the tick in which something happened was not a whole one.
        let ticks = |of: Duration| {
            u32::try_from(of.as_millis() / interval.as_millis().max(1)).unwrap_or(u32::MAX - 1) + 1
        };
        Self {
            idle: ticks(options.idle),
            first_frame: ticks(options.first_frame),
            open_frame: ticks(options.open_frame),
        }
    }
}

/// What the sweep must know of one connection.
#[derive(Debug)]
pub(super) struct Pulse {
    opened: u32,
    /// Tick of the last byte in or out.
    moved: Cell<u32>,
    received_bytes: Cell<u64>,
    /// At least one frame came.
    has_spoken: Cell<bool>,
    /// Nothing can go on here until the peer sends the rest of a frame.
    is_open: Cell<bool>,
    /// It holds more memory than an idle connection needs.
    is_swollen: Cell<bool>,
    /// Since when the present frame is watched, and how much had come by then.
    watch: Cell<Option<(u32, u64)>>,
    verdict: Cell<Option<Verdict>>,
}

impl Pulse {
    pub fn new(tick: u32) -> Self {
        Self {
            opened: tick,
            moved: Cell::new(tick),
            received_bytes: Cell::new(0),
            has_spoken: Cell::new(false),
            is_open: Cell::new(false),
            is_swollen: Cell::new(false),
            watch: Cell::new(None),
            verdict: Cell::new(None),
        }
    }

    /// Bytes came.
    pub fn received(&self, count: usize, tick: u32) {
        self.moved.set(tick);
        self.received_bytes.set(self.received_bytes.get() + count as u64);
    }

    /// Bytes left.
    pub fn sent(&self, tick: u32) {
        self.moved.set(tick);
    }

    /// Whole frames came.
    pub fn spoke(&self) {
        self.has_spoken.set(true);
        self.watch.set(None);
    }

    /// The connection goes to sleep like this.
    pub fn rest(&self, is_open: bool, is_swollen: bool) {
        self.is_open.set(is_open);
        self.is_swollen.set(is_swollen);
    }

    /// Whether nothing moved since the sweep before.
    pub fn is_calm(&self, tick: u32) -> bool {
        self.moved.get() < tick.saturating_sub(1)
    }

    /// What the sweep decided, once.
    pub fn verdict(&self) -> Option<Verdict> {
        self.verdict.take()
    }

    /// Hands down a verdict; the caller wakes the connection.
    pub fn sentence(&self, verdict: Verdict) {
        self.verdict.set(Some(verdict));
    }

    /// What is to be done about this connection at `tick`.
    pub fn judge(&self, tick: u32, patience: &Patience) -> Option<Verdict> {
        let since = |then: u32| tick.saturating_sub(then);
        if since(self.moved.get()) > patience.idle {
            return Some(Verdict::Close(Close::Idle));
        }
        if !self.has_spoken.get() && since(self.opened) > patience.first_frame {
            return Some(Verdict::Close(Close::Slow));
        }
        if self.is_too_slow(tick, patience) {
            return Some(Verdict::Close(Close::Slow));
        }
        self.is_swollen.get().then_some(Verdict::Shrink)
    }

    fn is_too_slow(&self, tick: u32, patience: &Patience) -> bool {
        let received = self.received_bytes.get();
        match self.watch.get() {
            _ if !self.is_open.get() => self.watch.set(None),
            None => self.watch.set(Some((tick, received))),
            Some((since, before)) if tick.saturating_sub(since) > patience.open_frame => {
                if received - before < OPEN_FRAME_BYTES_MIN {
                    return true;
                }
                self.watch.set(Some((tick, received)));
            }
            Some(_) => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { idle: 12, first_frame: 3, open_frame: 2 };

    fn first_verdict(pulse: &Pulse, mut each_tick: impl FnMut(&Pulse, u32)) -> Option<(u32, Verdict)> {
        (1..100).find_map(|tick| {
            each_tick(pulse, tick);
            pulse.judge(tick, &PATIENCE).map(|verdict| (tick, verdict))
        })
    }

    #[test]
    fn a_connection_that_never_sends_a_frame_is_slow() {
        let pulse = Pulse::new(0);
        // Bytes are not frames.
        let verdict = first_verdict(&pulse, |pulse, tick| pulse.received(2000, tick));
        assert_eq!(verdict, Some((4, Verdict::Close(Close::Slow))));
    }

    #[test]
    fn a_connection_that_was_used_once_may_be_idle_for_its_time() {
        let pulse = Pulse::new(0);
        pulse.spoke();
        assert_eq!(first_verdict(&pulse, |_, _| {}), Some((13, Verdict::Close(Close::Idle))));
    }

    #[test]
    fn writing_keeps_a_connection_alive() {
        let pulse = Pulse::new(0);
        pulse.spoke();
        assert_eq!(first_verdict(&pulse, |pulse, tick| pulse.sent(tick)), None);
    }

    #[test]
    fn a_frame_that_trickles_in_is_slow_and_one_that_comes_at_the_least_rate_is_not() {
        for (bytes_per_tick, expected) in [(100, Some((4, Verdict::Close(Close::Slow)))), (400, None)] {
            let pulse = Pulse::new(0);
            pulse.spoke();
            pulse.rest(true, false);
            assert_eq!(first_verdict(&pulse, |pulse, tick| pulse.received(bytes_per_tick, tick)), expected);
        }
    }

    #[test]
    fn small_frames_that_come_one_after_another_are_not_one_open_frame() {
        let pulse = Pulse::new(0);
        let verdict = first_verdict(&pulse, |pulse, tick| {
            pulse.received(30, tick);
            pulse.spoke();
            pulse.rest(true, false);
        });
        assert_eq!(verdict, None);
    }

    #[test]
    fn a_swollen_connection_is_told_to_shrink() {
        let pulse = Pulse::new(0);
        pulse.spoke();
        pulse.rest(false, true);
        assert_eq!(first_verdict(&pulse, |_, _| {}), Some((1, Verdict::Shrink)));
    }
}
