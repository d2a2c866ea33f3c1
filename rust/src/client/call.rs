//! One request that expects one reply, and the place where its outcome appears.
//!
//! Invariant: an outcome is set once and never changes. Set from the I/O thread of the connection, read and waited
//! for from any thread.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::completions::{Announce, Landed};
use crate::columns::RowError;
use crate::remoting::codes::response;
use crate::remoting::{CallError, Reply};

/// What the other side answered, kept. Any code: judging it is the caller's business.
#[derive(Debug)]
pub struct Answer {
    /// Response code; 0 is success.
    pub code: i32,
    /// Text beside the code.
    pub remark: Option<String>,
    /// Header fields, in the order of the wire.
    pub ext: Vec<(String, String)>,
    /// Body, a copy of its own; empty where it was read as it came.
    pub body: Bytes,
    /// What came of reading it: how many messages it gave.
    pub rows: Option<Result<usize, RowError>>,
}

impl Answer {
    fn keep(reply: &Reply<'_>) -> Self {
        Self { body: Bytes::copy_from_slice(reply.body), ..Self::head(reply) }
    }

    fn head(reply: &Reply<'_>) -> Self {
        let header = reply.header;
        Self {
            code: header.code,
            remark: header.remark().map(str::to_owned),
            ext: header.ext().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            body: Bytes::new(),
            rows: None,
        }
    }
}

/// A request under way, or its outcome.
#[derive(Debug)]
pub struct Call {
    outcome: OnceLock<Result<Answer, CallError>>,
    gate: Mutex<()>,
    settled: Condvar,
    announce: Option<Announce>,
}

impl Call {
    /// A call without outcome yet; it is announced when it has one.
    #[must_use]
    pub fn new(announce: Option<Announce>) -> Self {
        Self { outcome: OnceLock::new(), gate: Mutex::new(()), settled: Condvar::new(), announce }
    }

    /// Sets the outcome; a second one is ignored.
    pub fn settle(self: &Arc<Self>, outcome: Result<Reply<'_>, CallError>) {
        self.set(outcome.map(|reply| Answer::keep(&reply)));
    }

    /// Likewise, for a pull: `read` gets the messages while they still lie where they were received.
    pub fn settle_read(
        self: &Arc<Self>,
        outcome: Result<Reply<'_>, CallError>,
        read: impl FnOnce(&[u8]) -> Result<usize, RowError>,
    ) {
        self.set(outcome.map(|reply| Answer {
            rows: (reply.header.code == response::SUCCESS).then(|| read(reply.body)),
            ..Answer::head(&reply)
        }));
    }

    fn set(self: &Arc<Self>, outcome: Result<Answer, CallError>) {
        {
            let _gate = self.gate.lock();
            if self.outcome.set(outcome).is_err() {
                return;
            }
        }
        self.settled.notify_all();
        if let Some(announce) = &self.announce {
            announce.to.push(announce.token, Landed::Call(Arc::clone(self)));
        }
    }

    /// The outcome, if there is one.
    pub fn outcome(&self) -> Option<&Result<Answer, CallError>> {
        self.outcome.get()
    }

    /// Sleeps until there is an outcome or `timeout` has passed; whether there is one.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut gate = self.gate.lock();
        if self.outcome.get().is_none() {
            self.settled.wait_for(&mut gate, timeout);
        }
        self.outcome.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::completions::Completions;
    use super::*;
    use crate::remoting::header::Header;

    #[test]
    fn the_first_outcome_stays_and_is_announced_once() {
        let completions = Arc::new(Completions::default());
        let call = Arc::new(Call::new(Some(Announce { to: Arc::clone(&completions), token: 7 })));
        call.settle(Err(CallError::Timeout { address: "a:1".into(), timeout_ms: 5 }));
        call.settle(Err(CallError::Stopped));
        assert!(matches!(call.outcome(), Some(Err(CallError::Timeout { .. }))));
        assert_eq!(completions.take(10).len(), 1);
    }

    #[test]
    fn messages_are_read_where_they_came_and_nothing_else_is() {
        let check = |code, expected: Option<usize>| {
            let call = Arc::new(Call::new(None));
            let mut header = Header::new();
            header.code = code;
            call.settle_read(Ok(Reply { header: &header, body: b"abc" }), |body| Ok(body.len()));
            let answer = call.outcome().unwrap().as_ref().unwrap();
            assert_eq!(answer.rows.as_ref().map(|rows| *rows.as_ref().unwrap()), expected);
            assert!(answer.body.is_empty());
        };
        check(response::SUCCESS, Some(3));
        check(response::PULL_NOT_FOUND, None);
    }

    #[test]
    fn a_waiter_is_woken_by_the_outcome() {
        let call = Arc::new(Call::new(None));
        let waiting = Arc::clone(&call);
        let sleeper = std::thread::spawn(move || waiting.wait(Duration::from_secs(30)));
        call.settle(Err(CallError::Stopped));
        assert!(sleeper.join().unwrap());
    }
}
