//! Answers that are not a message: refusals, and the codes behind them.

use std::borrow::Cow;
use std::time::Duration;

use super::session::RequestContext;
use crate::remoting::codes::{flag, response};
use crate::remoting::header::HeaderWriter;

/// Why a request is not served, as its sender will read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReply {
    /// A code of `codes::response`.
    pub code: i32,
    /// What was wrong, and what to do.
    pub remark: Cow<'static, str>,
    /// For pulls refused by a permission: 1 broker, 2 group, 3 topic, 4 broadcast, 5 subscription.
    pub forbidden: Option<i32>,
}

impl ErrorReply {
    /// A refusal with a fixed or a composed text.
    pub fn new(code: i32, remark: impl Into<Cow<'static, str>>) -> Self {
        Self { code, remark: remark.into(), forbidden: None }
    }

    /// A pull refused by a permission.
    pub fn forbidden(code: i32, kind: i32, remark: impl Into<Cow<'static, str>>) -> Self {
        Self { code, remark: remark.into(), forbidden: Some(kind) }
    }
}

/// The refusal of a request for which there is no room.
#[must_use]
pub fn overload() -> ErrorReply {
    ErrorReply::new(response::SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")
}

/// The refusal of a request that waited too long for its turn; operators look for the prefix.
#[must_use]
pub fn took_too_long(waited: Duration, left: usize) -> ErrorReply {
    let remark = format!(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {}ms, size of queue: {left}",
        waited.as_millis(),
    );
    ErrorReply::new(response::SYSTEM_BUSY, remark)
}

/// Begins a reply at the end of `out`; `finish` it.
pub fn begin<'a>(
    out: &'a mut Vec<u8>,
    context: RequestContext,
    code: i32,
    remark: Option<&'a str>,
) -> HeaderWriter<'a> {
    HeaderWriter::begin(out, context.encoding, code, context.opaque, flag::RESPONSE, remark)
}

/// Ends a reply. Ours are far below the limits of a frame, the only way in which it could fail; were one not, it
/// leaves nothing behind, and the client's deadline passes.
pub fn finish(reply: HeaderWriter<'_>, body_bytes: usize) {
    let written = reply.finish(body_bytes);
    debug_assert!(written.is_ok(), "a reply of ours fits its frame: {written:?}");
}

/// Writes a reply without a body, unless nobody waits for one.
pub fn write(
    out: &mut Vec<u8>,
    context: RequestContext,
    code: i32,
    remark: Option<&str>,
    ext: &[(&'static str, &str)],
) {
    if context.is_oneway {
        return;
    }
    let mut reply = begin(out, context, code, remark);
    for (name, value) in ext {
        reply.ext(name, value);
    }
    finish(reply, 0);
}
