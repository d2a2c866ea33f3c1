//! `Offsets`: committed consumer offsets.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;

use crate::dataplane::offsets::{Offsets, Snapshot};

/// Committed consumer offsets, owned by the data plane.
#[pyclass(name = "Offsets", module = "rmqpy._native", frozen)]
#[derive(Default)]
pub struct PyOffsets {
    pub(super) offsets: Arc<Offsets>,
}

#[pymethods]
impl PyOffsets {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn load(&self, table: Snapshot) {
        self.offsets.load(table);
    }

    fn snapshot(&self) -> (u64, BTreeMap<String, BTreeMap<u32, u64>>) {
        self.offsets.snapshot()
    }

    #[getter]
    fn commits(&self) -> u64 {
        self.offsets.commits()
    }

    fn commit(&self, group: &str, topic: &str, queue_id: u32, offset: u64) {
        self.offsets.commit(group, topic, queue_id, offset);
    }

    fn query(&self, group: &str, topic: &str, queue_id: u32) -> Option<u64> {
        self.offsets.query(group, topic, queue_id)
    }

    fn groups_of(&self, topic: &str) -> Vec<String> {
        self.offsets.groups_of(topic)
    }

    fn topics_of(&self, group: &str) -> Vec<String> {
        self.offsets.topics_of(group)
    }

    fn remove_topic(&self, topic: &str) {
        self.offsets.remove_topic(topic);
    }

    fn remove_group(&self, group: &str) {
        self.offsets.remove_group(group);
    }

    fn clamp(&self, topic: &str, queue_id: u32, maximum: u64) -> usize {
        self.offsets.clamp(topic, queue_id, maximum)
    }

    fn reset(&self, group: &str, topic: &str, queue_id: u32, offset: u64) {
        self.offsets.reset(group, topic, queue_id, offset);
    }
}
