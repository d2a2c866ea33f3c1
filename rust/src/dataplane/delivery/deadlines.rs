//! Deadlines: a timer thread that hands entries to a handler when they are due.
//!
//! Time comes from the `Clock`, which tests move by hand; a timer of the runtime would not follow it.
//!
//! Threads: any thread adds and cancels; the handler runs on the timer thread and blocks only its entries.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clock::SharedClock;

/// Maximum sleep. A clock moved by hand wakes no thread.
const NAP: Duration = Duration::from_millis(50);

/// The key of an entry: its time and a unique number.
pub(in crate::dataplane) type DeadlineKey = (Duration, u64);

struct State<T> {
    entries: BTreeMap<DeadlineKey, T>,
    is_stopped: bool,
    /// The number of calls of `settle`.
    hurries: u64,
    /// The number of times that the thread found nothing due.
    rests: u64,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    wake: Condvar,
    resting: Condvar,
}

/// Entries by time. Only `stop` ends the thread; dropping the last handle does not.
pub(in crate::dataplane) struct Deadlines<T> {
    shared: Arc<Shared<T>>,
    sequence: Arc<AtomicU64>,
    clock: SharedClock,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<T: Send + 'static> Deadlines<T> {
    /// Starts the thread. It calls `due` with each due entry in order, and adds the entry again if `due` returns a
    /// delay for it.
    pub(in crate::dataplane) fn start(
        name: &str,
        clock: SharedClock,
        due: impl Fn(T) -> Option<(Duration, T)> + Send + 'static,
    ) -> std::io::Result<Self> {
        let state = State { entries: BTreeMap::new(), is_stopped: false, hurries: 0, rests: 0 };
        let (wake, resting) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { state: Mutex::new(state), wake, resting });
        let sequence = Arc::new(AtomicU64::new(0));
        let thread = std::thread::Builder::new().name(name.into()).spawn({
            let (shared, sequence, clock) = (Arc::clone(&shared), Arc::clone(&sequence), Arc::clone(&clock));
            move || run(&shared, &sequence, &clock, &due)
        })?;
        Ok(Self { shared, sequence, clock, thread: Mutex::new(Some(thread)) })
    }

    pub(in crate::dataplane) fn add(&self, after: Duration, entry: T) -> DeadlineKey {
        let key = (self.clock.elapsed() + after, self.sequence.fetch_add(1, Ordering::Relaxed));
        let mut state = self.shared.state.lock();
        let is_earliest = state.entries.first_key_value().is_none_or(|(first, _)| key < *first);
        state.entries.insert(key, entry);
        if is_earliest {
            self.shared.wake.notify_one();
        }
        key
    }

    /// Removes an entry, unless it was due already.
    pub(in crate::dataplane) fn cancel(&self, key: DeadlineKey) -> Option<T> {
        self.shared.state.lock().entries.remove(&key)
    }

    /// Makes all entries due and waits until they are handled, for at most `limit`; false on a timeout. For clocks
    /// moved by hand.
    pub(in crate::dataplane) fn settle(&self, limit: Duration) -> bool {
        let mut state = self.shared.state.lock();
        state.hurries += 1;
        let entries = std::mem::take(&mut state.entries);
        state.entries =
            entries.into_iter().map(|((_, number), entry)| ((Duration::ZERO, number), entry)).collect();
        let rests = state.rests;
        self.shared.wake.notify_one();
        let is_busy = |state: &mut State<T>| state.rests == rests && !state.is_stopped;
        !self.shared.resting.wait_while_for(&mut state, is_busy, limit).timed_out()
    }

    pub(in crate::dataplane) fn stop(&self) {
        let mut state = self.shared.state.lock();
        state.is_stopped = true;
        state.entries.clear();
        drop(state);
        self.shared.wake.notify_one();
        self.shared.resting.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            // The panic hook has reported a panic of the handler.
            drop(thread.join());
        }
    }
}

fn run<T>(
    shared: &Shared<T>,
    sequence: &AtomicU64,
    clock: &SharedClock,
    due: &impl Fn(T) -> Option<(Duration, T)>,
) {
    let mut guard = shared.state.lock();
    while !guard.is_stopped {
        let next = guard.entries.first_key_value().map(|(&(time, _), _)| time);
        let sleep = next.map_or(Some(None), |time| {
            let now = clock.elapsed();
            (now < time).then(|| Some((time - now).min(NAP)))
        });
        if let Some(sleep) = sleep {
            guard.rests += 1;
            shared.resting.notify_all();
            match sleep {
                Some(sleep) => drop(shared.wake.wait_for(&mut guard, sleep)),
                None => shared.wake.wait(&mut guard),
            }
            continue;
        }
        if let Some((_, entry)) = guard.entries.pop_first() {
            let hurries = guard.hurries;
            let again = parking_lot::MutexGuard::unlocked(&mut guard, || due(entry));
            if let Some((after, entry)) = again.filter(|_| !guard.is_stopped) {
                // The handler may have read the clock before `settle` was called.
                let is_hurried = guard.hurries != hurries;
                let time = if is_hurried { Duration::ZERO } else { clock.elapsed() + after };
                guard.entries.insert((time, sequence.fetch_add(1, Ordering::Relaxed)), entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn entries_are_handled_in_order_of_time_unless_cancelled() {
        let clock = ManualClock::at(0);
        let (sender, receiver) = std::sync::mpsc::channel();
        let deadlines = Deadlines::start("deadlines", clock.clone(), move |entry| {
            sender.send(entry).unwrap_or_default();
            None
        })
        .expect("a thread starts");
        deadlines.add(Duration::from_secs(15), "second");
        deadlines.add(Duration::from_secs(3), "first");
        let cancelled = deadlines.add(Duration::from_secs(4), "never");
        assert_eq!(deadlines.cancel(cancelled), Some("never"));
        assert!(receiver.try_recv().is_err());
        clock.advance(Duration::from_secs(16));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok("first"));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok("second"));
        deadlines.stop();
        assert!(receiver.try_recv().is_err());
    }
    #[test]
    fn a_changed_wall_clock_does_not_move_deadlines() {
        let clock = ManualClock::at(1_700_000_000_000);
        let (sender, receiver) = std::sync::mpsc::channel();
        let deadlines = Deadlines::start("deadlines", clock.clone(), move |entry| {
            sender.send(entry).unwrap_or_default();
            None
        })
        .expect("a thread starts");
        let next = || receiver.recv_timeout(Duration::from_secs(60));
        deadlines.add(Duration::from_secs(15), "poll");
        clock.set_wall(1_800_000_000_000);
        // The thread reads the clock between the two.
        for now in ["now", "now again"] {
            deadlines.add(Duration::ZERO, now);
            assert_eq!(next(), Ok(now));
        }
        clock.set_wall(1_000);
        clock.advance(Duration::from_secs(15));
        assert_eq!(next(), Ok("poll"));
        deadlines.stop();
    }
}
