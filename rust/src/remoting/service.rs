//! Service: the trait between the network and everything above it, which handles frames.
//!
//! Threads: every method runs on the connection's I/O thread, one at a time per connection, and must not block: all
//! connections of that thread would wait. A panic closes only its connection.

use std::sync::Arc;

use bytes::Bytes;

use super::error::{FrameError, HeaderError};
use super::frame::Frame;
use super::link::Link;
use super::outbox::Outbox;

/// Serves the connections of a `Server`.
pub trait Service: Send + Sync + 'static {
    /// The state of one connection. It stays on the connection's I/O thread.
    type Session: 'static;
    /// An event that other threads may post to a connection through its `Link`.
    type Event: Send + 'static;

    /// Opens the session of an accepted connection.
    fn open(&self, link: Arc<Link<Self::Event>>) -> Self::Session;

    /// Handles complete frames in order, at most `BURST_FRAMES_MAX`. Bytes appended to `out` are written when it
    /// returns.
    ///
    /// # Errors
    /// Closes the connection; replies already in `out` get one chance to be written.
    fn burst(&self, session: &mut Self::Session, frames: &[Frame<'_>], out: &mut Outbox)
    -> Result<(), Close>;

    /// Handles one posted event.
    ///
    /// # Errors
    /// As `burst`.
    fn event(&self, session: &mut Self::Session, event: Self::Event, out: &mut Outbox) -> Result<(), Close>;

    /// Returns the extra cost of bursts and events since the last call, in frames charged to the turn. After a turn with an
    /// extra cost of `TURN_FRAMES_MAX` a connection waits for its next one at a turnstile, with others after such turns.
    fn take_cost(&self, session: &mut Self::Session) -> usize {
        let _ = session;
        0
    }

    /// Refuses a frame that found no memory in time. `head` lacks its body.
    ///
    /// # Errors
    /// As `burst`.
    fn refuse(&self, session: &mut Self::Session, head: &Frame<'_>, out: &mut Outbox) -> Result<(), Close>;

    /// Decides, from the header alone, how to handle the `body_bytes` of a frame larger than an ordinary buffer.
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

    /// Handles such a frame with its buffer, so that the body can be kept without a copy.
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

    /// Handles a call of `Link::signal` by another thread.
    ///
    /// # Errors
    /// As `burst`.
    fn signalled(&self, session: &mut Self::Session, out: &mut Outbox) -> Result<(), Close> {
        let _ = (session, out);
        Ok(())
    }

    /// Returns whether more frames may be handed over. Otherwise the connection stops reading until `Link::signal`.
    fn is_ready(&self, session: &Self::Session) -> bool {
        let _ = session;
        true
    }

    /// Returns the bytes of held replies. While they are many, no more frames are read.
    fn held_bytes(&self, session: &Self::Session) -> usize {
        let _ = session;
        0
    }

    /// Returns the memory that the session keeps for later bursts.
    fn kept_bytes(&self, session: &Self::Session) -> usize {
        let _ = session;
        0
    }

    /// Releases that memory.
    fn shrink(&self, session: &mut Self::Session) {
        let _ = session;
    }

    /// Returns whether this peer is owed nothing. A stopping server waits for this, within its grace.
    fn is_settled(&self, session: &Self::Session) -> bool {
        let _ = session;
        true
    }

    /// Releases a part of what the session of an ended connection holds; false when nothing is left. It is called until
    /// then, and other connections have turns in between.
    fn release(&self, session: &mut Self::Session) -> bool {
        let _ = session;
        false
    }

    /// Closes the session; called once for every `open` that returned.
    fn close(&self, session: Self::Session);
}

/// The handling of a large frame's body, decided by its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LargeBody {
    /// It arrives in a `burst`, in the connection's buffer, which is then reused.
    Lent,
    /// It arrives through `given`.
    Given,
    /// It is read and discarded: the header was enough for a reply.
    Declined,
}

/// The reason a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// The peer closed it, or the network did.
    Peer,
    /// The received bytes are not a frame.
    Frame(FrameError),
    /// A frame's header is unreadable.
    Header(HeaderError),
    /// The peer broke another rule; the text names it.
    Protocol(&'static str),
    /// Nothing was read or written for too long.
    Idle,
    /// A frame stalled, or none ever came.
    Slow,
    /// The service requested it, through the link.
    Requested,
    /// The server is stopping.
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
