//! Broker call: a request to the broker in remoting's form, and its answer.
//!
//! The connection is one within the process, so a request passes the same admission, access control and handlers as one
//! from the network, and a connection through the network could take its place.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::status::{Refused, code};
use crate::remoting::codes::{VERSION, response};
use crate::remoting::frame::Encoding;
use crate::remoting::header::HeaderWriter;
use crate::remoting::{FrameError, Peer};
use crate::requests::credentials::Credentials;
use crate::requests::send::{SendHeader, SendOrigin};

/// The limit of requests that do not wait for messages.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3);

/// A request.
pub(super) struct BrokerCall<'a> {
    code: i32,
    language: u8,
    version: i32,
    ext: Vec<(&'static str, Cow<'a, str>)>,
    send: Option<(&'a SendHeader<'a>, &'a SendOrigin<'a>)>,
    body: &'a [u8],
    credentials: Option<&'a Credentials>,
    timeout: Duration,
}

/// An answer.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) code: i32,
    pub(super) remark: String,
    ext: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl<'a> BrokerCall<'a> {
    pub(super) fn new(code: i32, language: u8, credentials: Option<&'a Credentials>) -> Self {
        let (ext, version) = (Vec::new(), VERSION);
        Self { code, language, version, ext, send: None, body: &[], credentials, timeout: TIMEOUT }
    }

    /// Names the release of the client, which brokers show. Other requests have that of this proxy, by which brokers
    /// choose the form of an answer.
    pub(super) fn version(self, version: i32) -> Self {
        Self { version, ..self }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        self.ext.push((name, value.into()));
        self
    }

    pub(super) fn number(self, name: &'static str, value: i64) -> Self {
        self.with(name, value.to_string())
    }

    /// Names the lite topic of a message, if it has one.
    pub(super) fn lite_topic(self, name: &'a str) -> Self {
        if name.is_empty() { self } else { self.with("liteTopic", name) }
    }

    /// Adds the fields of a send.
    pub(super) fn send(self, fields: &'a SendHeader<'a>, origin: &'a SendOrigin<'a>) -> Self {
        Self { send: Some((fields, origin)), ..self }
    }

    pub(super) fn body(self, body: &'a [u8]) -> Self {
        Self { body, ..self }
    }

    pub(super) fn within(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sends the request now; the future is its answer, whatever its code.
    ///
    /// # Errors
    /// The connection failed, or the time is over.
    pub(super) fn ask(
        self,
        peer: &Arc<Peer>,
    ) -> impl Future<Output = Result<Answer, Refused>> + Send + use<> {
        let (done, answered) = oneshot::channel();
        let timeout = self.timeout;
        peer.call(
            timeout,
            |opaque, out| self.encode(opaque, out),
            move |reply| {
                let answer = reply.map_err(Refused::from).map(|reply| Answer {
                    code: reply.header.code,
                    remark: reply.header.remark().unwrap_or_default().to_owned(),
                    ext: reply
                        .header
                        .ext()
                        .map(|(name, value)| (name.to_owned(), value.to_owned()))
                        .collect(),
                    body: Bytes::copy_from_slice(reply.body),
                });
                // The caller may have gone.
                drop(done.send(answer));
            },
        );
        async move {
            let lost = || Refused::new(code::INTERNAL_SERVER_ERROR, "the broker did not answer");
            answered.await.unwrap_or_else(|_| Err(lost()))
        }
    }

    fn encode(&self, opaque: i32, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let start = out.len();
        let mut header =
            HeaderWriter::begin_as(self.language, out, Encoding::Binary, self.code, opaque, 0, None)
                .version(self.version);
        if let Some((fields, origin)) = self.send {
            fields.encode(origin, &mut header);
        }
        for (name, value) in &self.ext {
            header.ext(name, value);
        }
        if let Some(credentials) = self.credentials {
            credentials.announce(&mut header);
        }
        header.finish(self.body.len())?;
        if let Some(credentials) = self.credentials {
            credentials.sign(out, start, self.body)?;
        }
        out.extend_from_slice(self.body);
        Ok(())
    }
}

impl Answer {
    /// Returns the value of a field; empty if it is missing.
    pub(super) fn get(&self, name: &str) -> &str {
        self.ext.iter().rev().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    /// Returns whether the broker refused as a slave does: another one may be master by now. Apache's brokers refuse
    /// messages in the same words while they are busy.
    pub(super) fn may_be_of_slave(&self) -> bool {
        let text = match self.code {
            response::SYSTEM_BUSY => "[REJECTREQUEST]",
            response::SLAVE_NOT_AVAILABLE => "this broker is a slave",
            response::SERVICE_NOT_AVAILABLE => "messages are put to the slave",
            _ => return false,
        };
        self.remark.contains(text)
    }

    /// Returns the answer if it is one of success.
    ///
    /// # Errors
    /// The broker's refusal.
    pub(super) fn success(self, is_guarded: bool) -> Result<Self, Refused> {
        if self.code == response::SUCCESS {
            return Ok(self);
        }
        Err(Refused::by_broker(self.code, &self.remark, is_guarded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataplane::state::rejection::{ask_the_master, takes_no_messages};

    fn answer(code: i32, remark: &str) -> Answer {
        Answer { code, remark: remark.to_owned(), ..Answer::default() }
    }

    #[test]
    fn refusals_of_slaves_are_told_from_others() {
        for refusal in [takes_no_messages(), ask_the_master()] {
            assert!(answer(refusal.code, &refusal.remark).may_be_of_slave(), "{}", refusal.remark);
        }
        let apaches = "service not available now. It may be caused by one of the following reasons: \
                       the broker's disk is full [CL:  0.9], messages are put to the slave, message store has been \
                       shut down, etc.";
        assert!(answer(response::SERVICE_NOT_AVAILABLE, apaches).may_be_of_slave());
        assert!(!answer(response::SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy").may_be_of_slave());
        assert!(!answer(response::SLAVE_NOT_AVAILABLE, "too few slaves are in sync").may_be_of_slave());
        assert!(!answer(response::SUCCESS, "").may_be_of_slave());
    }
}
