//! Event: what other threads post to a connection.

use std::sync::Arc;

use super::rejection::ErrorReply;
use super::request::OwnedFrame;
use crate::remoting;
use crate::store::GetResult;

/// The shared handle of a connection of this server.
pub type Link = remoting::Link<Event>;

/// A reply that a connection of this server was promised.
pub type Owed = remoting::Owed<Event>;

/// What other threads may post to a connection.
#[derive(Debug)]
pub enum Event {
    /// A whole frame to write: an answer from Python, or a request to the client.
    Write(Vec<u8>),
    /// Likewise, the answer to a heartbeat that Python accepted.
    Heartbeat(KnownHeartbeat, Vec<u8>),
    /// A frame to write, or none, after which the connection is read again: the answer to what was not authenticated.
    Late(Vec<u8>),
    /// A parked frame goes in again, or is answered by this.
    Frame(OwnedFrame, Option<Arc<ErrorReply>>),
    /// The message that this frame names has been brought into memory.
    Found(OwnedFrame),
    /// The parked pull of this token has a message, or has waited long enough.
    Wake(u64),
    /// The parked pull of this token was read from a part of the log that may not have been in memory, or is refused.
    Read(u64, Box<Result<GetResult, ErrorReply>>),
}

/// A heartbeat with nothing new for Python.
#[derive(Debug)]
pub struct KnownHeartbeat {
    pub(crate) body: Box<[u8]>,
    /// The epoch of the registry that knows it.
    pub(crate) epoch: u64,
    /// What the answer said about a change of subscriptions.
    pub(crate) is_sub_change: bool,
}
