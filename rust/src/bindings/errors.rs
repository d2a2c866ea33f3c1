//! Errors of the core as the classes of `rmqpy.errors`.
//!
//! The tree is Python's, where users read it; here it is looked up by name, when an error is raised and not before.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An error of the class `class` of `rmqpy.errors`.
pub(super) fn raise(class: &str, message: &str) -> PyErr {
    raise_with(class, message, |_| Ok(()))
}

/// Likewise, with attributes given as keyword arguments.
pub(super) fn raise_with(
    class: &str,
    message: &str,
    attributes: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>,
) -> PyErr {
    Python::attach(|py| {
        let made = || -> PyResult<Bound<'_, PyAny>> {
            let keywords = PyDict::new(py);
            attributes(&keywords)?;
            py.import("rmqpy.errors")?.getattr(class)?.call((message,), Some(&keywords))
        };
        match made() {
            Ok(error) => PyErr::from_value(error),
            Err(broken) => broken,
        }
    })
}
