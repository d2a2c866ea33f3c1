//! Protocol: builds the requests of a load and reads the responses.
//!
//! A load knows only slots, times and bytes. RocketMQ's protocol is in `rmqpy`.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::plan::{LoadError, Plan, Target};

/// A connection's bytes, perhaps encrypted, over a socket.
pub trait Stream: Read + Write + Send + 'static {
    /// Returns the socket.
    fn socket(&self) -> &TcpStream;
}

/// A protocol of a load. Each connection has its own value, with the state of its slots.
///
/// Only `stream` and `open` may block, and no method should allocate per message: the load shares the machine with the
/// broker.
pub trait Protocol: Sized + Send + 'static {
    /// The connection's bytes.
    type Stream: Stream;
    /// Settings that only this protocol has.
    type Options;

    /// Makes the stream of a connected socket to `address`; may block for a handshake.
    fn stream(options: &Self::Options, socket: TcpStream, address: &str) -> io::Result<Self::Stream>;

    /// Prepares all requests of the plan's `number`th connection to `target`. Negotiation goes over `stream`, which
    /// blocks, with the plan's timeout. Fails when the requests cannot be built, or the broker does not agree.
    fn open(
        plan: &Plan,
        options: &Self::Options,
        target: &Target,
        number: usize,
        stream: &mut Self::Stream,
    ) -> Result<Self, LoadError>;

    /// Appends the next request of `slot`, which is below the plan's window and has none in flight.
    fn ask(&mut self, slot: usize, out: &mut Vec<u8>);

    /// Returns the size of the frame at the front of `bytes`, once known; it may be incomplete. Fails on an invalid
    /// frame: the connection is then unusable.
    fn size(bytes: &[u8]) -> Result<Option<usize>, String>;

    /// Reads a whole frame; `None` if it completes no request. Bytes the protocol requires in return go to `out`.
    /// Fails on an unreadable frame: the connection is then unusable.
    fn read(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Result<Option<Answer>, String>;

    /// Returns the reason for a refusal, for display.
    fn remark(&mut self, frame: &[u8]) -> String;
}

/// The result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The slot of the request.
    pub slot: usize,
    /// Its outcome.
    pub outcome: Outcome,
}

/// Outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Messages were stored or received.
    Done {
        /// The number of messages.
        messages: u64,
        /// Their size: bodies as sent, or everything as received.
        bytes: u64,
    },
    /// A reader reached the end of its queue; its next request starts over.
    Empty,
    /// The broker refused, with this code.
    Refused(i32),
}
