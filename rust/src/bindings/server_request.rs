//! `ServerRequest`: a request that a server sent unasked, or the end of its connection.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::errors::raise;
use super::ext;
use crate::client::server_request::{Response, ServerRequest as Core};

/// A request that a server sent unasked, or the end of its connection.
#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct ServerRequest(pub(super) Arc<Core>);

#[pymethods]
impl ServerRequest {
    /// The server, as it was called.
    #[getter]
    fn address(&self) -> &str {
        &self.0.address
    }

    /// The request code; `None` for a connection that ended.
    #[getter]
    fn code(&self) -> Option<i32> {
        self.0.code
    }

    /// The header's fields.
    #[getter]
    fn ext<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ext::dict(py, &self.0.ext)
    }

    /// The body, empty without one.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.body)
    }

    /// Answer a server that waits for it; does nothing for a one-way request, or one that was answered before.
    ///
    /// Raises `ConnectError` when the connection has ended or the answer does not fit a frame.
    #[pyo3(signature = (code = 0, remark = None, ext = None, body = None))]
    fn answer(
        &self,
        code: i32,
        remark: Option<&str>,
        ext: Option<&Bound<'_, PyDict>>,
        body: Option<&[u8]>,
    ) -> PyResult<()> {
        let ext = ext::pairs(ext)?;
        let response = Response { code, remark, ext: &ext, body: body.unwrap_or_default() };
        self.0.answer(response).map_err(|error| raise("ConnectError", &error.to_string()))
    }
}
