//! Completion queue: collects many outcomes behind one wake-up.
//!
//! It links the I/O threads to one reader, which sleeps in `wait` or polls a descriptor in its event loop. The queue
//! is bounded by the requests in flight, each of which enters it once, and by the limits of `listener` on server
//! requests.
//!
//! *Invariant*: the descriptor is readable whenever the queue is not empty.
//! Threads: `push` from I/O threads, never blocking; `take` and `wait` from the reader's thread.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::call::Call;
use super::pending_send::PendingSend;
use super::server_request::ServerRequest;

/// A finished request, or a request from a server.
#[derive(Debug)]
pub(crate) enum Completed {
    /// Stored, or failed with a decision due.
    Send(Arc<PendingSend>),
    Call(Arc<Call>),
    ServerRequest(Arc<ServerRequest>),
}

/// A wake-up pipe: write end, read end.
type Wakeup = (UnixStream, UnixStream);

#[derive(Debug, Default)]
pub(crate) struct Completions {
    queue: Mutex<Queue>,
    arrived: Condvar,
    wakeup: OnceLock<Wakeup>,
}

#[derive(Debug, Default)]
struct Queue {
    completed: VecDeque<(u64, Completed)>,
    /// The server requests among them.
    server_requests: ServerRequests,
    is_closed: bool,
}

/// The server requests waiting for the reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ServerRequests {
    pub(super) count: usize,
    /// The size of their fields and bodies.
    pub(super) bytes: usize,
}

impl Queue {
    fn count(&mut self, completed: &Completed) {
        if let Completed::ServerRequest(request) = completed {
            self.server_requests.count += 1;
            self.server_requests.bytes += request.size();
        }
    }
}

/// The queue that receives an outcome, and the reader's token for it.
#[derive(Clone, Debug)]
pub(crate) struct CompletionTarget {
    pub(crate) to: Arc<Completions>,
    pub(crate) token: u64,
}

impl CompletionTarget {
    pub(super) fn push(&self, completed: Completed) -> bool {
        self.to.push(self.token, completed)
    }
}

impl Completions {
    /// Adds an entry and wakes a sleeping reader. False after `close`.
    pub(super) fn push(&self, token: u64, completed: Completed) -> bool {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return false;
        }
        let was_empty = queue.completed.is_empty();
        queue.count(&completed);
        queue.completed.push_back((token, completed));
        if was_empty {
            self.wake();
        }
        drop(queue);
        self.arrived.notify_one();
        true
    }

    /// Adds a send whose attempt has an outcome. After `close` a failed send is given up, because no decision will
    /// come.
    pub(super) fn announce(&self, token: u64, send: &Arc<PendingSend>) {
        if !self.push(token, Completed::Send(Arc::clone(send))) {
            send.give_up();
        }
    }

    /// Takes up to `limit` entries, oldest first, without waiting.
    pub(crate) fn take(&self, limit: usize) -> Vec<(u64, Completed)> {
        let mut queue = self.queue.lock();
        let count = limit.min(queue.completed.len());
        let taken: Vec<(u64, Completed)> = queue.completed.drain(..count).collect();
        for (_, completed) in &taken {
            if let Completed::ServerRequest(request) = completed {
                queue.server_requests.count -= 1;
                queue.server_requests.bytes -= request.size();
            }
        }
        if queue.completed.is_empty() && count > 0 {
            self.clear();
        }
        taken
    }

    pub(super) fn server_requests(&self) -> ServerRequests {
        self.queue.lock().server_requests
    }

    /// Sleeps until there is an entry or the queue is closed; false when `timeout` passed first.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let mut queue = self.queue.lock();
        if queue.completed.is_empty() && !queue.is_closed {
            self.arrived.wait_for(&mut queue, timeout);
        }
        !queue.completed.is_empty() || queue.is_closed
    }

    /// Closes the queue and wakes its reader; later completions are dropped.
    pub(crate) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        self.wake();
        drop(queue);
        self.arrived.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.queue.lock().is_closed
    }

    /// Returns a descriptor that is readable while the queue has entries.
    pub(crate) fn descriptor(&self) -> io::Result<RawFd> {
        // Under the lock, so that no push comes between checking the queue and creating the pipe.
        let queue = self.queue.lock();
        if self.wakeup.get().is_none() {
            let (writing, reading) = UnixStream::pair()?;
            writing.set_nonblocking(true)?;
            reading.set_nonblocking(true)?;
            let _ = self.wakeup.set((writing, reading));
            if !queue.completed.is_empty() || queue.is_closed {
                self.wake();
            }
        }
        Ok(self.wakeup.get().map_or(-1, |(_, reading)| reading.as_raw_fd()))
    }

    fn wake(&self) {
        if let Some((writing, _)) = self.wakeup.get() {
            // A full pipe wakes the reader as well.
            let _ = (&*writing).write(&[1]);
        }
    }

    fn clear(&self) {
        if let Some((_, reading)) = self.wakeup.get() {
            let mut bytes = [0; 16];
            while matches!((&*reading).read(&mut bytes), Ok(count) if count == bytes.len()) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pending_send::{Phase, SendOptions, tests::send};
    use super::*;
    use crate::remoting::CallError;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn completed() -> Completed {
        Completed::Call(Arc::new(Call::default()))
    }

    fn is_readable(completions: &Completions) -> bool {
        completions.descriptor().unwrap();
        let (_, reading) = completions.wakeup.get().unwrap();
        let mut polled = [PollFd::new(reading, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn a_burst_wakes_once_and_the_descriptor_is_clear_after_the_last_is_taken() {
        let completions = Completions::default();
        assert!(!is_readable(&completions));
        for token in 0..5 {
            completions.push(token, completed());
        }
        assert!(is_readable(&completions));
        assert_eq!(completions.take(3).len(), 3);
        assert!(is_readable(&completions), "two are left");
        let tokens: Vec<u64> = completions.take(100).into_iter().map(|(token, _)| token).collect();
        assert_eq!(tokens, [3, 4]);
        assert!(!is_readable(&completions));
    }

    #[test]
    fn a_descriptor_made_late_is_readable_for_existing_entries() {
        let completions = Completions::default();
        completions.push(1, completed());
        assert!(is_readable(&completions));
    }

    #[test]
    fn closing_wakes_the_reader_and_drops_what_comes_later() {
        let completions = Arc::new(Completions::default());
        let reader = Arc::clone(&completions);
        let sleeper = std::thread::spawn(move || reader.wait(Duration::from_secs(30)));
        completions.close();
        assert!(sleeper.join().unwrap());
        assert!(!completions.push(1, completed()));
        assert!(completions.take(1).is_empty());
    }

    #[test]
    fn a_failed_send_is_given_up_after_closing() {
        let completions = Completions::default();
        let sent = Arc::new(send(SendOptions { token: Some(7), failures_only: true, ..Default::default() }));
        assert_eq!(sent.complete(Err(CallError::Stopped)), Some(7));
        completions.close();
        completions.announce(7, &sent);
        assert_eq!(sent.phase(), Phase::GivenUp);
    }

    #[test]
    fn the_descriptor_belongs_to_the_queue() {
        let completions = Completions::default();
        let number = completions.descriptor().unwrap();
        assert_eq!(completions.descriptor().unwrap(), number);
    }
}
