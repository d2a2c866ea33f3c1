//! Event: a message from another thread to a connection.

use std::sync::Arc;

use crate::dataplane::state::rejection::ErrorReply;
use crate::dataplane::state::request::OwnedFrame;
use crate::remoting;
use crate::store::GetResult;

/// The shared handle of a connection of this server.
pub type Link = remoting::Link<Event>;

/// A reply that a connection of this server owes.
pub type Owed = remoting::Owed<Event>;

/// A message from another thread to a connection.
#[derive(Debug)]
pub enum Event {
    /// A complete frame to write: a reply from Python, or a request to the client.
    Write(Vec<u8>),
    /// The reply to a heartbeat that Python accepted, and the heartbeat to cache.
    Heartbeat(KnownHeartbeat, Vec<u8>),
    /// A frame to write, possibly empty, after which reading resumes: the delayed reply to a failed authentication.
    Late(Vec<u8>),
    /// A parked frame to handle again, or to answer with this error.
    Frame(OwnedFrame, Option<Arc<ErrorReply>>),
    /// A frame whose record was brought into memory.
    Found(OwnedFrame),
    /// The parked pull of this token has a message or has timed out.
    Wake(u64),
    /// The result of a read from disk for the parked pull of this token.
    Read(u64, Box<Result<GetResult, ErrorReply>>),
}

/// A heartbeat that repeats the last accepted one.
#[derive(Debug)]
pub struct KnownHeartbeat {
    pub(crate) body: Box<[u8]>,
    /// The epoch of the registry that accepted it.
    pub(crate) epoch: u64,
    /// The reply's flag for changed subscriptions.
    pub(crate) is_sub_change: bool,
}
