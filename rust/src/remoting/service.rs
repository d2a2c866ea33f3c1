//! Service: what a server does with frames, the one trait between the network and everything above it.
//!
//! Threads: every method runs on the I/O thread of the connection, one at a time for one connection, and must not
//! block: all connections of that thread would wait for it. A panic closes its connection only.

use std::sync::Arc;

use bytes::Bytes;

use super::error::{FrameError, HeaderError};
use super::frame::Frame;
use super::link::Link;
use super::outbox::Outbox;

/// Serves the connections of a `Server`.
pub trait Service: Send + Sync + 'static {
    /// What is remembered for one connection. It lives on that connection's I/O thread and never leaves it.
    type Session: 'static;
    /// What other threads may post to a connection through its `Link`.
    type Event: Send + 'static;

    /// A connection was accepted.
    fn open(&self, link: Arc<Link<Self::Event>>) -> Self::Session;

    /// Complete frames in the order they came, at most `BURST_FRAMES_MAX`. What is appended to `out` is written
    /// when it returns.
    ///
    /// # Errors
    /// Closes the connection; replies already in `out` get one chance to be written.
    fn burst(&self, session: &mut Self::Session, frames: &[Frame<'_>], out: &mut Outbox)
    -> Result<(), Close>;

    /// One posted event.
    ///
    /// # Errors
    /// As `burst`.
    fn event(&self, session: &mut Self::Session, event: Self::Event, out: &mut Outbox) -> Result<(), Close>;

    /// What bursts and events have cost since the last call, beyond the usual: so many frames are taken from the turn.
    fn take_cost(&self, session: &mut Self::Session) -> usize {
        let _ = session;
        0
    }

    /// The frame of `head` was not read, because there was no memory for it in time. Its body is not in `head`.
    ///
    /// # Errors
    /// As `burst`.
    fn refuse(&self, session: &mut Self::Session, head: &Frame<'_>, out: &mut Outbox) -> Result<(), Close>;

    /// A frame larger than any usual buffer has begun, whose header is all that `head` has of it: what becomes of the
    /// `body_bytes` behind it.
    ///
    /// # Errors
    /// As `burst`.
    fn weigh(
        &self,
        session: &mut Self::Session,
        head: &Frame<'_>,
        body_bytes: usize,
        out: &mut Outbox,
    ) -> Result<LargeBody, Close> {
        let _ = (session, head, body_bytes, out);
        Ok(LargeBody::Lent)
    }

    /// One such frame, with the memory that it was read into: whoever keeps its body need not copy it.
    ///
    /// # Errors
    /// As `burst`.
    fn given(
        &self,
        session: &mut Self::Session,
        frame: &Frame<'_>,
        memory: Bytes,
        out: &mut Outbox,
    ) -> Result<(), Close> {
        drop(memory);
        self.burst(session, std::slice::from_ref(frame), out)
    }

    /// Another thread has called `Link::signal`.
    ///
    /// # Errors
    /// As `burst`.
    fn signalled(&self, session: &mut Self::Session, out: &mut Outbox) -> Result<(), Close> {
        let _ = (session, out);
        Ok(())
    }

    /// Whether more frames may be handed over. Where not, they stay with their sender until `Link::signal` was called.
    fn is_ready(&self, session: &Self::Session) -> bool {
        let _ = session;
        true
    }

    /// Bytes of replies that are held back. While they are many, no more frames are read.
    fn held_bytes(&self, session: &Self::Session) -> usize {
        let _ = session;
        0
    }

    /// Memory that the session keeps for what comes next.
    fn kept_bytes(&self, session: &Self::Session) -> usize {
        let _ = session;
        0
    }

    /// Gives that memory back.
    fn shrink(&self, session: &mut Self::Session) {
        let _ = session;
    }

    /// Whether nothing is owed to this peer. A stopping server waits, within its grace, until this is so.
    fn is_settled(&self, session: &Self::Session) -> bool {
        let _ = session;
        true
    }

    /// The connection is gone; called once for every `open` that returned.
    fn close(&self, session: Self::Session);
}

/// What becomes of a large frame's body, decided by its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LargeBody {
    /// It comes in a `burst`, in the buffer of its connection, which has the next one, too.
    Lent,
    /// It comes by `given`.
    Given,
    /// It is read and not kept: the header was enough to answer it.
    Declined,
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// The peer closed it, or the network did.
    Peer,
    /// What came is no frame.
    Frame(FrameError),
    /// A frame's header cannot be read.
    Header(HeaderError),
    /// The peer broke another rule; the text says which.
    Protocol(&'static str),
    /// Neither read nor written for too long.
    Idle,
    /// A frame was begun and not continued, or none ever came.
    Slow,
    /// The service asked for it, through the link.
    Requested,
    /// The server stops.
    Stopped,
    /// The service panicked.
    Panicked,
}

impl From<FrameError> for Close {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl From<HeaderError> for Close {
    fn from(error: HeaderError) -> Self {
        Self::Header(error)
    }
}
