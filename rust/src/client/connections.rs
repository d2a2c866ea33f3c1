//! Connections: sends requests, and delivers replies to their calls and sends.
//!
//! It owns the connections of one client, one per address, made on first use. Invariant: every call or send started
//! here gets an outcome within its timeout. Any thread; nothing here waits for the network.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::call::Call;
use super::completions::{Completed, CompletionTarget, Completions};
use super::encoded_send::EncodedSend;
use super::listener::Listener;
use super::pending_send::PendingSend;
use super::route_cache::Target;
use crate::columns::RowError;
use crate::message::topic::is_light;
use crate::remoting::codes::{flag, language, request as codes};
use crate::remoting::header::HeaderWriter;
use crate::remoting::{CallError, Client, ClientOptions, Encoding, FrameError, Linger};
use crate::requests::credentials::Credentials;
use crate::tls::ClientTls;

pub(crate) struct Connections {
    net: Client,
    listener: Arc<Listener>,
    encoding: Encoding,
    /// The key that signs every request.
    credentials: Option<Credentials>,
}

/// A request with any code, fields and body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRequest<'a> {
    pub(crate) code: i32,
    pub(crate) ext: &'a [(String, String)],
    pub(crate) body: &'a [u8],
}

impl RawRequest<'_> {
    fn frame(
        &self,
        out: &mut Vec<u8>,
        encoding: Encoding,
        opaque: i32,
        flags: i32,
        credentials: Option<&Credentials>,
    ) -> Result<(), FrameError> {
        let start = out.len();
        let mut header =
            HeaderWriter::begin_as(language::PYTHON, out, encoding, self.code, opaque, flags, None);
        for (name, value) in self.ext {
            header.ext(name, value);
        }
        if let Some(credentials) = credentials {
            credentials.announce(&mut header);
        }
        header.finish(self.body.len())?;
        if let Some(credentials) = credentials {
            credentials.sign(out, start, self.body)?;
        }
        out.extend_from_slice(self.body);
        Ok(())
    }
}

impl Connections {
    /// Starts the I/O thread, without connecting. Fails when the system cannot create a thread.
    pub(crate) fn start(
        connect: Duration,
        encoding: Encoding,
        credentials: Option<Credentials>,
        tls: Option<Arc<ClientTls>>,
    ) -> io::Result<Self> {
        let options = ClientOptions { connect, tls, ..ClientOptions::default() };
        let listener = Arc::new(Listener::new(encoding));
        Ok(Self { net: Client::start(options, Arc::clone(&listener) as _)?, listener, encoding, credentials })
    }

    /// Directs requests from servers to `reader`: those with these codes, or, without codes, all that no other reader
    /// takes.
    pub(crate) fn listen(&self, reader: &CompletionTarget, codes: &[i32]) {
        self.listener.set(reader, codes);
    }

    /// Sends a request whose outcome is set on the call and posted to `reader`.
    pub(crate) fn call(
        &self,
        address: &str,
        request: &RawRequest<'_>,
        timeout: Duration,
        reader: Option<CompletionTarget>,
    ) -> Arc<Call> {
        let call = Arc::new(Call::reading(light_queue(request)));
        let settled = Arc::clone(&call);
        self.net.peer(address).call(
            timeout,
            |opaque, out| request.frame(out, self.encoding, opaque, 0, self.credentials.as_ref()),
            move |outcome| {
                settled.settle(outcome);
                if let Some(reader) = reader {
                    reader.push(Completed::Call(settled));
                }
            },
        );
        call
    }

    /// Sends a pull: `read` receives the messages of the reply on the I/O thread, the call everything else.
    pub(crate) fn pull(
        &self,
        address: &str,
        request: &RawRequest<'_>,
        timeout: Duration,
        reader: CompletionTarget,
        read: impl FnOnce(&[u8]) -> Result<usize, RowError> + Send + 'static,
    ) -> Arc<Call> {
        let call = Arc::new(Call::reading(light_queue(request)));
        let settled = Arc::clone(&call);
        self.net.peer(address).call(
            timeout,
            |opaque, out| request.frame(out, self.encoding, opaque, 0, self.credentials.as_ref()),
            move |outcome| {
                settled.settle_read(outcome, read);
                reader.push(Completed::Call(settled));
            },
        );
        call
    }

    /// Sends a request that has no reply. Fails if it cannot be queued.
    pub(crate) fn call_oneway(&self, address: &str, request: &RawRequest<'_>) -> Result<(), CallError> {
        self.net.peer(address).send(|opaque, out| {
            request.frame(out, self.encoding, opaque, flag::ONEWAY, self.credentials.as_ref())
        })
    }

    /// Makes the next attempt of a send, within its remaining time at `now`. The outcome is posted to `reader`, if
    /// the send is to be posted.
    pub(crate) fn send(&self, send: &Arc<PendingSend>, reader: &Arc<Completions>, now: Instant) {
        let target = send.target();
        let left = send.deadline.saturating_duration_since(now);
        let reader = send.is_announced().then(|| Arc::clone(reader));
        // A caller that blocks on the reply must not wait for other messages to share a write.
        let linger = if reader.is_some() { Linger::Coalesce } else { Linger::Immediate };
        let completed = Arc::clone(send);
        self.net.peer(&target.address).call_with(
            linger,
            left,
            |opaque, out| self.frame(&send.encoded, out, opaque, false, &target),
            move |outcome| {
                if let (Some(token), Some(reader)) = (completed.complete(outcome), reader) {
                    reader.announce(token, &completed);
                }
            },
        );
    }

    /// Sends a message that has no reply. Fails if it cannot be queued.
    pub(crate) fn send_oneway(&self, encoded: &EncodedSend, target: &Target) -> Result<(), CallError> {
        self.net.peer(&target.address).send(|opaque, out| self.frame(encoded, out, opaque, true, target))
    }

    /// Returns the addresses of servers that have left a request without a reply for this time.
    pub(crate) fn silent(&self, time: Duration) -> Vec<Arc<str>> {
        let peers = self.net.peers().into_iter().filter(|peer| peer.is_silent(time));
        peers.map(|peer| Arc::clone(peer.address())).collect()
    }

    /// Ends the connection to a server that does not answer; its requests fail as lost.
    pub(crate) fn abandon(&self, address: &str) {
        self.net.peers().iter().filter(|peer| &**peer.address() == address).for_each(|peer| peer.abandon());
    }

    /// Lets queued bytes leave within `grace`, then closes every connection. Idempotent.
    pub(crate) fn stop(&self, grace: Duration) {
        self.net.stop(grace);
    }

    fn frame(
        &self,
        encoded: &EncodedSend,
        out: &mut Vec<u8>,
        opaque: i32,
        is_oneway: bool,
        target: &Target,
    ) -> Result<(), FrameError> {
        encoded.head(out, self.encoding, opaque, is_oneway, target, self.credentials.as_ref())?;
        out.extend_from_slice(&encoded.body);
        Ok(())
    }
}

/// Returns the light queue that a request reads.
fn light_queue<'r>(request: &'r RawRequest<'_>) -> Option<&'r str> {
    let is_read = matches!(
        request.code,
        codes::PULL_MESSAGE | codes::LITE_PULL_MESSAGE | codes::POP_MESSAGE | codes::PEEK_MESSAGE
    );
    let topic = request.ext.iter().filter(|_| is_read).find(|(name, _)| name == "topic");
    topic.map(|(_, topic)| topic.as_str()).filter(|topic| is_light(topic))
}
