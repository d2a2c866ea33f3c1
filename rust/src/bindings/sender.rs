//! `Sender`: the native half of a producer. Messages become frames here, and their outcomes arrive here.
//!
//! Every send takes one way: a queue is chosen, the message is encoded, room is taken, the frame goes out. A send that
//! cannot start is answered with `NotSent`; Python removes the reason and comes again.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::client::{Client, SharedConnections};
use super::completions::Completions;
use super::errors::{raise, raise_with};
use super::message::{EMPTY_BODY, Message, bytes_of, wrong_type};
use super::owner_process::OwnerProcess;
use super::rows::{Rows, SendBatch, refused};
use super::send_future::{AttemptFacts, SendFuture, facts};
use super::waiting::{duration, wait};
use crate::client::broker_latency::BrokerLatency;
use crate::client::broker_regions::BrokerRegions;
use crate::client::completions::Completions as CompletionsCore;
use crate::client::connections::Connections;
use crate::client::encoded_send::{EncodedSend, ProducerContext};
use crate::client::message_fields::{MessageFields, check_group};
use crate::client::pending_send::{PendingSend, SendOptions};
use crate::client::route_cache::{QueueRotation, RouteCache, Target};
use crate::client::send_budget::SendBudget;
use crate::client::unasked_failures::UnaskedFailures;
use crate::clock::{SharedClock, SystemClock};
use crate::message::sysflag::Compression;

/// The native half of a producer: messages become frames here, and their outcomes arrive here.
#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct Sender {
    connections: SharedConnections,
    context: Arc<ProducerContext>,
    budget: Arc<SendBudget>,
    completions: Arc<CompletionsCore>,
    retry_not_safe: bool,
    defaults: SendDefaults,
    routes: RouteCache,
    latency: Option<Arc<BrokerLatency>>,
    regions: Option<Arc<BrokerRegions>>,
    clock: SharedClock,
    owner: OwnerProcess,
    unasked_failures: Arc<UnaskedFailures>,
    /// See `SendFuture`.
    add_callback: Option<Py<PyAny>>,
}

/// Settings of a message whose sender says nothing else. Seconds, bytes.
struct SendDefaults {
    timeout: f64,
    /// A send without room waits for some, as long as it may take altogether.
    waits_for_room: bool,
    body_bytes_max: usize,
}

/// The reason why a send has not started; nothing was done.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct NotSent {
    /// No valid route of the topic was learnt, or the budget is used up.
    reason: &'static str,
    /// Room that was missing.
    bytes: usize,
}

/// No queue was chosen, and no valid route of the topic is known.
const NO_ROUTE: NotSent = NotSent { reason: "no_route", bytes: 0 };

/// The answer to a send: it has started, or was refused.
#[derive(IntoPyObject)]
enum Start {
    Started(SendFuture),
    Refused(NotSent),
}

/// A queue chosen by the caller: address, name of the broker, queue id, pinned.
type Chosen = (String, String, i32, bool);

/// Target of the first attempt; pinned: only that queue will do.
struct Place {
    target: Target,
    is_pinned: bool,
}

impl From<Chosen> for Place {
    fn from((address, broker, queue_id, is_pinned): Chosen) -> Self {
        Self { target: target(&address, &broker, queue_id), is_pinned }
    }
}

/// Terms of one send.
struct Terms<'a> {
    timeout: Option<f64>,
    announce: &'a str,
    token: u64,
    /// When it began.
    now: Instant,
}

#[pymethods]
impl Sender {
    #[new]
    #[pyo3(signature = (client, completions, *, group, compress_above = None, compression = "zlib",
                        template_queues = 4, max_in_flight = 1024, max_buffered_bytes = 67_108_864,
                        retry_not_safe = false, timeout = 3.0, waits_for_room = true, body_bytes_max = 4_194_304,
                        avoids_slow_brokers = false, learns_regions = false, add_callback = None))]
    fn new(
        client: &Client,
        completions: &Completions,
        group: String,
        compress_above: Option<usize>,
        compression: &str,
        template_queues: i32,
        max_in_flight: usize,
        max_buffered_bytes: usize,
        retry_not_safe: bool,
        timeout: f64,
        waits_for_room: bool,
        body_bytes_max: usize,
        avoids_slow_brokers: bool,
        learns_regions: bool,
        add_callback: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let namespace = client.namespace.as_ref().map(|of| of.core.clone());
        let group = namespace.as_ref().map_or(group.as_str().into(), |of| of.wrap(&group)).into_owned();
        check_group(&group).map_err(|error| raise("ConfigError", &error.to_string()))?;
        let compression = match compression {
            "zlib" => Compression::Zlib,
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            other => {
                return Err(raise("ConfigError", &format!("compression {other:?}: use zlib, lz4 or zstd")));
            }
        };
        let ids = ProducerContext::unique_ids(RandomState::new().hash_one(0) as u32);
        Ok(Self {
            connections: client.core.clone(),
            context: Arc::new(ProducerContext {
                group,
                compress_from_bytes: compress_above,
                compression,
                template_queues,
                ids,
                namespace,
            }),
            budget: Arc::new(SendBudget::new(max_in_flight.max(1), max_buffered_bytes)),
            completions: Arc::clone(&completions.core),
            retry_not_safe,
            defaults: SendDefaults { timeout, waits_for_room, body_bytes_max },
            routes: RouteCache::default(),
            latency: avoids_slow_brokers.then(Arc::default),
            regions: learns_regions.then(Arc::default),
            clock: SystemClock::shared(),
            owner: OwnerProcess::here(),
            unasked_failures: Arc::default(),
            add_callback,
        })
    }

    /// For `fresh` seconds, these queues take the topic's messages: address, name of the broker, queue id.
    fn learn(&self, topic: &str, queues: Vec<(String, String, i32)>, fresh: f64) {
        let targets = queues.iter().map(|(address, broker, queue_id)| target(address, broker, *queue_id));
        let first = RandomState::new().hash_one(topic) as usize >> 1;
        self.routes.learn(topic, targets.collect(), first, Instant::now() + duration(fresh));
    }

    /// What was learnt of a topic is not valid any more.
    fn doubt(&self, topic: &str) {
        self.routes.doubt(topic);
    }

    /// Ends of the batches that brokers take these messages in. A message takes `member_bytes` beside
    /// body and properties. Raises `ValueError` for a message that does not belong into a batch with the first one.
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
            if fields.delivery.is_some() {
                let text = "a batch cannot be delayed: send delayed messages one by one";
                return Err(PyValueError::new_err(text));
            }
            self.check_size(&fields.topic, body)?;
            let taken = body.len() + fields.properties_bytes() + member_bytes;
            if bytes > 0 && bytes + taken > self.defaults.body_bytes_max {
                ends.push(at);
                bytes = 0;
            }
            bytes += taken;
        }
        ends.push(messages.len());
        Ok(ends)
    }

    /// Start sending a message, or a body to a topic. All that a message takes, in one call.
    ///
    /// `to`: address, name of the broker, queue id, and whether only that queue will do; without it the sharding key
    /// chooses among the queues that were learnt, else it is the next one's turn. Raises `ValueError` and `TypeError`
    /// for what no broker takes.
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
        // Before any lock is taken, which a fork may have left locked.
        let (connections, now) = (self.connections.get()?, Instant::now());
        let Some((encoded, place)) = self.encoded(py, message, body, to, now)? else {
            return Ok(Start::Refused(NO_ROUTE));
        };
        self.start(py, connections, encoded, place, &Terms { timeout, announce, token, now })
    }

    /// Likewise for messages of one topic, stored side by side.
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
        let (connections, now) = (self.connections.get()?, Instant::now());
        let Some(first) = messages.first().map(|first| &first.fields) else {
            return Err(raise("ConfigError", "a batch needs at least one message"));
        };
        let Some(place) = self.place(&first.topic, first.sharding_key.as_deref(), to, now) else {
            return Ok(Start::Refused(NO_ROUTE));
        };
        let members = messages.iter().map(|message| (&message.fields, message.body_bytes(py)));
        let encoded = self.context.batch(&first.topic, members, self.clock.wall_ms());
        self.start(py, connections, encoded, place, &Terms { timeout, announce, token, now })
    }

    /// Likewise for rows that travel together; a failure is announced. Raises `ValueError` for a row that no
    /// broker takes.
    #[pyo3(signature = (rows, batch, *, topic, to = None))]
    fn send_rows(
        &self,
        py: Python<'_>,
        rows: &Rows,
        batch: &SendBatch,
        topic: &str,
        to: Option<Chosen>,
    ) -> PyResult<Start> {
        let (connections, now) = (self.connections.get()?, Instant::now());
        let Some(place) = self.place(topic, None, to, now) else { return Ok(Start::Refused(NO_ROUTE)) };
        let (part, now_ms) = (rows.part(batch)?, self.clock.wall_ms());
        let encoded = py.detach(|| part.encode(&self.context, &batch.batch, now_ms)).map_err(refused)?;
        let terms = Terms { timeout: None, announce: "failures", token: 0, now };
        self.start(py, connections, encoded, place, &terms)
    }

    /// Send and forget. Raises `ConnectError` when the message cannot even be queued.
    #[pyo3(signature = (message, body = None, *, to = None))]
    fn send_oneway(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        body: Option<&Bound<'_, PyAny>>,
        to: Option<Chosen>,
    ) -> PyResult<Option<NotSent>> {
        let (connections, now) = (self.connections.get()?, Instant::now());
        let Some((encoded, place)) = self.encoded(py, message, body, to, now)? else {
            return Ok(Some(NO_ROUTE));
        };
        let sent = connections.send_oneway(&encoded, &place.target);
        sent.map(|()| None).map_err(|error| raise("ConnectError", &error.to_string()))
    }

    /// After a failed attempt: send the same bytes elsewhere.
    fn again(&self, future: &SendFuture, address: &str, broker: &str, queue_id: i32) -> PyResult<()> {
        let connections = self.connections.get()?;
        if future.send.again(target(address, broker, queue_id)) {
            connections.send(&future.send, &self.completions, Instant::now());
        }
        Ok(())
    }

    /// Until nothing is on its way; False when `timeout` seconds passed first.
    #[pyo3(signature = (timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.connections.get()?;
        wait(py, timeout, |slice| self.budget.drained(slice))
    }

    /// True while a broker of this name is passed over.
    fn is_slow(&self, broker: &str) -> bool {
        self.latency.as_ref().is_some_and(|latency| !latency.is_available(broker, Instant::now()))
    }

    /// The region of a broker of this name, where regions are learnt from replies; `None` where it wants no
    /// traces.
    fn region(&self, broker: &str) -> Option<String> {
        self.regions.as_ref().and_then(|regions| regions.of(broker)).map(|region| region.to_string())
    }

    /// What a reply that Python has read says about that.
    fn learn_region(&self, broker: &str, region: Option<&str>, wants_traces: bool) {
        if let Some(regions) = &self.regions {
            regions.note(&broker.into(), region, wants_traces);
        }
    }

    /// Whether a message of `size` bytes could start now.
    fn has_room(&self, size: usize) -> bool {
        self.budget.has_room(size)
    }

    /// Messages under way.
    #[getter]
    fn in_flight(&self) -> usize {
        self.budget.messages()
    }

    /// How many sends failed whose outcome nobody asked for, nor is told; topic and last attempt of the first.
    fn unasked_failures(&self) -> (usize, Option<(String, AttemptFacts)>) {
        let (count, first) = self.unasked_failures.look();
        (count, first.map(|(topic, last)| (topic.to_string(), facts(&last))))
    }
}

impl Sender {
    /// The queue of a message: the caller's choice, that of its sharding key, or the next in rotation.
    fn place(&self, topic: &str, key: Option<&str>, to: Option<Chosen>, now: Instant) -> Option<Place> {
        if let Some(chosen) = to {
            return Some(chosen.into());
        }
        let rotation = self.routes.get(topic, now)?;
        let target = key.map_or_else(|| self.next(&rotation, now), |key| rotation.of_key(key))?;
        Some(Place { target: target.clone(), is_pinned: key.is_some() })
    }

    /// The next queue in rotation, of a broker that is not slow where these are avoided.
    fn next<'a>(&self, rotation: &'a QueueRotation, now: Instant) -> Option<&'a Target> {
        match &self.latency {
            None => rotation.next(),
            Some(latency) => rotation.next_at(|broker| latency.is_available(broker, now)),
        }
    }

    /// A message, or a body for a topic, as it is sent, and its place. `None` without one.
    fn encoded(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        body: Option<&Bound<'_, PyAny>>,
        to: Option<Chosen>,
        now: Instant,
    ) -> PyResult<Option<(EncodedSend, Place)>> {
        if let Ok(message) = message.cast::<Message>() {
            let message = message.get();
            let (fields, content) = (&message.fields, message.body_bytes(py));
            if body.is_some() {
                return Err(PyTypeError::new_err(
                    "a Message is complete: use message.replace(...) to change it",
                ));
            }
            self.check_size(&fields.topic, content)?;
            let Some(place) = self.place(&fields.topic, fields.sharding_key.as_deref(), to, now) else {
                return Ok(None);
            };
            let encode = || self.context.message(fields, content, self.clock.wall_ms());
            return Ok(Some((self.encode(py, content.len(), encode), place)));
        }
        let topic =
            message.cast::<PyString>().map_err(|_| wrong_type("message", "a Message or a topic", message))?;
        let Some(body) = body else {
            return Err(PyTypeError::new_err(
                "a topic needs a body: send(topic, body) or send(Message(...))",
            ));
        };
        let (topic, body) = (topic.to_cow()?, bytes_of(body)?);
        let body = body.as_bytes();
        if body.is_empty() {
            return Err(PyValueError::new_err(EMPTY_BODY));
        }
        self.check_size(&topic, body)?;
        let Some(rotation) = self.routes.get(&topic, now) else {
            // Only here: the topics of routes are known to be in order.
            let fields = MessageFields { topic: topic.into_owned(), ..MessageFields::default() };
            fields.check_topic().map_err(|error| PyValueError::new_err(error.to_string()))?;
            return Ok(None);
        };
        let Some(target) = self.next(&rotation, now) else { return Ok(None) };
        let place = to.map_or_else(|| Place { target: target.clone(), is_pinned: false }, Place::from);
        let plain = || self.context.plain(rotation.topic(), body, self.clock.wall_ms());
        Ok(Some((self.encode(py, body.len(), plain), place)))
    }

    fn check_size(&self, topic: &str, body: &[u8]) -> PyResult<()> {
        let body_bytes_max = self.defaults.body_bytes_max;
        if body.len() <= body_bytes_max {
            return Ok(());
        }
        let text = format!("the body has {} bytes, brokers take {body_bytes_max}", body.len());
        let hint = "send it in parts, or raise max_message_size here and maxMessageSize in broker.conf";
        Err(raise_with("MessageTooLarge", &text, |attributes| {
            attributes.set_item("topic", topic)?;
            attributes.set_item("hint", hint)
        }))
    }

    /// Compressing takes tens of microseconds: others may run meanwhile.
    fn encode(
        &self,
        py: Python<'_>,
        body_bytes: usize,
        encode: impl FnOnce() -> EncodedSend + Send,
    ) -> EncodedSend {
        match self.context.compress_from_bytes {
            Some(limit) if body_bytes >= limit => py.detach(encode),
            _ => encode(),
        }
    }

    fn options(&self, announce: &str, token: u64, is_pinned: bool) -> PyResult<SendOptions> {
        let (is_announced, failures_only) = match announce {
            "never" => (false, false),
            "failures" => (true, true),
            "always" => (true, false),
            other => return Err(PyValueError::new_err(format!("announce {other:?}"))),
        };
        Ok(SendOptions {
            budget: Some(Arc::clone(&self.budget)),
            token: is_announced.then_some(token),
            failures_only,
            retry_not_safe: self.retry_not_safe,
            is_pinned,
            latency: self.latency.clone(),
            regions: self.regions.clone(),
            unasked_failures: is_announced.then(|| Arc::clone(&self.unasked_failures)),
        })
    }

    fn start(
        &self,
        py: Python<'_>,
        connections: &Connections,
        encoded: EncodedSend,
        place: Place,
        terms: &Terms<'_>,
    ) -> PyResult<Start> {
        let options = self.options(terms.announce, terms.token, place.is_pinned)?;
        let timeout = terms.timeout.unwrap_or(self.defaults.timeout);
        let bytes = encoded.bytes();
        let mut now = terms.now;
        if !self.budget.take(bytes) {
            let has_room = self.defaults.waits_for_room
                && wait(py, Some(timeout), |slice| self.budget.take_within(bytes, slice))?;
            if !has_room {
                return Ok(Start::Refused(NotSent { reason: "no_room", bytes }));
            }
            now = Instant::now();
        }
        let send = Arc::new(PendingSend::new(encoded, place.target, now, duration(timeout), options));
        connections.send(&send, &self.completions, now);
        let add_callback = self.add_callback.as_ref().map(|add_callback| add_callback.clone_ref(py));
        Ok(Start::Started(SendFuture { send, owner: self.owner, add_callback }))
    }
}

fn target(address: &str, broker: &str, queue_id: i32) -> Target {
    Target { address: address.into(), broker: broker.into(), queue_id }
}
