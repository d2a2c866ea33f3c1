//! `StoppedStore`: inspects a store directory that no broker has open.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashSet;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use super::config::{store_options, store_paths};
use super::errors::raise;
use super::received::ReceivedMessage;
use crate::clock::SystemClock;
use crate::message::record::RecordView;
use crate::store::disk::OsDisk;
use crate::store::inspect::{Finding, Found, Report, Severity, Shape, StoppedStore, TopicStats};
use crate::store::{Options, StorePaths};

/// A store directory, Apache's or rmqpy's, locked against brokers until `release`.
///
/// Positions are bytes of the log, times milliseconds since the epoch. Every method releases the interpreter. Raises
/// `StoreError` when a broker has the store open, or the directory has no store.
#[pyclass(name = "StoppedStore", module = "rmqpy._native", frozen)]
pub struct PyStoppedStore {
    options: Options,
    store: Mutex<Option<Arc<StoppedStore>>>,
}

/// A page of records of a log.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct RecordPage {
    /// The records, as messages.
    messages: Vec<Py<ReceivedMessage>>,
    /// The position to continue at; None at the end.
    next: Option<u64>,
    /// The invalid ranges between the records.
    invalid: Vec<Py<InvalidRange>>,
}

/// A range of a log without a valid record.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct InvalidRange {
    /// The start of the range.
    begin: u64,
    /// The end of the range.
    end: u64,
    /// The reason.
    reason: String,
}

/// The result of comparing two logs.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct LogComparison {
    /// The start of the log.
    begin: u64,
    /// The end of the log.
    end: u64,
    /// The start of the other log.
    other_begin: u64,
    /// The end of the other log.
    other_end: u64,
    /// The end of the common part.
    common_end: u64,
    /// The first position in the common part with different bytes.
    difference: Option<u64>,
}

/// Counts of the records of one topic.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct TopicCounts {
    /// The number of queues.
    queues: usize,
    /// The number of records.
    records: u64,
    /// The size of the records in bytes.
    bytes: u64,
    /// The size of the bodies in bytes.
    body_bytes: u64,
    /// The oldest store time.
    oldest_ms: i64,
    /// The newest store time.
    newest_ms: i64,
}

impl From<TopicStats> for TopicCounts {
    fn from(stats: TopicStats) -> Self {
        let (oldest_ms, newest_ms) = stats.stored_ms;
        let TopicStats { records, bytes, body_bytes, .. } = stats;
        Self { queues: stats.queues.len(), records, bytes, body_bytes, oldest_ms, newest_ms }
    }
}

impl PyStoppedStore {
    fn held(&self) -> PyResult<Arc<StoppedStore>> {
        self.store.lock().clone().ok_or_else(|| raise("StoreError", "the store was released"))
    }

    /// The size of the index files.
    fn shape(&self) -> Shape {
        Shape { slots: self.options.index_slots as usize, entries: self.options.index_entries as usize }
    }
}

#[pymethods]
impl PyStoppedStore {
    #[new]
    #[pyo3(signature = (config, *, exclusive=false))]
    fn new(config: &Bound<'_, PyAny>, exclusive: bool) -> PyResult<Self> {
        let (mut options, disk) = (store_options(config)?, OsDisk::shared());
        // By default, the paths of the last broker.
        let recorded = StorePaths::recorded(&options.paths.root, &disk)?;
        options.paths = store_paths(config, recorded)?;
        let held = match exclusive {
            true => StoppedStore::hold_exclusively(options.paths.clone(), disk),
            false => StoppedStore::hold(options.paths.clone(), disk),
        };
        Ok(Self { options, store: Mutex::new(Some(Arc::new(held?))) })
    }

    /// The bytes of the log that another thread has processed, and the total.
    fn progress(&self) -> PyResult<(u64, u64)> {
        Ok(self.held()?.progress().now())
    }

    /// The folder of the index.
    #[getter]
    fn index_folder(&self) -> PathBuf {
        self.options.paths.index.clone()
    }

    /// Release the store for brokers. Idempotent; the object cannot be used afterwards.
    fn release(&self) {
        drop(self.store.lock().take());
    }

    /// Compare queues and index with the log, without writing.
    ///
    /// `topics` are the existing ones: records of others belong to deleted topics. The keys are `log_begin`,
    /// `log_end`, `records`, `queues`, `keys`, `is_aborted`, `damage`, `notes` and `findings`, a list of the first
    /// thousand with `kind`, `is_damage`, `path`, `at` and `text`.
    #[pyo3(signature = (topics=None))]
    fn verify<'py>(&self, py: Python<'py>, topics: Option<Vec<String>>) -> PyResult<Bound<'py, PyDict>> {
        let store = self.held()?;
        let topics: Option<HashSet<String>> = topics.map(|topics| topics.into_iter().collect());
        let report = py.detach(|| store.verify(topics.as_ref(), self.shape()))?;
        described(py, &report)
    }

    /// Count the records of the log by topic.
    fn stats(&self, py: Python<'_>) -> PyResult<HashMap<String, TopicCounts>> {
        let store = self.held()?;
        let (_, topics) = py.detach(|| store.stats())?;
        Ok(topics.into_iter().map(|(topic, stats)| (topic, stats.into())).collect())
    }

    /// Return at most `count` records that begin in this part of the log. `offsets` is a half-open range of queue
    /// offsets.
    #[pyo3(signature = (begin, end, *, topic=None, queue_id=None, offsets=None, count=1024))]
    fn records(
        &self,
        py: Python<'_>,
        begin: u64,
        end: u64,
        topic: Option<&str>,
        queue_id: Option<u32>,
        offsets: Option<(u64, u64)>,
        count: usize,
    ) -> PyResult<RecordPage> {
        let store = self.held()?;
        let is_asked = |record: &RecordView<'_>| {
            topic.is_none_or(|topic| record.topic() == topic.as_bytes())
                && queue_id.is_none_or(|id| record.queue_id() == id)
                && offsets.is_none_or(|(from, to)| (from..to).contains(&record.queue_offset().0))
        };
        let (mut records, mut invalid, mut next) = (Vec::new(), Vec::new(), None);
        py.detach(|| {
            store.walk_while(begin, |found| {
                match found {
                    Found::Record(record) if record.physical_offset().0 >= end => return Ok(false),
                    Found::Record(record) if records.len() >= count => {
                        next = Some(record.physical_offset().0);
                        return Ok(false);
                    }
                    Found::Record(record) if is_asked(record) => {
                        let queue = (record.topic().to_vec(), record.queue_id());
                        records.push((queue, Bytes::copy_from_slice(record.bytes())));
                    }
                    Found::Record(_) => {}
                    Found::Corrupt(range) => {
                        invalid.push(InvalidRange { begin: range.at, end: range.end, reason: range.reason });
                    }
                }
                Ok(true)
            })
        })?;
        static QUEUE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let queue = QUEUE.import(py, "rmqpy.message", "MessageQueue")?;
        let messages = records.into_iter().map(|((topic, id), record)| {
            let queue = queue.call1((String::from_utf8_lossy(&topic), "", id))?;
            Py::new(py, ReceivedMessage::new(record, None, queue.unbind(), None))
        });
        let messages = messages.collect::<PyResult<_>>()?;
        let invalid = invalid.into_iter().map(|range| Py::new(py, range)).collect::<PyResult<_>>()?;
        Ok(RecordPage { messages, next, invalid })
    }

    /// The bytes of records that a killed broker left in the write ring and may not have written to the log.
    fn undrained_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        let store = self.held()?;
        Ok(py.detach(|| store.undrained_bytes())?)
    }

    /// Copy the records that a killed broker left in the write ring into the log.
    ///
    /// Returns the result, `None` if nothing was left, and whether all records are in the log. Needs the store
    /// exclusively.
    fn drain(&self, py: Python<'_>) -> PyResult<(Option<String>, bool)> {
        let store = self.held()?;
        let event = py.detach(|| store.drain())?;
        Ok((event.as_ref().map(ToString::to_string), event.is_none_or(|event| !event.is_warning())))
    }

    /// Compare the log with another one.
    fn compare(&self, py: Python<'_>, other: &Self) -> PyResult<LogComparison> {
        let (store, other) = (self.held()?, other.held()?);
        let found = py.detach(|| store.compare(&other))?;
        let [one, two] = &found.extents;
        Ok(LogComparison {
            begin: one.begin,
            end: one.end,
            other_begin: two.begin,
            other_end: two.end,
            common_end: found.common.end,
            difference: found.difference,
        })
    }

    /// Return the position before the first record that was stored at `stored_ms` or later, and the end of the log;
    /// the same twice if there is none.
    fn end_before(&self, py: Python<'_>, stored_ms: i64) -> PyResult<(u64, u64)> {
        let store = self.held()?;
        Ok(py.detach(|| store.end_before(stored_ms))?)
    }

    /// Cut the log at a position, which must be the end of a record. Needs the store exclusively.
    fn cut(&self, py: Python<'_>, at: u64) -> PyResult<()> {
        let store = self.held()?;
        Ok(py.detach(|| store.cut(at))?)
    }

    /// Rebuild the index with every key of the log. Returns the number of records read.
    fn rebuild_index(&self, py: Python<'_>) -> PyResult<u64> {
        let store = self.held()?;
        Ok(py.detach(|| store.rebuild_index(self.shape(), &SystemClock::shared()))?)
    }

    /// Copy the whole records, of `topics` or of all, to a new store; `config` is copied unchanged.
    ///
    /// The keys are `records`, `bytes`, `left_out` (other or deleted topics), `gaps` and `gap_bytes`.
    #[pyo3(signature = (target, *, topics=None))]
    fn copy(
        &self,
        py: Python<'_>,
        target: PathBuf,
        topics: Option<Vec<String>>,
    ) -> PyResult<HashMap<&'static str, u64>> {
        let store = self.held()?;
        let options = Options { paths: StorePaths::below(target), ..self.options.clone() };
        let topics: Option<HashSet<String>> = topics.map(|topics| topics.into_iter().collect());
        let copied = py.detach(|| store.copy(options, topics.as_ref(), SystemClock::shared()))?;
        Ok(HashMap::from([
            ("records", copied.records),
            ("bytes", copied.bytes),
            ("left_out", copied.left_out),
            ("gaps", copied.corrupt_ranges),
            ("gap_bytes", copied.corrupt_bytes),
        ]))
    }

    fn __repr__(&self) -> String {
        format!("StoppedStore({:?})", self.options.paths.root)
    }
}

fn described<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let findings: Vec<_> =
        report.findings.iter().map(|finding| finding_of(py, finding)).collect::<PyResult<_>>()?;
    let described = PyDict::new(py);
    described.set_item("log_begin", report.extent.begin)?;
    described.set_item("log_end", report.extent.end)?;
    described.set_item("records", report.records)?;
    described.set_item("queues", report.queues)?;
    described.set_item("keys", report.keys)?;
    described.set_item("is_aborted", report.is_aborted)?;
    described.set_item("damage", report.damage)?;
    described.set_item("notes", report.notes)?;
    described.set_item("findings", findings)?;
    Ok(described)
}

fn finding_of<'py>(py: Python<'py>, finding: &Finding) -> PyResult<Bound<'py, PyDict>> {
    let described = PyDict::new(py);
    described.set_item("kind", finding.kind.to_string())?;
    described.set_item("is_damage", finding.severity == Severity::Damage)?;
    described.set_item("path", finding.path.display().to_string())?;
    described.set_item("at", finding.at)?;
    described.set_item("text", &finding.text)?;
    Ok(described)
}
