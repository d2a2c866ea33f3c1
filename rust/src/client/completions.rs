//! What has landed since somebody last looked: many completions, one wake-up.
//!
//! Owns the way from the I/O threads up to one reader, which either sleeps in `wait` or watches a descriptor in
//! its event loop. Invariant: the descriptor is readable whenever the queue is not empty. The queue is bounded by
//! the requests in flight, each of which enters it once, and by `notices`.
//! Threads: `push` from I/O threads, never blocking; `take` and `wait` from the reader's thread.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::call::Call;
use super::notices::Notice;
use super::shipment::Shipment;

/// A request that has an outcome, or a notice.
#[derive(Debug)]
pub enum Landed {
    /// A send: stored, or failed and waiting for a decision.
    Shipment(Arc<Shipment>),
    /// Any other request.
    Call(Arc<Call>),
    /// What a server said without being asked.
    Notice(Arc<Notice>),
}

/// A wake-up pipe: the writing end, then the reading end.
type Bell = (UnixStream, UnixStream);

/// The queue of things that have landed.
#[derive(Debug, Default)]
pub struct Completions {
    state: Mutex<State>,
    arrived: Condvar,
    bell: OnceLock<Bell>,
}

#[derive(Debug, Default)]
struct State {
    landed: VecDeque<(u64, Landed)>,
    is_closed: bool,
}

/// Where the outcome of a request is announced, and under which number.
#[derive(Clone, Debug)]
pub struct Announce {
    /// The reader's queue.
    pub to: Arc<Completions>,
    /// The reader's name for the request.
    pub token: u64,
}

impl Completions {
    /// Adds one; rings the bell when the reader may be asleep. False after `close`: nobody will look.
    pub fn push(&self, token: u64, landed: Landed) -> bool {
        let mut state = self.state.lock();
        if state.is_closed {
            return false;
        }
        let was_empty = state.landed.is_empty();
        state.landed.push_back((token, landed));
        if was_empty {
            self.ring();
        }
        drop(state);
        self.arrived.notify_one();
        true
    }

    /// Up to `limit` of them, oldest first, without waiting.
    pub fn take(&self, limit: usize) -> Vec<(u64, Landed)> {
        let mut state = self.state.lock();
        let count = limit.min(state.landed.len());
        let taken = state.landed.drain(..count).collect();
        if state.landed.is_empty() && count > 0 {
            self.hush();
        }
        taken
    }

    /// How many of them wait.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.state.lock().landed.len()
    }

    /// Sleeps until something is there, `close` was called, or `timeout` has passed. False for the last.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        if state.landed.is_empty() && !state.is_closed {
            self.arrived.wait_for(&mut state, timeout);
        }
        !state.landed.is_empty() || state.is_closed
    }

    /// Wakes the reader for good; what lands later is dropped.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.ring();
        drop(state);
        self.arrived.notify_all();
    }

    /// Whether `close` was called.
    pub fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// A descriptor that is readable while something waits here.
    pub fn descriptor(&self) -> io::Result<RawFd> {
        // Under the lock, so that no push falls between looking at the queue and having a bell.
        let state = self.state.lock();
        if self.bell.get().is_none() {
            let (writing, reading) = UnixStream::pair()?;
            writing.set_nonblocking(true)?;
            reading.set_nonblocking(true)?;
            let _ = self.bell.set((writing, reading));
            if !state.landed.is_empty() || state.is_closed {
                self.ring();
            }
        }
        Ok(self.bell.get().map_or(-1, |(_, reading)| reading.as_raw_fd()))
    }

    fn ring(&self) {
        if let Some((writing, _)) = self.bell.get() {
            // A full pipe is a ringing bell as well.
            let _ = (&*writing).write(&[1]);
        }
    }

    fn hush(&self) {
        if let Some((_, reading)) = self.bell.get() {
            let mut bytes = [0; 16];
            while matches!((&*reading).read(&mut bytes), Ok(count) if count == bytes.len()) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn landed() -> Landed {
        Landed::Call(Arc::new(Call::new(None)))
    }

    fn is_readable(completions: &Completions) -> bool {
        completions.descriptor().unwrap();
        let (_, reading) = completions.bell.get().unwrap();
        let mut polled = [PollFd::new(reading, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn one_ring_for_a_burst_and_silence_after_the_last_is_taken() {
        let completions = Completions::default();
        assert!(!is_readable(&completions));
        for token in 0..5 {
            completions.push(token, landed());
        }
        assert!(is_readable(&completions));
        assert_eq!(completions.take(3).len(), 3);
        assert!(is_readable(&completions), "two are left");
        let tokens: Vec<u64> = completions.take(100).into_iter().map(|(token, _)| token).collect();
        assert_eq!(tokens, [3, 4]);
        assert!(!is_readable(&completions));
    }

    #[test]
    fn a_descriptor_made_late_rings_for_what_is_already_there() {
        let completions = Completions::default();
        completions.push(1, landed());
        assert!(is_readable(&completions));
    }

    #[test]
    fn closing_wakes_the_reader_and_drops_what_comes_later() {
        let completions = Arc::new(Completions::default());
        let reader = Arc::clone(&completions);
        let sleeper = std::thread::spawn(move || reader.wait(Duration::from_secs(30)));
        completions.close();
        assert!(sleeper.join().unwrap());
        assert!(!completions.push(1, landed()));
        assert!(completions.take(1).is_empty());
    }

    #[test]
    fn the_descriptor_belongs_to_the_queue() {
        let completions = Completions::default();
        let number = completions.descriptor().unwrap();
        assert_eq!(completions.descriptor().unwrap(), number);
    }
}
