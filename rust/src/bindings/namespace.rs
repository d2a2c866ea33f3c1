//! `Namespace`: converts topic and group names between users and brokers.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::errors::raise;
use crate::message::namespace::Namespace as Core;

/// The namespace of a client. Its users write `orders`, and brokers see the topic as `shop%orders`.
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
                &format!(
                    "namespace {name:?} is empty or has characters other than letters, digits, _, - and |"
                ),
            )
        })?;
        Ok(Self { core })
    }

    /// The name of the namespace.
    #[getter]
    fn name(&self) -> &str {
        self.core.name()
    }

    /// Return a topic or group as brokers see it. System names and wrapped names are unchanged.
    fn wrap<'py>(&self, name: &Bound<'py, PyString>) -> Bound<'py, PyString> {
        let text = name.to_string_lossy();
        same_or_new(name, &text, &self.core.wrap(&text))
    }

    /// Return a topic or group as users of this namespace write it; names of other namespaces are unchanged.
    fn unwrap<'py>(&self, name: &Bound<'py, PyString>) -> Bound<'py, PyString> {
        let text = name.to_string_lossy();
        same_or_new(name, &text, &self.core.unwrap(&text))
    }

    /// Whether users of this namespace see a broker's name: one of this namespace, or a system name.
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

/// JSON may contain an unpaired surrogate in a name; it becomes three U+FFFD when the name changes.
fn same_or_new<'py>(name: &Bound<'py, PyString>, before: &str, after: &str) -> Bound<'py, PyString> {
    if before == after { name.clone() } else { PyString::new(name.py(), after) }
}
