//! Protocol of a load: the seam behind which requests are made and answers read.
//!
//! A load knows slots, times and bytes; what the bytes mean is known here only. `RocketMq` is the one of this crate. The
//! comparison with other brokers has more (`examples/peer_load`), so that all of them bear the same load from the same
//! generator.

use super::plan::{LoadError, Plan, Target};
use crate::tls::BlockingStream;

/// A protocol, as a load knows it. Each connection has its own value, with whatever it has to remember of its slots.
///
/// No method but `open` may wait, and none should allocate for a message: the load shares the machine with the broker.
pub trait Protocol: Sized + Send + 'static {
    /// Makes everything ready that the `number`th connection of the plan will ask of `target`. What has to be agreed on
    /// first goes over `stream`, which blocks, with the plan's timeout.
    /// Fails when the requests cannot be made, or the broker does not agree.
    fn open(
        plan: &Plan,
        target: &Target,
        number: usize,
        stream: &mut BlockingStream,
    ) -> Result<Self, LoadError>;

    /// Appends the next request of `slot`, which is below the plan's window and has none in flight.
    fn ask(&mut self, slot: usize, out: &mut Vec<u8>);

    /// Size of the frame at the front of `bytes`, once they tell it; more of it may still be to come.
    /// Fails when this is no frame: the connection is of no more use.
    fn size(bytes: &[u8]) -> Result<Option<usize>, String>;

    /// The answer in a whole frame; `None` when no request is at its end with it. What the broker is owed in turn goes to `out`.
    /// Fails when it cannot be read: the connection is of no more use.
    fn read(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Result<Option<Answer>, String>;

    /// The reason of a refusal, for people.
    fn remark(&mut self, frame: &[u8]) -> String;
}

/// The end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Slot of the request.
    pub slot: usize,
    /// Its outcome.
    pub outcome: Outcome,
}

/// Outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Messages were stored, or came.
    Done {
        /// Their number.
        messages: u64,
        /// Their size: of bodies as sent, or of everything as received.
        bytes: u64,
    },
    /// A reader is at the end of its queue; it starts again with its next request.
    Empty,
    /// The broker did not do it, for the reason of this code.
    Refused(i32),
}
