//! Server request: a notice or question from a server, or the end of its connection.
//!
//! Invariant: a request gets at most one response. Any thread; nothing here waits for the network.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::remoting::codes::{flag, language};
use crate::remoting::header::{Header, HeaderWriter};
use crate::remoting::{CallError, Encoding, Peer};

/// A request from a server, or the end of its connection.
#[derive(Debug)]
pub(crate) struct ServerRequest {
    /// The server's address, as connected to.
    pub(crate) address: Arc<str>,
    /// Request code; `None`: the connection ended.
    pub(crate) code: Option<i32>,
    pub(crate) ext: Vec<(String, String)>,
    pub(crate) body: Bytes,
    /// `None` for a one-way or answered request.
    reply_to: Mutex<Option<ReplyTo>>,
}

struct ReplyTo {
    peer: Arc<Peer>,
    opaque: i32,
    encoding: Encoding,
}

impl fmt::Debug for ReplyTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", self.peer.address(), self.opaque)
    }
}

/// This client's response to a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Response<'a> {
    pub(crate) code: i32,
    pub(crate) remark: Option<&'a str>,
    pub(crate) ext: &'a [(String, String)],
    pub(crate) body: &'a [u8],
}

impl ServerRequest {
    /// Wraps a received request; its response is written in `encoding`.
    pub(super) fn new(peer: &Arc<Peer>, header: &Header, body: &[u8], encoding: Encoding) -> Self {
        let reply_to = || ReplyTo { peer: Arc::clone(peer), opaque: header.opaque, encoding };
        Self {
            address: Arc::clone(peer.address()),
            code: Some(header.code),
            ext: header.ext().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            body: Bytes::copy_from_slice(body),
            reply_to: Mutex::new((!header.is_oneway()).then(reply_to)),
        }
    }

    pub(super) fn closed(address: Arc<str>) -> Self {
        Self { address, code: None, ext: Vec::new(), body: Bytes::new(), reply_to: Mutex::new(None) }
    }

    /// Returns the size of fields and body.
    pub(super) fn size(&self) -> usize {
        self.body.len() + self.ext.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }

    /// Sends the response; no-op for a one-way or already answered request. Fails when the connection has ended, or
    /// the response does not fit a frame.
    pub(crate) fn answer(&self, response: Response<'_>) -> Result<(), CallError> {
        let Some(ReplyTo { peer, opaque, encoding }) = self.reply_to.lock().take() else { return Ok(()) };
        let Response { code, remark, ext, body } = response;
        peer.send(|_, out| {
            let (python, response) = (language::PYTHON, flag::RESPONSE);
            let mut header = HeaderWriter::begin_as(python, out, encoding, code, opaque, response, remark);
            for (name, value) in ext {
                header.ext(name, value);
            }
            header.finish(body.len())?;
            out.extend_from_slice(body);
            Ok(())
        })
    }
}
