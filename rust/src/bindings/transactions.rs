//! `Transactions`: half messages, as Python asks about them, gives them up and saves how far they are decided.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::due_messages::{EscapeRow, escape_row};
use super::errors::raise;
use super::server::PyServer;
use crate::dataplane::check_transactions::UndecidedHalf;
use crate::dataplane::data_plane::DataPlane;
use crate::dataplane::transactions::{CheckedHalves, TopicTransactions};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::remoting::codes::response;

/// offset, position, earlier checks and their answers, connection of the sender, store time, producer group, unique key,
/// message id, record
type Undecided<'py> = (u64, u64, (u32, u32), Option<u64>, i64, String, String, String, Bound<'py, PyBytes>);

/// topic, open, committed, rolled back, commits by age, seconds of all together
type TransactionsRow = (String, u64, u64, u64, Vec<u64>, u64);

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

    /// Find the transactions that are open, and count on from these `checked`. Once, before the server
    /// listens. Raises `StoreError`.
    fn recover(&self, py: Python<'_>, checked: Vec<(u64, u64, u32, u32)>) -> PyResult<()> {
        let read = |(first, last, checks, answers)| CheckedHalves {
            first: PhysicalOffset(first),
            last: PhysicalOffset(last),
            checks,
            answers,
        };
        let checked: Vec<_> = checked.into_iter().map(read).collect();
        py.detach(|| self.data_plane.recover_transactions(&checked))
            .map_err(|error| raise("StoreError", &error.to_string()))
    }

    /// Open half messages about which somebody was asked: position in the log of the first and of the last one of
    /// several that follow one another, how often about each of them, and how many of these checks were answered.
    fn checked(&self, py: Python<'_>) -> Vec<(u64, u64, u32, u32)> {
        let checked = py.detach(|| self.data_plane.checked_transactions());
        checked.into_iter().map(|run| (run.first.0, run.last.0, run.checks, run.answers)).collect()
    }

    /// Commit, under the group of the original, how far half messages are decided. Raises `StoreError`.
    fn save(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.data_plane.save_transactions())
            .map_err(|error| raise("StoreError", &error.to_string()))
    }

    /// Half messages that are due as `due` has them, for another broker: offset, and the rest as
    /// `DueMessages.take`.
    fn take<'py>(&self, py: Python<'py>, limit: usize, interval_ms: u64) -> Vec<(u64, EscapeRow<'py>)> {
        let broker = self.data_plane.broker.as_ref();
        let due = py.detach(|| broker.map(|broker| broker.due_transactions(limit, interval_ms, u64::MAX)));
        let row = |half: UndecidedHalf| Some((half.offset.0, escape_row(py, half.escape()?)));
        due.unwrap_or_default().into_iter().filter_map(row).collect()
    }

    /// Note that another broker has a half message now: nobody is asked about it here any more.
    fn leave(&self, offset: u64, physical: u64) {
        self.data_plane.leave_transaction(QueueOffset(offset), PhysicalOffset(physical));
    }

    /// Forget which transactions are open: another broker looks after them from now on.
    fn forget(&self) {
        self.data_plane.forget_transactions();
    }

    /// Half messages whose producers are to be asked now, or that are `expiry_ms` old, at most `limit`, and after
    /// `interval_ms` again: offset, position in the log, how often a producer was asked and answered, the connection
    /// that the half came on, store time, producer group, unique key, message id, record as it was sent.
    fn due<'py>(
        &self,
        py: Python<'py>,
        limit: usize,
        interval_ms: u64,
        expiry_ms: u64,
    ) -> Vec<Undecided<'py>> {
        let broker = self.data_plane.broker.as_ref();
        let due = py.detach(|| broker.map(|broker| broker.due_transactions(limit, interval_ms, expiry_ms)));
        let row = |half: UndecidedHalf| {
            let (offset, physical, record) = (half.offset.0, half.physical.0, PyBytes::new(py, &half.record));
            let UndecidedHalf { checks, answers, sender, stored_ms, group, unique_key, message_id, .. } =
                half;
            let sender = sender.map(|sender| sender.0);
            (offset, physical, (checks, answers), sender, stored_ms, group, unique_key, message_id, record)
        };
        due.unwrap_or_default().into_iter().map(row).collect()
    }

    /// Count a check of each of these, offset and position: a producer was sent one.
    fn count_checks(&self, halves: Vec<(u64, u64)>) {
        for (offset, physical) in halves {
            if let Some(broker) = &self.data_plane.broker {
                broker.count_check(QueueOffset(offset), PhysicalOffset(physical));
            }
        }
    }

    /// Give a half message up: it is stored in `UNDECIDED_TOPIC`, and its transaction has ended. False where
    /// somebody has decided. Raises `StoreError`.
    fn discard(&self, py: Python<'_>, offset: u64, physical: u64) -> PyResult<bool> {
        let (offset, physical) = (QueueOffset(offset), PhysicalOffset(physical));
        let broker = self.data_plane.broker.as_ref();
        let discarded =
            py.detach(|| broker.map_or(Ok(false), |broker| broker.discard_transaction(offset, physical)));
        discarded.map_err(|refusal| raise("StoreError", &refusal.remark))
    }

    /// Ask producers about a half message again, from the first time on: one that is open, or that was given up and
    /// is a half once more then. Raises `BrokerError` with the reason for any other, and `StoreError`.
    fn resume(&self, py: Python<'_>, physical: u64) -> PyResult<()> {
        let broker = self.data_plane.broker.as_ref();
        let resumed =
            py.detach(|| broker.map_or(Ok(()), |broker| broker.resume_transaction(PhysicalOffset(physical))));
        resumed.map_err(|refusal| {
            let class = if refusal.code == response::SYSTEM_ERROR { "BrokerError" } else { "StoreError" };
            raise(class, &refusal.remark)
        })
    }

    /// Topic, and of its transactions: how many are open, were committed and rolled back since the start; how many
    /// commits came when their message was as old as each of `TRANSACTION_BOUNDS_S` at most, and older, each counted
    /// once; seconds of all together.
    fn statistics(&self) -> Vec<TransactionsRow> {
        let row = |(topic, counts): (Box<str>, TopicTransactions)| {
            let TopicTransactions { open, committed, rolled_back, latencies, latency_s } = counts;
            (topic.into_string(), open, committed, rolled_back, latencies.to_vec(), latency_s)
        };
        self.data_plane.transactions_by_topic().into_iter().map(row).collect()
    }
}
