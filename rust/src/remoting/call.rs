//! Call: a request of a client that awaits its answer, and the ways in which it ends.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

use super::error::FrameError;
use super::header::Header;

/// What a call ends with. It borrows the connection's read buffer.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'a> {
    /// Code, remark and fields.
    pub header: &'a Header,
    /// The body; empty when there was none.
    pub body: &'a [u8],
}

/// Why a call has no reply.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum CallError {
    /// There was no connection, and none could be made. The request was not sent.
    #[error("cannot connect to {address}: {reason}")]
    Connect { address: Arc<str>, reason: Arc<str> },
    /// Too much waits for this peer already. The request was not sent; later it may be.
    #[error("more than {bytes_max} bytes or {calls_max} calls wait for {address}")]
    Overloaded { address: Arc<str>, bytes_max: usize, calls_max: usize },
    /// The request does not fit a frame. It was not sent and never will be.
    #[error("the request cannot be sent: {0}")]
    Unsendable(#[from] FrameError),
    /// The connection broke. The request may have been executed or not.
    #[error("connection to {address} lost: {reason}")]
    Disconnected { address: Arc<str>, reason: Arc<str> },
    /// No reply in time. The request may have been executed or not; a reply that still comes is dropped.
    #[error("no reply from {address} within {timeout_ms} ms")]
    Timeout { address: Arc<str>, timeout_ms: u64 },
    /// The client was stopped. The request may have been executed or not.
    #[error("the client was stopped")]
    Stopped,
}

/// Receives the end of a call, on the I/O thread; must not block.
pub type Done = Box<dyn FnOnce(Result<Reply<'_>, CallError>) + Send>;

/// Whether a request may linger before it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linger {
    /// It leaves at once.
    Immediate,
    /// It may wait for the reply to an earlier one that coalesces, a millisecond at most, to leave together with
    /// what is queued meanwhile.
    Coalesce,
}

pub(super) struct Call {
    pub(super) linger: Linger,
    pub(super) deadline: Instant,
    pub(super) timeout: Duration,
    pub(super) done: Done,
}

/// Runs a callback; its panic is reported by the panic hook and is not the connection's.
pub(super) fn run(done: Done, result: Result<Reply<'_>, CallError>) {
    drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| done(result))));
}
