//! Listener of a client: directs requests from servers to their readers.
//!
//! A code has one reader, the last one set; one reader takes all other codes. Every reader is notified of the end of
//! a connection.
//!
//! Invariant: a reader has at most `SERVER_REQUESTS_MAX` pending requests, with less than
//! `SERVER_REQUESTS_BYTES_MAX`. Beyond that, a server that waits for a response gets an error, and a notice is
//! dropped: a reader that slow checks the whole state anyway.
//! Threads: any may call `set`; requests arrive on the I/O thread, which does not block here.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::RwLock;

use super::completions::{Completed, CompletionTarget};
use super::server_request::{Response, ServerRequest};
use crate::remoting::codes::response;
use crate::remoting::header::Header;
use crate::remoting::{CallError, Encoding, Peer, Requests};

/// Maximum number of server requests pending for one reader.
const SERVER_REQUESTS_MAX: usize = 1024;
/// Maximum size of these requests; a larger one is accepted alone.
const SERVER_REQUESTS_BYTES_MAX: usize = 16 << 20;
/// The response to requests beyond the limits.
const BUSY: Response<'static> = Response {
    code: response::SYSTEM_BUSY,
    remark: Some("[OVERLOAD]the client has too many requests to answer"),
    ext: &[],
    body: &[],
};

#[derive(Debug, Default)]
struct Readers {
    by_code: HashMap<i32, CompletionTarget>,
    /// The reader of all other codes.
    others: Option<CompletionTarget>,
}

#[derive(Debug)]
pub(super) struct Listener {
    readers: RwLock<Readers>,
    /// The encoding of responses.
    encoding: Encoding,
}

impl Listener {
    /// Starts without readers: requests are dropped.
    pub(super) fn new(encoding: Encoding) -> Self {
        Self { readers: RwLock::default(), encoding }
    }

    /// Directs future requests with these codes to `reader`, or, without codes, all that no other reader takes.
    pub(super) fn set(&self, reader: &CompletionTarget, codes: &[i32]) {
        let mut readers = self.readers.write();
        if codes.is_empty() {
            readers.others = Some(reader.clone());
        }
        readers.by_code.extend(codes.iter().map(|&code| (code, reader.clone())));
    }

    fn push(&self, request: ServerRequest) {
        let readers = self.readers.read();
        let request = Arc::new(request);
        if let Some(code) = request.code {
            if let Some(reader) = readers.by_code.get(&code).or(readers.others.as_ref()) {
                Self::push_to(reader, request);
            }
        } else {
            // A reader of several codes is notified once.
            let mut notified: Vec<&CompletionTarget> = Vec::new();
            for reader in readers.by_code.values().chain(&readers.others) {
                if !notified.iter().any(|other| Arc::ptr_eq(&other.to, &reader.to)) {
                    notified.push(reader);
                    Self::push_to(reader, Arc::clone(&request));
                }
            }
        }
    }

    fn push_to(reader: &CompletionTarget, request: Arc<ServerRequest>) {
        let waiting = reader.to.server_requests();
        let fits = waiting.bytes + request.size() <= SERVER_REQUESTS_BYTES_MAX || waiting.count == 0;
        if fits && waiting.count < SERVER_REQUESTS_MAX {
            reader.push(Completed::ServerRequest(request));
        } else {
            // If the response cannot be sent, the connection has ended or the server does not read.
            drop(request.answer(BUSY));
        }
    }
}

impl Requests for Listener {
    fn request(&self, peer: &Arc<Peer>, header: &Header, body: &[u8]) {
        self.push(ServerRequest::new(peer, header, body, self.encoding));
    }

    fn closed(&self, peer: &Arc<Peer>, _: &CallError) {
        self.push(ServerRequest::closed(Arc::clone(peer.address())));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::completions::{Completions, ServerRequests};
    use super::*;

    #[test]
    fn pending_requests_of_a_sleeping_reader_are_bounded() {
        let (listener, completions) = (Listener::new(Encoding::Json), Arc::new(Completions::default()));
        let closed = || ServerRequest::closed("a:1".into());
        let waiting = || completions.server_requests().count;
        listener.push(closed());
        assert_eq!(waiting(), 0, "there was no reader");
        listener.set(&CompletionTarget { to: Arc::clone(&completions), token: 7 }, &[]);
        for _ in 0..2 * SERVER_REQUESTS_MAX {
            listener.push(closed());
        }
        assert_eq!(waiting(), SERVER_REQUESTS_MAX);
        assert!(matches!(completions.take(1).as_slice(), [(7, Completed::ServerRequest(_))]));
        assert_eq!(waiting(), SERVER_REQUESTS_MAX - 1);
    }

    #[test]
    fn a_code_has_its_reader_and_all_readers_learn_of_a_lost_connection() {
        let listener = Listener::new(Encoding::Json);
        let [some, others] = [(); 2].map(|()| Arc::new(Completions::default()));
        let target = |to: &Arc<Completions>| CompletionTarget { to: Arc::clone(to), token: 0 };
        listener.set(&target(&some), &[326, 327]);
        let request = |code: Option<i32>| {
            let mut request = ServerRequest::closed("a:1".into());
            request.code = code;
            request
        };
        listener.push(request(Some(39)));
        listener.set(&target(&others), &[]);
        [Some(326), Some(39), None].map(request).into_iter().for_each(|each| listener.push(each));
        let codes = |of: &Completions| {
            let taken = of.take(usize::MAX).into_iter();
            let code = |completed| match completed {
                (_, Completed::ServerRequest(request)) => request.code,
                _ => Some(-1),
            };
            taken.map(code).collect::<Vec<_>>()
        };
        assert_eq!(codes(&some), [Some(326), None]);
        assert_eq!(codes(&others), [Some(39), None]);
    }

    #[test]
    fn pending_bytes_of_a_sleeping_reader_are_bounded() {
        let (listener, completions) = (Listener::new(Encoding::Json), Arc::new(Completions::default()));
        listener.set(&CompletionTarget { to: Arc::clone(&completions), token: 7 }, &[]);
        let large = |bytes: usize| {
            let mut request = ServerRequest::closed("a:1".into());
            request.body = Bytes::from(vec![0; bytes]);
            request
        };
        for _ in 0..100 {
            listener.push(large(1 << 20));
        }
        assert_eq!(completions.server_requests(), ServerRequests { count: 16, bytes: 16 << 20 });
        assert_eq!(completions.take(usize::MAX).len(), 16);
        assert_eq!(completions.server_requests(), ServerRequests::default());
        listener.push(large(SERVER_REQUESTS_BYTES_MAX + 1));
        listener.push(large(1));
        assert_eq!(completions.server_requests().count, 1, "a larger one waits alone");
    }
}
