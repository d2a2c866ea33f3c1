//! Log: the interface between a controller and the log that its group agrees on.
//!
//! A log takes entries, and reports committed ones in the same order to every controller. Reports wait in a mailbox
//! for the controller's thread, which a descriptor wakes.
//!
//! Threads: any.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use parking_lot::Mutex;

/// A report of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// A snapshot replaces the state.
    Restored(Vec<u8>),
    /// An entry is committed and durable.
    Committed(Vec<u8>),
    /// A proposal was not taken, and will not be committed.
    Failed {
        /// Its number.
        proposal: u64,
        /// The reason.
        reason: String,
    },
    /// This controller leads; every earlier entry has been reported.
    Leads,
    /// This controller does not lead, or not any more.
    Follows,
    /// A round of `confirm` has ended.
    Confirmed {
        /// Its number.
        round: u64,
        /// Whether this controller led after the round had begun.
        is_leader: bool,
    },
    /// The log is broken: this controller cannot go on.
    Broken(String),
    /// Send this call to another controller of the group, and hand in the reply.
    Call {
        /// Its number.
        call: u64,
        /// The name of the other controller.
        target: String,
        /// The call.
        body: Vec<u8>,
        /// The time for the reply.
        limit: Duration,
    },
    /// The reply to a call of another controller.
    Replied {
        /// As the owner gave it.
        token: u64,
        /// The reply.
        body: Vec<u8>,
    },
}

/// A log.
pub trait Log: Send + Sync {
    /// Proposes an entry. `Committed` or `Failed` follows; `Follows`, if the outcome is unknown.
    fn append(&self, proposal: u64, entry: Vec<u8>);
    /// Asks a majority whether this controller still leads. `Confirmed` follows.
    fn confirm(&self, round: u64);
    /// The reports.
    fn mailbox(&self) -> &Mailbox;
    /// Stops, when what was proposed is durable. Idempotent.
    fn stop(&self);
}

/// The reports that wait for the controller.
#[derive(Debug)]
pub struct Mailbox {
    reports: Mutex<VecDeque<Report>>,
    writing: UnixStream,
    reading: UnixStream,
}

impl Mailbox {
    /// Creates an empty mailbox.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let (writing, reading) = UnixStream::pair()?;
        writing.set_nonblocking(true)?;
        reading.set_nonblocking(true)?;
        Ok(Self { reports: Mutex::default(), writing, reading })
    }

    /// Returns a descriptor that is readable while reports wait.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.reading.as_raw_fd()
    }

    /// Adds a report.
    pub fn push(&self, report: Report) {
        let mut reports = self.reports.lock();
        reports.push_back(report);
        if reports.len() == 1 {
            // A full pipe wakes the reader as well.
            let _ = (&self.writing).write(&[1]);
        }
    }

    /// Takes every report, oldest first.
    pub fn take(&self) -> VecDeque<Report> {
        let mut reports = self.reports.lock();
        if !reports.is_empty() {
            let mut bytes = [0; 16];
            while matches!((&self.reading).read(&mut bytes), Ok(count) if count == bytes.len()) {}
        }
        std::mem::take(&mut reports)
    }
}
