//! What servers say without being asked: a group has changed, a queue is to be read from elsewhere, the line is cut.
//!
//! Owns the one listener of a client. Invariant: a notice enters the listener's queue while fewer than `NOTICES_MAX`
//! things wait there, and is dropped beyond: whoever reads that slowly looks at the whole state anyway.
//! Threads: `listen` from any; notices come in on the I/O thread, which never waits here.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use super::completions::{Announce, Landed};
use crate::remoting::header::Header;
use crate::remoting::{CallError, Peer, Requests};

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
}

/// Who hears of notices.
#[derive(Debug, Default)]
pub struct Notices {
    listener: RwLock<Option<Announce>>,
}

impl Notices {
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
        });
    }

    fn closed(&self, peer: &Arc<Peer>, _: &CallError) {
        let address = Arc::clone(peer.address());
        self.tell(|| Notice { address, code: None, ext: Vec::new(), body: Bytes::new() });
    }
}

#[cfg(test)]
mod tests {
    use super::super::completions::Completions;
    use super::*;

    fn closed() -> Notice {
        Notice { address: "a:1".into(), code: None, ext: Vec::new(), body: Bytes::new() }
    }

    #[test]
    fn a_listener_that_sleeps_costs_a_bounded_number_of_notices() {
        let (notices, completions) = (Notices::default(), Arc::new(Completions::default()));
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
