//! Idle tracker: records the activity of one connection, from which the sweep decides what to close or shrink.
//!
//! A connection records events in plain cells; at every *tick* the sweep of its thread checks all of them. So no
//! connection has its own timer, and no timer is reset at each read.
//!
//! Invariant: time is counted in sweeps, so a process that was suspended does not close connections when it resumes.
//! Threads: the I/O thread of the connection.

use std::cell::Cell;
use std::time::Duration;

use super::inbox::Needs;
use super::limits::{OPEN_FRAME_BYTES_MIN, ServerOptions};
use super::service::Close;

/// An action the sweep requests of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdleAction {
    /// Release memory unused since the last request.
    Shrink,
    /// Refuse the frame that waited too long for memory.
    Refuse,
    Close(Close),
}

/// The memory that a connection does not need while idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Surplus {
    Nothing,
    /// Kept while there is traffic.
    Little,
    /// Checked for use in every sweep.
    Much,
}

/// Timeouts in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    idle: u32,
    first_frame: u32,
    open_frame: u32,
    large_frame_delay: u32,
    large_frame_bytes: u64,
    large_frame_wait: u32,
}

impl Timeouts {
    pub(super) fn new(options: &ServerOptions) -> Self {
        let interval = options.sweep_interval();
        // One more than fits: the tick in which the event happened was partial.
        let ticks = |of: Duration| {
            u32::try_from(of.as_millis() / interval.as_millis().max(1)).unwrap_or(u32::MAX - 1) + 1
        };
        let large_frame_bytes = options.large_frame_bytes_per_second * interval.as_millis() as u64 / 1000;
        Self {
            idle: ticks(options.idle),
            first_frame: ticks(options.first_frame),
            open_frame: ticks(options.open_frame),
            large_frame_delay: ticks(options.large_frame_delay),
            large_frame_bytes,
            // The peer was promised the end, so it must not be late; the start is noticed a tick late.
            large_frame_wait: ticks(options.large_frame_wait) - 2,
        }
    }
}

/// The sweep's view of one connection.
#[derive(Debug)]
pub(super) struct IdleTracker {
    opened: u32,
    /// The tick of the last byte read or written.
    moved: Cell<u32>,
    received_bytes: Cell<u64>,
    /// Whether a frame has arrived.
    has_received_frame: Cell<bool>,
    /// What the open frame waits for.
    needs: Cell<Needs>,
    surplus: Cell<Surplus>,
    /// The tick at which the current need began, and the bytes received by then.
    measured_since: Cell<Option<(u32, u64)>>,
    action: Cell<Option<IdleAction>>,
}

impl IdleTracker {
    pub(super) fn new(tick: u32) -> Self {
        Self {
            opened: tick,
            moved: Cell::new(tick),
            received_bytes: Cell::new(0),
            has_received_frame: Cell::new(false),
            needs: Cell::new(Needs::Nothing),
            surplus: Cell::new(Surplus::Nothing),
            measured_since: Cell::new(None),
            action: Cell::new(None),
        }
    }

    pub(super) fn received(&self, count: usize, tick: u32) {
        self.moved.set(tick);
        self.received_bytes.set(self.received_bytes.get() + count as u64);
    }

    pub(super) fn sent(&self, tick: u32) {
        self.moved.set(tick);
    }

    pub(super) fn frames_received(&self) {
        self.has_received_frame.set(true);
        self.measured_since.set(None);
    }

    /// Records the state in which the connection ends a turn.
    pub(super) fn rests(&self, needs: Needs, surplus: Surplus) {
        if self.needs.replace(needs) != needs {
            self.measured_since.set(None);
        }
        self.surplus.set(surplus);
    }

    /// Returns whether no byte moved since the previous sweep.
    pub(super) fn is_calm(&self, tick: u32) -> bool {
        self.moved.get() < tick.saturating_sub(1)
    }

    /// Takes the sweep's decision.
    pub(super) fn take_action(&self) -> Option<IdleAction> {
        self.action.take()
    }

    /// Sets an action; the caller wakes the connection.
    pub(super) fn set_action(&self, action: IdleAction) {
        self.action.set(Some(action));
    }

    /// Decides what to do with this connection at `tick`.
    pub(super) fn check(&self, tick: u32, timeouts: &Timeouts) -> Option<IdleAction> {
        let since = |then: u32| tick.saturating_sub(then);
        if since(self.moved.get()) > timeouts.idle {
            return Some(IdleAction::Close(Close::Idle));
        }
        if !self.has_received_frame.get() && since(self.opened) > timeouts.first_frame {
            return Some(IdleAction::Close(Close::Slow));
        }
        let shrinks = match self.surplus.get() {
            Surplus::Nothing => false,
            Surplus::Little => self.is_calm(tick),
            Surplus::Much => true,
        };
        self.check_frame(tick, timeouts).or_else(|| shrinks.then_some(IdleAction::Shrink))
    }

    /// Decides what to do with the open frame.
    fn check_frame(&self, tick: u32, timeouts: &Timeouts) -> Option<IdleAction> {
        let received = self.received_bytes.get();
        let Some((since, before)) = self.measured_since.get() else {
            self.measured_since.set(Some((tick, received)));
            return None;
        };
        let (lasts, came) = (tick.saturating_sub(since), received - before);
        let is_slow = match self.needs.get() {
            Needs::Nothing => false,
            Needs::Room => return (lasts >= timeouts.large_frame_wait).then_some(IdleAction::Refuse),
            Needs::LargeRest => {
                let late = lasts.saturating_sub(timeouts.large_frame_delay);
                came < u64::from(late) * timeouts.large_frame_bytes
            }
            Needs::Rest if lasts > timeouts.open_frame => {
                self.measured_since.set(Some((tick, received)));
                came < OPEN_FRAME_BYTES_MIN
            }
            Needs::Rest => false,
        };
        is_slow.then_some(IdleAction::Close(Close::Slow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        idle: 12,
        first_frame: 3,
        open_frame: 2,
        large_frame_delay: 5,
        large_frame_bytes: 1 << 20,
        large_frame_wait: 8,
    };

    fn first_action(
        tracker: &IdleTracker,
        mut each_tick: impl FnMut(&IdleTracker, u32),
    ) -> Option<(u32, IdleAction)> {
        (1..100).find_map(|tick| {
            each_tick(tracker, tick);
            tracker.check(tick, &TIMEOUTS).map(|action| (tick, action))
        })
    }

    #[test]
    fn a_connection_that_never_sends_a_frame_is_slow() {
        let tracker = IdleTracker::new(0);
        // Bytes without a complete frame.
        let action = first_action(&tracker, |tracker, tick| tracker.received(2000, tick));
        assert_eq!(action, Some((4, IdleAction::Close(Close::Slow))));
    }

    #[test]
    fn a_used_connection_may_idle_until_its_timeout() {
        let tracker = IdleTracker::new(0);
        tracker.frames_received();
        assert_eq!(first_action(&tracker, |_, _| {}), Some((13, IdleAction::Close(Close::Idle))));
    }

    #[test]
    fn writing_keeps_a_connection_alive() {
        let tracker = IdleTracker::new(0);
        tracker.frames_received();
        assert_eq!(first_action(&tracker, |tracker, tick| tracker.sent(tick)), None);
    }

    #[test]
    fn a_frame_below_the_minimum_rate_is_slow() {
        for (bytes_per_tick, expected) in [(100, Some((4, IdleAction::Close(Close::Slow)))), (400, None)] {
            let tracker = IdleTracker::new(0);
            tracker.frames_received();
            tracker.rests(Needs::Rest, Surplus::Nothing);
            assert_eq!(
                first_action(&tracker, |tracker, tick| tracker.received(bytes_per_tick, tick)),
                expected
            );
        }
    }

    #[test]
    fn consecutive_small_frames_are_not_one_open_frame() {
        let tracker = IdleTracker::new(0);
        let action = first_action(&tracker, |tracker, tick| {
            tracker.received(30, tick);
            tracker.frames_received();
            tracker.rests(Needs::Rest, Surplus::Nothing);
        });
        assert_eq!(action, None);
    }

    #[test]
    fn a_large_frame_must_keep_its_rate_after_the_first_seconds() {
        // Bytes received by each tick, and the tick at which the connection is closed, if any.
        type Bytes = fn(u32) -> usize;
        let closed = |tick| Some((tick, IdleAction::Close(Close::Slow)));
        let cases: [(Bytes, _); 4] = [
            (|_| 2_000, closed(7)),
            (|_| 900_000, closed(37)),
            (|_| 1 << 20, None),
            // It pauses for the maximum time, then continues.
            (|tick| if tick < 7 { 0 } else { 1 << 20 }, None),
        ];
        for (bytes, expected) in cases {
            let tracker = IdleTracker::new(0);
            tracker.frames_received();
            tracker.rests(Needs::LargeRest, Surplus::Nothing);
            let action = first_action(&tracker, |tracker, tick| tracker.received(bytes(tick), tick));
            assert_eq!(action, expected);
        }
    }

    #[test]
    fn the_clock_of_a_large_frame_starts_with_its_reservation() {
        let tracker = IdleTracker::new(0);
        tracker.frames_received();
        let action = first_action(&tracker, |tracker, tick| {
            tracker.rests(if tick < 6 { Needs::Room } else { Needs::LargeRest }, Surplus::Nothing);
            tracker.received(1, tick);
        });
        assert_eq!(action, Some((12, IdleAction::Close(Close::Slow))));
    }

    #[test]
    fn a_frame_that_waits_too_long_for_memory_is_refused() {
        let tracker = IdleTracker::new(0);
        tracker.frames_received();
        tracker.rests(Needs::Room, Surplus::Much);
        let refused = (1..100).find(|tick| tracker.check(*tick, &TIMEOUTS) == Some(IdleAction::Refuse));
        assert_eq!(refused, Some(9));
    }

    #[test]
    fn large_surplus_shrinks_under_traffic_and_little_surplus_when_idle() {
        for (kept, expected) in [(Surplus::Much, 1), (Surplus::Little, 2)] {
            let tracker = IdleTracker::new(0);
            tracker.frames_received();
            tracker.rests(Needs::Nothing, kept);
            assert_eq!(first_action(&tracker, |_, _| {}), Some((expected, IdleAction::Shrink)));
        }
    }
}
