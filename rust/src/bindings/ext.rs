//! Header fields: conversion to and from Python dicts.

use pyo3::prelude::*;
use pyo3::types::PyDict;

pub(super) fn pairs(ext: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, String)>> {
    let Some(ext) = ext else { return Ok(Vec::new()) };
    ext.iter().map(|(name, value)| Ok((name.extract()?, value.extract()?))).collect()
}

pub(super) fn dict<'py>(py: Python<'py>, pairs: &[(String, String)]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in pairs {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}
