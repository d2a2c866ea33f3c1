//! Replies: headers in the encoding of the request.

use super::metadata::Identity;
use super::request::RequestContext;
use crate::remoting::codes::flag;
use crate::remoting::frame::{FrameLimits, split};
use crate::remoting::header::{ExtBlock, Header, HeaderWriter};

/// Begins a reply at the end of `out`, to be completed with `finish`.
pub(in crate::dataplane) fn begin<'a>(
    out: &'a mut Vec<u8>,
    context: RequestContext,
    code: i32,
    remark: Option<&'a str>,
) -> HeaderWriter<'a> {
    HeaderWriter::begin(out, context.encoding, code, context.opaque, flag::RESPONSE, remark)
}

/// Completes a reply. It can fail only at the limits of a frame, which replies stay far below; then nothing is
/// written and the client times out.
pub(in crate::dataplane) fn finish(reply: HeaderWriter<'_>, body_bytes: usize) {
    let written = reply.finish(body_bytes);
    debug_assert!(written.is_ok(), "a reply of ours fits its frame: {written:?}");
}

/// Writes a reply without a body, unless the request is one-way.
pub(in crate::dataplane) fn write(
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

/// Copies an encoded reply without a body, with another code.
pub(in crate::dataplane) fn write_with_code(out: &mut Vec<u8>, frame: &[u8], code: i32) {
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

/// Returns the fields of every reply to a send, refusals included.
pub(in crate::dataplane) fn send_answer_fields(identity: &Identity) -> ExtBlock {
    let trace_on = if identity.is_trace_on { "true" } else { "false" };
    ExtBlock::new(("MSG_REGION", &identity.region), &[("TRACE_ON", trace_on)])
}
