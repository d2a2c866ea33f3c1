//! `Notice`: what a server said without being asked.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::client::pairs;
use super::errors::raise;
use crate::client::notices::{Answer, Notice as Core};

/// See `_native.pyi`.
#[pyclass(frozen, module = "rmqpy._native")]
pub struct Notice {
    core: Arc<Core>,
}

impl Notice {
    /// A handle of what came in.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }
}

#[pymethods]
impl Notice {
    #[getter]
    fn address(&self) -> &str {
        &self.core.address
    }

    #[getter]
    fn code(&self) -> Option<i32> {
        self.core.code
    }

    #[getter]
    fn ext<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in &self.core.ext {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.core.body)
    }

    #[pyo3(signature = (code = 0, remark = None, ext = None, body = None))]
    fn answer(
        &self,
        code: i32,
        remark: Option<&str>,
        ext: Option<&Bound<'_, PyDict>>,
        body: Option<&[u8]>,
    ) -> PyResult<()> {
        let ext = pairs(ext)?;
        let answer = Answer { code, remark, ext: &ext, body: body.unwrap_or_default() };
        self.core.answer(answer).map_err(|error| raise("ConnectError", &error.to_string()))
    }
}
