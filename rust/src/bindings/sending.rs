//! Sending: the steps of every send of a `Sender`.
//!
//! Each send chooses a queue, encodes its message, reserves budget and sends the frame. A send that cannot start is
//! [`NotSent`]; Python removes the cause and tries again.

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
use super::send_future::SendFuture;
use super::waiting::{duration, wait};
use crate::client::broker_latency::BrokerLatency;
use crate::client::broker_regions::BrokerRegions;
use crate::client::completions::Completions as CompletionsCore;
use crate::client::connections::Connections;
use crate::client::encoded_send::{EncodedSend, ProducerContext};
use crate::client::message_fields::{MessageFields, QueueKey, check_group};
use crate::client::pending_send::{PendingSend, SendOptions};
use crate::client::route_cache::{QueueRotation, RouteCache, Target};
use crate::client::send_budget::SendBudget;
use crate::client::unasked_failures::UnaskedFailures;
use crate::clock::{SharedClock, SystemClock};
use crate::message::sysflag::Compression;

/// The options of `rmqpy.config.sender`, read by name.
#[derive(FromPyObject)]
pub(super) struct SenderOptions {
    group: String,
    send_timeout: f64,
    compress_above: Option<usize>,
    compression: String,
    template_queues: i32,
    pub(super) max_message_size: usize,
    max_in_flight: usize,
    max_buffered_bytes: usize,
    retry_not_stored: bool,
    latency_fault_tolerance: bool,
    waits_for_room: bool,
    learns_regions: bool,
    sends_replies: bool,
    add_callback: Option<Py<PyAny>>,
}

/// The reason a send did not start; it had no effect.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct NotSent {
    /// `no_route`: no valid route of the topic is known. Otherwise: the budget is used up.
    reason: &'static str,
    /// The missing budget in bytes.
    bytes: usize,
}

/// No queue was chosen, and no valid route of the topic is known.
pub(super) const NO_ROUTE: NotSent = NotSent { reason: "no_route", bytes: 0 };

/// The result of starting a send: started, or refused.
#[derive(IntoPyObject)]
pub(super) enum Start {
    Started(SendFuture),
    Refused(NotSent),
}

/// A queue chosen by the caller: address, broker name, queue id, pinned.
pub(super) type Chosen = (String, String, i32, bool);

/// The target of the first attempt. Pinned: retries use only that queue.
pub(super) struct Place {
    pub(super) target: Target,
    is_pinned: bool,
}

impl From<Chosen> for Place {
    fn from((address, broker, queue_id, is_pinned): Chosen) -> Self {
        Self { target: target(&address, &broker, queue_id), is_pinned }
    }
}

/// Parameters of one send.
pub(super) struct Terms<'a> {
    pub(super) timeout: Option<f64>,
    pub(super) announce: &'a str,
    pub(super) token: u64,
    /// When the send began.
    pub(super) now: Instant,
}

/// The state that all sends of one producer share.
pub(super) struct Sending {
    pub(super) connections: SharedConnections,
    pub(super) context: Arc<ProducerContext>,
    pub(super) options: SenderOptions,
    pub(super) budget: Arc<SendBudget>,
    pub(super) completions: Arc<CompletionsCore>,
    pub(super) routes: RouteCache,
    pub(super) latency: Option<Arc<BrokerLatency>>,
    pub(super) regions: Option<Arc<BrokerRegions>>,
    pub(super) clock: SharedClock,
    owner: OwnerProcess,
    pub(super) unasked_failures: Arc<UnaskedFailures>,
}

impl Sending {
    pub(super) fn new(client: &Client, completions: &Completions, options: SenderOptions) -> PyResult<Self> {
        let namespace = client.namespace.as_ref().map(|of| of.core.clone());
        let given = options.group.as_str();
        let group = namespace.as_ref().map_or(given.into(), |of| of.wrap(given)).into_owned();
        check_group(&group).map_err(|error| raise("ConfigError", &error.to_string()))?;
        let compression = match options.compression.as_str() {
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
                compress_from_bytes: options.compress_above.map(|above| above + 1),
                compression,
                template_queues: options.template_queues,
                ids,
                // A reply goes to the topic of a cluster, which is in no namespace.
                namespace: namespace.filter(|_| !options.sends_replies),
                sends_replies: options.sends_replies,
            }),
            budget: Arc::new(SendBudget::new(options.max_in_flight.max(1), options.max_buffered_bytes)),
            completions: Arc::clone(&completions.core),
            routes: RouteCache::default(),
            latency: options.latency_fault_tolerance.then(Arc::default),
            regions: options.learns_regions.then(Arc::default),
            clock: SystemClock::shared(),
            owner: OwnerProcess::here(),
            unasked_failures: Arc::default(),
            options,
        })
    }

    /// Chooses the queue of a message: the caller's choice, that of its sharding key, or the next in rotation.
    pub(super) fn place(
        &self,
        topic: &str,
        key: Option<QueueKey<'_>>,
        to: Option<Chosen>,
        now: Instant,
    ) -> Option<Place> {
        if let Some(chosen) = to {
            return Some(chosen.into());
        }
        let rotation = self.routes.get(topic, now)?;
        let target = key.map_or_else(|| self.next(&rotation, now), |key| rotation.of_key(key))?;
        Some(Place { target: target.clone(), is_pinned: key.is_some() })
    }

    /// Returns the next queue in rotation, skipping slow brokers if configured.
    fn next<'a>(&self, rotation: &'a QueueRotation, now: Instant) -> Option<&'a Target> {
        match &self.latency {
            None => rotation.next(),
            Some(latency) => rotation.next_at(|broker| latency.is_available(broker, now)),
        }
    }

    /// Encodes a message, or a body for a topic, and chooses its place. `None` without a route.
    pub(super) fn encoded(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        body: Option<&Bound<'_, PyAny>>,
        to: Option<Chosen>,
        now: Instant,
    ) -> PyResult<Option<(EncodedSend, Place)>> {
        if let Ok(message) = message.cast::<Message>() {
            if body.is_some() {
                return Err(PyTypeError::new_err(
                    "a Message takes no further arguments: use message.replace(...) to change it",
                ));
            }
            return self.encoded_as(py, message.get(), to, now, ProducerContext::message);
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
            // Topics of cached routes are known to be valid.
            let fields = MessageFields { topic: topic.into_owned(), ..MessageFields::default() };
            fields.check_topic().map_err(|error| PyValueError::new_err(error.to_string()))?;
            return Ok(None);
        };
        let Some(target) = self.next(&rotation, now) else { return Ok(None) };
        let place = to.map_or_else(|| Place { target: target.clone(), is_pinned: false }, Place::from);
        let plain = || self.context.plain(rotation.topic(), body, self.clock.wall_ms());
        Ok(Some((self.encode(py, body.len(), plain), place)))
    }

    /// Likewise for a message, encoded by `encode`.
    pub(super) fn encoded_as(
        &self,
        py: Python<'_>,
        message: &Message,
        to: Option<Chosen>,
        now: Instant,
        encode: impl FnOnce(&Arc<ProducerContext>, &MessageFields, &[u8], u64) -> EncodedSend + Send,
    ) -> PyResult<Option<(EncodedSend, Place)>> {
        let (fields, content) = (&message.fields, message.body_bytes(py));
        self.check_size(&fields.topic, content)?;
        let Some(place) = self.place(&fields.topic, fields.queue_key(), to, now) else {
            return Ok(None);
        };
        let encode = || encode(&self.context, fields, content, self.clock.wall_ms());
        Ok(Some((self.encode(py, content.len(), encode), place)))
    }

    pub(super) fn check_size(&self, topic: &str, body: &[u8]) -> PyResult<()> {
        let body_bytes_max = self.options.max_message_size;
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

    /// Compression takes tens of microseconds, so it releases the interpreter.
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

    fn options(&self, terms: &Terms<'_>, is_pinned: bool, is_half: bool) -> PyResult<SendOptions> {
        let (is_announced, failures_only) = match terms.announce {
            "never" => (false, false),
            "failures" => (true, true),
            "always" => (true, false),
            other => return Err(PyValueError::new_err(format!("announce {other:?}"))),
        };
        Ok(SendOptions {
            budget: Some(Arc::clone(&self.budget)),
            token: is_announced.then_some(terms.token),
            failures_only,
            // Brokers would check both half messages, and could commit both.
            retry_not_safe: self.options.retry_not_stored && !is_half,
            is_pinned,
            latency: self.latency.clone(),
            regions: self.regions.clone(),
            unasked_failures: is_announced.then(|| Arc::clone(&self.unasked_failures)),
        })
    }

    pub(super) fn start(
        &self,
        py: Python<'_>,
        connections: &Connections,
        encoded: EncodedSend,
        place: Place,
        terms: &Terms<'_>,
    ) -> PyResult<Start> {
        let options = self.options(terms, place.is_pinned, encoded.is_half())?;
        let timeout = terms.timeout.unwrap_or(self.options.send_timeout);
        let bytes = encoded.bytes();
        let mut now = terms.now;
        if !self.budget.take(bytes) {
            let has_room = self.options.waits_for_room
                && wait(py, Some(timeout), |slice| self.budget.take_within(bytes, slice))?;
            if !has_room {
                return Ok(Start::Refused(NotSent { reason: "no_room", bytes }));
            }
            now = Instant::now();
        }
        let send = Arc::new(PendingSend::new(encoded, place.target, now, duration(timeout), options));
        connections.send(&send, &self.completions, now);
        let add_callback = self.options.add_callback.as_ref().map(|add_callback| add_callback.clone_ref(py));
        Ok(Start::Started(SendFuture { send, owner: self.owner, add_callback }))
    }
}

pub(super) fn target(address: &str, broker: &str, queue_id: i32) -> Target {
    Target { address: address.into(), broker: broker.into(), queue_id }
}
