//! `ReceivedMessage`: a pulled record whose attributes are read when they are asked for.

use bytes::Bytes;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBytes, PyDateTime, PyDict, PyMappingProxy, PyMemoryView, PyString, PyTuple, PyType, PyTzInfo,
};

use super::decode_failure::decode_error;
use super::message::repr_body;
use crate::columns::Row;
use crate::message::properties::{self, name};
use crate::message::topic::RETRY_PREFIX;

/// See `_native.pyi`.
#[pyclass(frozen, module = "rmqpy", name = "ReceivedMessage")]
pub(super) struct ReceivedMessage {
    /// The whole record; of a batch, the record its members share.
    record: Bytes,
    /// Place in that batch.
    index: Option<u32>,
    queue: Py<PyAny>,
    body: PyOnceLock<Py<PyBytes>>,
    properties: PyOnceLock<Py<PyMappingProxy>>,
}

/// What `restore` takes.
type Restored<'py> = (Bound<'py, PyBytes>, Option<u32>, Bound<'py, PyAny>);

impl ReceivedMessage {
    /// The message in `record`, or in the batch there at `index`.
    pub(super) fn new(record: Bytes, index: Option<u32>, queue: Py<PyAny>) -> Self {
        Self { record, index, queue, body: PyOnceLock::new(), properties: PyOnceLock::new() }
    }

    fn row(&self, py: Python<'_>) -> PyResult<Row<'_>> {
        Row::reread(&self.record, self.index).map_err(|error| decode_error(&error, self.queue.bind(py)))
    }

    fn text_of(&self, py: Python<'_>, name: &[u8]) -> PyResult<Option<String>> {
        Ok(self.row(py)?.property(name).map(|value| String::from_utf8_lossy(value).into_owned()))
    }
}

#[pymethods]
impl ReceivedMessage {
    #[new]
    #[pyo3(signature = (record, index, queue, /))]
    fn restore(py: Python<'_>, record: &[u8], index: Option<u32>, queue: Py<PyAny>) -> PyResult<Self> {
        let message = Self::new(Bytes::copy_from_slice(record), index, queue);
        message.row(py)?;
        Ok(message)
    }

    #[getter]
    fn topic(&self, py: Python<'_>) -> PyResult<String> {
        let row = self.row(py)?;
        let stored = row.record().topic();
        // A message that failed was stored anew, for its group alone; to a reader it is the same message.
        let is_retry = stored.starts_with(RETRY_PREFIX.as_bytes());
        let topic = row.property(name::RETRY_TOPIC).filter(|_| is_retry).unwrap_or(stored);
        Ok(String::from_utf8_lossy(topic).into_owned())
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let body = self.body.get_or_try_init(py, || {
            let body = self.row(py)?.body().map_err(|error| decode_error(&error, self.queue.bind(py)))?;
            Ok::<_, PyErr>(PyBytes::new(py, &body).unbind())
        })?;
        Ok(body.bind(py).clone())
    }

    #[getter]
    fn tag(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.text_of(py, name::TAGS)
    }

    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let joined = self.text_of(py, name::KEYS)?.unwrap_or_default();
        PyTuple::new(py, joined.split(' ').filter(|key| !key.is_empty()).collect::<Vec<_>>())
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMappingProxy>> {
        let properties = self.properties.get_or_try_init(py, || {
            let dict = PyDict::new(py);
            for (name, value) in properties::entries(self.row(py)?.properties()) {
                dict.set_item(String::from_utf8_lossy(name), String::from_utf8_lossy(value))?;
            }
            Ok::<_, PyErr>(PyMappingProxy::new(py, dict.as_mapping()).unbind())
        })?;
        Ok(properties.bind(py).clone())
    }

    #[getter]
    fn message_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.row(py)?.message_id().into_owned())
    }

    #[getter]
    fn offset_message_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.row(py)?.offset_message_id().to_string())
    }

    #[getter]
    fn queue<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.queue.bind(py).clone()
    }

    #[getter]
    fn queue_offset(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.row(py)?.queue_offset())
    }

    #[getter]
    fn commit_log_offset(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.row(py)?.record().physical_offset().0)
    }

    #[getter]
    fn born_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDateTime>> {
        utc(py, self.row(py)?.record().born_timestamp_ms())
    }

    #[getter]
    fn stored_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDateTime>> {
        utc(py, self.row(py)?.record().store_timestamp_ms())
    }

    #[getter]
    fn born_host(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.row(py)?.record().born_host().to_string())
    }

    #[getter]
    fn store_host(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.row(py)?.record().store_host().to_string())
    }

    #[getter]
    fn delivery_attempt(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.row(py)?.record().reconsume_times().saturating_add(1))
    }

    #[getter]
    fn flag(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.row(py)?.flag())
    }

    #[getter]
    fn sys_flag(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.row(py)?.record().sys_flag())
    }

    #[getter]
    fn sharding_key(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.text_of(py, name::SHARDING_KEY)
    }

    #[getter]
    fn transaction_id(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.text_of(py, name::TRANSACTION_ID)
    }

    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(self.body(py)?.as_any())
    }

    #[pyo3(signature = (encoding = "utf-8"))]
    fn text<'py>(&self, py: Python<'py>, encoding: &str) -> PyResult<Bound<'py, PyAny>> {
        self.body(py)?.call_method1("decode", (encoding,))
    }

    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        LOADS.import(py, "json", "loads")?.call1((self.body(py)?,))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, Restored<'py>) {
        let (py, this) = (slf.py(), slf.get());
        (slf.get_type(), (PyBytes::new(py, &this.record), this.index, this.queue(py)))
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let is_equal = match other.cast::<Self>() {
            Ok(other) => {
                let other = other.get();
                self.record == other.record
                    && self.index == other.index
                    && self.queue.bind(py).eq(other.queue.bind(py))?
            }
            Err(_) => false,
        };
        match op {
            CompareOp::Eq => Ok(is_equal.into_pyobject(py)?.to_owned().into_any().unbind()),
            CompareOp::Ne => Ok((!is_equal).into_pyobject(py)?.to_owned().into_any().unbind()),
            _ => Ok(py.NotImplemented()),
        }
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        let row = self.row(py)?;
        PyTuple::new(py, [row.record().physical_offset().0, row.queue_offset()])?.hash()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let place = self.queue.bind(py).repr()?;
        let topic = PyString::new(py, &self.topic(py)?);
        let body = repr_body(&self.body(py)?)?;
        Ok(format!(
            "ReceivedMessage({}, {body}, queue_offset={}, queue={place})",
            topic.repr()?,
            self.queue_offset(py)?
        ))
    }
}

fn utc(py: Python<'_>, ms: i64) -> PyResult<Bound<'_, PyDateTime>> {
    PyDateTime::from_timestamp(py, ms as f64 / 1000.0, Some(&*PyTzInfo::utc(py)?))
}
