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
    /// `answer`: what a client says to `Server.ask`. `closed`: the connection is gone. `create_topic`,
    /// `create_group`: the first send to a topic, or pull of a group, that does not exist; such requests are parked
    /// until `Server.release` for `name`, for 3 s at most.
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

    /// Names this request in `Server.answer`; of an answer, what `Server.ask` returned; 0 for events.
    #[getter]
    fn token(&self) -> u64 {
        self.upcall.token
    }

    /// Number of the connection it came on.
    #[getter]
    fn connection(&self) -> u64 {
        self.upcall.connection
    }

    /// `ip:port` of the other side.
    #[getter]
    fn peer(&self) -> String {
        self.upcall.peer.to_string()
    }

    /// Whether it came on the port for those that must not wait.
    #[getter]
    fn is_vip(&self) -> bool {
        self.upcall.is_vip
    }

    /// The request code.
    #[getter]
    fn code(&self) -> i32 {
        self.upcall.code
    }

    /// Ordinal of the sender's release.
    #[getter]
    fn version(&self) -> i32 {
        self.upcall.version
    }

    /// The client's programming language.
    #[getter]
    fn language(&self) -> &'static str {
        language::name(self.upcall.language)
    }

    /// One-way: do not answer.
    #[getter]
    fn is_oneway(&self) -> bool {
        self.upcall.is_oneway
    }

    /// Who sent it, where access control is on and it says so.
    #[getter]
    fn user(&self) -> Option<&str> {
        self.upcall.user.as_deref()
    }

    /// Whether what it needs must be asked for, with `Server.authorize`.
    #[getter]
    fn is_guarded(&self) -> bool {
        self.upcall.is_guarded
    }

    /// The header's fields.
    #[getter]
    fn ext<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let ext = PyDict::new(py);
        for (name, value) in &self.upcall.ext {
            ext.set_item(name, value)?;
        }
        Ok(ext)
    }

    /// The body, empty without one, and where it has more than `Server.declare_requests` said.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.upcall.body)
    }

    /// Bytes of the body as it came.
    #[getter]
    fn body_bytes(&self) -> usize {
        self.upcall.body_bytes
    }

    /// What is to be created; empty for requests. `code` and `ext` are those of the first parked request.
    #[getter]
    fn name(&self) -> &str {
        match &self.upcall.cause {
            Cause::Missing(_, name) => name,
            Cause::Request | Cause::Answered(_) | Cause::Closed => "",
        }
    }

    /// Of an answer; empty for everything else.
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
