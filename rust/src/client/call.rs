//! Call: one request with one reply, and its outcome.
//!
//! Invariant: an outcome is set once and never changes. The connection's I/O thread sets it; any thread may read or
//! await it.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::columns::RowError;
use crate::message::record::{in_light_queue, shifted};
use crate::remoting::codes::response;
use crate::remoting::{CallError, Reply};

/// A reply with any code; the caller judges it.
#[derive(Debug)]
pub(crate) struct KeptReply {
    pub(crate) code: i32,
    pub(crate) remark: Option<String>,
    /// Header fields in wire order.
    pub(crate) ext: Vec<(String, String)>,
    /// A copy of the body; empty if the messages were read from the receive buffer.
    pub(crate) body: Bytes,
    /// The number of messages read from the receive buffer.
    pub(crate) rows: Option<Result<usize, RowError>>,
}

impl KeptReply {
    fn whole(reply: &Reply<'_>, light: Option<&str>) -> Self {
        let body = corrected(reply, light).map_or_else(|| Bytes::copy_from_slice(reply.body), Bytes::from);
        Self { body, ..Self::head(reply) }
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

/// Returns the body with the offsets of the queue that was read, if its records have others.
fn corrected(reply: &Reply<'_>, light: Option<&str>) -> Option<Vec<u8>> {
    match (light.filter(|_| reply.header.code == response::SUCCESS), offset_delta(reply)) {
        (Some(light), _) => Some(in_light_queue(reply.body, light)),
        (None, Some(delta)) => Some(shifted(reply.body, delta)),
        (None, None) => None,
    }
}

/// Returns the number to add to the queue offsets of pulled records, if it is not 0: those of static topics differ from
/// the stored ones.
fn offset_delta(reply: &Reply<'_>) -> Option<i64> {
    let text = reply.header.get("offsetDelta").filter(|_| !reply.body.is_empty())?;
    text.parse().ok().filter(|delta| *delta != 0)
}

/// A request in flight, or its outcome.
#[derive(Debug, Default)]
pub(crate) struct Call {
    outcome: OnceLock<Result<KeptReply, CallError>>,
    /// The light queue that it reads.
    light: Option<Box<str>>,
    gate: Mutex<()>,
    settled: Condvar,
}

impl Call {
    /// Creates the call of a request for messages of this light queue, if it is for one.
    pub(super) fn reading(light: Option<&str>) -> Self {
        Self { light: light.map(Into::into), ..Self::default() }
    }

    /// Sets the outcome; a second one is ignored.
    pub(super) fn settle(&self, outcome: Result<Reply<'_>, CallError>) {
        self.set(outcome.map(|reply| KeptReply::whole(&reply, self.light.as_deref())));
    }

    /// Sets the outcome of a pull; `read` decodes the messages in the receive buffer.
    pub(super) fn settle_read(
        &self,
        outcome: Result<Reply<'_>, CallError>,
        read: impl FnOnce(&[u8]) -> Result<usize, RowError>,
    ) {
        self.set(outcome.map(|reply| KeptReply {
            rows: (reply.header.code == response::SUCCESS).then(|| {
                match corrected(&reply, self.light.as_deref()) {
                    None => read(reply.body),
                    Some(corrected) => read(&corrected),
                }
            }),
            ..KeptReply::head(&reply)
        }));
    }

    fn set(&self, outcome: Result<KeptReply, CallError>) {
        {
            let _gate = self.gate.lock();
            if self.outcome.set(outcome).is_err() {
                return;
            }
        }
        self.settled.notify_all();
    }

    pub(crate) fn outcome(&self) -> Option<&Result<KeptReply, CallError>> {
        self.outcome.get()
    }

    /// Sleeps until there is an outcome or `timeout` has passed; returns whether there is one.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let mut gate = self.gate.lock();
        if self.outcome.get().is_none() {
            self.settled.wait_for(&mut gate, timeout);
        }
        self.outcome.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::remoting::header::Header;

    #[test]
    fn the_first_outcome_stays() {
        let call = Call::default();
        call.settle(Err(CallError::Timeout { address: "a:1".into(), timeout_ms: 5 }));
        call.settle(Err(CallError::Stopped));
        assert!(matches!(call.outcome(), Some(Err(CallError::Timeout { .. }))));
    }

    #[test]
    fn only_messages_are_read_from_the_receive_buffer() {
        let check = |code, expected: Option<usize>| {
            let call = Call::default();
            let mut header = Header::new();
            header.code = code;
            call.settle_read(Ok(Reply { header: &header, body: b"abc" }), |body| Ok(body.len()));
            let reply = call.outcome().unwrap().as_ref().unwrap();
            assert_eq!(reply.rows.as_ref().map(|rows| *rows.as_ref().unwrap()), expected);
            assert!(reply.body.is_empty());
        };
        check(response::SUCCESS, Some(3));
        check(response::PULL_NOT_FOUND, None);
    }

    #[test]
    fn a_waiter_is_woken_by_the_outcome() {
        let call = Arc::new(Call::default());
        let waiting = Arc::clone(&call);
        let sleeper = std::thread::spawn(move || waiting.wait(Duration::from_secs(30)));
        call.settle(Err(CallError::Stopped));
        assert!(sleeper.join().unwrap());
    }
}
