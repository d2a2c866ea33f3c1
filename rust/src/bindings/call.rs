//! `Call`: one request and its eventual reply.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList};

use super::decode_failure::{DecodeFailure, decode_error};
use super::errors::raise;
use super::ext;
use super::namespace::Namespace;
use super::owner_process::OwnerProcess;
use super::received::ReceivedMessage;
use super::waiting::wait;
use crate::client::call::{Call as Core, KeptReply};
use crate::client::popped::{PopFields, each_popped};
use crate::columns::{RowError, each_row};
use crate::message::properties::name;
use crate::message::tag::TagFilter;
use crate::remoting::CallError;

/// A request in flight, then its outcome: a reply with any code, or a failure.
#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct Call {
    core: Arc<Core>,
    token: u64,
    owner: OwnerProcess,
}

impl Call {
    pub(super) fn new(core: Arc<Core>, token: u64) -> Self {
        Self { core, token, owner: OwnerProcess::here() }
    }

    /// Returns the reply. Raises before it has arrived.
    pub(super) fn reply(&self) -> PyResult<&KeptReply> {
        match self.core.outcome() {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(error)) => Err(raise("ConnectError", &error.to_string())),
            None => Err(raise("ConnectError", "the reply has not arrived yet")),
        }
    }
}

#[pymethods]
impl Call {
    /// The token the request was made with.
    #[getter]
    fn token(&self) -> u64 {
        self.token
    }

    /// Whether there is an outcome.
    fn done(&self) -> bool {
        self.core.outcome().is_some()
    }

    /// Wait for the outcome. Returns False after `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        if self.done() {
            return Ok(true);
        }
        self.owner.check("call")?;
        wait(py, timeout, |slice| self.core.wait(slice))
    }

    /// Kind and text of the failure, or None: connect, overloaded, unsendable, lost, timeout or closed.
    #[getter]
    fn failure(&self) -> Option<(&'static str, String)> {
        match self.core.outcome() {
            Some(Err(error)) => Some((failure_kind(error), error.to_string())),
            _ => None,
        }
    }

    /// The response code. This and the following attributes raise `ConnectError` without a reply.
    #[getter]
    fn code(&self) -> PyResult<i32> {
        Ok(self.reply()?.code)
    }

    /// The server's remark on the code.
    #[getter]
    fn remark(&self) -> PyResult<Option<&str>> {
        Ok(self.reply()?.remark.as_deref())
    }

    /// The header's fields.
    #[getter]
    fn ext<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ext::dict(py, &self.reply()?.ext)
    }

    /// The body; empty if absent.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.reply()?.body))
    }

    /// The size of the body in bytes.
    #[getter]
    fn body_size(&self) -> PyResult<usize> {
        Ok(self.reply()?.body.len())
    }

    /// How many messages `Client.pull` added to its columns. Raises `DecodeError` naming an undecodable message;
    /// those before it were added.
    fn rows(&self, queue: &Bound<'_, PyAny>) -> PyResult<usize> {
        match &self.reply()?.rows {
            Some(Ok(rows)) => Ok(*rows),
            Some(Err(error)) => Err(decode_error(error, queue)),
            None => Ok(0),
        }
    }

    /// Decode the body of a pull: the messages with offsets in [begin, end) and one of the tags.
    ///
    /// `namespace` is that of the reader. Raises `DecodeError` naming the place when the bytes are not records.
    #[pyo3(signature = (queue, *, tags = "*", begin = 0, end = u64::MAX, namespace = None))]
    fn messages<'py>(
        &self,
        py: Python<'py>,
        queue: &Bound<'py, PyAny>,
        tags: &str,
        begin: u64,
        end: u64,
        namespace: Option<&Namespace>,
    ) -> PyResult<Bound<'py, PyList>> {
        let body = &self.reply()?.body;
        let filter = TagFilter::parse(tags);
        let list = PyList::empty(py);
        each_row(body, |at, row| {
            // Brokers filter by hash; drop the collisions here.
            if (begin..end).contains(&row.queue_offset()) && filter.matches_tag(row.property(name::TAGS)) {
                let record = body.slice(at..at + row.record().total_size());
                let namespace = namespace.map(|of| of.core.clone());
                list.append(ReceivedMessage::new(record, row.index(), queue.clone().unbind(), namespace))?;
            }
            Ok(())
        })
        .map_err(|error: DecodeFailure| error.into_py_err(queue))?;
        Ok(list)
    }

    /// Decode the body of an answer to a pop; each message has its handle as the property `POP_CK`.
    ///
    /// `namespace` is that of the reader. Raises `DecodeError` naming the place when the bytes are not records.
    #[pyo3(signature = (topic, broker, namespace = None))]
    fn popped<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        broker: &str,
        namespace: Option<&Namespace>,
    ) -> PyResult<Bound<'py, PyList>> {
        static QUEUE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let queue_type = QUEUE.import(py, "rmqpy.message", "MessageQueue")?;
        let KeptReply { ext, body, .. } = self.reply()?;
        let fields = PopFields {
            pop_time: field(ext, "popTime"),
            invisible_time: field(ext, "invisibleTime"),
            revive_queue: field(ext, "reviveQid"),
            starts: field(ext, "startOffsetInfo"),
        };
        let mut records = Vec::new();
        let read = each_popped(body, &fields, broker, |record, queue_id| records.push((record, queue_id)));
        if let Err((at, error)) = read {
            let queue = queue_type.call1((topic, broker, -1))?;
            return Err(decode_error(&RowError::Record { at, error }, &queue));
        }
        let list = PyList::empty(py);
        for (record, queue_id) in records {
            let queue = queue_type.call1((topic, broker, queue_id))?;
            let namespace = namespace.map(|of| of.core.clone());
            list.append(ReceivedMessage::new(record, None, queue.unbind(), namespace))?;
        }
        Ok(list)
    }
}

/// Returns the value of a field; empty if it is missing.
fn field<'f>(ext: &'f [(String, String)], name: &str) -> &'f str {
    ext.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

/// Returns the failure kind that Python distinguishes.
pub(super) fn failure_kind(error: &CallError) -> &'static str {
    match error {
        CallError::Connect { .. } => "connect",
        CallError::Overloaded { .. } => "overloaded",
        CallError::Unsendable(_) => "unsendable",
        CallError::Disconnected { .. } => "lost",
        CallError::Timeout { .. } => "timeout",
        CallError::Stopped => "closed",
    }
}
