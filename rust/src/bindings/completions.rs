//! `Completions`: a queue of finished requests for one reader.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;

use super::call::Call;
use super::owner_process::OwnerProcess;
use super::send_future::SendFuture;
use super::server_request::ServerRequest;
use super::waiting::wait;
use crate::client::completions::{Completed, Completions as Core};

/// A queue of finished requests for one reader. Any number of requests may post to it.
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

    /// A descriptor that is readable while the queue has entries, and after `close`.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.core.descriptor()?)
    }

    /// Take entries, oldest first: the token of a request with its `Call` or `SendFuture`, or a `ServerRequest`.
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

    /// Wait for an entry or `close`. Returns False after `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.owner.check("queue of completions")?;
        wait(py, timeout, |slice| self.core.wait(slice))
    }

    /// Close the queue and wake its reader. Later completions are dropped, and failed sends are not retried.
    /// Idempotent.
    fn close(&self) {
        self.core.close();
    }

    /// Whether the queue is closed.
    fn is_closed(&self) -> bool {
        self.core.is_closed()
    }
}
