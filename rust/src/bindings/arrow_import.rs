//! Arrow import: Arrow data from Python without a copy, through the Arrow C interface.
//!
//! This is the only module that takes over memory of another library. The interface passes pointers in a capsule, so
//! the module may use `unsafe`; its own interface is safe.

#![allow(unsafe_code, reason = "the Arrow C interface passes structures by address")]

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, RecordBatch};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Returns the batches of any object with `__arrow_c_stream__`: a batch or table of pyarrow, polars, or rmqpy.
///
/// Everything is validated, including UTF-8, so imported data is as sound as data built here.
pub(super) fn batches(source: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    let method = source
        .getattr("__arrow_c_stream__")
        .map_err(|_| PyTypeError::new_err(format!("{} is not Arrow data", source.get_type())))?;
    let capsule = method.call0()?.cast_into::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(c"arrow_array_stream"))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: by the interface's rules a capsule of this name holds a live stream, and this function holds the
    // capsule. The stream is moved out and the capsule's copy marked as released, so that its destructor does
    // nothing.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
    let reader = RecordBatchStreamReader::try_new(stream).map_err(refused)?;
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(refused)?;
    for column in batches.iter().flat_map(RecordBatch::columns) {
        column.to_data().validate_full().map_err(refused)?;
    }
    Ok(batches)
}

fn refused(error: arrow_schema::ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
