//! What servers say without being asked: a group has changed, where do you stand, the line is cut.
//!
//! Owns the one listener of a client. Invariants: a notice enters the listener's queue while fewer than `NOTICES_MAX`
//! things wait there, and is dropped beyond: whoever reads that slowly looks at the whole state anyway. A server that
//! asked hears one answer at most.
//! Threads: `listen` and `answer` from any; notices come in on the I/O thread, which never waits here.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::completions::{Announce, Landed};
use crate::remoting::codes::{flag, language};
use crate::remoting::header::{Header, HeaderWriter};
use crate::remoting::{CallError, Encoding, Peer, Requests};

/// Notices that may wait for their reader.
const NOTICES_MAX: usize = 1024;

/// A request of a server's, or the end of its connection.
#[derive(Debug)]
pub struct Notice {
    /// The server, as it was called.
    pub address: Arc<str>,
    /// Request code; `None`: the connection ended.
    pub code: Option<i32>,
    /// Header fields, in the order of the wire.
    pub ext: Vec<(String, String)>,
    /// Body, a copy of its own.
    pub body: Bytes,
    /// Who waits for an answer; nobody, where the request was one-way or has been answered.
    asker: Mutex<Option<Asker>>,
}

struct Asker {
    peer: Arc<Peer>,
    opaque: i32,
    encoding: Encoding,
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", self.peer.address(), self.opaque)
    }
}

/// What a server is answered: a response code, a text, header fields and a body.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// Response code; 0 is success.
    pub code: i32,
    /// Text beside the code.
    pub remark: Option<&'a str>,
    /// Header fields.
    pub ext: &'a [(String, String)],
    /// Body.
    pub body: &'a [u8],
}

impl Notice {
    fn closed(address: Arc<str>) -> Self {
        Self { address, code: None, ext: Vec::new(), body: Bytes::new(), asker: Mutex::new(None) }
    }

    /// Answers a server that waits for it; does nothing where nobody does.
    ///
    /// # Errors
    /// When the connection has ended, or the answer does not fit a frame.
    pub fn answer(&self, answer: Answer<'_>) -> Result<(), CallError> {
        let Some(Asker { peer, opaque, encoding }) = self.asker.lock().take() else { return Ok(()) };
        let Answer { code, remark, ext, body } = answer;
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

/// Who hears of notices.
#[derive(Debug)]
pub struct Notices {
    listener: RwLock<Option<Announce>>,
    /// How answers are written.
    encoding: Encoding,
}

impl Notices {
    /// Heard by nobody yet.
    pub fn new(encoding: Encoding) -> Self {
        Self { listener: RwLock::new(None), encoding }
    }

    /// From now on notices go there, under that token; those to come only.
    pub fn listen(&self, announce: Announce) {
        *self.listener.write() = Some(announce);
    }

    fn tell(&self, notice: impl FnOnce() -> Notice) {
        let listener = self.listener.read();
        if let Some(listener) = listener.as_ref().filter(|listener| listener.to.len() < NOTICES_MAX) {
            listener.to.push(listener.token, Landed::Notice(Arc::new(notice())));
        }
    }
}

impl Requests for Notices {
    fn request(&self, peer: &Arc<Peer>, header: &Header, body: &[u8]) {
        self.tell(|| Notice {
            address: Arc::clone(peer.address()),
            code: Some(header.code),
            ext: header.ext().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            body: Bytes::copy_from_slice(body),
            asker: Mutex::new((!header.is_oneway()).then(|| Asker {
                peer: Arc::clone(peer),
                opaque: header.opaque,
                encoding: self.encoding,
            })),
        });
    }

    fn closed(&self, peer: &Arc<Peer>, _: &CallError) {
        self.tell(|| Notice::closed(Arc::clone(peer.address())));
    }
}

#[cfg(test)]
mod tests {
    use super::super::completions::Completions;
    use super::*;

    #[test]
    fn a_listener_that_sleeps_costs_a_bounded_number_of_notices() {
        let (notices, completions) = (Notices::new(Encoding::Json), Arc::new(Completions::default()));
        let closed = || Notice::closed("a:1".into());
        notices.tell(closed);
        assert_eq!(completions.len(), 0, "nobody listened");
        notices.listen(Announce { to: Arc::clone(&completions), token: 7 });
        for _ in 0..2 * NOTICES_MAX {
            notices.tell(closed);
        }
        assert_eq!(completions.len(), NOTICES_MAX);
        assert!(matches!(completions.take(1).as_slice(), [(7, Landed::Notice(_))]));
    }
}
