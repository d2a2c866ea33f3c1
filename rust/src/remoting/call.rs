//! Call: a client's request that awaits a reply, and the ways it can end.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

use super::error::FrameError;
use super::header::Header;

/// A reply. It borrows the connection's read buffer.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'a> {
    /// Code, remark and fields.
    pub header: &'a Header,
    /// The body; empty when absent.
    pub body: &'a [u8],
}

/// The reason a call has no reply.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum CallError {
    /// The connection could not be made. The request was not sent.
    #[error("cannot connect to {address}: {reason}")]
    Connect { address: Arc<str>, reason: Arc<str> },
    /// The limit of pending bytes or calls to this peer is reached. The request was not sent; the caller may retry
    /// later.
    #[error("more than {bytes_max} bytes or {calls_max} calls are pending for {address}")]
    Overloaded { address: Arc<str>, bytes_max: usize, calls_max: usize },
    /// The request does not fit a frame and can never be sent.
    #[error("the request cannot be sent: {0}")]
    Unsendable(#[from] FrameError),
    /// The connection broke. The request may have been executed or not.
    #[error("connection to {address} lost: {reason}")]
    Disconnected { address: Arc<str>, reason: Arc<str> },
    /// The call timed out. The request may have been executed or not; a late reply is dropped.
    #[error("no reply from {address} within {timeout_ms} ms")]
    Timeout { address: Arc<str>, timeout_ms: u64 },
    /// The client was stopped. The request may have been executed or not.
    #[error("the client was stopped")]
    Stopped,
}

/// Receives the result of a call on the I/O thread; must not block.
pub type Done = Box<dyn FnOnce(Result<Reply<'_>, CallError>) + Send>;

/// Whether a request may be delayed to share a write with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linger {
    /// Write it immediately.
    Immediate,
    /// Hold it until the reply to an earlier coalescing request, a millisecond at most, and write it together with
    /// the requests queued meanwhile.
    Coalesce,
}

pub(super) struct Call {
    pub(super) linger: Linger,
    pub(super) deadline: Instant,
    pub(super) timeout: Duration,
    pub(super) done: Done,
}

/// Runs a callback. The panic hook reports its panic; the connection survives.
pub(super) fn run(done: Done, result: Result<Reply<'_>, CallError>) {
    drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| done(result))));
}
