//! `SendFuture`: a message on its way, or its outcome.

use std::sync::Arc;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple};

use super::call::failure_kind;
use super::errors::raise;
use super::waiting::{OwnerProcess, wait};
use crate::client::pending_send::{Attempt, PendingSend, Phase};
use crate::client::receipt::{Receipt, SendFailure};

/// See `_native.pyi`.
#[pyclass(frozen, module = "rmqpy", name = "SendFuture")]
pub(super) struct SendFuture {
    pub(super) send: Arc<PendingSend>,
    /// The process that made it.
    pub(super) owner: OwnerProcess,
}

/// Broker, queue id, address, kind of failure, response code, text, seconds.
type AttemptFacts = (String, i32, String, &'static str, Option<i32>, String, f64);

impl SendFuture {
    fn wait_over(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        if self.done() {
            return Ok(());
        }
        self.owner.check("send")?;
        if wait(py, timeout, |slice| self.send.wait_over(slice))? {
            return Ok(());
        }
        Err(raise("RequestTimeout", "the send is still under way; wait again, or give it more send_timeout"))
    }

    /// One `SendResult` per message.
    fn outcome<'py>(slf: &Bound<'py, Self>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (py, send) = (slf.py(), &slf.get().send);
        let receipt = send.with_phase(|phase| match phase {
            Phase::Stored(receipt) => Some(receipt.clone()),
            _ => None,
        });
        let Some(receipt) = receipt else { return Err(Self::failure(slf)?) };
        let results = Results::of(py, send, &receipt)?;
        let mut offset_ids = receipt.offset_message_id.split(',');
        (0..)
            .zip(&send.encoded.unique_ids)
            .map(|(index, unique_id)| results.make(unique_id, offset_ids.next().unwrap_or_default(), index))
            .collect()
    }

    fn failure(slf: &Bound<'_, Self>) -> PyResult<PyErr> {
        static SEND_ERROR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let error = SEND_ERROR.import(slf.py(), "rmqpy.client.outcome", "send_error")?.call1((slf,))?;
        Ok(PyErr::from_value(error))
    }
}

/// What the results of one send have in common. They are made here, where it takes a third of the time that it takes
/// in Python.
struct Results<'py> {
    /// `tuple.__new__`: it asks for no names, only for the values in their order.
    new: &'py Bound<'py, PyAny>,
    kind: &'py Bound<'py, PyAny>,
    queue: Bound<'py, PyAny>,
    first_offset: i64,
    /// Status, transaction, recall handle, attempts.
    rest: [Bound<'py, PyAny>; 4],
}

impl<'py> Results<'py> {
    fn of(py: Python<'py>, send: &PendingSend, receipt: &Receipt) -> PyResult<Self> {
        static NEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static KIND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static QUEUE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static STATUSES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let new =
            NEW.get_or_try_init(py, || py.get_type::<PyTuple>().getattr("__new__").map(Bound::unbind))?;
        let new = new.bind(py);
        let place = (&*send.encoded.topic, &*receipt.broker, receipt.queue_id);
        let queue = new.call1((QUEUE.import(py, "rmqpy.message", "MessageQueue")?, place))?;
        let status = STATUSES.import(py, "rmqpy.client.outcome", "STATUSES")?.get_item(receipt.code)?;
        let rest = [
            status,
            receipt.transaction_id.as_deref().into_pyobject(py)?.into_any(),
            receipt.recall_handle.as_deref().into_pyobject(py)?.into_any(),
            (send.attempts_failed() + 1).into_pyobject(py)?.into_any(),
        ];
        let kind = KIND.import(py, "rmqpy.message", "SendResult")?;
        Ok(Self { new, kind, queue, first_offset: receipt.queue_offset, rest })
    }

    fn make(&self, unique_id: &str, offset_id: &str, index: i64) -> PyResult<Bound<'py, PyAny>> {
        let [status, transaction_id, recall_handle, attempts] = &self.rest;
        let offset = self.first_offset + index;
        let values =
            (unique_id, offset_id, &self.queue, offset, status, transaction_id, recall_handle, attempts);
        self.new.call1((self.kind, values))
    }
}

#[pymethods]
impl SendFuture {
    fn done(&self) -> bool {
        self.send.is_over()
    }

    #[pyo3(signature = (timeout = None))]
    fn result<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let mut results = Self::results(slf, timeout)?;
        match (results.pop(), results.is_empty()) {
            (Some(only), true) => Ok(only),
            _ => Err(raise("ConfigError", "this is the send of a batch: ask for its `results`")),
        }
    }

    #[pyo3(signature = (timeout = None))]
    fn results<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        slf.get().wait_over(slf.py(), timeout)?;
        Self::outcome(slf)
    }

    #[pyo3(signature = (timeout = None))]
    fn exception<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        slf.get().wait_over(slf.py(), timeout)?;
        match slf.get().send.phase() {
            Phase::GivenUp => {
                Ok(Some(Self::failure(slf)?.into_value(slf.py()).into_bound(slf.py()).into_any()))
            }
            _ => Ok(None),
        }
    }

    fn settle(&self, py: Python<'_>) -> PyResult<bool> {
        self.owner.check("send")?;
        wait(py, None, |slice| self.send.wait_attempt(slice))?;
        Ok(self.done())
    }

    fn give_up(&self) {
        self.send.give_up();
    }

    #[getter]
    fn topic(&self) -> &str {
        &self.send.encoded.topic
    }

    #[getter]
    fn message_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, &self.send.encoded.unique_ids)
    }

    #[getter]
    fn is_batch(&self) -> bool {
        self.send.encoded.is_batch
    }

    #[getter]
    fn is_pinned(&self) -> bool {
        self.send.is_pinned()
    }

    #[getter]
    fn queue_id(&self) -> i32 {
        self.send.target().queue_id
    }

    #[getter]
    fn broker(&self) -> String {
        self.send.target().broker.to_string()
    }

    #[getter]
    fn remaining(&self) -> f64 {
        self.send.deadline.saturating_duration_since(Instant::now()).as_secs_f64()
    }

    #[getter]
    fn attempts(&self) -> Vec<AttemptFacts> {
        self.send.attempts().iter().map(facts).collect()
    }

    fn __repr__(&self) -> String {
        let state = match self.send.phase() {
            Phase::InFlight => "on its way",
            Phase::Failed => "between two attempts",
            Phase::Stored(_) => "stored",
            Phase::GivenUp => "failed",
        };
        format!("<SendFuture to {}: {state}>", self.send.encoded.topic)
    }
}

fn facts(attempt: &Attempt) -> AttemptFacts {
    let Attempt { target, failure, elapsed } = attempt;
    let (kind, code, text) = match failure {
        SendFailure::Broker { code, remark } => ("broker", Some(*code), remark.clone()),
        SendFailure::NotSafe(receipt) => {
            ("broker", Some(receipt.code), "stored, not as safely as asked".into())
        }
        SendFailure::Call(error) => (failure_kind(error), None, error.to_string()),
        SendFailure::Malformed(text) => ("malformed", None, text.clone()),
    };
    let (broker, address) = (target.broker.to_string(), target.address.to_string());
    (broker, target.queue_id, address, kind, code, text, elapsed.as_secs_f64())
}
