//! `Columns` and `ArrowBatch`: pulled messages as Arrow data, exported through the Arrow C interface.
//!
//! The consumer of a capsule owns its memory; neither side needs the other's Arrow library.

use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, RecordBatch, RecordBatchIterator, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, SchemaRef};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::call::Call;
use super::decode_failure::decode_error;
use super::errors::raise;
use crate::columns::{BadText, COLUMNS, Column, DEFAULT_COUNT, Origin, Table};
use crate::message::tag::TagFilter;

/// Pulled messages as Arrow columns with exactly Spark's types. Not for concurrent use.
#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct Columns {
    table: Arc<Mutex<Table>>,
    schema: SchemaRef,
}

#[pymethods]
impl Columns {
    #[new]
    #[pyo3(signature = (columns = None, *, bad_text = "fail"))]
    fn new(columns: Option<Vec<(String, Option<String>)>>, bad_text: &str) -> PyResult<Self> {
        let refused = |error: crate::columns::SchemaError| raise("ConfigError", &error.to_string());
        let columns = match columns {
            None => Column::defaults(),
            Some(asked) => asked
                .iter()
                .map(|(name, column_type)| Column::find(name, column_type.as_deref()))
                .collect::<Result<_, _>>()
                .map_err(refused)?,
        };
        let bad_text = match bad_text {
            "fail" => BadText::Fail,
            "null" => BadText::Null,
            "replace" => BadText::Replace,
            other => {
                return Err(raise("ConfigError", &format!("bad_text {other:?}: use fail, null or replace")));
            }
        };
        let table = Table::new(columns, bad_text).map_err(refused)?;
        Ok(Self { schema: table.schema(), table: Arc::new(Mutex::new(table)) })
    }

    /// Every column: name, possible types (default first), and whether it is included by default.
    #[staticmethod]
    fn known() -> Vec<(&'static str, Vec<&'static str>, bool)> {
        let described = COLUMNS.iter().enumerate().map(|(index, (name, _, types))| {
            (*name, types.iter().map(|known| known.name()).collect(), index < DEFAULT_COUNT)
        });
        described.collect()
    }

    /// Add the messages of a pull that have one of the tags and offsets in [begin, end); return how many.
    ///
    /// Raises `DecodeError` naming an undecodable message; those before it were added.
    #[pyo3(signature = (call, queue, *, tags = "*", begin = 0, end = u64::MAX))]
    fn append(
        &self,
        py: Python<'_>,
        call: &Call,
        queue: &Bound<'_, PyAny>,
        tags: &str,
        begin: u64,
        end: u64,
    ) -> PyResult<usize> {
        let (topic, broker, queue_id): (String, String, i32) = queue.extract()?;
        let origin = Origin { topic: &topic, broker: &broker, queue_id };
        let (body, tags) = (&call.reply()?.body, TagFilter::parse(tags));
        let appended = py.detach(|| self.table.lock().append(body, &origin, &(begin..end), &tags));
        appended.map_err(|error| decode_error(&error, queue))
    }

    /// The number of rows so far.
    #[getter]
    fn num_rows(&self, py: Python<'_>) -> usize {
        py.detach(|| self.table.lock().rows())
    }

    /// The memory of the rows in bytes.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> usize {
        py.detach(|| self.table.lock().bytes())
    }

    /// Return the rows so far, and leave the columns empty.
    fn take(&self, py: Python<'_>) -> PyResult<ArrowBatch> {
        let batch = py.detach(|| self.table.lock().finish()).map_err(refused)?;
        Ok(ArrowBatch { batch })
    }

    /// Return an `arrow_array_stream` capsule that reads its batches from an iterator.
    fn stream<'py>(&self, py: Python<'py>, batches: Py<PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
        let reader = PythonBatches { batches, schema: self.schema.clone() };
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.schema)
    }
}

impl Columns {
    /// Returns the rows, for an I/O thread that adds some without Python.
    pub(super) fn table(&self) -> Arc<Mutex<Table>> {
        Arc::clone(&self.table)
    }
}

/// Rows as Arrow data. Any Arrow library imports it without a copy: `pyarrow.record_batch(batch)`.
#[pyclass(frozen, module = "rmqpy", name = "ArrowBatch")]
pub(super) struct ArrowBatch {
    batch: RecordBatch,
}

#[pymethods]
impl ArrowBatch {
    /// The number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// The size of all columns in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.batch.get_array_memory_size()
    }

    /// The names of the columns, in order.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // The interface makes casting optional; the columns already have the requested types.
        let _ = requested_schema;
        let array = FFI_ArrowArray::new(&StructArray::from(self.batch.clone()).to_data());
        Ok((
            schema_capsule(py, self.batch.schema_ref())?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let reader = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.batch.schema_ref())
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<ArrowBatch of {} rows: {}>", self.batch.num_rows(), self.column_names().join(", "))
    }
}

/// A Python iterator of `ArrowBatch` as a record batch reader. The consumer's thread enters Python for each batch.
struct PythonBatches {
    batches: Py<PyAny>,
    schema: SchemaRef,
}

impl Iterator for PythonBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        Python::attach(|py| {
            let next = self.batches.bind(py).try_iter().and_then(|mut batches| batches.next().transpose());
            match next {
                Ok(None) => None,
                Ok(Some(batch)) => match batch.cast::<ArrowBatch>() {
                    Ok(batch) => Some(Ok(batch.get().batch.clone())),
                    Err(error) => Some(Err(ArrowError::CDataInterface(error.to_string()))),
                },
                Err(error) => Some(Err(ArrowError::ExternalError(Box::new(error)))),
            }
        })
    }
}

impl RecordBatchReader for PythonBatches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

fn schema_capsule<'py>(py: Python<'py>, schema: &SchemaRef) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema.as_ref()).map_err(refused)?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

fn refused(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
