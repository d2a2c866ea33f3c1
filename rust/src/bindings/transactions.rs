//! `Transactions`: half messages, for Python's checks, discards and progress.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::due_messages::EscapedMessage;
use super::errors::raise;
use super::server::PyServer;
use crate::dataplane::delivery::transactions as core;
use crate::dataplane::requests::check_transactions::UndecidedHalf;
use crate::dataplane::service::data_plane::DataPlane;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::remoting::codes::response;

/// A half message whose producer must be checked.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct DueHalf {
    /// Its offset in the half topic.
    offset: u64,
    /// Its position in the log.
    physical: u64,
    /// Checks that were sent.
    checks: u32,
    /// Checks that were answered.
    answers: u32,
    /// The connection of its sender; None after a restart.
    sender: Option<u64>,
    /// The store time.
    stored_ms: i64,
    /// The producer group.
    group: String,
    /// The producer's id of the message.
    unique_key: String,
    /// The broker's id of the message.
    message_id: String,
    /// The record as its producer sent it.
    record: Py<PyBytes>,
}

/// Statistics of the transactions of one topic.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct TopicTransactions {
    /// The topic.
    topic: String,
    /// Open transactions.
    open: u64,
    /// Transactions committed since the start.
    committed: u64,
    /// Transactions rolled back since the start.
    rolled_back: u64,
    /// Commits by message age in the buckets of `TRANSACTION_BOUNDS_S`, and one for older messages.
    ages: Vec<u64>,
    /// The total age in seconds.
    age_s: u64,
}

/// The transactions of a broker.
#[pyclass(module = "rmqpy._native", frozen)]
pub(super) struct Transactions {
    data_plane: Arc<DataPlane>,
}

#[pymethods]
impl Transactions {
    #[new]
    fn new(server: &PyServer) -> Self {
        Self { data_plane: Arc::clone(&server.data_plane) }
    }

    /// Find the open transactions, and continue from these `checked` counts. Called once, before the server listens.
    /// Raises `StoreError`.
    fn recover(&self, py: Python<'_>, checked: Vec<(u64, u64, u32, u32)>) -> PyResult<()> {
        let read = |(first, last, checks, answers)| core::CheckedHalves {
            first: PhysicalOffset(first),
            last: PhysicalOffset(last),
            checks,
            answers,
        };
        let checked: Vec<_> = checked.into_iter().map(read).collect();
        py.detach(|| self.data_plane.recover_transactions(&checked))
            .map_err(|error| raise("StoreError", &error.to_string()))
    }

    /// Return the check counts of open half messages, in runs of consecutive ones with equal counts: log position of
    /// the first and the last, checks of each, answered checks.
    fn checked(&self, py: Python<'_>) -> Vec<(u64, u64, u32, u32)> {
        let checked = py.detach(|| self.data_plane.checked_transactions());
        checked.into_iter().map(|run| (run.first.0, run.last.0, run.checks, run.answers)).collect()
    }

    /// Commit the decided offset of half messages, under Apache's group name. Raises `StoreError`.
    fn save(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.data_plane.save_transactions())
            .map_err(|error| raise("StoreError", &error.to_string()))
    }

    /// Take half messages that are due, as `due` does, for another broker, each with its offset.
    fn take(&self, py: Python<'_>, limit: usize, interval_ms: u64) -> Vec<(u64, EscapedMessage)> {
        let broker = self.data_plane.broker.as_ref();
        let due = py.detach(|| broker.map(|broker| broker.due_transactions(limit, interval_ms, u64::MAX)));
        let row = |half: UndecidedHalf| Some((half.offset.0, EscapedMessage::of(py, half.escape()?)));
        due.unwrap_or_default().into_iter().filter_map(row).collect()
    }

    /// Record that another broker has a half message; checks of it end here.
    fn leave(&self, offset: u64, physical: u64) {
        self.data_plane.leave_transaction(QueueOffset(offset), PhysicalOffset(physical));
    }

    /// Forget the open transactions, because another broker takes over.
    fn forget(&self) {
        self.data_plane.forget_transactions();
    }

    /// Return at most `limit` half messages whose producers must be checked now, or that are `expiry_ms` old, and
    /// again after `interval_ms`.
    fn due(&self, py: Python<'_>, limit: usize, interval_ms: u64, expiry_ms: u64) -> Vec<DueHalf> {
        let broker = self.data_plane.broker.as_ref();
        let due = py.detach(|| broker.map(|broker| broker.due_transactions(limit, interval_ms, expiry_ms)));
        let row = |half: UndecidedHalf| {
            let (offset, physical) = (half.offset.0, half.physical.0);
            let (sender, record) =
                (half.sender.map(|sender| sender.0), PyBytes::new(py, &half.record).unbind());
            let UndecidedHalf { checks, answers, stored_ms, group, unique_key, message_id, .. } = half;
            DueHalf {
                offset,
                physical,
                checks,
                answers,
                sender,
                stored_ms,
                group,
                unique_key,
                message_id,
                record,
            }
        };
        due.unwrap_or_default().into_iter().map(row).collect()
    }

    /// Count one check of each of these (offset, position): a producer was sent one.
    fn count_checks(&self, halves: Vec<(u64, u64)>) {
        for (offset, physical) in halves {
            if let Some(broker) = &self.data_plane.broker {
                broker.count_check(QueueOffset(offset), PhysicalOffset(physical));
            }
        }
    }

    /// Discard a half message: store it in `UNDECIDED_TOPIC` and end its transaction. False if it is already
    /// decided. Raises `StoreError`.
    fn discard(&self, py: Python<'_>, offset: u64, physical: u64) -> PyResult<bool> {
        let (offset, physical) = (QueueOffset(offset), PhysicalOffset(physical));
        let broker = self.data_plane.broker.as_ref();
        let discarded =
            py.detach(|| broker.map_or(Ok(false), |broker| broker.discard_transaction(offset, physical)));
        discarded.map_err(|refusal| raise("StoreError", &refusal.remark))
    }

    /// Restart the checks of a half message that is open or was discarded. Raises `BrokerError` with the reason for
    /// any other, and `StoreError`.
    fn resume(&self, py: Python<'_>, physical: u64) -> PyResult<()> {
        let broker = self.data_plane.broker.as_ref();
        let resumed =
            py.detach(|| broker.map_or(Ok(()), |broker| broker.resume_transaction(PhysicalOffset(physical))));
        resumed.map_err(|refusal| {
            let class = if refusal.code == response::SYSTEM_ERROR { "BrokerError" } else { "StoreError" };
            raise(class, &refusal.remark)
        })
    }

    /// Return statistics by topic.
    fn statistics(&self) -> Vec<TopicTransactions> {
        let row = |(topic, counts): (Box<str>, core::TopicTransactions)| {
            let core::TopicTransactions { open, committed, rolled_back, latencies, latency_s: age_s } =
                counts;
            let (topic, ages) = (topic.into_string(), latencies.to_vec());
            TopicTransactions { topic, open, committed, rolled_back, ages, age_s }
        };
        self.data_plane.transactions_by_topic().into_iter().map(row).collect()
    }
}
