//! `Store`: a message store directory, opened by one process.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashSet;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

use super::config;
use super::errors::raise;
use super::hand_clock::{self, PyHandClock};
use super::owner_process::OwnerProcess;
use super::received::ReceivedMessage;
use crate::clock::SharedClock;
use crate::message::record::RecordView;
use crate::message::topic::is_internal;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::disk::OsDisk;
use crate::store::{
    Boundary, ConsumeQueue, Options, QueueArrivals, RecoveryPhase, RecoveryProgress, Store, StoreError,
};

/// Counts of the messages of one type that became visible in one queue.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct ArrivalCounts {
    /// The topic.
    topic: String,
    /// The id of the queue.
    queue_id: u32,
    /// The type of the messages.
    message_type: &'static str,
    /// The number of messages.
    messages: u64,
    /// The size of the messages in bytes.
    bytes: u64,
}

/// A page of the log in its order.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct FollowedPage {
    /// The messages of the selected topics.
    messages: Vec<Py<ReceivedMessage>>,
    /// The position of the page: later than requested if the log begins later.
    begin: u64,
    /// The position to continue at; equal to `begin` at the end of the visible log.
    next: u64,
    /// The bytes without readable records.
    damaged: u64,
}

/// The topics that a follower of the log selects.
struct Selection(Option<HashSet<Vec<u8>>>);

impl Selection {
    fn new(topics: Option<Vec<String>>) -> Self {
        Self(topics.map(|topics| topics.into_iter().map(String::into_bytes).collect()))
    }

    fn contains(&self, record: &RecordView<'_>) -> bool {
        match &self.0 {
            Some(topics) => topics.contains(record.topic()),
            None => str::from_utf8(record.topic()).is_ok_and(|topic| !is_internal(topic)),
        }
    }
}

/// A message store directory, opened by one process.
///
/// The constructor only stores the configuration. `open` takes the lock, recovers and starts the store's threads.
/// Sizes are bytes, times are milliseconds since the epoch, offsets are queue offsets unless called `physical`.
#[pyclass(name = "Store", module = "rmqpy._native", frozen)]
pub struct PyStore {
    options: Options,
    progress: RecoveryProgress,
    store: Mutex<Option<Arc<Store>>>,
    owner: OwnerProcess,
    clock: SharedClock,
}

impl PyStore {
    /// Returns the core store.
    pub(super) fn opened(&self) -> PyResult<Arc<Store>> {
        self.owner.check("store")?;
        self.store.lock().clone().ok_or_else(|| raise("StoreError", "the store is not open"))
    }

    /// Calls `read` on the queue; returns `otherwise` if it does not exist.
    fn with_queue<T>(
        &self,
        topic: &str,
        queue_id: u32,
        otherwise: T,
        read: impl FnOnce(&Store, &ConsumeQueue) -> Result<T, StoreError>,
    ) -> PyResult<T> {
        let store = self.opened()?;
        Ok(store.queue(topic, queue_id).map_or(Ok(otherwise), |queue| read(&store, &queue))?)
    }
}

#[pymethods]
impl PyStore {
    #[new]
    #[pyo3(signature = (config, *, clock=None, is_replica=false))]
    fn new(config: &Bound<'_, PyAny>, clock: Option<&PyHandClock>, is_replica: bool) -> PyResult<Self> {
        let options = Options { is_replica, ..config::store_options(config)? };
        Ok(Self {
            options,
            progress: RecoveryProgress::default(),
            store: Mutex::new(None),
            owner: OwnerProcess::here(),
            clock: hand_clock::given(clock),
        })
    }

    /// Lock, recover and start. Blocks with the interpreter released.
    ///
    /// Raises `StoreError` naming the file and what was expected.
    fn open(&self, py: Python<'_>) -> PyResult<()> {
        self.owner.check("store")?;
        py.detach(|| {
            let mut store = self.store.lock();
            if store.is_none() {
                let opened = Store::open(
                    self.options.clone(),
                    OsDisk::shared(),
                    Arc::clone(&self.clock),
                    &self.progress,
                );
                *store = Some(opened?);
            }
            Ok(())
        })
    }

    /// The progress of `open` in another thread: phase, bytes done, total bytes.
    fn progress(&self) -> (&'static str, u64, u64) {
        let (phase, done, total) = self.progress.now();
        let phase = match phase {
            RecoveryPhase::Locking => "locking",
            RecoveryPhase::Loading => "loading",
            RecoveryPhase::Scanning => "scanning",
            RecoveryPhase::Rebuilding => "rebuilding",
            RecoveryPhase::Syncing => "syncing",
            RecoveryPhase::Open => "open",
        };
        (phase, done, total)
    }

    /// Flush everything, write the checkpoint, remove the abort file. Idempotent.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.owner.is_here() {
            return Ok(());
        }
        py.detach(|| match self.store.lock().take() {
            Some(store) => Ok(store.close()?),
            None => Ok(()),
        })
    }

    /// Refuse messages from now on, because another broker leads. Returns the end of the log.
    fn fence(&self) -> PyResult<u64> {
        let store = self.opened()?;
        store.fence();
        Ok(store.range().1.0)
    }

    /// Stop the threads and leave the store as after a crash: the abort file stays.
    fn abandon(&self, py: Python<'_>) {
        if !self.owner.is_here() {
            return;
        }
        py.detach(|| {
            if let Some(store) = self.store.lock().take() {
                store.abandon();
            }
        });
    }

    /// Return the topics that have queue files, with their queue ids.
    fn queues(&self) -> PyResult<Vec<(String, Vec<u32>)>> {
        let topics = self.opened()?.topics();
        Ok(topics.into_iter().map(|(topic, queues)| (topic.to_string(), queues)).collect())
    }

    /// Return the first available offset of a queue; 0 if the queue does not exist.
    fn min_offset(&self, topic: &str, queue_id: u32) -> PyResult<u64> {
        self.with_queue(topic, queue_id, 0, |_, queue| Ok(queue.min().0))
    }

    /// Return the offset after the last visible entry; 0 if the queue does not exist.
    fn max_offset(&self, topic: &str, queue_id: u32) -> PyResult<u64> {
        self.with_queue(topic, queue_id, 0, |_, queue| Ok(queue.max().0))
    }

    /// Return the offset of the first message stored at or after a time, or with `upper` of the last one at or
    /// before it.
    #[pyo3(signature = (topic, queue_id, timestamp_ms, *, upper=false))]
    fn offset_by_time(
        &self,
        py: Python<'_>,
        topic: &str,
        queue_id: u32,
        timestamp_ms: i64,
        upper: bool,
    ) -> PyResult<u64> {
        let boundary = if upper { Boundary::Upper } else { Boundary::Lower };
        py.detach(|| {
            self.with_queue(topic, queue_id, 0, |store, queue| {
                Ok(store.offset_by_time(queue, timestamp_ms, boundary)?.0)
            })
        })
    }

    /// Return the store timestamp of the message at `offset`; -1 if absent.
    fn store_time(&self, py: Python<'_>, topic: &str, queue_id: u32, offset: u64) -> PyResult<i64> {
        py.detach(|| {
            self.with_queue(topic, queue_id, -1, |store, queue| {
                Ok(store.store_time(queue, QueueOffset(offset))?.unwrap_or(-1))
            })
        })
    }

    /// Return the store timestamp of the oldest message of the queue; -1 if it is empty.
    fn earliest_store_time(&self, py: Python<'_>, topic: &str, queue_id: u32) -> PyResult<i64> {
        py.detach(|| {
            self.with_queue(topic, queue_id, -1, |store, queue| {
                Ok(store.earliest_store_time(queue)?.unwrap_or(-1))
            })
        })
    }

    /// Return the store timestamp of the oldest message of the log, of any topic; -1 if it is empty.
    fn log_begin_time(&self, py: Python<'_>) -> PyResult<i64> {
        let store = self.opened()?;
        Ok(py.detach(|| store.log_begin_time()).unwrap_or(-1))
    }

    /// Return the record at this position of the log.
    fn message<'py>(&self, py: Python<'py>, physical: u64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let store = self.opened()?;
        let record = py.detach(|| store.lookup(PhysicalOffset(physical)));
        Ok(record.map(|record| PyBytes::new(py, &record)))
    }

    /// Return the visible messages from a position of the log on, in its order: at most `count`, from at most
    /// `bytes_max` of the log, and at least one if there is one. Without `topics`, those of all topics but the broker's
    /// own.
    ///
    /// May wait for the disk.
    #[pyo3(signature = (physical, *, broker, count, bytes_max, topics=None))]
    fn follow(
        &self,
        py: Python<'_>,
        physical: u64,
        broker: &str,
        count: usize,
        bytes_max: u64,
        topics: Option<Vec<String>>,
    ) -> PyResult<FollowedPage> {
        let store = self.opened()?;
        let (selection, mut records) = (Selection::new(topics), Vec::new());
        let followed = py.detach(|| {
            store.follow(PhysicalOffset(physical), bytes_max, |record| {
                if !selection.contains(record) {
                    return true;
                }
                if records.len() >= count {
                    return false;
                }
                let topic = String::from_utf8_lossy(record.topic()).into_owned();
                records.push((topic, record.queue_id(), Bytes::copy_from_slice(record.bytes())));
                true
            })
        });
        static QUEUE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let queue_of = QUEUE.import(py, "rmqpy.message", "MessageQueue")?;
        let mut messages = Vec::with_capacity(records.len());
        // Records of a queue often follow each other.
        let mut last: Option<(String, u32, Py<PyAny>)> = None;
        for (topic, id, record) in records {
            let known =
                last.as_ref().filter(|(last_topic, last_id, _)| *last_topic == topic && *last_id == id);
            let queue = match known {
                Some((_, _, queue)) => queue.clone_ref(py),
                None => queue_of.call1((topic.as_str(), broker, id))?.unbind(),
            };
            last = Some((topic, id, queue.clone_ref(py)));
            messages.push(Py::new(py, ReceivedMessage::new(record, None, queue, None))?);
        }
        Ok(FollowedPage { messages, begin: followed.begin, next: followed.next, damaged: followed.damaged })
    }

    /// Count the messages that `follow` would return from at most `bytes_max` of the log, and return the position
    /// after them.
    #[pyo3(signature = (physical, *, bytes_max, topics=None))]
    fn pass_over(
        &self,
        py: Python<'_>,
        physical: u64,
        bytes_max: u64,
        topics: Option<Vec<String>>,
    ) -> PyResult<(u64, u64)> {
        let store = self.opened()?;
        let (selection, mut count) = (Selection::new(topics), 0);
        let followed = py.detach(|| {
            store.follow(PhysicalOffset(physical), bytes_max, |record| {
                count += u64::from(selection.contains(record));
                true
            })
        });
        Ok((count, followed.next))
    }

    /// Return the records with this key hash, newest first, and the index's last update time and physical offset.
    fn query<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        key: &str,
        maximum: usize,
        begin_ms: i64,
        end_ms: i64,
    ) -> PyResult<(Vec<Bound<'py, PyBytes>>, i64, u64)> {
        let store = self.opened()?;
        let found = py.detach(|| store.query(topic, key, maximum, begin_ms, end_ms))?;
        let records = found.records.iter().map(|record| PyBytes::new(py, record)).collect();
        Ok((records, found.last_timestamp_ms, found.last_physical))
    }

    /// Remove the topic's queues. Its bytes in the log stay until their segment expires.
    fn delete_topic(&self, py: Python<'_>, topic: &str) -> PyResult<()> {
        let store = self.opened()?;
        Ok(py.detach(|| store.delete_topic(topic))?)
    }

    /// Remove the queues of topics in one step, as `delete_topic` does.
    fn delete_topics(&self, py: Python<'_>, topics: Vec<String>) -> PyResult<()> {
        let store = self.opened()?;
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        Ok(py.detach(|| store.delete_topics(&topics))?)
    }

    /// Return the numbers of all queues and of the light ones.
    fn queue_counts(&self) -> PyResult<(usize, usize)> {
        let store = self.opened()?;
        Ok((store.queue_count(), store.light_queues()))
    }

    /// Return the number of lite topics of each parent.
    fn lite_topics(&self, py: Python<'_>) -> PyResult<BTreeMap<String, u64>> {
        let store = self.opened()?;
        Ok(py.detach(|| store.lite_topics()))
    }

    /// Return the queues of at most `limit` lite topics without a new message for the milliseconds that `kept_ms`
    /// has for their parent; parents that it does not name keep theirs.
    fn stale_lite_topics(
        &self,
        py: Python<'_>,
        now_ms: i64,
        kept_ms: BTreeMap<String, i64>,
        limit: usize,
    ) -> PyResult<Vec<String>> {
        let store = self.opened()?;
        Ok(py.detach(|| store.stale_lite_topics(now_ms, &kept_ms, limit))?)
    }

    /// Begin or end to keep the newest message of each key of a topic, and to serve consumers from there. No-op if
    /// compaction is off.
    fn set_compacted(&self, topic: &str, is_compacted: bool) -> PyResult<()> {
        Ok(self.opened()?.set_compacted(topic, is_compacted)?)
    }

    /// Let expired files of the log go that wait for copies of topics not named so far.
    fn compacted_topics_are_known(&self) -> PyResult<()> {
        self.opened()?.compacted_topics_are_known();
        Ok(())
    }

    /// Set the retention of messages and the limits of a full disk. Before the first call hours are UTC.
    fn retain(&self, config: &Bound<'_, PyAny>, utc_offset_ms: i64) -> PyResult<()> {
        self.opened()?.retain(config::retention(config, utc_offset_ms)?);
        Ok(())
    }

    /// Keep files of the log that end after this position, except from the deletion by force on a full disk.
    fn keep_from(&self, position: u64) -> PyResult<()> {
        self.opened()?.keep_from(PhysicalOffset(position));
        Ok(())
    }

    /// Delete expired files of the log now, at any hour, with their queue and index entries.
    ///
    /// Returns the number of deleted log files. Raises `StoreError` if one cannot be deleted.
    fn delete_expired(&self, py: Python<'_>) -> PyResult<u64> {
        let store = self.opened()?;
        Ok(py.detach(|| store.delete_expired())?)
    }

    /// Remove queue and index files whose messages were deleted from the log; each queue keeps its newest file.
    fn trim(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.opened()?;
        Ok(py.detach(|| store.trim())?)
    }

    /// Take the log lines since the last call, oldest first: whether it is a warning, and the text.
    fn events(&self) -> PyResult<Vec<(bool, String)>> {
        let events = self.opened()?.events();
        Ok(events.into_iter().map(|event| (event.is_warning(), event.to_string())).collect())
    }

    /// Return the offset of the first message of a queue whose record is at this position of the log or later; the
    /// end of the queue without one, and 0 if the queue does not exist.
    fn first_from(&self, py: Python<'_>, topic: &str, queue_id: u32, physical: u64) -> PyResult<u64> {
        py.detach(|| {
            self.with_queue(topic, queue_id, 0, |store, queue| {
                store.first_from(queue, PhysicalOffset(physical)).map(|offset| offset.0)
            })
        })
    }

    /// Return entries of a queue as in its files, 20 bytes each: those of the offsets [begin, end), at most 65,536,
    /// fewer at its end.
    fn encoded_units<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        queue_id: u32,
        begin: u64,
        end: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let units = py.detach(|| {
            self.with_queue(topic, queue_id, Vec::new(), |store, queue| {
                store.encoded_units(queue, QueueOffset(begin), QueueOffset(end))
            })
        })?;
        Ok(PyBytes::new(py, &units))
    }

    /// Return at most 1,024 entries of a queue: position and size of the record, hash of its tag.
    fn units(
        &self,
        py: Python<'_>,
        topic: &str,
        queue_id: u32,
        offset: u64,
        count: usize,
    ) -> PyResult<Vec<(u64, u32, i64)>> {
        let units = py.detach(|| {
            self.with_queue(topic, queue_id, Vec::new(), |store, queue| {
                store.units(queue, QueueOffset(offset), count)
            })
        })?;
        Ok(units.into_iter().map(|unit| (unit.physical, unit.size, unit.tags_code)).collect())
    }

    /// Take the counts of messages that became visible since the last call. Only one caller may use it; the first
    /// call includes recovered messages.
    fn take_arrivals(&self) -> PyResult<Vec<ArrivalCounts>> {
        let arrivals = self.opened()?.take_arrivals().into_iter();
        Ok(arrivals
            .map(|QueueArrivals { key, message_type, messages, bytes }| {
                let (topic, message_type) = (key.topic.to_string(), message_type.name());
                ArrivalCounts { topic, queue_id: key.queue_id, message_type, messages, bytes }
            })
            .collect())
    }

    /// Return how many messages were stored since the start, by size in the log: up to 1 KiB, 4 KiB, 512 KiB, 1,
    /// 2, 4 MiB, and larger.
    fn message_sizes(&self) -> PyResult<Vec<u64>> {
        Ok(self.opened()?.message_sizes().to_vec())
    }

    /// Counters and positions: min_physical, max_physical, durable, visible, puts, put_bytes, put_failures, …
    fn statistics(&self) -> PyResult<BTreeMap<&'static str, u64>> {
        Ok(self.opened()?.statistics())
    }

    /// Why the store refuses writes, or None.
    #[getter]
    fn failure(&self) -> PyResult<Option<String>> {
        Ok(self.opened()?.failure().map(str::to_owned))
    }
}

impl From<StoreError> for PyErr {
    fn from(error: StoreError) -> Self {
        let raised = raise("StoreError", &error.to_string());
        // A full disk raises a different class than a broken store.
        if let Some(errno) = error.errno() {
            Python::attach(|py| raised.set_cause(py, Some(io::Error::from_raw_os_error(errno).into())));
        }
        raised
    }
}
