//! `ReceivedMessage`: a pulled record that decodes its attributes on demand.

use bytes::Bytes;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBytes, PyDateTime, PyDict, PyMappingProxy, PyMemoryView, PyString, PyTuple, PyType, PyTzInfo,
};

use super::decode_failure::decode_error;
use super::message::repr_body;
use super::namespace::Namespace;
use crate::columns::Row;
use crate::message::namespace::Namespace as NamespaceCore;
use crate::message::properties::{self, name};
use crate::message::shown_time::shown_ms;
use crate::message::topic::RETRY_PREFIX;

/// A message as a broker returned it. Attributes are decoded on demand.
///
/// Comparable by value, picklable. Made by the library. It keeps its whole reply in memory; to keep a few messages
/// for long, keep pickled copies.
#[pyclass(frozen, module = "rmqpy", name = "ReceivedMessage")]
pub(super) struct ReceivedMessage {
    /// The whole record; for a batch member, the record of the batch.
    record: Bytes,
    /// The index in that batch.
    index: Option<u32>,
    queue: Py<PyAny>,
    /// The namespace of the client that read it.
    namespace: Option<NamespaceCore>,
    body: PyOnceLock<Py<PyBytes>>,
    properties: PyOnceLock<Py<PyMappingProxy>>,
}

/// The arguments of `restore`.
type Restored<'py> = (Bound<'py, PyBytes>, Option<u32>, Bound<'py, PyAny>, Option<Namespace>);

impl ReceivedMessage {
    /// Wraps the message in `record`, or at `index` of a batch; `namespace` is that of the reader.
    pub(super) fn new(
        record: Bytes,
        index: Option<u32>,
        queue: Py<PyAny>,
        namespace: Option<NamespaceCore>,
    ) -> Self {
        Self { record, index, queue, namespace, body: PyOnceLock::new(), properties: PyOnceLock::new() }
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
    #[pyo3(signature = (record, index, queue, namespace = None, /))]
    fn restore(
        py: Python<'_>,
        record: &[u8],
        index: Option<u32>,
        queue: Py<PyAny>,
        namespace: Option<Namespace>,
    ) -> PyResult<Self> {
        let namespace = namespace.map(|of| of.core);
        let message = Self::new(Bytes::copy_from_slice(record), index, queue, namespace);
        message.row(py)?;
        Ok(message)
    }

    /// The topic it was sent to. For a retried message `queue` names the retry topic it was read from.
    #[getter]
    fn topic(&self, py: Python<'_>) -> PyResult<String> {
        let row = self.row(py)?;
        let stored = row.record().topic();
        // A failed message is stored again for its group; readers see the original message.
        let is_retry = stored.starts_with(RETRY_PREFIX.as_bytes());
        let topic = row.property(name::RETRY_TOPIC).filter(|_| is_retry).unwrap_or(stored);
        let topic = String::from_utf8_lossy(topic);
        Ok(match &self.namespace {
            None => topic.into_owned(),
            Some(namespace) => namespace.unwrap(&topic).into_owned(),
        })
    }

    /// The body, decompressed. Raises `DecodeError`, naming the message, when that fails.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let body = self.body.get_or_try_init(py, || {
            let body = self.row(py)?.body().map_err(|error| decode_error(&error, self.queue.bind(py)))?;
            Ok::<_, PyErr>(PyBytes::new(py, &body).unbind())
        })?;
        Ok(body.bind(py).clone())
    }

    /// The word that consumers can filter by.
    #[getter]
    fn tag(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.text_of(py, name::TAGS)
    }

    /// Words that can be queried to find the message.
    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let joined = self.text_of(py, name::KEYS)?.unwrap_or_default();
        PyTuple::new(py, joined.split(' ').filter(|key| !key.is_empty()).collect::<Vec<_>>())
    }

    /// All properties, including those of the library and the broker.
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

    /// The producer's id, the same as in `SendResult`.
    #[getter]
    fn message_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.row(py)?.message_id().into_owned())
    }

    /// The broker's id, which identifies the broker and the position in its log.
    #[getter]
    fn offset_message_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.row(py)?.offset_message_id().to_string())
    }

    /// The queue it was read from.
    #[getter]
    fn queue<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.queue.bind(py).clone()
    }

    /// Its offset in that queue.
    #[getter]
    fn queue_offset(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.row(py)?.queue_offset())
    }

    /// Its position in the broker's log, in bytes.
    #[getter]
    fn commit_log_offset(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.row(py)?.record().physical_offset().0)
    }

    /// When the producer made it, UTC, limited to the range of `datetime`; `born_at_ms` has the exact value.
    #[getter]
    fn born_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDateTime>> {
        utc(py, self.row(py)?.record().born_timestamp_ms())
    }

    /// The producer's timestamp as written, usually in milliseconds since 1970.
    #[getter]
    fn born_at_ms(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.row(py)?.record().born_timestamp_ms())
    }

    /// When the broker stored it, UTC, limited to the range of `datetime`.
    #[getter]
    fn stored_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDateTime>> {
        utc(py, self.row(py)?.record().store_timestamp_ms())
    }

    /// The broker's timestamp as written.
    #[getter]
    fn stored_at_ms(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.row(py)?.record().store_timestamp_ms())
    }

    /// `ip:port` of the producer.
    #[getter]
    fn born_host(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.row(py)?.record().born_host().to_string())
    }

    /// `ip:port` of the broker.
    #[getter]
    fn store_host(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.row(py)?.record().store_host().to_string())
    }

    /// The delivery attempt, from 1.
    #[getter]
    fn delivery_attempt(&self, py: Python<'_>) -> PyResult<i32> {
        // Other producers may write any number.
        Ok(self.row(py)?.record().reconsume_times().max(0).saturating_add(1))
    }

    /// A number for the application's use.
    #[getter]
    fn flag(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.row(py)?.flag())
    }

    /// Bits of the record: compression, transaction, address family.
    #[getter]
    fn sys_flag(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.row(py)?.record().sys_flag())
    }

    /// The key whose messages share a queue.
    #[getter]
    fn sharding_key(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.text_of(py, name::SHARDING_KEY)
    }

    /// The id of its transaction.
    #[getter]
    fn transaction_id(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.text_of(py, name::TRANSACTION_ID)
    }

    /// Return the body as a view, without another copy.
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(self.body(py)?.as_any())
    }

    /// Return the body as text. Raises `UnicodeDecodeError`.
    #[pyo3(signature = (encoding = "utf-8"))]
    fn text<'py>(&self, py: Python<'py>, encoding: &str) -> PyResult<Bound<'py, PyAny>> {
        self.body(py)?.call_method1("decode", (encoding,))
    }

    /// Return the body parsed as JSON. Raises `ValueError`.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        LOADS.import(py, "json", "loads")?.call1((self.body(py)?,))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, Restored<'py>) {
        let (py, this) = (slf.py(), slf.get());
        let namespace = this.namespace.clone().map(|core| Namespace { core });
        (slf.get_type(), (PyBytes::new(py, &this.record), this.index, this.queue(py), namespace))
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
    PyDateTime::from_timestamp(py, shown_ms(ms) as f64 / 1000.0, Some(&*PyTzInfo::utc(py)?))
}
