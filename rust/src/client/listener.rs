//! Listener of a client: the one reader of what servers send without being asked.
//!
//! Invariant: a request enters the reader's queue while fewer than `SERVER_REQUESTS_MAX` things wait there, and is
//! dropped beyond: a reader that slow looks at the whole state anyway.
//! Threads: `set` from any; requests come in on the I/O thread, which never waits here.

use std::sync::Arc;

use parking_lot::RwLock;

use super::completions::{Completed, CompletionTarget};
use super::server_request::ServerRequest;
use crate::remoting::header::Header;
use crate::remoting::{CallError, Encoding, Peer, Requests};

/// Requests of servers that may wait for their reader.
const SERVER_REQUESTS_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Listener {
    reader: RwLock<Option<CompletionTarget>>,
    /// How responses are written.
    encoding: Encoding,
}

impl Listener {
    /// Without a reader: what comes is dropped.
    pub(super) fn new(encoding: Encoding) -> Self {
        Self { reader: RwLock::new(None), encoding }
    }

    /// From now on requests go to `reader`; those to come only.
    pub(super) fn set(&self, reader: CompletionTarget) {
        *self.reader.write() = Some(reader);
    }

    fn push(&self, request: impl FnOnce() -> ServerRequest) {
        let reader = self.reader.read();
        if let Some(reader) = reader.as_ref().filter(|reader| reader.to.len() < SERVER_REQUESTS_MAX) {
            reader.push(Completed::ServerRequest(Arc::new(request())));
        }
    }
}

impl Requests for Listener {
    fn request(&self, peer: &Arc<Peer>, header: &Header, body: &[u8]) {
        self.push(|| ServerRequest::new(peer, header, body, self.encoding));
    }

    fn closed(&self, peer: &Arc<Peer>, _: &CallError) {
        self.push(|| ServerRequest::closed(Arc::clone(peer.address())));
    }
}

#[cfg(test)]
mod tests {
    use super::super::completions::Completions;
    use super::*;

    #[test]
    fn a_reader_that_sleeps_costs_a_bounded_number_of_requests() {
        let (listener, completions) = (Listener::new(Encoding::Json), Arc::new(Completions::default()));
        let closed = || ServerRequest::closed("a:1".into());
        listener.push(closed);
        assert_eq!(completions.len(), 0, "there was no reader");
        listener.set(CompletionTarget { to: Arc::clone(&completions), token: 7 });
        for _ in 0..2 * SERVER_REQUESTS_MAX {
            listener.push(closed);
        }
        assert_eq!(completions.len(), SERVER_REQUESTS_MAX);
        assert!(matches!(completions.take(1).as_slice(), [(7, Completed::ServerRequest(_))]));
    }
}
