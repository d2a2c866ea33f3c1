//! Errors: raises the classes of `rmqpy.errors` for errors of the core.
//!
//! Python owns the class tree; a class is looked up by name when an error is raised.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns an error of the class `class` of `rmqpy.errors`.
pub(super) fn raise(class: &str, message: &str) -> PyErr {
    raise_with(class, message, |_| Ok(()))
}

/// Returns such an error, with attributes as keyword arguments.
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
