//! `Sender`: the native part of a producer, which sends messages and collects the outcomes.
//!
//! The steps of every send are in `sending`. A send that cannot start returns `NotSent`; Python removes the cause and
//! tries again.

use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::client::Client;
use super::completions::Completions;
use super::errors::raise;
use super::message::Message;
use super::rows::{Rows, SendBatch, refused};
use super::send_future::{FailedAttempt, SendFuture};
use super::sending::{Chosen, NO_ROUTE, NotSent, SenderOptions, Sending, Start, Terms, target};
use super::waiting::{duration, wait};
use crate::client::encoded_send::ProducerContext;

/// The native part of a producer: encodes and sends messages, and collects their outcomes.
#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct Sender {
    core: Sending,
}

#[pymethods]
impl Sender {
    #[new]
    fn new(client: &Client, completions: &Completions, options: SenderOptions) -> PyResult<Self> {
        Sending::new(client, completions, options).map(|core| Self { core })
    }

    /// Cache a route for `fresh` seconds: address, broker name and queue id of each queue of the topic.
    fn learn(&self, topic: &str, queues: Vec<(String, String, i32)>, fresh: f64) {
        let targets = queues.iter().map(|(address, broker, queue_id)| target(address, broker, *queue_id));
        let first = RandomState::new().hash_one(topic) as usize >> 1;
        self.core.routes.learn(topic, targets.collect(), first, Instant::now() + duration(fresh));
    }

    /// Mark the cached route of a topic as stale.
    fn doubt(&self, topic: &str) {
        self.core.routes.doubt(topic);
    }

    /// Split messages into batches that brokers accept, and return their ends. A message takes `member_bytes` in
    /// addition to body and properties. Raises `ValueError` for a message that cannot share a batch with the first
    /// one.
    fn cut(
        &self,
        py: Python<'_>,
        messages: Vec<PyRef<'_, Message>>,
        member_bytes: usize,
    ) -> PyResult<Vec<usize>> {
        let mut ends = Vec::new();
        let mut bytes = 0;
        let Some(first) = messages.first().map(|first| &first.fields) else { return Ok(ends) };
        for (at, message) in messages.iter().enumerate() {
            let (fields, body) = (&message.fields, message.body_bytes(py));
            if fields.topic != first.topic || fields.sharding_key != first.sharding_key {
                let text = "the messages of a batch need one topic, and one sharding_key if any";
                return Err(PyValueError::new_err(text));
            }
            if fields.lite_topic.is_some() {
                let text = "a batch cannot go to lite topics: send their messages one by one";
                return Err(PyValueError::new_err(text));
            }
            if fields.delivery.is_some() {
                let text = "a batch cannot be delayed: send delayed messages one by one";
                return Err(PyValueError::new_err(text));
            }
            self.core.check_size(&fields.topic, body)?;
            let taken = body.len() + fields.properties_bytes() + member_bytes;
            if bytes > 0 && bytes + taken > self.core.options.max_message_size {
                ends.push(at);
                bytes = 0;
            }
            bytes += taken;
        }
        ends.push(messages.len());
        Ok(ends)
    }

    /// Start sending a message, or a body to a topic, in one call.
    ///
    /// `to`: address, broker name, queue id, and whether only that queue may be used. Without it the sharding key
    /// selects a cached queue; without a key queues rotate. Raises `ValueError` and `TypeError` for messages that
    /// brokers refuse.
    #[pyo3(signature = (message, body = None, *, to = None, timeout = None, announce = "failures", token = 0))]
    fn send(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        body: Option<&Bound<'_, PyAny>>,
        to: Option<Chosen>,
        timeout: Option<f64>,
        announce: &str,
        token: u64,
    ) -> PyResult<Start> {
        // Before any lock is taken: a fork may have left one locked.
        let (connections, now) = (self.core.connections.get()?, Instant::now());
        let Some((encoded, place)) = self.core.encoded(py, message, body, to, now)? else {
            return Ok(Start::Refused(NO_ROUTE));
        };
        self.core.start(py, connections, encoded, place, &Terms { timeout, announce, token, now })
    }

    /// Likewise for a half message, which waits at the broker for the end of its transaction. If it is stored less
    /// safely than requested, it is not retried.
    #[pyo3(signature = (message, *, to = None, timeout = None, announce = "failures", token = 0))]
    fn send_half(
        &self,
        py: Python<'_>,
        message: &Message,
        to: Option<Chosen>,
        timeout: Option<f64>,
        announce: &str,
        token: u64,
    ) -> PyResult<Start> {
        let (connections, now) = (self.core.connections.get()?, Instant::now());
        let Some((encoded, place)) = self.core.encoded_as(py, message, to, now, ProducerContext::half)?
        else {
            return Ok(Start::Refused(NO_ROUTE));
        };
        self.core.start(py, connections, encoded, place, &Terms { timeout, announce, token, now })
    }

    /// Likewise for messages of one topic, sent as one batch.
    #[pyo3(signature = (messages, *, to = None, timeout = None, announce = "failures", token = 0))]
    fn send_batch(
        &self,
        py: Python<'_>,
        messages: Vec<PyRef<'_, Message>>,
        to: Option<Chosen>,
        timeout: Option<f64>,
        announce: &str,
        token: u64,
    ) -> PyResult<Start> {
        let (connections, now) = (self.core.connections.get()?, Instant::now());
        let Some(first) = messages.first().map(|first| &first.fields) else {
            return Err(raise("ConfigError", "a batch needs at least one message"));
        };
        let Some(place) = self.core.place(&first.topic, first.queue_key(), to, now) else {
            return Ok(Start::Refused(NO_ROUTE));
        };
        let members = messages.iter().map(|message| (&message.fields, message.body_bytes(py)));
        let encoded = self.core.context.batch(&first.topic, members, self.core.clock.wall_ms());
        self.core.start(py, connections, encoded, place, &Terms { timeout, announce, token, now })
    }

    /// Likewise for rows that travel together; failures are posted to the queue. Raises `ValueError` for a row that
    /// brokers refuse.
    #[pyo3(signature = (rows, batch, *, topic, to = None))]
    fn send_rows(
        &self,
        py: Python<'_>,
        rows: &Rows,
        batch: &SendBatch,
        topic: &str,
        to: Option<Chosen>,
    ) -> PyResult<Start> {
        let (connections, now) = (self.core.connections.get()?, Instant::now());
        let Some(place) = self.core.place(topic, None, to, now) else { return Ok(Start::Refused(NO_ROUTE)) };
        let (part, now_ms) = (rows.part(batch)?, self.core.clock.wall_ms());
        let encoded = py.detach(|| part.encode(&self.core.context, &batch.batch, now_ms)).map_err(refused)?;
        let terms = Terms { timeout: None, announce: "failures", token: 0, now };
        self.core.start(py, connections, encoded, place, &terms)
    }

    /// Send without waiting for a reply. Raises `ConnectError` if the message cannot be queued.
    #[pyo3(signature = (message, body = None, *, to = None))]
    fn send_oneway(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        body: Option<&Bound<'_, PyAny>>,
        to: Option<Chosen>,
    ) -> PyResult<Option<NotSent>> {
        let (connections, now) = (self.core.connections.get()?, Instant::now());
        let Some((encoded, place)) = self.core.encoded(py, message, body, to, now)? else {
            return Ok(Some(NO_ROUTE));
        };
        let sent = connections.send_oneway(&encoded, &place.target);
        sent.map(|()| None).map_err(|error| raise("ConnectError", &error.to_string()))
    }

    /// Retry after a failed attempt: send the same bytes elsewhere.
    fn again(&self, future: &SendFuture, address: &str, broker: &str, queue_id: i32) -> PyResult<()> {
        let connections = self.core.connections.get()?;
        if future.send.again(target(address, broker, queue_id)) {
            connections.send(&future.send, &self.core.completions, Instant::now());
        }
        Ok(())
    }

    /// Wait until nothing is in flight. Returns False after `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.core.connections.get()?;
        wait(py, timeout, |slice| self.core.budget.drained(slice))
    }

    /// Whether a slow broker of this name is being avoided.
    fn is_slow(&self, broker: &str) -> bool {
        self.core.latency.as_ref().is_some_and(|latency| !latency.is_available(broker, Instant::now()))
    }

    /// The region of a broker, if regions are learnt from replies; `None` if it does not want traces.
    fn region(&self, broker: &str) -> Option<String> {
        self.core.regions.as_ref().and_then(|regions| regions.of(broker)).map(|region| region.to_string())
    }

    /// Whether the budget has room for a message of `size` bytes.
    fn has_room(&self, size: usize) -> bool {
        self.core.budget.has_room(size)
    }

    /// The number of messages in flight.
    #[getter]
    fn in_flight(&self) -> usize {
        self.core.budget.messages()
    }

    /// The number of failed sends whose outcome was neither read nor posted; topic and last attempt of the first.
    fn unasked_failures(&self) -> (usize, Option<(String, FailedAttempt)>) {
        let (count, first) = self.core.unasked_failures.look();
        (count, first.map(|(topic, last)| (topic.to_string(), FailedAttempt::from(&last))))
    }
}
