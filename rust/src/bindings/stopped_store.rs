//! `StoppedStore`: a store directory that no broker has open, to be inspected.

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

/// A store directory, Apache's or ours, that no broker has open and none can open until `release`.
///
/// Positions are bytes of the log, times milliseconds since the epoch. Everything releases the interpreter. Raises
/// `StoreError` when a broker has the store open, and where there is none.
#[pyclass(name = "StoppedStore", module = "rmqpy._native", frozen)]
pub struct PyStoppedStore {
    options: Options,
    store: Mutex<Option<Arc<StoppedStore>>>,
}

/// What a page of records is.
type Page<'py> = (Vec<Py<ReceivedMessage>>, Option<u64>, Vec<(u64, u64, String)>);
/// Begin and end of either log, end of what both have, and where that differs.
type Compared = ((u64, u64), (u64, u64), u64, Option<u64>);
/// Queues, messages, bytes, body bytes, oldest and newest store time.
type Stats = (usize, u64, u64, u64, i64, i64);

impl PyStoppedStore {
    fn held(&self) -> PyResult<Arc<StoppedStore>> {
        self.store.lock().clone().ok_or_else(|| raise("StoreError", "the store has been released"))
    }

    /// Size of the index files.
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
        // Where nothing else is said, where the last broker had them.
        let recorded = StorePaths::recorded(&options.paths.root, &disk)?;
        options.paths = store_paths(config, recorded)?;
        let held = match exclusive {
            true => StoppedStore::hold_exclusively(options.paths.clone(), disk),
            false => StoppedStore::hold(options.paths.clone(), disk),
        };
        Ok(Self { options, store: Mutex::new(Some(Arc::new(held?))) })
    }

    /// Bytes of the log that another thread has gone through, and bytes in all.
    fn progress(&self) -> PyResult<(u64, u64)> {
        Ok(self.held()?.progress().now())
    }

    /// The folder of the index.
    #[getter]
    fn index_folder(&self) -> PathBuf {
        self.options.paths.index.clone()
    }

    /// Let brokers open the store. Idempotent; nothing else can be done afterwards.
    fn release(&self) {
        drop(self.store.lock().take());
    }

    /// Compare everything with the log; nothing is written.
    ///
    /// `topics` are those that exist: records of others are left over from deleted ones. The keys are `log_begin`,
    /// `log_end`, `records`, `queues`, `keys`, `is_aborted`, `damage`, `notes` and `findings`, a list of the first
    /// thousand with `kind`, `is_damage`, `path`, `at` and `text`.
    #[pyo3(signature = (topics=None))]
    fn verify<'py>(&self, py: Python<'py>, topics: Option<Vec<String>>) -> PyResult<Bound<'py, PyDict>> {
        let store = self.held()?;
        let topics: Option<HashSet<String>> = topics.map(|topics| topics.into_iter().collect());
        let report = py.detach(|| store.verify(topics.as_ref(), self.shape()))?;
        described(py, &report)
    }

    /// Begin and end of the log; for each topic queues, records, bytes, body bytes, oldest and newest store time.
    fn stats(&self, py: Python<'_>) -> PyResult<(u64, u64, HashMap<String, Stats>)> {
        let store = self.held()?;
        let (extent, topics) = py.detach(|| store.stats())?;
        let row = |stats: TopicStats| {
            let (oldest, newest) = stats.stored_ms;
            (stats.queues.len(), stats.records, stats.bytes, stats.body_bytes, oldest, newest)
        };
        let topics = topics.into_iter().map(|(topic, stats)| (topic, row(stats))).collect();
        Ok((extent.begin, extent.end, topics))
    }

    /// At most `count` records that begin in this part of the log; where to go on, `None` at the end; what between
    /// them is no record: begin, end and reason. `offsets` are queue offsets, the second one not included.
    #[pyo3(signature = (begin, end, *, topic=None, queue_id=None, offsets=None, count=1024))]
    fn records<'py>(
        &self,
        py: Python<'py>,
        begin: u64,
        end: u64,
        topic: Option<&str>,
        queue_id: Option<u32>,
        offsets: Option<(u64, u64)>,
        count: usize,
    ) -> PyResult<Page<'py>> {
        let store = self.held()?;
        let is_asked = |record: &RecordView<'_>| {
            topic.is_none_or(|topic| record.topic() == topic.as_bytes())
                && queue_id.is_none_or(|id| record.queue_id() == id)
                && offsets.is_none_or(|(from, to)| (from..to).contains(&record.queue_offset().0))
        };
        let (mut records, mut corrupt, mut next) = (Vec::new(), Vec::new(), None);
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
                    Found::Corrupt(range) => corrupt.push((range.at, range.end, range.reason)),
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
        Ok((messages.collect::<PyResult<_>>()?, next, corrupt))
    }

    /// Bytes of records that a killed broker has left in the spool, and that may not be in the log yet.
    fn spooled_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        let store = self.held()?;
        Ok(py.detach(|| store.spooled_bytes())?)
    }

    /// Bring what a killed broker has left in the spool into the log.
    ///
    /// What came of it, `None` where nothing was left, and whether it is all in the log. Wants the store exclusively.
    fn drain(&self, py: Python<'_>) -> PyResult<(Option<String>, bool)> {
        let store = self.held()?;
        let event = py.detach(|| store.drain())?;
        Ok((event.as_ref().map(ToString::to_string), event.is_none_or(|event| !event.is_warning())))
    }

    /// Compare the log with another one's: begin and end of either, end of what both have, and the first position in
    /// that whose bytes differ.
    fn compare(&self, py: Python<'_>, other: &Self) -> PyResult<Compared> {
        let (store, other) = (self.held()?, other.held()?);
        let found = py.detach(|| store.compare(&other))?;
        let [one, two] = &found.extents;
        Ok(((one.begin, one.end), (two.begin, two.end), found.common.end, found.difference))
    }

    /// Give up what the log has from a position on, the end of a record. Wants the store exclusively.
    fn cut(&self, py: Python<'_>, at: u64) -> PyResult<()> {
        let store = self.held()?;
        Ok(py.detach(|| store.cut(at))?)
    }

    /// Replace the index by one with every key of the log. How many records it was made of.
    fn rebuild_index(&self, py: Python<'_>) -> PyResult<u64> {
        let store = self.held()?;
        Ok(py.detach(|| store.rebuild_index(self.shape(), &SystemClock::shared()))?)
    }

    /// Write the whole records, of `topics` or of all, to a store of their own; `config` is copied as it is.
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
