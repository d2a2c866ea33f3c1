//! `DueMessages`: the delivery of delayed and timed messages, as Python begins it, looks at it and saves how far it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors::raise;
use super::server::PyServer;
use crate::dataplane::data_plane::DataPlane;
use crate::dataplane::escapes::Escape;
use crate::dataplane::timers::Timers;
use crate::dataplane::timers::statistics::{TimerStatistics, TopicTimers};
use crate::positions::PhysicalOffset;

/// position, topic, queue id, flag, system flag, time of birth, earlier attempts, properties, body
pub(super) type EscapeRow<'py> = (u64, String, u32, i32, i32, i64, i32, String, Bound<'py, PyBytes>);

/// What `statistics` says.
type TimerRow = (u64, (u64, u64), (u64, u64), Vec<TopicTimersRow>);

/// topic, messages that wait, read and delivered, read by delay, seconds of all delays together
type TopicTimersRow = (String, i64, u64, u64, Vec<u64>, u64);

/// Delayed and timed messages of a broker, and their way to the queues they were meant for.
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

    /// Begin to deliver delayed messages, delay level to the offset in its queue, and timed ones: into the log, or,
    /// of a slave that `acts` for its master, by way of `take`. Nothing where the broker delivers already.
    /// Raises `StoreError`.
    #[pyo3(signature = (offsets, *, acts=false))]
    fn begin(&self, py: Python<'_>, offsets: BTreeMap<u32, u64>, acts: bool) -> PyResult<()> {
        py.detach(|| Ok(self.data_plane.deliver(&offsets, acts)?))
    }

    /// End what `begin` began, and save how far timed messages have got; how far each delay level has. Raises
    /// `StoreError`.
    fn end(&self, py: Python<'_>) -> PyResult<BTreeMap<u32, u64>> {
        py.detach(|| Ok(self.data_plane.end_delivery()?))
    }

    /// Messages that are due and wait for another broker, at most `limit`: position in this log, topic, queue id,
    /// flag, system flag, time of birth in ms, earlier attempts, properties, body.
    fn take<'py>(&self, py: Python<'py>, limit: usize) -> Vec<EscapeRow<'py>> {
        let taken = self.data_plane.escapes().map(|escapes| escapes.take(limit));
        taken.unwrap_or_default().into_iter().map(|escape| escape_row(py, escape)).collect()
    }

    /// Say of a message of `take` whether another broker has it; one that none has comes again.
    fn decide(&self, position: u64, is_accepted: bool) {
        self.data_plane
            .escapes()
            .into_iter()
            .for_each(|escapes| escapes.decide(PhysicalOffset(position), is_accepted));
    }

    /// Let no more messages come by `take`; how many are on their way, or were accepted and are not noted as
    /// delivered yet.
    fn close(&self) -> usize {
        self.data_plane.escapes().map_or(0, |escapes| {
            escapes.set_open(false);
            escapes.count()
        })
    }

    /// Make durable how far the delivery of timed messages has got; nothing where it has not moved. Raises
    /// `StoreError`.
    fn save(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| Ok(self.data_plane.of_timers(Timers::save).unwrap_or(Ok(()))?))
    }

    /// Timed messages: how many wait; of the queue of those that were sent how many are not read, and since when in
    /// ms; how many are due, and for how long in ms; by topic how many wait, were read and were delivered since the
    /// start, how many of those read had to wait so many seconds as each of `TIMER_BOUNDS_S`, and more, each counted
    /// once, and the seconds of all together. None before `begin`. Raises `StoreError`.
    fn statistics(&self, py: Python<'_>) -> PyResult<Option<TimerRow>> {
        py.detach(|| {
            let Some(statistics) = self.data_plane.of_timers(Timers::statistics).transpose()? else {
                return Ok(None);
            };
            let TimerStatistics { pending, unread, unread_ms, late, late_ms, topics } = statistics;
            let of_topic = |(topic, found): (String, TopicTimers)| {
                let delays = found.delays.to_vec();
                (topic, found.waiting.max(0), found.noted, found.delivered, delays, found.delay_s)
            };
            let topics = topics.into_iter().map(of_topic).collect();
            Ok(Some((pending, (unread, unread_ms), (late, late_ms), topics)))
        })
    }

    /// How many timed messages of each topic are due within each of these seconds, growing, and later; each counts
    /// once. Raises `StoreError`.
    fn due_within(&self, py: Python<'_>, bounds_s: Vec<u64>) -> PyResult<Vec<(String, Vec<u64>)>> {
        py.detach(|| {
            let due = self.data_plane.of_timers(|timers| timers.due_within(&bounds_s));
            Ok(due.unwrap_or_else(|| Ok(Vec::new()))?)
        })
    }

    /// The same of all topics together, to the width of a slot, from memory.
    fn slots_within(&self, bounds_s: Vec<u64>) -> Vec<u64> {
        self.data_plane.of_timers(|timers| timers.slots_within(&bounds_s)).unwrap_or_default()
    }

    /// How far each delay level has got. What lies before is delivered and durable: the log is flushed for it.
    ///
    /// Raises `StoreError` when that fails.
    fn delay_offsets(&self, py: Python<'_>) -> PyResult<BTreeMap<u32, u64>> {
        py.detach(|| {
            let offsets = self.data_plane.delay_offsets();
            // Offsets that outlive a power loss must not be ahead of the messages they stand for.
            if let Some(broker) = self.data_plane.broker.as_ref().filter(|_| !offsets.is_empty()) {
                broker.store.flush().map_err(|error| raise("StoreError", &error.to_string()))?;
            }
            Ok(offsets)
        })
    }

    /// The same for those who only look: nothing is flushed.
    fn delivered(&self) -> BTreeMap<u32, u64> {
        self.data_plane.delay_offsets()
    }
}

pub(super) fn escape_row(py: Python<'_>, escape: Escape) -> EscapeRow<'_> {
    let body = PyBytes::new(py, &escape.body);
    let Escape { position, topic, queue_id, flag, sys_flag, born_timestamp_ms, .. } = escape;
    let (attempts, properties) = (escape.reconsume_times, escape.properties);
    (position.0, topic, queue_id, flag, sys_flag, born_timestamp_ms, attempts, properties, body)
}
