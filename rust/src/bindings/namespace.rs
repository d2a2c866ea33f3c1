//! `Namespace`: names of topics and groups as users write them, and as they are on the wire.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::errors::raise;
use crate::message::namespace::Namespace as Core;

/// The namespace of a client: its users write `orders`, and brokers know the topic as `shop%orders`.
///
/// Comparable by value, picklable.
#[pyclass(frozen, eq, hash, from_py_object, module = "rmqpy._native")]
#[derive(Clone, PartialEq, Hash)]
pub(super) struct Namespace {
    pub(super) core: Core,
}

#[pymethods]
impl Namespace {
    #[new]
    #[pyo3(signature = (name, /))]
    pub(super) fn new(name: &str) -> PyResult<Self> {
        let core = Core::new(name).ok_or_else(|| {
            raise(
                "ConfigError",
                &format!("namespace {name:?} has characters other than letters, digits, _, - and |, or none"),
            )
        })?;
        Ok(Self { core })
    }

    /// What users call it.
    #[getter]
    fn name(&self) -> &str {
        self.core.name()
    }

    /// A topic or group as brokers know it. One of the system, or that is wrapped already, stays as it is.
    fn wrap<'py>(&self, name: &Bound<'py, PyString>) -> Bound<'py, PyString> {
        let text = name.to_string_lossy();
        same_or_new(name, &text, &self.core.wrap(&text))
    }

    /// A topic or group as users of this namespace write it; names of others stay as they are.
    fn unwrap<'py>(&self, name: &Bound<'py, PyString>) -> Bound<'py, PyString> {
        let text = name.to_string_lossy();
        same_or_new(name, &text, &self.core.unwrap(&text))
    }

    /// Whether users of this namespace see a name that brokers know: one of theirs, or of the system.
    fn shows(&self, name: &Bound<'_, PyString>) -> bool {
        self.core.shows(&name.to_string_lossy())
    }

    fn __repr__(&self) -> String {
        format!("Namespace({:?})", self.core.name())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, (String,)) {
        (slf.get_type(), (slf.get().core.name().to_owned(),))
    }
}

/// JSON can smuggle half a surrogate pair into a name: it is U+FFFD, three times, where the name changes.
fn same_or_new<'py>(name: &Bound<'py, PyString>, before: &str, after: &str) -> Bound<'py, PyString> {
    if before == after { name.clone() } else { PyString::new(name.py(), after) }
}
