//! `Call`: one request and, in time, its reply.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use super::errors::{raise, raise_with};
use super::received::ReceivedMessage;
use super::waiting::{Home, wait};
use crate::client::call::{Answer, Call as Core};
use crate::columns::{RowError, each_row};
use crate::message::properties::name;
use crate::message::tag::TagFilter;
use crate::remoting::CallError;

/// See `_native.pyi`.
#[pyclass(frozen, module = "rmqpy._native")]
pub struct Call {
    core: Arc<Core>,
    token: u64,
    home: Home,
}

impl Call {
    /// A handle of a request under way, or done.
    pub fn new(core: Arc<Core>, token: u64) -> Self {
        Self { core, token, home: Home::here() }
    }

    /// The reply. Raises while there is none.
    pub fn answer(&self) -> PyResult<&Answer> {
        match self.core.outcome() {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => Err(raise("ConnectError", &error.to_string())),
            None => Err(raise("ConnectError", "there is no reply yet")),
        }
    }
}

#[pymethods]
impl Call {
    #[getter]
    fn token(&self) -> u64 {
        self.token
    }

    fn done(&self) -> bool {
        self.core.outcome().is_some()
    }

    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        if self.done() {
            return Ok(true);
        }
        self.home.check("call")?;
        wait(py, timeout, |slice| self.core.wait(slice))
    }

    #[getter]
    fn failure(&self) -> Option<(&'static str, String)> {
        match self.core.outcome() {
            Some(Err(error)) => Some((failure_kind(error), error.to_string())),
            _ => None,
        }
    }

    #[getter]
    fn code(&self) -> PyResult<i32> {
        Ok(self.answer()?.code)
    }

    #[getter]
    fn remark(&self) -> PyResult<Option<&str>> {
        Ok(self.answer()?.remark.as_deref())
    }

    #[getter]
    fn ext<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in &self.answer()?.ext {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.answer()?.body))
    }

    #[getter]
    fn body_size(&self) -> PyResult<usize> {
        Ok(self.answer()?.body.len())
    }

    fn rows(&self, queue: &Bound<'_, PyAny>) -> PyResult<usize> {
        match &self.answer()?.rows {
            Some(Ok(rows)) => Ok(*rows),
            Some(Err(error)) => Err(decode_error(error, queue)),
            None => Ok(0),
        }
    }

    #[pyo3(signature = (queue, *, tags = "*", begin = 0, end = u64::MAX))]
    fn messages<'py>(
        &self,
        py: Python<'py>,
        queue: &Bound<'py, PyAny>,
        tags: &str,
        begin: u64,
        end: u64,
    ) -> PyResult<Bound<'py, PyList>> {
        let body = &self.answer()?.body;
        let filter = TagFilter::parse(tags);
        let list = PyList::empty(py);
        each_row(body, |at, row| {
            // Brokers filter by hash: what slipped through by a collision is dropped here.
            if (begin..end).contains(&row.queue_offset()) && filter.matches_tag(row.property(name::TAGS)) {
                let record = body.slice(at..at + row.record().total_size());
                list.append(ReceivedMessage::new(record, row.index(), queue.clone().unbind()))?;
            }
            Ok(())
        })
        .map_err(|error: Broken| error.into_py_err(queue))?;
        Ok(list)
    }
}

/// How Python tells failures apart.
pub fn failure_kind(error: &CallError) -> &'static str {
    match error {
        CallError::Connect { .. } => "connect",
        CallError::Overloaded { .. } => "overloaded",
        CallError::Unsendable(_) => "unsendable",
        CallError::Disconnected { .. } => "lost",
        CallError::Timeout { .. } => "timeout",
        CallError::Stopped => "closed",
    }
}

/// What can go wrong while messages are made of bytes.
pub enum Broken {
    /// The bytes.
    Row(RowError),
    /// The interpreter.
    Python(PyErr),
}

impl From<RowError> for Broken {
    fn from(error: RowError) -> Self {
        Self::Row(error)
    }
}

impl From<PyErr> for Broken {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl Broken {
    fn into_py_err(self, queue: &Bound<'_, PyAny>) -> PyErr {
        match self {
            Self::Row(error) => decode_error(&error, queue),
            Self::Python(error) => error,
        }
    }
}

/// `DecodeError`, naming the queue the bytes came from.
pub fn decode_error(error: &RowError, queue: &Bound<'_, PyAny>) -> PyErr {
    let place = queue.str().map_or_else(|_| String::new(), |text| text.to_string());
    let attribute = |name: &str| queue.getattr(name).ok();
    raise_with("DecodeError", &format!("{error} ({place})"), |keywords| {
        keywords.set_item("topic", attribute("topic"))?;
        keywords.set_item("broker", attribute("broker"))
    })
}
