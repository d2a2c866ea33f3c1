//! `Completions`: requests that have an outcome, for one reader.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;

use super::call::Call;
use super::owner_process::OwnerProcess;
use super::send_future::SendFuture;
use super::server_request::ServerRequest;
use super::waiting::wait;
use crate::client::completions::{Completed, Completions as Core};

/// Requests that have an outcome, for one reader; any number of requests announce themselves to it.
#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct Completions {
    pub(super) core: Arc<Core>,
    owner: OwnerProcess,
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> Self {
        Self { core: Arc::default(), owner: OwnerProcess::here() }
    }

    /// Readable while something waits here, and after `close`.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.core.descriptor()?)
    }

    /// Oldest first: the token a request was made with, and its `Call` or `SendFuture`; or a `ServerRequest`.
    #[pyo3(signature = (limit = 256))]
    fn take<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (token, completed) in self.core.take(limit) {
            match completed {
                Completed::Send(send) => {
                    list.append((token, SendFuture { send, owner: self.owner, add_callback: None }))?;
                }
                Completed::Call(call) => list.append((token, Call::new(call, token)))?,
                Completed::ServerRequest(request) => list.append((token, ServerRequest(request)))?,
            }
        }
        Ok(list)
    }

    /// Sleep until something is here or `close` was called; False when `timeout` seconds passed first.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.owner.check("queue of completions")?;
        wait(py, timeout, |slice| self.core.wait(slice))
    }

    /// Wake the reader for good; what completes later is dropped, and sends that failed are given up. Idempotent.
    fn close(&self) {
        self.core.close();
    }

    /// Whether `close` was called.
    fn is_closed(&self) -> bool {
        self.core.is_closed()
    }
}
