//! `DueMessages`: starts, observes and saves the delivery of delayed and timed messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors::raise;
use super::server::PyServer;
use crate::dataplane::delivery::escapes::Escape;
use crate::dataplane::delivery::timers::Timers;
use crate::dataplane::delivery::timers::statistics as core;
use crate::dataplane::service::data_plane::DataPlane;
use crate::positions::PhysicalOffset;

/// A message for another broker.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct EscapedMessage {
    /// The position of the waiting message in this log.
    position: u64,
    /// The topic.
    topic: String,
    /// The id of the queue.
    queue_id: u32,
    /// The application's flag.
    flag: i32,
    /// The system flag.
    sys_flag: i32,
    /// The time of birth.
    born_ms: i64,
    /// Earlier deliveries.
    attempts: i32,
    /// The properties as text.
    properties: String,
    /// The body.
    body: Py<PyBytes>,
}

/// Statistics of timed messages.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct TimerStatistics {
    /// Messages that wait for their time.
    pending: u64,
    /// Messages of the timer topic that delivery has not read.
    unread: u64,
    /// The age of the last message that delivery has read.
    unread_ms: u64,
    /// Messages that are due.
    late: u64,
    /// How long the first of them has been due.
    late_ms: u64,
    /// The statistics by topic.
    topics: Vec<Py<TopicTimers>>,
}

/// Statistics of the timed messages of one topic.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct TopicTimers {
    /// The topic.
    topic: String,
    /// Messages that wait for their time.
    pending: i64,
    /// Messages read since the start.
    read: u64,
    /// Messages delivered since the start.
    delivered: u64,
    /// Messages read in the buckets of `TIMER_BOUNDS_S`, and one for longer delays.
    delays: Vec<u64>,
    /// The total delay in seconds.
    delay_s: u64,
}

impl EscapedMessage {
    pub(super) fn of(py: Python<'_>, escape: Escape) -> Self {
        let body = PyBytes::new(py, &escape.body).unbind();
        let Escape { topic, queue_id, flag, sys_flag, properties, .. } = escape;
        let (position, born_ms) = (escape.position.0, escape.born_timestamp_ms);
        let attempts = escape.reconsume_times;
        Self { position, topic, queue_id, flag, sys_flag, born_ms, attempts, properties, body }
    }
}

/// Delivery of a broker's delayed and timed messages.
#[pyclass(module = "rmqpy._native", frozen)]
pub(super) struct DueMessages {
    data_plane: Arc<DataPlane>,
}

#[pymethods]
impl DueMessages {
    #[new]
    fn new(server: &PyServer) -> Self {
        Self { data_plane: Arc::clone(&server.data_plane) }
    }

    /// Start delivery of timed and of delayed messages; `offsets` maps each delay level to the next offset of its
    /// queue. Messages go to the log, or, on a slave that `acts` for its master, to `take`. No-op if delivery has
    /// started. Raises `StoreError`.
    #[pyo3(signature = (offsets, *, acts=false))]
    fn begin(&self, py: Python<'_>, offsets: BTreeMap<u32, u64>, acts: bool) -> PyResult<()> {
        py.detach(|| Ok(self.data_plane.deliver(&offsets, acts)?))
    }

    /// Stop delivery and save the progress of timed messages; return the offset of each delay level. Raises
    /// `StoreError`.
    fn end(&self, py: Python<'_>) -> PyResult<BTreeMap<u32, u64>> {
        py.detach(|| Ok(self.data_plane.end_delivery()?))
    }

    /// Take at most `limit` due messages for another broker.
    fn take(&self, py: Python<'_>, limit: usize) -> Vec<EscapedMessage> {
        let taken = self.data_plane.escapes().map(|escapes| escapes.take(limit));
        taken.unwrap_or_default().into_iter().map(|escape| EscapedMessage::of(py, escape)).collect()
    }

    /// Report whether another broker accepted a message of `take`; a rejected one is offered again.
    fn decide(&self, position: u64, is_accepted: bool) {
        self.data_plane
            .escapes()
            .into_iter()
            .for_each(|escapes| escapes.decide(PhysicalOffset(position), is_accepted));
    }

    /// Stop offering messages through `take`; return how many are in flight, or accepted and not recorded as
    /// delivered yet.
    fn close(&self) -> usize {
        self.data_plane.escapes().map_or(0, |escapes| {
            escapes.set_open(false);
            escapes.count()
        })
    }

    /// Save the progress of timed messages durably; no-op if unchanged. Raises `StoreError`.
    fn save(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| Ok(self.data_plane.of_timers(Timers::save).unwrap_or(Ok(()))?))
    }

    /// Return statistics of timed messages; None before `begin`. Raises `StoreError`.
    fn statistics(&self, py: Python<'_>) -> PyResult<Option<TimerStatistics>> {
        let found = py.detach(|| self.data_plane.of_timers(Timers::statistics).transpose())?;
        let Some(core::TimerStatistics { pending, unread, unread_ms, late, late_ms, topics }) = found else {
            return Ok(None);
        };
        let of_topic = |(topic, found): (String, core::TopicTimers)| {
            let core::TopicTimers { waiting, noted: read, delivered, delays, delay_s } = found;
            let (pending, delays) = (waiting.max(0), delays.to_vec());
            Py::new(py, TopicTimers { topic, pending, read, delivered, delays, delay_s })
        };
        let topics = topics.into_iter().map(of_topic).collect::<PyResult<_>>()?;
        Ok(Some(TimerStatistics { pending, unread, unread_ms, late, late_ms, topics }))
    }

    /// Count the timed messages of each topic by due time, in ascending buckets of seconds and one for later; each
    /// message counts once. Raises `StoreError`.
    fn due_within(&self, py: Python<'_>, bounds_s: Vec<u64>) -> PyResult<Vec<(String, Vec<u64>)>> {
        py.detach(|| {
            let due = self.data_plane.of_timers(|timers| timers.due_within(&bounds_s));
            Ok(due.unwrap_or_else(|| Ok(Vec::new()))?)
        })
    }

    /// Likewise for all topics together, at slot precision, from memory.
    fn slots_within(&self, bounds_s: Vec<u64>) -> Vec<u64> {
        self.data_plane.of_timers(|timers| timers.slots_within(&bounds_s)).unwrap_or_default()
    }

    /// Take the names of POP retry and dead-letter topics that popped messages wait for.
    fn take_missing_topics(&self) -> Vec<String> {
        self.data_plane.take_missing_retry_topics().into_iter().collect()
    }

    /// Return the offset of each delay level. The messages before it are delivered and durable: this flushes the
    /// log.
    ///
    /// Raises `StoreError` when the flush fails.
    fn delay_offsets(&self, py: Python<'_>) -> PyResult<BTreeMap<u32, u64>> {
        py.detach(|| {
            let offsets = self.data_plane.delay_offsets();
            // After a power loss, offsets must not be ahead of the delivered messages.
            if let Some(broker) = self.data_plane.broker.as_ref().filter(|_| !offsets.is_empty()) {
                broker.store.flush().map_err(|error| raise("StoreError", &error.to_string()))?;
            }
            Ok(offsets)
        })
    }

    /// Likewise without a flush, for display.
    fn delivered(&self) -> BTreeMap<u32, u64> {
        self.data_plane.delay_offsets()
    }
}
