//! `SendFuture`: a message on its way, or its outcome.

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

/// A message on its way. Done when a broker has it, or when no further attempt will be made.
///
/// `await` gives what `result` does, in any event loop; cancelling that ends the wait, not the send. Made by
/// `Producer.submit`, any thread may use it.
#[pyclass(frozen, module = "rmqpy", name = "SendFuture")]
pub(super) struct SendFuture {
    pub(super) send: Arc<PendingSend>,
    /// The process that made it.
    pub(super) owner: OwnerProcess,
    /// Called with it and a callback that is to know of its end; without it nobody may ask for that.
    pub(super) add_callback: Option<Py<PyAny>>,
}

/// Broker, queue id, address, kind of failure, response code, text, seconds.
pub(super) type AttemptFacts = (String, i32, String, &'static str, Option<i32>, String, f64);

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

    /// The results of what was stored, to be made; of a send that is over.
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

/// What the results of one send have in common. They are made here, where it takes a third of the time that it takes
/// in Python.
struct Results<'py> {
    /// `tuple.__new__`: it asks for no names, only for the values in their order.
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

    /// Where the message was stored.
    ///
    /// Waits `timeout` seconds at most. Raises `SendError` with every attempt, `RequestTimeout` when it is still
    /// under way then.
    #[pyo3(signature = (timeout = None))]
    fn result<'py>(slf: &Bound<'py, Self>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().wait_over(slf.py(), timeout)?;
        let (results, mut ids) = (Self::outcome(slf)?, slf.get().send.encoded.unique_ids());
        match (ids.next(), ids.next()) {
            (Some(id), None) => results.make(id, &results.receipt.offset_message_id, 0),
            _ => Err(raise("ConfigError", "this is the send of a batch: ask for its `results`")),
        }
    }

    /// Where the messages of a batch were stored, one result for each, in order. Raises as `result` does.
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

    /// Why it was not sent, or `None` when it was. Waits as `result` does.
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
    /// It is called by the thread that makes all callbacks of the producer, one after the other, or at once where the
    /// send has ended already. What it raises is logged.
    fn add_done_callback(slf: &Bound<'_, Self>, callback: &Bound<'_, PyAny>) -> PyResult<()> {
        if !callback.is_callable() {
            return Err(wrong_type("callback", "callable", callback));
        }
        let Some(add_callback) = &slf.get().add_callback else {
            return Err(PyRuntimeError::new_err("the producer of this send has its end announced elsewhere"));
        };
        add_callback.call1(slf.py(), (slf, callback))?;
        Ok(())
    }

    /// A `concurrent.futures.Future` that ends as this does, for `concurrent.futures.wait` and its like.
    ///
    /// It cannot be cancelled: the message is on its way.
    fn as_future<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static AS_FUTURE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        AS_FUTURE.import(slf.py(), "rmqpy.client.done_callbacks", "as_future")?.call1((slf,))
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static AWAITED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let awaited = AWAITED.import(slf.py(), "rmqpy.client.done_callbacks", "awaited")?.call1((slf,))?;
        awaited.call_method0("__await__")
    }

    /// Topic of the message.
    #[getter]
    fn topic(&self) -> &str {
        &self.send.encoded.topic
    }

    /// The ids its messages travel under; known before they are sent.
    #[getter]
    fn message_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.send.encoded.unique_ids().collect::<Vec<_>>())
    }

    #[pyo3(name = "_settle")]
    fn settle(&self, py: Python<'_>) -> PyResult<bool> {
        self.owner.check("send")?;
        wait(py, None, |slice| self.send.wait_attempt(slice))?;
        Ok(self.done())
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

pub(super) fn facts(attempt: &Attempt) -> AttemptFacts {
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
