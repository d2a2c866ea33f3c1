//! `Rows` and `SendBatch`: an Arrow batch to send row by row, without Python objects for rows.

use std::collections::BTreeMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::arrow_import::batches;
use crate::client::row_columns::RowsError;
use crate::client::rows as core;
use crate::client::rows::{Identity, Limits, Placement, QueueChoice};

/// An Arrow batch or table as messages to send, one per row.
///
/// Columns: `body` (binary) and `topic`, unless it is given; optionally `tags`, `keys` (a text separated by spaces,
/// or a list), `shardingKey`, `brokerName`, `msgId`, `identity` (string), `properties` (map of strings), `queueId`,
/// `delayLevel`, `flag` (int), `deliverTimestamp` (bigint, milliseconds). Other columns are ignored.
#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct Rows {
    parts: Vec<core::Rows>,
    alone_from_bytes: Option<usize>,
}

#[pymethods]
impl Rows {
    #[new]
    #[pyo3(signature = (batch, *, topic = None, id_seed = None, first_row = 0, properties = None,
                        compress_above = None))]
    fn new(
        batch: &Bound<'_, PyAny>,
        topic: Option<String>,
        id_seed: Option<Vec<u8>>,
        first_row: u64,
        properties: Option<BTreeMap<String, String>>,
        compress_above: Option<usize>,
    ) -> PyResult<Self> {
        let extra: Vec<(String, String)> = properties.unwrap_or_default().into_iter().collect();
        let mut first = first_row;
        let mut parts = Vec::new();
        for batch in batches(batch)? {
            let identity = id_seed.clone().map(|seed| Identity { seed, first });
            first += batch.num_rows() as u64;
            parts.push(core::Rows::new(&batch, topic.clone(), identity, extra.clone()).map_err(refused)?);
        }
        Ok(Self { parts, alone_from_bytes: compress_above.map(|above| above + 1) })
    }

    /// The topics of the rows, sorted.
    fn topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let found = py.detach(|| {
            let mut found = Vec::new();
            for part in &self.parts {
                found.extend(part.topics()?.into_iter().map(str::to_owned));
            }
            found.sort_unstable();
            found.dedup();
            Ok(found)
        });
        found.map_err(refused)
    }

    /// Batch the rows of one topic. A row with a `queueId` goes to that queue; one with a `shardingKey` goes to the
    /// queue its hash selects among `queues`; others go to a queue by the hash of their keys, or to any.
    #[pyo3(signature = (topic, *, queues, placement = "turn", messages_max = 64, bytes_max = 1 << 20))]
    fn send_batches(
        &self,
        py: Python<'_>,
        topic: &str,
        queues: usize,
        placement: &str,
        messages_max: usize,
        bytes_max: usize,
    ) -> PyResult<Vec<SendBatch>> {
        let placement = match placement {
            "turn" => Placement::Turn,
            "hash" => Placement::Hash,
            "column" => Placement::Column,
            other => return Err(PyValueError::new_err(format!("placement {other:?}"))),
        };
        let limits = Limits { rows_max: messages_max, bytes_max, alone_from_bytes: self.alone_from_bytes };
        let found = py.detach(|| {
            let mut found = Vec::new();
            for (part, rows) in self.parts.iter().enumerate() {
                let batches = rows.send_batches(topic, queues, placement, limits)?;
                found.extend(batches.into_iter().map(|batch| SendBatch { part, batch }));
            }
            Ok(found)
        });
        found.map_err(refused)
    }

    fn __len__(&self) -> usize {
        self.parts.iter().map(core::Rows::count).sum()
    }
}

impl Rows {
    /// Returns the rows of a send batch.
    pub(super) fn part(&self, batch: &SendBatch) -> PyResult<&core::Rows> {
        self.parts.get(batch.part).ok_or_else(|| PyValueError::new_err("the batch belongs to other rows"))
    }
}

/// Rows that go to one queue in one request.
#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct SendBatch {
    part: usize,
    pub(super) batch: core::SendBatch,
}

#[pymethods]
impl SendBatch {
    /// The target as an index into the topic's queues, if it has one.
    #[getter]
    fn queue_index(&self) -> Option<usize> {
        match &self.batch.place {
            QueueChoice::Index(index) => Some(*index),
            _ => None,
        }
    }

    /// The broker of the target, if named.
    #[getter]
    fn broker(&self) -> Option<&str> {
        match &self.batch.place {
            QueueChoice::Queue(broker, _) => broker.as_deref(),
            _ => None,
        }
    }

    /// The queue id of the target, if named.
    #[getter]
    fn queue_id(&self) -> Option<i32> {
        match &self.batch.place {
            QueueChoice::Queue(_, queue_id) => Some(*queue_id),
            _ => None,
        }
    }

    fn __len__(&self) -> usize {
        self.batch.count()
    }
}

/// Returns the `ValueError` that a `Message` of the same content raises.
pub(super) fn refused(error: RowsError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
