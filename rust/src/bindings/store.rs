//! `Store`: a message store directory, opened by one process.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::config;
use super::errors::raise;
use crate::clock::SystemClock;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::disk::OsDisk;
use crate::store::{
    Boundary, ConsumeQueue, Options, QueueArrivals, RecoveryPhase, RecoveryProgress, Store, StoreError,
};

/// A message store directory, opened by one process.
#[pyclass(name = "Store", module = "rmqpy._native", frozen)]
pub struct PyStore {
    options: Options,
    progress: RecoveryProgress,
    store: Mutex<Option<Arc<Store>>>,
}

impl PyStore {
    /// The store behind it.
    pub(super) fn opened(&self) -> PyResult<Arc<Store>> {
        self.store.lock().clone().ok_or_else(|| raise("StoreError", "the store is not open"))
    }

    /// What `read` says of the queue; `otherwise` where there is none.
    fn with_queue<T>(
        &self,
        topic: &str,
        queue_id: u32,
        otherwise: T,
        read: impl FnOnce(&Store, &ConsumeQueue) -> T,
    ) -> PyResult<T> {
        let store = self.opened()?;
        Ok(store.queue(topic, queue_id).map_or(otherwise, |queue| read(&store, &queue)))
    }
}

#[pymethods]
impl PyStore {
    #[new]
    fn new(config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let options = config::store_options(config)?;
        Ok(Self { options, progress: RecoveryProgress::default(), store: Mutex::new(None) })
    }

    fn open(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let mut store = self.store.lock();
            if store.is_none() {
                let opened = Store::open(
                    self.options.clone(),
                    OsDisk::shared(),
                    SystemClock::shared(),
                    &self.progress,
                );
                *store = Some(opened?);
            }
            Ok(())
        })
    }

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

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| match self.store.lock().take() {
            Some(store) => Ok(store.close()?),
            None => Ok(()),
        })
    }

    fn abandon(&self, py: Python<'_>) {
        py.detach(|| {
            if let Some(store) = self.store.lock().take() {
                store.abandon();
            }
        });
    }

    fn queues(&self) -> PyResult<Vec<(String, Vec<u32>)>> {
        let topics = self.opened()?.topics();
        Ok(topics.into_iter().map(|(topic, queues)| (topic.to_string(), queues)).collect())
    }

    fn min_offset(&self, topic: &str, queue_id: u32) -> PyResult<u64> {
        self.with_queue(topic, queue_id, 0, |_, queue| queue.min().0)
    }

    fn max_offset(&self, topic: &str, queue_id: u32) -> PyResult<u64> {
        self.with_queue(topic, queue_id, 0, |_, queue| queue.max().0)
    }

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
                store.offset_by_time(queue, timestamp_ms, boundary).0
            })
        })
    }

    fn store_time(&self, py: Python<'_>, topic: &str, queue_id: u32, offset: u64) -> PyResult<i64> {
        py.detach(|| {
            self.with_queue(topic, queue_id, -1, |store, queue| {
                store.store_time(queue, QueueOffset(offset)).unwrap_or(-1)
            })
        })
    }

    fn earliest_store_time(&self, py: Python<'_>, topic: &str, queue_id: u32) -> PyResult<i64> {
        py.detach(|| {
            self.with_queue(topic, queue_id, -1, |store, queue| {
                store.earliest_store_time(queue).unwrap_or(-1)
            })
        })
    }

    fn log_begin_time(&self, py: Python<'_>) -> PyResult<i64> {
        let store = self.opened()?;
        Ok(py.detach(|| store.log_begin_time()).unwrap_or(-1))
    }

    fn message<'py>(&self, py: Python<'py>, physical: u64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let store = self.opened()?;
        let record = py.detach(|| store.lookup(PhysicalOffset(physical)));
        Ok(record.map(|record| PyBytes::new(py, &record)))
    }

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

    fn delete_topic(&self, py: Python<'_>, topic: &str) -> PyResult<()> {
        let store = self.opened()?;
        Ok(py.detach(|| store.delete_topic(topic))?)
    }

    fn retain(&self, config: &Bound<'_, PyAny>, utc_offset_ms: i64) -> PyResult<()> {
        self.opened()?.retain(config::retention(config, utc_offset_ms)?);
        Ok(())
    }

    fn delete_expired(&self, py: Python<'_>) -> PyResult<u64> {
        let store = self.opened()?;
        Ok(py.detach(|| store.delete_expired())?)
    }

    fn trim(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.opened()?;
        Ok(py.detach(|| store.trim())?)
    }

    fn events(&self) -> PyResult<Vec<(bool, String)>> {
        let events = self.opened()?.events();
        Ok(events.into_iter().map(|event| (event.is_warning(), event.to_string())).collect())
    }

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

    fn take_arrivals(&self) -> PyResult<Vec<(String, u32, u64, u64)>> {
        let arrivals = self.opened()?.take_arrivals().into_iter();
        Ok(arrivals
            .map(|QueueArrivals { key, messages, bytes }| {
                (key.topic.to_string(), key.queue_id, messages, bytes)
            })
            .collect())
    }

    fn message_sizes(&self) -> PyResult<Vec<u64>> {
        Ok(self.opened()?.message_sizes().to_vec())
    }

    fn statistics(&self) -> PyResult<BTreeMap<&'static str, u64>> {
        Ok(self.opened()?.statistics())
    }

    #[getter]
    fn failure(&self) -> PyResult<Option<String>> {
        Ok(self.opened()?.failure().map(str::to_owned))
    }
}

impl From<StoreError> for PyErr {
    fn from(error: StoreError) -> Self {
        raise("StoreError", &error.to_string())
    }
}
