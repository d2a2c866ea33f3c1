//! Deadlines: the ends of long polls and of parked sends, unless something ends them before, and delayed messages.
//!
//! One thread sleeps until the earliest entry. Time comes from the `Clock`, so a test moves it by hand; that is
//! why no runtime timer is used here.
//!
//! Threads: any thread adds and cancels; the handler runs on the entries' own thread, and holds up only those.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clock::SharedClock;

/// The longest the thread sleeps beside a hand-moved clock, whose jumps wake no thread.
const NAP: Duration = Duration::from_millis(50);

/// Names one entry: its time, and a number that makes it unique.
pub(super) type DeadlineKey = (Duration, u64);

struct State<T> {
    entries: BTreeMap<DeadlineKey, T>,
    is_stopped: bool,
}

/// Entries by time. Dropping the last handle does not stop the thread; `stop` does.
pub(super) struct Deadlines<T> {
    state: Arc<(Mutex<State<T>>, Condvar)>,
    sequence: Arc<AtomicU64>,
    clock: SharedClock,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<T: Send + 'static> Deadlines<T> {
    /// Starts a thread of this name; `due` gets each entry whose time has come, in order. What it returns goes in
    /// again, due after the time it says.
    pub(super) fn start(
        name: &str,
        clock: SharedClock,
        due: impl Fn(T) -> Option<(Duration, T)> + Send + 'static,
    ) -> std::io::Result<Self> {
        let state =
            Arc::new((Mutex::new(State { entries: BTreeMap::new(), is_stopped: false }), Condvar::new()));
        let sequence = Arc::new(AtomicU64::new(0));
        let thread = std::thread::Builder::new().name(name.into()).spawn({
            let (state, sequence, clock) = (Arc::clone(&state), Arc::clone(&sequence), Arc::clone(&clock));
            move || run(&state, &sequence, &clock, &due)
        })?;
        Ok(Self { state, sequence, clock, thread: Mutex::new(Some(thread)) })
    }

    /// Adds an entry that is due `after` from now.
    pub(super) fn add(&self, after: Duration, entry: T) -> DeadlineKey {
        let key = (self.clock.elapsed() + after, self.sequence.fetch_add(1, Ordering::Relaxed));
        let (state, wake) = &*self.state;
        let mut state = state.lock();
        let is_earliest = state.entries.first_key_value().is_none_or(|(first, _)| key < *first);
        state.entries.insert(key, entry);
        if is_earliest {
            wake.notify_one();
        }
        key
    }

    /// Takes an entry back, unless its time has come.
    pub(super) fn cancel(&self, key: DeadlineKey) -> Option<T> {
        self.state.0.lock().entries.remove(&key)
    }

    pub(super) fn stop(&self) {
        let (state, wake) = &*self.state;
        let mut state = state.lock();
        state.is_stopped = true;
        state.entries.clear();
        drop(state);
        wake.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the handler has been printed where it happened.
            drop(thread.join());
        }
    }
}

fn run<T>(
    shared: &(Mutex<State<T>>, Condvar),
    sequence: &AtomicU64,
    clock: &SharedClock,
    due: &impl Fn(T) -> Option<(Duration, T)>,
) {
    let (state, wake) = shared;
    let mut guard = state.lock();
    while !guard.is_stopped {
        let Some((&(time, _), _)) = guard.entries.first_key_value() else {
            wake.wait(&mut guard);
            continue;
        };
        let now = clock.elapsed();
        if now < time {
            wake.wait_for(&mut guard, (time - now).min(NAP));
            continue;
        }
        if let Some((_, entry)) = guard.entries.pop_first() {
            let again = parking_lot::MutexGuard::unlocked(&mut guard, || due(entry));
            if let Some((after, entry)) = again.filter(|_| !guard.is_stopped) {
                let key = (clock.elapsed() + after, sequence.fetch_add(1, Ordering::Relaxed));
                guard.entries.insert(key, entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn entries_come_due_in_order_of_time_and_a_cancelled_one_never() {
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
        assert_eq!(receiver.recv_timeout(Duration::from_secs(5)), Ok("first"));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(5)), Ok("second"));
        deadlines.stop();
        assert!(receiver.try_recv().is_err());
    }
}
