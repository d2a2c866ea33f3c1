//! `Offsets`: committed consumer offsets.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;

use super::errors::raise_with;
use super::metadata::PyMetadata;
use crate::dataplane::metadata::{Metadata, Topic};
use crate::dataplane::offsets::{Offsets, Snapshot, StepBack};
use crate::dataplane::rejection::{ErrorReply, unknown_topic};

/// Committed consumer offsets, owned by the data plane.
///
/// What comes in one by one is checked against the read queues of its topic in `metadata`.
#[pyclass(name = "Offsets", module = "rmqpy._native", frozen)]
pub struct PyOffsets {
    pub(super) offsets: Arc<Offsets>,
    metadata: Arc<Metadata>,
}

impl PyOffsets {
    fn topic(&self, name: &str) -> PyResult<Arc<Topic>> {
        self.metadata.topics.get(name).ok_or_else(|| refusal(&unknown_topic(name)))
    }
}

fn refusal(error_reply: &ErrorReply) -> PyErr {
    raise_with("BrokerError", &error_reply.remark, |keywords| keywords.set_item("code", error_reply.code))
}

#[pymethods]
impl PyOffsets {
    #[new]
    fn new(metadata: &PyMetadata) -> Self {
        Self { offsets: Arc::default(), metadata: Arc::clone(&metadata.metadata) }
    }

    /// Replace everything: `topic@group` to queue id to offset, of queues and up to ends that there are.
    fn load(&self, table: Snapshot) {
        self.offsets.load(table);
    }

    /// Number of commits so far, and the whole table.
    fn snapshot(&self) -> (u64, BTreeMap<String, BTreeMap<u32, u64>>) {
        self.offsets.snapshot()
    }

    /// Number of commits so far: equal numbers mean an equal table.
    #[getter]
    fn commits(&self) -> u64 {
        self.offsets.commits()
    }

    /// Commits and resets, of clients too, outside the queues of their topic or the numbers an offset may have.
    #[getter]
    fn refused(&self) -> u64 {
        self.offsets.refused()
    }

    /// How often each group committed an offset below the one before, of those that did.
    fn steps_back(&self) -> BTreeMap<String, u64> {
        self.offsets.steps_back()
    }

    /// Group, topic, queue id, offset before and after: the first step back of each group, once.
    fn take_first_steps_back(&self) -> Vec<(String, String, u32, u64, u64)> {
        let row = |one: StepBack| (one.group, one.topic, one.queue_id, one.from, one.to);
        self.offsets.take_first_steps_back().into_iter().map(row).collect()
    }

    /// Raises `BrokerError`, with code 29 for a queue that consumers cannot read, 17 for no such topic, 16 for the
    /// broker's own progress.
    fn commit(&self, group: &str, topic: &str, queue_id: i64, offset: i64) -> PyResult<()> {
        let topic = self.topic(topic)?;
        self.offsets.commit(group, &topic, queue_id, offset).map_err(|error_reply| refusal(&error_reply))
    }

    /// Take over what another broker has of a group, its own progress with transactions included.
    ///
    /// Raises as `commit`.
    fn take_over(&self, group: &str, topic: &str, queue_id: i64, offset: i64) -> PyResult<()> {
        let topic = self.topic(topic)?;
        self.offsets.take_over(group, &topic, queue_id, offset).map_err(|error_reply| refusal(&error_reply))
    }

    /// The committed offset of a queue, `None` without one.
    fn query(&self, group: &str, topic: &str, queue_id: u32) -> Option<u64> {
        self.offsets.query(group, topic, queue_id)
    }

    /// Groups that have committed in a topic.
    fn groups_of(&self, topic: &str) -> Vec<String> {
        self.offsets.groups_of(topic)
    }

    /// Topics that a group has committed in.
    fn topics_of(&self, group: &str) -> Vec<String> {
        self.offsets.topics_of(group)
    }

    /// Forget what was committed in a topic.
    fn remove_topic(&self, topic: &str) {
        self.offsets.remove_topic(topic);
    }

    /// Forget what a group has committed.
    fn remove_group(&self, group: &str) {
        self.offsets.remove_group(group);
    }

    /// Let the next pull of this queue answer 21 with `offset`; commits are ignored until then.
    ///
    /// Raises as `commit`.
    fn reset(&self, group: &str, topic: &str, queue_id: i64, offset: i64) -> PyResult<()> {
        let topic = self.topic(topic)?;
        self.offsets.reset(group, &topic, queue_id, offset).map_err(|error_reply| refusal(&error_reply))
    }
}
