//! `Completions`: what has landed, for one reader.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;

use super::call::Call;
use super::notice::Notice;
use super::send_future::SendFuture;
use super::waiting::{Home, wait};
use crate::client::completions::{Completions as Core, Landed};

/// See `_native.pyi`.
#[pyclass(frozen, module = "rmqpy._native")]
pub struct Completions {
    core: Arc<Core>,
    home: Home,
}

impl Completions {
    /// The queue behind it.
    pub fn core(&self) -> Arc<Core> {
        Arc::clone(&self.core)
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> Self {
        Self { core: Arc::default(), home: Home::here() }
    }

    fn fileno(&self) -> PyResult<i32> {
        Ok(self.core.descriptor()?)
    }

    #[pyo3(signature = (limit = 256))]
    fn take<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (token, landed) in self.core.take(limit) {
            match landed {
                Landed::Shipment(shipment) => list.append((token, SendFuture::new(shipment, self.home)))?,
                Landed::Call(call) => list.append((token, Call::new(call, token)))?,
                Landed::Notice(notice) => list.append((token, Notice::new(notice)))?,
            }
        }
        Ok(list)
    }

    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.home.check("queue of completions")?;
        wait(py, timeout, |slice| self.core.wait(slice))
    }

    fn close(&self) {
        self.core.close();
    }

    fn is_closed(&self) -> bool {
        self.core.is_closed()
    }
}
