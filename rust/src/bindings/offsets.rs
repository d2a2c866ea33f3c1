//! `Offsets` and `OrderedBatch`: committed consumer offsets, and what groups that pop in order hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;

use super::errors::raise_with;
use super::metadata::PyMetadata;
use crate::dataplane::state::metadata::{Metadata, Topic};
use crate::dataplane::state::offsets::{Offsets, Snapshot, StepBack};
use crate::dataplane::state::orders::Batch;
use crate::dataplane::state::rejection::{ErrorReply, unknown_topic};

/// Committed consumer offsets, owned by the data plane.
///
/// Individual commits are checked against the read queues of their topic in `metadata`.
#[pyclass(name = "Offsets", module = "rmqpy._native", frozen)]
pub struct PyOffsets {
    pub(super) offsets: Arc<Offsets>,
    metadata: Arc<Metadata>,
}

impl PyOffsets {
    fn topic(&self, name: &str) -> PyResult<Arc<Topic>> {
        self.metadata.topic(name).ok_or_else(|| refusal(&unknown_topic(name)))
    }
}

/// A commit of a group below its earlier offset.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct GroupStepBack {
    /// The group.
    group: String,
    /// The topic.
    topic: String,
    /// The id of the queue.
    queue_id: u32,
    /// The offset before the commit.
    before: u64,
    /// The offset after the commit.
    after: u64,
}

pub(super) fn refusal(error_reply: &ErrorReply) -> PyErr {
    raise_with("BrokerError", &error_reply.remark, |keywords| keywords.set_item("code", error_reply.code))
}

#[pymethods]
impl PyOffsets {
    #[new]
    fn new(metadata: &PyMetadata) -> Self {
        Self { offsets: Arc::default(), metadata: Arc::clone(&metadata.metadata) }
    }

    /// Replace the whole table: `topic@group` to queue id to offset. The caller
    /// passes existing queues only.
    fn load(&self, table: Snapshot) {
        self.offsets.load(table);
    }

    /// Return the number of commits so far, and the whole table.
    fn snapshot(&self) -> (u64, BTreeMap<String, BTreeMap<u32, u64>>) {
        self.offsets.snapshot()
    }

    /// The number of topics with commits, each counted once for each group.
    #[getter]
    fn size(&self) -> usize {
        self.offsets.size()
    }

    /// The number of batches that groups hold in order.
    #[getter]
    fn order_size(&self) -> usize {
        self.offsets.orders.size()
    }

    /// The number of commits so far. Equal numbers mean an equal table.
    #[getter]
    fn commits(&self) -> u64 {
        self.offsets.commits()
    }

    /// The number of refused commits and resets: unknown queue, or offset out of range.
    #[getter]
    fn refused(&self) -> u64 {
        self.offsets.refused()
    }

    /// The groups that committed below an earlier offset, and how often.
    fn steps_back(&self) -> BTreeMap<String, u64> {
        self.offsets.steps_back()
    }

    /// Take the first step back of each group.
    fn take_first_steps_back(&self) -> Vec<GroupStepBack> {
        let row = |step: StepBack| {
            let StepBack { group, topic, queue_id, from: before, to: after } = step;
            GroupStepBack { group, topic, queue_id, before, after }
        };
        self.offsets.take_first_steps_back().into_iter().map(row).collect()
    }

    /// Commit an offset. Raises `BrokerError`, with code 29 for a queue that consumers cannot read, 17 for an
    /// unknown topic, 16 for the broker's own progress.
    fn commit(&self, group: &str, topic: &str, queue_id: i64, offset: i64) -> PyResult<()> {
        let topic = self.topic(topic)?;
        self.offsets.commit(group, &topic, queue_id, offset).map_err(|error_reply| refusal(&error_reply))
    }

    /// Copy an offset from another broker; the broker's own progress with transactions is allowed.
    ///
    /// Raises as `commit`.
    fn take_over(&self, group: &str, topic: &str, queue_id: i64, offset: i64) -> PyResult<()> {
        let topic = self.topic(topic)?;
        self.offsets.take_over(group, &topic, queue_id, offset).map_err(|error_reply| refusal(&error_reply))
    }

    /// Return the committed offset of a queue, or `None`.
    fn query(&self, group: &str, topic: &str, queue_id: u32) -> Option<u64> {
        self.offsets.query(group, topic, queue_id)
    }

    /// Return the groups that have committed in a topic.
    fn groups_of(&self, topic: &str) -> Vec<String> {
        self.offsets.groups_of(topic)
    }

    /// Return the topics in which a group has committed.
    fn topics_of(&self, group: &str) -> Vec<String> {
        self.offsets.topics_of(group)
    }

    /// Remove all commits in a topic.
    fn remove_topic(&self, topic: &str) {
        self.offsets.remove_topic(topic);
    }

    /// Remove all commits in these topics, in one step.
    fn remove_topics(&self, py: Python<'_>, topics: std::collections::HashSet<String>) {
        py.detach(|| self.offsets.remove_topics(&topics));
    }

    /// Remove all commits of a group.
    fn remove_group(&self, group: &str) {
        self.offsets.remove_group(group);
    }

    /// Make the next pull of this queue return code 21 with `offset`. Commits are ignored until then.
    ///
    /// Raises as `commit`.
    fn reset(&self, group: &str, topic: &str, queue_id: i64, offset: i64) -> PyResult<()> {
        let topic = self.topic(topic)?;
        self.offsets.reset(group, &topic, queue_id, offset).map_err(|error_reply| refusal(&error_reply))
    }

    /// The number of changes of `orders` so far. Equal numbers mean an equal table.
    #[getter]
    fn order_changes(&self) -> u64 {
        self.offsets.orders.changes()
    }

    /// Return the number of changes so far, and what groups that pop in order hold: `topic@group` to queue id to
    /// batch. Unknown queues, and batches that were not used for a day, are dropped.
    fn orders(&self, py: Python<'_>, now_ms: i64) -> (u64, BTreeMap<String, BTreeMap<u32, OrderedBatch>>) {
        let has_queue = |group: &str, topic: &str, queue_id: u32| {
            let topic = self.metadata.topic(topic);
            self.metadata.group(group).is_some() && topic.is_some_and(|topic| topic.has_read_queue(queue_id))
        };
        let (changes, table) = py.detach(|| self.offsets.orders.snapshot(now_ms, has_queue));
        let row = |(queue_id, batch)| (queue_id, OrderedBatch { batch });
        let rows =
            |(key, queues): (String, BTreeMap<u32, Batch>)| (key, queues.into_iter().map(row).collect());
        (changes, table.into_iter().map(rows).collect())
    }

    /// Replace the table of `orders`.
    fn load_orders(&self, table: BTreeMap<String, BTreeMap<u32, PyRef<'_, OrderedBatch>>>) {
        let batch = |(queue_id, row): (u32, PyRef<'_, OrderedBatch>)| (queue_id, row.batch.clone());
        let table = table.into_iter().map(|(key, queues)| (key, queues.into_iter().map(batch).collect()));
        self.offsets.orders.load(table.collect());
    }
}

/// The last messages of a queue that a group popped in order.
#[pyclass(module = "rmqpy._native", frozen)]
pub(super) struct OrderedBatch {
    batch: Batch,
}

#[pymethods]
impl OrderedBatch {
    #[new]
    #[pyo3(signature = (*, pop_ms, invisible_ms, offsets, visible_ms, counts, used_ms, acked, attempt))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments")]
    fn new(
        pop_ms: i64,
        invisible_ms: Option<i64>,
        offsets: Vec<u64>,
        visible_ms: BTreeMap<u64, i64>,
        counts: BTreeMap<u64, i32>,
        used_ms: i64,
        acked: i64,
        attempt: Option<String>,
    ) -> Self {
        let (acked, attempt) = (acked.cast_unsigned(), attempt.map(Into::into));
        Self { batch: Batch { pop_ms, invisible_ms, offsets, visible_ms, counts, used_ms, acked, attempt } }
    }

    /// When they were popped.
    #[getter]
    fn pop_ms(&self) -> i64 {
        self.batch.pop_ms
    }

    /// The time for which they are hidden.
    #[getter]
    fn invisible_ms(&self) -> Option<i64> {
        self.batch.invisible_ms
    }

    /// Their offsets, ascending.
    #[getter]
    fn offsets(&self) -> Vec<u64> {
        self.batch.offsets.clone()
    }

    /// When those whose time was changed are visible again, by offset.
    #[getter]
    fn visible_ms(&self) -> BTreeMap<u64, i64> {
        self.batch.visible_ms.clone()
    }

    /// Earlier deliveries of those that had any, by offset.
    #[getter]
    fn counts(&self) -> BTreeMap<u64, i32> {
        self.batch.counts.clone()
    }

    /// When the queue was popped last.
    #[getter]
    fn used_ms(&self) -> i64 {
        self.batch.used_ms
    }

    /// Bits of the acknowledged ones, the first offset lowest, as a signed number of 64 bits.
    #[getter]
    fn acked(&self) -> i64 {
        self.batch.acked.cast_signed()
    }

    /// The client's name for the pop.
    #[getter]
    fn attempt(&self) -> Option<&str> {
        self.batch.attempt.as_deref()
    }
}
