//! `SendFuture`: a send in flight, then its outcome.

use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple};

use super::call::failure_kind;
use super::errors::raise;
use super::message::wrong_type;
use super::owner_process::OwnerProcess;
use super::waiting::wait;
use crate::client::pending_send::{PendingSend, Phase};
use crate::client::receipt::{Attempt, Receipt, SendFailure};

/// A send in flight. Done when a broker has stored it, or when no further attempt will be made.
///
/// `await` returns the same as `result`, in any event loop; cancelling it ends the wait, not the send. Made by
/// `Producer.submit`; any thread may use it.
#[pyclass(frozen, module = "rmqpy", name = "SendFuture")]
pub(super) struct SendFuture {
    pub(super) send: Arc<PendingSend>,
    /// The process that made it.
    pub(super) owner: OwnerProcess,
    /// Called with the future and a callback to register; `None` if the producer does not support callbacks.
    pub(super) add_callback: Option<Py<PyAny>>,
}

/// A failed attempt of a send.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct FailedAttempt {
    /// The name of the broker.
    broker: String,
    /// The id of the queue.
    queue_id: i32,
    /// The broker's `host:port`.
    address: String,
    /// As in `Call.failure`, or `broker` (it refused, see the code), or `malformed`.
    kind: &'static str,
    /// The broker's response code.
    code: Option<i32>,
    /// The error as text.
    text: String,
    /// The duration in seconds.
    seconds: f64,
}

impl From<&Attempt> for FailedAttempt {
    fn from(Attempt { target, failure, elapsed }: &Attempt) -> Self {
        let (kind, code, text) = match failure {
            SendFailure::Broker { code, remark } => ("broker", Some(*code), remark.clone()),
            SendFailure::NotSafe(receipt) => {
                ("broker", Some(receipt.code), "stored, but less safely than requested".into())
            }
            SendFailure::Call(error) => (failure_kind(error), None, error.to_string()),
            SendFailure::Malformed(text) => ("malformed", None, text.clone()),
        };
        let (broker, address) = (target.broker.to_string(), target.address.to_string());
        Self { broker, queue_id: target.queue_id, address, kind, code, text, seconds: elapsed.as_secs_f64() }
    }
}

impl SendFuture {
    fn wait_over(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        if self.done() {
            return Ok(());
        }
        self.owner.check("send")?;
        if wait(py, timeout, |slice| self.send.wait_over(slice))? {
            return Ok(());
        }
        Err(raise("RequestTimeout", "the send is still in flight; wait again, or raise send_timeout"))
    }

    /// Returns the results of a finished send, to be converted to Python.
    fn outcome<'py>(slf: &Bound<'py, Self>) -> PyResult<Results<'py>> {
        let (py, send) = (slf.py(), &slf.get().send);
        let receipt = send.with_phase(|phase| match phase {
            Phase::Stored(receipt) => Some(Arc::clone(receipt)),
            _ => None,
        });
        let Some(receipt) = receipt else { return Err(Self::failure(slf)?) };
        Results::of(py, send, receipt)
    }

    fn failure(slf: &Bound<'_, Self>) -> PyResult<PyErr> {
        static SEND_ERROR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        slf.get().send.note_asked();
        let error = SEND_ERROR.import(slf.py(), "rmqpy.client.outcome", "send_error")?.call1((slf,))?;
        Ok(PyErr::from_value(error))
    }
}

/// The common parts of one send's results. Built here in a third of the time it takes in Python.
struct Results<'py> {
    /// `tuple.__new__`, which takes the values in order, without names.
    new: &'py Bound<'py, PyAny>,
    kind: &'py Bound<'py, PyAny>,
    queue: Bound<'py, PyAny>,
    receipt: Arc<Receipt>,
    /// Status, transaction, recall handle, attempts.
    rest: [Bound<'py, PyAny>; 4],
}

impl<'py> Results<'py> {
    fn of(py: Python<'py>, send: &PendingSend, receipt: Arc<Receipt>) -> PyResult<Self> {
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
        Ok(Self { new, kind, queue, receipt, rest })
    }

    fn make(&self, unique_id: &str, offset_id: &str, index: i64) -> PyResult<Bound<'py, PyAny>> {
        let [status, transaction_id, recall_handle, attempts] = &self.rest;
        let offset = self.receipt.queue_offset + index;
        let values =
            (unique_id, offset_id, &self.queue, offset, status, transaction_id, recall_handle, attempts);
        self.new.call1((self.kind, values))
    }
}

#[pymethods]
impl SendFuture {
    /// Whether the send has ended, stored or failed.
    fn done(&self) -> bool {
        self.send.is_over()
    }

    /// Return where the message was stored.
    ///
    /// Waits at most `timeout` seconds. Raises `SendError` with every attempt, or `RequestTimeout` while the send is
    /// still in flight.
    #[pyo3(signature = (timeout = None))]
    fn result<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().wait_over(slf.py(), timeout)?;
        let (results, mut ids) = (Self::outcome(slf)?, slf.get().send.encoded.unique_ids());
        match (ids.next(), ids.next()) {
            (Some(id), None) => results.make(id, &results.receipt.offset_message_id, 0),
            _ => Err(raise("ConfigError", "this send is a batch: call `results`")),
        }
    }

    /// Return where the messages of a batch were stored, one result each, in order. Raises as `result` does.
    #[pyo3(signature = (timeout = None))]
    fn results<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        slf.get().wait_over(slf.py(), timeout)?;
        let results = Self::outcome(slf)?;
        let mut offset_ids = results.receipt.offset_message_id.split(',');
        (0..)
            .zip(slf.get().send.encoded.unique_ids())
            .map(|(index, unique_id)| results.make(unique_id, offset_ids.next().unwrap_or_default(), index))
            .collect()
    }

    /// Return the error of a failed send, or `None`. Waits as `result` does.
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

    /// Call `callback` with this future once the send has ended.
    ///
    /// The producer's callback thread calls it, one callback after the other; if the send has already ended, it is
    /// called immediately. Its exceptions are logged.
    fn add_done_callback(slf: &Bound<'_, Self>, callback: &Bound<'_, PyAny>) -> PyResult<()> {
        if !callback.is_callable() {
            return Err(wrong_type("callback", "callable", callback));
        }
        let Some(add_callback) = &slf.get().add_callback else {
            return Err(PyRuntimeError::new_err("the producer of this send does not support callbacks"));
        };
        add_callback.call1(slf.py(), (slf, callback))?;
        Ok(())
    }

    /// Return a `concurrent.futures.Future` with the same outcome, for `concurrent.futures.wait` and similar
    /// functions.
    ///
    /// It cannot be cancelled: the message is already in flight.
    fn as_future<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static AS_FUTURE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        AS_FUTURE.import(slf.py(), "rmqpy.client.done_callbacks", "as_future")?.call1((slf,))
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static AWAITED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let awaited = AWAITED.import(slf.py(), "rmqpy.client.done_callbacks", "awaited")?.call1((slf,))?;
        awaited.call_method0("__await__")
    }

    /// The topic of the message.
    #[getter]
    fn topic(&self) -> &str {
        &self.send.encoded.topic
    }

    /// The ids of its messages; known before they are sent.
    #[getter]
    fn message_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.send.encoded.unique_ids().collect::<Vec<_>>())
    }

    /// Wait for the outcome of the attempt in flight; return whether the send is over, `None` after `timeout` seconds.
    #[pyo3(name = "_settle")]
    fn settle(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<bool>> {
        self.owner.check("send")?;
        let has_outcome = wait(py, Some(timeout), |slice| self.send.wait_attempt(slice))?;
        Ok(has_outcome.then(|| self.done()))
    }

    #[pyo3(name = "_give_up")]
    fn give_up(&self) {
        self.send.give_up();
    }

    #[pyo3(name = "_abandon")]
    fn abandon(&self) {
        self.send.abandon();
    }

    #[pyo3(name = "_announce_end")]
    fn announce_end(&self, token: u64) -> PyResult<Option<u64>> {
        self.owner.check("send")?;
        Ok(self.send.announce_end(token))
    }

    #[getter(_end_token)]
    fn end_token(&self) -> Option<u64> {
        self.send.end_token()
    }

    #[getter(_is_batch)]
    fn is_batch(&self) -> bool {
        self.send.encoded.is_batch()
    }

    #[getter(_is_half)]
    fn is_half(&self) -> bool {
        self.send.encoded.is_half()
    }

    #[getter(_is_pinned)]
    fn is_pinned(&self) -> bool {
        self.send.is_pinned()
    }

    #[getter(_queue_id)]
    fn queue_id(&self) -> i32 {
        self.send.target().queue_id
    }

    #[getter(_broker)]
    fn broker(&self) -> String {
        self.send.target().broker.to_string()
    }

    #[getter(_remaining)]
    fn remaining(&self) -> f64 {
        self.send.deadline.saturating_duration_since(Instant::now()).as_secs_f64()
    }

    #[getter(_attempts)]
    fn attempts(&self) -> Vec<FailedAttempt> {
        self.send.attempts().iter().map(FailedAttempt::from).collect()
    }

    fn __repr__(&self) -> String {
        let state = match self.send.phase() {
            Phase::InFlight => "in flight",
            Phase::Failed => "between two attempts",
            Phase::Stored(_) => "stored",
            Phase::GivenUp => "failed",
        };
        format!("<SendFuture to {}: {state}>", self.send.encoded.topic)
    }
}
