//! `Store`: a message store directory, opened by one process.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::config;
use super::errors::raise;
use super::hand_clock::{self, PyHandClock};
use super::owner_process::OwnerProcess;
use crate::clock::SharedClock;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::disk::OsDisk;
use crate::store::{
    Boundary, ConsumeQueue, Options, QueueArrivals, RecoveryPhase, RecoveryProgress, Store, StoreError,
};

/// Topic, queue id, type of message, messages and bytes.
type Arrival = (String, u32, &'static str, u64, u64);

/// A message store directory, opened by one process.
///
/// The constructor only remembers the configuration. `open` takes the lock, recovers and starts the store's threads.
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
    /// The store behind it.
    pub(super) fn opened(&self) -> PyResult<Arc<Store>> {
        self.owner.check("store")?;
        self.store.lock().clone().ok_or_else(|| raise("StoreError", "the store is not open"))
    }

    /// What `read` says of the queue; `otherwise` where there is none.
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

    /// What `open` is doing in another thread: phase, bytes done, bytes in all.
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

    /// Refuse messages from now on, for another broker leads; returns where the log has ended.
    fn fence(&self) -> PyResult<u64> {
        let store = self.opened()?;
        store.fence();
        Ok(store.range().1.0)
    }

    /// Stop the threads and leave the store as a crash would: the abort file stays.
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

    /// Topics that have queue files, with their queue ids.
    fn queues(&self) -> PyResult<Vec<(String, Vec<u32>)>> {
        let topics = self.opened()?.topics();
        Ok(topics.into_iter().map(|(topic, queues)| (topic.to_string(), queues)).collect())
    }

    /// The first offset of a queue that is still there; 0 for a queue that does not exist.
    fn min_offset(&self, topic: &str, queue_id: u32) -> PyResult<u64> {
        self.with_queue(topic, queue_id, 0, |_, queue| Ok(queue.min().0))
    }

    /// The position after the last visible entry; 0 for a queue that does not exist.
    fn max_offset(&self, topic: &str, queue_id: u32) -> PyResult<u64> {
        self.with_queue(topic, queue_id, 0, |_, queue| Ok(queue.max().0))
    }

    /// The offset of the first message stored at or after a time, with `upper` of the last one at or before it.
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

    /// Store timestamp of the message at `offset`; -1 when it is not there.
    fn store_time(&self, py: Python<'_>, topic: &str, queue_id: u32, offset: u64) -> PyResult<i64> {
        py.detach(|| {
            self.with_queue(topic, queue_id, -1, |store, queue| {
                Ok(store.store_time(queue, QueueOffset(offset))?.unwrap_or(-1))
            })
        })
    }

    /// Store timestamp of the oldest message of the queue; -1 when it has none.
    fn earliest_store_time(&self, py: Python<'_>, topic: &str, queue_id: u32) -> PyResult<i64> {
        py.detach(|| {
            self.with_queue(topic, queue_id, -1, |store, queue| {
                Ok(store.earliest_store_time(queue)?.unwrap_or(-1))
            })
        })
    }

    /// Store timestamp of the oldest message of the log, whatever its topic; -1 when there is none.
    fn log_begin_time(&self, py: Python<'_>) -> PyResult<i64> {
        let store = self.opened()?;
        Ok(py.detach(|| store.log_begin_time()).unwrap_or(-1))
    }

    /// The record that starts at this position of the log.
    fn message<'py>(&self, py: Python<'py>, physical: u64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let store = self.opened()?;
        let record = py.detach(|| store.lookup(PhysicalOffset(physical)));
        Ok(record.map(|record| PyBytes::new(py, &record)))
    }

    /// Records whose key hash matches, newest first; the index's last update time and physical offset.
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

    /// Remove the topic's queues; bytes in the log stay until their segment expires.
    fn delete_topic(&self, py: Python<'_>, topic: &str) -> PyResult<()> {
        let store = self.opened()?;
        Ok(py.detach(|| store.delete_topic(topic))?)
    }

    /// Set how long messages are kept and what a full disk means; before the first call hours are UTC.
    fn retain(&self, config: &Bound<'_, PyAny>, utc_offset_ms: i64) -> PyResult<()> {
        self.opened()?.retain(config::retention(config, utc_offset_ms)?);
        Ok(())
    }

    /// Delete expired files of the log now, whatever the hour, and what queues and index hold of them.
    ///
    /// Returns how many files of the log went. Raises `StoreError` where one cannot be deleted.
    fn delete_expired(&self, py: Python<'_>) -> PyResult<u64> {
        let store = self.opened()?;
        Ok(py.detach(|| store.delete_expired())?)
    }

    /// Remove files of queues and index whose messages are no longer in the log; each queue keeps its newest.
    fn trim(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.opened()?;
        Ok(py.detach(|| store.trim())?)
    }

    /// What happened since the last call and belongs into a log, oldest first: whether it warns, and the text.
    fn events(&self) -> PyResult<Vec<(bool, String)>> {
        let events = self.opened()?.events();
        Ok(events.into_iter().map(|event| (event.is_warning(), event.to_string())).collect())
    }

    /// Entries of a queue, 1,024 at most: position and size of the record, hash of its tag.
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

    /// Topic, queue id, type of message, messages and bytes of what became visible since the last call. One caller
    /// keeps count; the first call counts what recovery found as well.
    fn take_arrivals(&self) -> PyResult<Vec<Arrival>> {
        let arrivals = self.opened()?.take_arrivals().into_iter();
        Ok(arrivals
            .map(|QueueArrivals { key, message_type, messages, bytes }| {
                (key.topic.to_string(), key.queue_id, message_type.name(), messages, bytes)
            })
            .collect())
    }

    /// Messages stored since the start by bytes in the log: up to 1 KiB, 4 KiB, 512 KiB, 1, 2, 4 MiB, and larger.
    fn message_sizes(&self) -> PyResult<Vec<u64>> {
        Ok(self.opened()?.message_sizes().to_vec())
    }

    /// Counters and positions: min_physical, max_physical, durable, visible, puts, put_bytes, put_failures, …
    fn statistics(&self) -> PyResult<BTreeMap<&'static str, u64>> {
        Ok(self.opened()?.statistics())
    }

    /// Why the store refuses writes, or None while it accepts them.
    #[getter]
    fn failure(&self) -> PyResult<Option<String>> {
        Ok(self.opened()?.failure().map(str::to_owned))
    }
}

impl From<StoreError> for PyErr {
    fn from(error: StoreError) -> Self {
        let raised = raise("StoreError", &error.to_string());
        // What a full disk has refused is told from what is broken.
        if let Some(errno) = error.errno() {
            Python::attach(|py| raised.set_cause(py, Some(io::Error::from_raw_os_error(errno).into())));
        }
        raised
    }
}
