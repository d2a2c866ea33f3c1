//! SQL92 expressions: validation for subscribers, and evaluation on properties.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::message::sql::SqlFilter;

/// Return the error in a SQL92 expression, or None if it is valid. Without `strict`, trailing text is ignored.
#[pyfunction]
#[pyo3(signature = (expression, *, strict=true))]
pub(super) fn sql_error(py: Python<'_>, expression: &str, strict: bool) -> Option<String> {
    py.detach(|| SqlFilter::parse(expression, strict).err().map(|error| error.to_string()))
}

/// Whether a message with these properties matches an expression. An invalid expression matches nothing.
#[pyfunction]
#[pyo3(signature = (expression, properties, *, strict=true))]
pub(super) fn sql_matches(expression: &str, properties: &Bound<'_, PyDict>, strict: bool) -> PyResult<bool> {
    let Ok(filter) = SqlFilter::parse(expression, strict) else { return Ok(false) };
    let entries: Vec<(String, String)> = properties.items().extract()?;
    let entries = entries.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    Ok(filter.matches_entries(entries))
}
