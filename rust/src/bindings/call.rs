//! `Call`: one request and, in time, its reply.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use super::decode_failure::{DecodeFailure, decode_error};
use super::errors::raise;
use super::ext;
use super::namespace::Namespace;
use super::owner_process::OwnerProcess;
use super::received::ReceivedMessage;
use super::waiting::wait;
use crate::client::call::{Call as Core, KeptReply};
use crate::columns::each_row;
use crate::message::properties::name;
use crate::message::tag::TagFilter;
use crate::remoting::CallError;

/// A request under way, then its outcome: a reply with any code, or the reason why there is none.
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

    /// The reply. Raises while there is none.
    pub(super) fn reply(&self) -> PyResult<&KeptReply> {
        match self.core.outcome() {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(error)) => Err(raise("ConnectError", &error.to_string())),
            None => Err(raise("ConnectError", "there is no reply yet")),
        }
    }
}

#[pymethods]
impl Call {
    /// The number it was made with.
    #[getter]
    fn token(&self) -> u64 {
        self.token
    }

    /// Whether there is an outcome.
    fn done(&self) -> bool {
        self.core.outcome().is_some()
    }

    /// Until there is an outcome; False when `timeout` seconds passed first.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        if self.done() {
            return Ok(true);
        }
        self.owner.check("call")?;
        wait(py, timeout, |slice| self.core.wait(slice))
    }

    /// Kind and text, when there is no reply: connect, overloaded, unsendable, lost, timeout or closed.
    #[getter]
    fn failure(&self) -> Option<(&'static str, String)> {
        match self.core.outcome() {
            Some(Err(error)) => Some((failure_kind(error), error.to_string())),
            _ => None,
        }
    }

    /// Of the reply, as all below; `ConnectError` while there is none.
    #[getter]
    fn code(&self) -> PyResult<i32> {
        Ok(self.reply()?.code)
    }

    /// What the server says about the code.
    #[getter]
    fn remark(&self) -> PyResult<Option<&str>> {
        Ok(self.reply()?.remark.as_deref())
    }

    /// The header's fields.
    #[getter]
    fn ext<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ext::dict(py, &self.reply()?.ext)
    }

    /// The body, empty without one.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.reply()?.body))
    }

    /// Bytes of the body.
    #[getter]
    fn body_size(&self) -> PyResult<usize> {
        Ok(self.reply()?.body.len())
    }

    /// How many messages `Client.pull` has put into its columns. Raises `DecodeError` naming the one that cannot be
    /// read; those before it are in.
    fn rows(&self, queue: &Bound<'_, PyAny>) -> PyResult<usize> {
        match &self.reply()?.rows {
            Some(Ok(rows)) => Ok(*rows),
            Some(Err(error)) => Err(decode_error(error, queue)),
            None => Ok(0),
        }
    }

    /// The body of a pull, read: what has offsets in [begin, end) and one of the tags.
    ///
    /// `namespace`: that of the reader. Raises `DecodeError` naming the place when the bytes are not records.
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
            // Brokers filter by hash: what slipped through by a collision is dropped here.
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
}

/// The word by which Python tells failures apart.
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
