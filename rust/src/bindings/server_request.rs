//! `ServerRequest`: a request from a server, or the end of its connection.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::errors::raise;
use super::ext;
use crate::client::server_request::{Response, ServerRequest as Core};

/// A request from a server, or the end of its connection.
#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct ServerRequest(pub(super) Arc<Core>);

#[pymethods]
impl ServerRequest {
    /// The address of the server, as connected to.
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

    /// The body; empty if absent.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.body)
    }

    /// Send the response; no-op for a one-way or already answered request.
    ///
    /// Raises `ConnectError` when the connection has ended or the response does not fit a frame.
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
