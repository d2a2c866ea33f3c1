//! Replies: their headers, begun and ended in the encoding of the request.

use super::metadata::Identity;
use super::request::RequestContext;
use crate::remoting::codes::flag;
use crate::remoting::frame::{FrameLimits, split};
use crate::remoting::header::{ExtBlock, Header, HeaderWriter};

/// Begins a reply at the end of `out`; `finish` it.
pub(super) fn begin<'a>(
    out: &'a mut Vec<u8>,
    context: RequestContext,
    code: i32,
    remark: Option<&'a str>,
) -> HeaderWriter<'a> {
    HeaderWriter::begin(out, context.encoding, code, context.opaque, flag::RESPONSE, remark)
}

/// Ends a reply. Ours are far below the limits of a frame, the only way in which it could fail; were one not, it
/// leaves nothing behind, and the client's deadline passes.
pub(super) fn finish(reply: HeaderWriter<'_>, body_bytes: usize) {
    let written = reply.finish(body_bytes);
    debug_assert!(written.is_ok(), "a reply of ours fits its frame: {written:?}");
}

/// Writes a reply without a body, unless the request was one-way.
pub(super) fn write(
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

/// Writes a reply without a body that was written before, with another code.
pub(super) fn write_with_code(out: &mut Vec<u8>, frame: &[u8], code: i32) {
    let mut header = Header::new();
    let whole = split(frame, &FrameLimits::default()).ok().flatten();
    let Some(encoding) =
        whole.filter(|(frame, _)| header.decode(frame).is_ok()).map(|(frame, _)| frame.encoding)
    else {
        debug_assert!(false, "it is ours");
        return;
    };
    let mut reply = HeaderWriter::begin(out, encoding, code, header.opaque, header.flag, header.remark());
    for (name, value) in header.ext() {
        reply.ext(name, value);
    }
    finish(reply, 0);
}

/// The fields that every answer to a send carries, refusals too.
pub(super) fn send_answer_fields(identity: &Identity) -> ExtBlock {
    let trace_on = if identity.is_trace_on { "true" } else { "false" };
    ExtBlock::new(("MSG_REGION", &identity.region), &[("TRACE_ON", trace_on)])
}
