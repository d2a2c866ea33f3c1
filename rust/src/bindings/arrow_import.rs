//! Arrow data from Python, without a copy: the other way of the Arrow C interface.
//!
//! Owns the one place where memory of another library is taken over. The interface is pointers in a capsule, so this
//! module may use `unsafe`; its own interface is safe.

#![allow(unsafe_code, reason = "the Arrow C interface hands over structures by address")]

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, RecordBatch};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// The batches of any object that has `__arrow_c_stream__`: a batch or a table of pyarrow, polars, our own.
///
/// Everything is validated, texts for being UTF-8 included: what comes from here is as sound as what is made here.
pub(super) fn batches(source: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    let method = source.getattr("__arrow_c_stream__").map_err(|_| {
        PyTypeError::new_err(format!("expected Arrow data, which {} is not", source.get_type()))
    })?;
    let capsule = method.call0()?.cast_into::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(c"arrow_array_stream"))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name holds a live stream by the interface's rules, and we hold the capsule. The
    // stream is moved out; what stays behind is marked as released, so that the capsule's destructor leaves it alone.
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
