//! `Request`: one request or event forwarded to Python.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::dataplane::state::rejection::Missing;
use crate::dataplane::waiting::upcall::{Cause, Upcall};
use crate::remoting::codes::language;

/// One cold request, or one event, forwarded to Python.
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
    /// `request`, or an event. `answer`: a client's response to `Server.ask`. `closed`: the connection ended.
    /// `create_topic`, `create_group`: the first send to an unknown topic, or pull of an unknown group; such requests
    /// are parked for at most 3 s, until `Server.release` is called for `name`.
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

    /// Identifies this request in `Server.answer`. For an answer, the value that `Server.ask` returned; 0 for
    /// events.
    #[getter]
    fn token(&self) -> u64 {
        self.upcall.token
    }

    /// The number of the connection it arrived on.
    #[getter]
    fn connection(&self) -> u64 {
        self.upcall.connection
    }

    /// `ip:port` of the peer.
    #[getter]
    fn peer(&self) -> String {
        self.upcall.peer.to_string()
    }

    /// The local `ip:port`.
    #[getter]
    fn local(&self) -> String {
        self.upcall.local.to_string()
    }

    /// Whether it arrived on the VIP port.
    #[getter]
    fn is_vip(&self) -> bool {
        self.upcall.is_vip
    }

    /// The request code.
    #[getter]
    fn code(&self) -> i32 {
        self.upcall.code
    }

    /// The ordinal of the sender's release.
    #[getter]
    fn version(&self) -> i32 {
        self.upcall.version
    }

    /// The client's programming language.
    #[getter]
    fn language(&self) -> &'static str {
        language::name(self.upcall.language)
    }

    /// Whether it is one-way and must not be answered.
    #[getter]
    fn is_oneway(&self) -> bool {
        self.upcall.is_oneway
    }

    /// The authenticated user, if access control is on and the request names one.
    #[getter]
    fn user(&self) -> Option<&str> {
        self.upcall.user.as_deref()
    }

    /// Whether `Server.authorize` must check its requirements.
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

    /// The body; empty if absent, or if larger than `Server.declare_requests` allows.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.upcall.body)
    }

    /// The size of the body as received, in bytes.
    #[getter]
    fn body_bytes(&self) -> usize {
        self.upcall.body_bytes
    }

    /// The topic or group to create; empty for requests. `code` and `ext` are those of the first parked request.
    #[getter]
    fn name(&self) -> &str {
        match &self.upcall.cause {
            Cause::Missing(_, name) => name,
            Cause::Request | Cause::Answered(_) | Cause::Closed => "",
        }
    }

    /// The remark of an answer; otherwise empty.
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
