//! `Request`: one cold request, or one event, as Python sees it.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::dataplane::rejection::Missing;
use crate::dataplane::upcall::{Cause, Upcall};
use crate::remoting::codes::language;

/// One cold request, or one event, that went up to Python.
#[pyclass(name = "Request", module = "rmqpy._native", frozen)]
pub struct PyRequest {
    upcall: Upcall,
}

impl PyRequest {
    pub(super) fn new(upcall: Upcall) -> Self {
        Self { upcall }
    }
}

#[pymethods]
impl PyRequest {
    #[getter]
    fn kind(&self) -> &'static str {
        match self.upcall.cause {
            Cause::Request => "request",
            Cause::Answered(_) => "answer",
            Cause::Closed => "closed",
            Cause::Missing(Missing::Topic, _) => "create_topic",
            Cause::Missing(Missing::Group, _) => "create_group",
        }
    }

    #[getter]
    fn token(&self) -> u64 {
        self.upcall.token
    }

    #[getter]
    fn connection(&self) -> u64 {
        self.upcall.connection
    }

    #[getter]
    fn peer(&self) -> String {
        self.upcall.peer.to_string()
    }

    #[getter]
    fn is_vip(&self) -> bool {
        self.upcall.is_vip
    }

    #[getter]
    fn code(&self) -> i32 {
        self.upcall.code
    }

    #[getter]
    fn version(&self) -> i32 {
        self.upcall.version
    }

    #[getter]
    fn language(&self) -> &'static str {
        language::name(self.upcall.language)
    }

    #[getter]
    fn is_oneway(&self) -> bool {
        self.upcall.is_oneway
    }

    #[getter]
    fn ext<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let ext = PyDict::new(py);
        for (name, value) in &self.upcall.ext {
            ext.set_item(name, value)?;
        }
        Ok(ext)
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.upcall.body)
    }

    #[getter]
    fn name(&self) -> &str {
        match &self.upcall.cause {
            Cause::Missing(_, name) => name,
            Cause::Request | Cause::Answered(_) | Cause::Closed => "",
        }
    }

    #[getter]
    fn remark(&self) -> &str {
        match &self.upcall.cause {
            Cause::Answered(remark) => remark,
            Cause::Request | Cause::Missing(..) | Cause::Closed => "",
        }
    }

    fn __repr__(&self) -> String {
        format!("<Request {} code={} from {}>", self.kind(), self.upcall.code, self.upcall.peer)
    }
}
