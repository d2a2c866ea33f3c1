//! Decode failures: undecodable bytes as a `DecodeError` that names their queue.

use pyo3::prelude::*;

use super::errors::raise_with;
use crate::columns::RowError;

/// The reason why decoding into Python objects stopped.
pub(super) enum DecodeFailure {
    Row(RowError),
    Python(PyErr),
}

impl From<RowError> for DecodeFailure {
    fn from(error: RowError) -> Self {
        Self::Row(error)
    }
}

impl From<PyErr> for DecodeFailure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl DecodeFailure {
    pub(super) fn into_py_err(self, queue: &Bound<'_, PyAny>) -> PyErr {
        match self {
            Self::Row(error) => decode_error(&error, queue),
            Self::Python(error) => error,
        }
    }
}

/// Returns a `DecodeError` that names the queue of the bytes.
pub(super) fn decode_error(error: &RowError, queue: &Bound<'_, PyAny>) -> PyErr {
    let place = queue.str().map_or_else(|_| String::new(), |text| text.to_string());
    let attribute = |name: &str| queue.getattr(name).ok();
    raise_with("DecodeError", &format!("{error} ({place})"), |keywords| {
        keywords.set_item("topic", attribute("topic"))?;
        keywords.set_item("broker", attribute("broker"))
    })
}
