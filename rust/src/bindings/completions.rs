//! `Completions`: requests that have an outcome, for one reader.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;

use super::call::Call;
use super::send_future::SendFuture;
use super::server_request::ServerRequest;
use super::waiting::{OwnerProcess, wait};
use crate::client::completions::{Completed, Completions as Core};

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

    fn fileno(&self) -> PyResult<i32> {
        Ok(self.core.descriptor()?)
    }

    #[pyo3(signature = (limit = 256))]
    fn take<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (token, completed) in self.core.take(limit) {
            match completed {
                Completed::Send(send) => list.append((token, SendFuture { send, owner: self.owner }))?,
                Completed::Call(call) => list.append((token, Call::new(call, token)))?,
                Completed::ServerRequest(request) => list.append((token, ServerRequest(request)))?,
            }
        }
        Ok(list)
    }

    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.owner.check("queue of completions")?;
        wait(py, timeout, |slice| self.core.wait(slice))
    }

    fn close(&self) {
        self.core.close();
    }

    fn is_closed(&self) -> bool {
        self.core.is_closed()
    }
}
