//! Answers: frames for Python's replies to forwarded requests, and for its requests to clients.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyDict;

use crate::dataplane::service::data_plane::DataPlane;
use crate::dataplane::state::rejection::{ErrorReply, overload};
use crate::dataplane::waiting::event::{Event, KnownHeartbeat};
use crate::dataplane::waiting::upcall::ReplyTo;
use crate::remoting::codes::{flag, response};
use crate::remoting::frame::Encoding;
use crate::remoting::header::HeaderWriter;

/// token, response code, remark, header fields, body
pub(super) type Answer<'py> = (u64, i32, Option<String>, Option<Bound<'py, PyDict>>, Option<PyBackedBytes>);

/// Sends one reply; no-op if its connection is gone.
pub(super) fn settle(data_plane: &DataPlane, (token, code, remark, ext, body): Answer<'_>) {
    let Some(ReplyTo { mut owed, context, heartbeat }) = data_plane.upcalls.reply_to(token) else {
        return;
    };
    let body = body.as_deref().unwrap_or_default();
    let made =
        frame(context.encoding, code, context.opaque, flag::RESPONSE, remark.as_deref(), ext.as_ref(), body);
    let (code, frame) = match made {
        Ok(frame) if owed.grow(frame.len()) => (code, frame),
        Ok(_) => data_plane.refuse_answer(context, overload()),
        Err(error) => {
            let refusal = ErrorReply::new(response::SYSTEM_ERROR, error.to_string());
            data_plane.refuse_answer(context, refusal)
        }
    };
    data_plane.answered_by_python(context, code);
    owed.post(match heartbeat {
        Some((body, epoch)) if code == response::SUCCESS => {
            let is_sub_change = ext.as_ref().is_none_or(is_sub_change);
            Event::Heartbeat(KnownHeartbeat { body, epoch, is_sub_change }, frame)
        }
        _ => Event::Write(frame),
    });
}

/// Whether an accepted heartbeat changed what its client consumes.
fn is_sub_change(ext: &Bound<'_, PyDict>) -> bool {
    let change = ext.get_item("IS_SUB_CHANGE").ok().flatten();
    change.is_none_or(|change| change.eq("true").unwrap_or(true))
}

/// Builds a frame with these header fields. `ValueError` for a field that is not text, or an oversized frame.
pub(super) fn frame(
    encoding: Encoding,
    code: i32,
    opaque: i32,
    flag: i32,
    remark: Option<&str>,
    ext: Option<&Bound<'_, PyDict>>,
    body: &[u8],
) -> PyResult<Vec<u8>> {
    let mut out = Vec::with_capacity(256 + body.len());
    let mut header = HeaderWriter::begin(&mut out, encoding, code, opaque, flag, remark);
    for (name, value) in ext.into_iter().flatten() {
        header.ext(&name.extract::<PyBackedStr>()?, &value.extract::<PyBackedStr>()?);
    }
    header.finish(body.len()).map_err(|error| PyValueError::new_err(error.to_string()))?;
    out.extend_from_slice(body);
    Ok(out)
}
