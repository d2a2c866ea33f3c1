//! Readiness: waits until connections are readable or writable.
//!
//! A single connection in the closed loop blocks in `read` instead, which saves a system call per message. Otherwise
//! an epoll instance watches all connections.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use super::connection::Connection;
use super::plan::LoadError;
use super::protocol::{Protocol, Stream as _};

/// Longest sleep, and so the longest delay of a stop.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(100);
const EVENTS_MAX: usize = 256;

#[derive(Debug)]
pub(super) enum Readiness {
    /// A single, blocking connection.
    Only,
    /// Non-blocking connections.
    Any(OwnedFd),
}

impl Readiness {
    /// Watches `connections`. A single one blocks, unless send times matter.
    pub(super) fn new<P: Protocol>(
        connections: &[Connection<P>],
        may_block: bool,
        timeout: Duration,
    ) -> Result<Self, LoadError> {
        if let ([only], true) = (connections, may_block) {
            let stream = only.stream.socket();
            let set = stream.set_read_timeout(Some(SLEEP_MAX));
            set.and_then(|()| stream.set_write_timeout(Some(timeout)))
                .map_err(|error| only.lost(&error.to_string()))?;
            return Ok(Self::Only);
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        for (index, connection) in connections.iter().enumerate() {
            let nonblocking = connection.stream.socket().set_nonblocking(true);
            nonblocking.map_err(|error| connection.lost(&error.to_string()))?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, connection.stream.socket(), data, epoll::EventFlags::IN).map_err(failed)?;
        }
        Ok(Self::Any(epoll))
    }

    /// Adds or removes write readiness for the `index`th connection.
    pub(super) fn want<P: Protocol>(
        &self,
        index: usize,
        connection: &Connection<P>,
        to_write: bool,
    ) -> Result<(), LoadError> {
        let Self::Any(epoll) = self else { return Ok(()) };
        let write = if to_write { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(index as u64);
        epoll::modify(epoll, connection.stream.socket(), data, epoll::EventFlags::IN | write).map_err(failed)
    }

    /// Puts the ready connections into `ready`; none if `sleep` passed first.
    pub(super) fn wait(&self, ready: &mut Vec<usize>, sleep: Duration) -> Result<(), LoadError> {
        ready.clear();
        let Self::Any(epoll) = self else {
            ready.push(0);
            return Ok(());
        };
        let mut timeout = timespec(sleep.min(SLEEP_MAX));
        if sleep < SLEEP_MAX && !sleep.is_zero() {
            // Of the calls in every kernel, only `ppoll` sleeps for less than a millisecond.
            match poll(&mut [PollFd::new(epoll, PollFlags::IN)], Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => timeout = timespec(Duration::ZERO),
                Err(error) => return Err(failed(error)),
            }
        }
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        match epoll::wait(epoll, &mut room[..], Some(&timeout)) {
            Ok((events, _)) => ready.extend(events.iter().map(|event| event.data.u64() as usize)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        Ok(())
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) }
}

fn failed(error: Errno) -> LoadError {
    LoadError::Thread(error.to_string())
}
