//! Idle tracker: the activity of one connection, and what the sweep makes of it.
//!
//! A connection notes what happens to it in plain cells; once in a while (a *tick*) the sweep of its thread looks at
//! all of them. So there is no timer per connection, and none is moved with every read.
//!
//! Invariant: time is counted in sweeps, so a process that was suspended closes no connection when it goes on.
//! Threads: the I/O thread of the connection.

use std::cell::Cell;
use std::time::Duration;

use super::limits::{OPEN_FRAME_BYTES_MIN, ServerOptions};
use super::service::Close;

/// What the sweep wants of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdleAction {
    /// Give back memory you did not use since the last time.
    Shrink,
    Close(Close),
}

/// Timeouts in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    idle: u32,
    first_frame: u32,
    open_frame: u32,
}

impl Timeouts {
    pub(super) fn new(options: &ServerOptions) -> Self {
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
pub(super) struct IdleTracker {
    opened: u32,
    /// Tick of the last byte in or out.
    moved: Cell<u32>,
    received_bytes: Cell<u64>,
    /// At least one frame came.
    has_received_frame: Cell<bool>,
    /// Nothing can go on here until the peer sends the rest of a frame.
    is_open: Cell<bool>,
    /// It holds more memory than an idle connection needs.
    is_oversized: Cell<bool>,
    /// The tick since which the present frame is measured, and how much had come by then.
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
            is_open: Cell::new(false),
            is_oversized: Cell::new(false),
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

    /// The connection goes to sleep in this state.
    pub(super) fn sleeps(&self, is_open: bool, is_oversized: bool) {
        self.is_open.set(is_open);
        self.is_oversized.set(is_oversized);
    }

    /// Whether nothing moved since the sweep before.
    pub(super) fn is_calm(&self, tick: u32) -> bool {
        self.moved.get() < tick.saturating_sub(1)
    }

    /// What the sweep decided, once.
    pub(super) fn take_action(&self) -> Option<IdleAction> {
        self.action.take()
    }

    /// Leaves an action to the connection, which the caller wakes.
    pub(super) fn set_action(&self, action: IdleAction) {
        self.action.set(Some(action));
    }

    /// What is to be done about this connection at `tick`.
    pub(super) fn check(&self, tick: u32, timeouts: &Timeouts) -> Option<IdleAction> {
        let since = |then: u32| tick.saturating_sub(then);
        if since(self.moved.get()) > timeouts.idle {
            return Some(IdleAction::Close(Close::Idle));
        }
        if !self.has_received_frame.get() && since(self.opened) > timeouts.first_frame {
            return Some(IdleAction::Close(Close::Slow));
        }
        if self.is_too_slow(tick, timeouts) {
            return Some(IdleAction::Close(Close::Slow));
        }
        self.is_oversized.get().then_some(IdleAction::Shrink)
    }

    fn is_too_slow(&self, tick: u32, timeouts: &Timeouts) -> bool {
        let received = self.received_bytes.get();
        match self.measured_since.get() {
            _ if !self.is_open.get() => self.measured_since.set(None),
            None => self.measured_since.set(Some((tick, received))),
            Some((since, before)) if tick.saturating_sub(since) > timeouts.open_frame => {
                if received - before < OPEN_FRAME_BYTES_MIN {
                    return true;
                }
                self.measured_since.set(Some((tick, received)));
            }
            Some(_) => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: Timeouts = Timeouts { idle: 12, first_frame: 3, open_frame: 2 };

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
        // Bytes are not frames.
        let action = first_action(&tracker, |tracker, tick| tracker.received(2000, tick));
        assert_eq!(action, Some((4, IdleAction::Close(Close::Slow))));
    }

    #[test]
    fn a_connection_that_was_used_once_may_be_idle_for_its_time() {
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
    fn a_frame_that_trickles_in_is_slow_and_one_that_comes_at_the_least_rate_is_not() {
        for (bytes_per_tick, expected) in [(100, Some((4, IdleAction::Close(Close::Slow)))), (400, None)] {
            let tracker = IdleTracker::new(0);
            tracker.frames_received();
            tracker.sleeps(true, false);
            assert_eq!(
                first_action(&tracker, |tracker, tick| tracker.received(bytes_per_tick, tick)),
                expected
            );
        }
    }

    #[test]
    fn small_frames_that_come_one_after_another_are_not_one_open_frame() {
        let tracker = IdleTracker::new(0);
        let action = first_action(&tracker, |tracker, tick| {
            tracker.received(30, tick);
            tracker.frames_received();
            tracker.sleeps(true, false);
        });
        assert_eq!(action, None);
    }

    #[test]
    fn an_oversized_connection_has_to_shrink() {
        let tracker = IdleTracker::new(0);
        tracker.frames_received();
        tracker.sleeps(false, true);
        assert_eq!(first_action(&tracker, |_, _| {}), Some((1, IdleAction::Shrink)));
    }
}
