//! POP: the broker hands out messages one by one, hides each for a time, and redelivers it unless it is acknowledged.
//!
//! A pop reads from the group's committed offset on, stores a checkpoint that names the messages (`receive`), and
//! commits. Acknowledgements are records, too (`ack`). Checkpoints and acknowledgements wait in the timers, and reach the
//! revive topic when the messages are due; one thread (`revive`) reads it, and copies every message without an
//! acknowledgement to the group's retry topic of that topic, from which it is popped again. Where all messages of a
//! checkpoint are acknowledged before it falls due, the timers leave out its records (`settled`).
//!
//! Invariants: a message is handed out only when its checkpoint is stored; the saved offset of the revive topic
//! passes a checkpoint only when each of its messages is acknowledged or copied. So a popped and unacknowledged message
//! is redelivered after any crash, and an acknowledged one only if the acknowledgement was lost.
//! All state is in the log: a successor, rmqpy or Apache's broker, continues from the records.

mod ack;
mod answer;
mod handle;
mod lite_ack;
mod lite_receive;
mod notify;
mod order;
mod parking;
mod peek;
pub(in crate::dataplane) mod pending;
mod reading;
mod receive;
mod request;

#[cfg(feature = "fuzzing")]
pub(crate) use {ack::batch_entries, handle::reads_back};

pub(in crate::dataplane) use ack::BATCH_BYTES_MAX;
pub(in crate::dataplane) use request::{Attempt, refuse_pop};

/// The revive queue in the handles of messages that were popped in order, which have no checkpoints.
const ORDER_REVIVE_QUEUE: u32 = 999;
