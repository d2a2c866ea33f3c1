//! `Sender`: the native half of a producer. Messages become frames here, and their outcomes arrive here.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use super::client::{Client, SharedConnections};
use super::completions::Completions;
use super::errors::raise;
use super::message::{Message, bytes_of};
use super::rows::{Rows, SendBatch, refused};
use super::send_future::SendFuture;
use super::waiting::{OwnerProcess, duration, wait};
use crate::client::completions::Completions as CompletionsCore;
use crate::client::encoded_send::{EncodedSend, ProducerContext};
use crate::client::message_fields::check_group;
use crate::client::pending_send::{PendingSend, SendOptions};
use crate::client::route_cache::{RouteCache, Target};
use crate::client::send_budget::SendBudget;
use crate::clock::{SharedClock, SystemClock};
use crate::message::sysflag::Compression;

#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct Sender {
    connections: SharedConnections,
    context: Arc<ProducerContext>,
    budget: Arc<SendBudget>,
    completions: Arc<CompletionsCore>,
    retry_not_safe: bool,
    defaults: SendDefaults,
    routes: RouteCache,
    clock: SharedClock,
    owner: OwnerProcess,
}

/// Settings of a message whose sender says nothing else. Seconds, bytes.
struct SendDefaults {
    timeout: f64,
    room_timeout: f64,
    body_bytes_max: usize,
}

#[pymethods]
impl Sender {
    #[new]
    #[pyo3(signature = (client, completions, *, group, compress_above = None, compression = "zlib",
                        template_queues = 4, max_in_flight = 1024, max_buffered_bytes = 67_108_864,
                        retry_not_safe = false, timeout = 3.0, room_timeout = 3.0, body_bytes_max = 4_194_304))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python constructor, not a Rust interface")]
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
        room_timeout: f64,
        body_bytes_max: usize,
    ) -> PyResult<Self> {
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
            connections: client.share(),
            context: Arc::new(ProducerContext {
                group,
                compress_from_bytes: compress_above,
                compression,
                template_queues,
                ids,
            }),
            budget: Arc::new(SendBudget::new(max_in_flight.max(1), max_buffered_bytes)),
            completions: completions.core(),
            retry_not_safe,
            defaults: SendDefaults { timeout, room_timeout, body_bytes_max },
            routes: RouteCache::default(),
            clock: SystemClock::shared(),
            owner: OwnerProcess::here(),
        })
    }

    fn learn(&self, topic: &str, queues: Vec<(String, String, i32)>, fresh: f64) {
        let targets = queues.iter().map(|(address, broker, queue_id)| target(address, broker, *queue_id));
        let first = RandomState::new().hash_one(topic) as usize >> 1;
        self.routes.learn(topic, targets.collect(), first, Instant::now() + duration(fresh));
    }

    fn forget(&self, topic: &str) {
        self.routes.forget(topic);
    }

    #[pyo3(signature = (message, body = None, *, announce = "failures"))]
    fn post(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        body: Option<&Bound<'_, PyAny>>,
        announce: &str,
    ) -> PyResult<Option<SendFuture>> {
        let Some((encoded, target, is_pinned)) = self.address(py, message, body)? else { return Ok(None) };
        let SendDefaults { timeout, room_timeout, .. } = self.defaults;
        let options = self.options(announce, 0, is_pinned)?;
        let future = self.start(py, encoded, target, timeout, room_timeout, options)?;
        let is_full =
            || raise("BufferFull", &format!("{} messages are on their way", self.budget.messages()));
        future.map(Some).ok_or_else(is_full)
    }

    fn cut(&self, py: Python<'_>, messages: &Bound<'_, PyList>, member_bytes: usize) -> Option<Vec<usize>> {
        let mut ends = Vec::new();
        let mut first: Option<Bound<'_, Message>> = None;
        let mut bytes = 0;
        for (at, message) in messages.iter().enumerate() {
            let message = message.cast_into::<Message>().ok()?;
            let (fields, body) = (message.get().fields(), message.get().body_bytes(py));
            let known = first.as_ref().map_or(fields, |first| first.get().fields());
            let is_alike = known.topic == fields.topic && known.sharding_key == fields.sharding_key;
            if !is_alike || fields.delivery.is_some() || body.len() > self.defaults.body_bytes_max {
                return None;
            }
            let taken = body.len() + fields.properties_bytes() + member_bytes;
            if bytes > 0 && bytes + taken > self.defaults.body_bytes_max {
                ends.push(at);
                bytes = 0;
            }
            bytes += taken;
            if first.is_none() {
                first = Some(message);
            }
        }
        if bytes > 0 {
            ends.push(messages.len());
        }
        Some(ends)
    }

    #[pyo3(signature = (message, address, broker, queue_id, *, timeout, room_timeout = 0.0, announce = "failures",
                        token = 0, is_pinned = false))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python method, not a Rust interface")]
    fn send(
        &self,
        py: Python<'_>,
        message: &Message,
        address: &str,
        broker: &str,
        queue_id: i32,
        timeout: f64,
        room_timeout: f64,
        announce: &str,
        token: u64,
        is_pinned: bool,
    ) -> PyResult<Option<SendFuture>> {
        let encoded = self.encoded(py, message);
        let target = target(address, broker, queue_id);
        let options = self.options(announce, token, is_pinned)?;
        self.start(py, encoded, target, timeout, room_timeout, options)
    }

    #[pyo3(signature = (messages, address, broker, queue_id, *, timeout, room_timeout = 0.0, announce = "failures",
                        token = 0, is_pinned = false))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python method, not a Rust interface")]
    fn send_batch(
        &self,
        py: Python<'_>,
        messages: Vec<PyRef<'_, Message>>,
        address: &str,
        broker: &str,
        queue_id: i32,
        timeout: f64,
        room_timeout: f64,
        announce: &str,
        token: u64,
        is_pinned: bool,
    ) -> PyResult<Option<SendFuture>> {
        let Some(first) = messages.first() else {
            return Err(raise("ConfigError", "a batch needs at least one message"));
        };
        let members = messages.iter().map(|message| (message.fields(), message.body_bytes(py)));
        let encoded = self.context.batch(&first.fields().topic, members, self.clock.wall_ms());
        let target = target(address, broker, queue_id);
        let options = self.options(announce, token, is_pinned)?;
        self.start(py, encoded, target, timeout, room_timeout, options)
    }

    #[pyo3(signature = (rows, batch, address, broker, queue_id, *, timeout, room_timeout = 0.0, is_pinned = false))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python method, not a Rust interface")]
    fn send_rows(
        &self,
        py: Python<'_>,
        rows: &Rows,
        batch: &SendBatch,
        address: &str,
        broker: &str,
        queue_id: i32,
        timeout: f64,
        room_timeout: f64,
        is_pinned: bool,
    ) -> PyResult<Option<SendFuture>> {
        let (part, now_ms) = (rows.part(batch)?, self.clock.wall_ms());
        let encoded = py.detach(|| part.encode(&self.context, batch.core(), now_ms)).map_err(refused)?;
        let options = self.options("failures", 0, is_pinned)?;
        self.start(py, encoded, target(address, broker, queue_id), timeout, room_timeout, options)
    }

    fn send_oneway(
        &self,
        py: Python<'_>,
        message: &Message,
        address: &str,
        broker: &str,
        queue_id: i32,
    ) -> PyResult<()> {
        let encoded = self.encoded(py, message);
        let sent = self.connections.get()?.send_oneway(&encoded, &target(address, broker, queue_id));
        sent.map_err(|error| raise("ConnectError", &error.to_string()))
    }

    fn again(&self, future: &SendFuture, address: &str, broker: &str, queue_id: i32) -> PyResult<()> {
        let connections = self.connections.get()?;
        if future.send().again(target(address, broker, queue_id)) {
            connections.send(future.send(), &self.completions);
        }
        Ok(())
    }

    #[pyo3(signature = (timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.connections.get()?;
        wait(py, timeout, |slice| self.budget.drained(slice))
    }

    fn has_room(&self, size: usize) -> bool {
        self.budget.has_room(size)
    }

    #[getter]
    fn in_flight(&self) -> usize {
        self.budget.messages()
    }
}

impl Sender {
    fn encoded(&self, py: Python<'_>, message: &Message) -> EncodedSend {
        let (fields, body, now_ms) = (message.fields(), message.body_bytes(py), self.clock.wall_ms());
        self.encode(py, body.len(), || self.context.message(fields, body, now_ms))
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

    /// The message as it is sent, its target, and whether only that will do. `None` where that takes a closer look.
    fn address(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        body: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<(EncodedSend, Target, bool)>> {
        let fits = |body: &[u8]| (1..=self.defaults.body_bytes_max).contains(&body.len());
        if !self.owner.is_here() {
            return Ok(None);
        }
        let now = Instant::now();
        if let Ok(topic) = message.cast::<PyString>() {
            let (Some(rotation), Some(body)) = (self.routes.get(topic.to_cow()?.as_ref(), now), body) else {
                return Ok(None);
            };
            let body = bytes_of(body)?;
            let (body, now_ms) = (body.as_bytes(), self.clock.wall_ms());
            let Some(target) = rotation.next().filter(|_| fits(body)) else { return Ok(None) };
            let plain = || self.context.plain(rotation.topic(), body, now_ms);
            return Ok(Some((self.encode(py, body.len(), plain), target.clone(), false)));
        }
        let Ok(message) = message.cast::<Message>() else { return Ok(None) };
        let message = message.get();
        let fields = message.fields();
        let Some(rotation) = self.routes.get(&fields.topic, now).filter(|_| body.is_none()) else {
            return Ok(None);
        };
        let key = fields.sharding_key.as_deref();
        let target = key.map_or_else(|| rotation.next(), |key| rotation.of_key(key));
        let Some(target) = target.filter(|_| fits(message.body_bytes(py))) else { return Ok(None) };
        Ok(Some((self.encoded(py, message), target.clone(), key.is_some())))
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
        })
    }

    fn start(
        &self,
        py: Python<'_>,
        encoded: EncodedSend,
        target: Target,
        timeout: f64,
        room_timeout: f64,
        options: SendOptions,
    ) -> PyResult<Option<SendFuture>> {
        let connections = self.connections.get()?;
        let bytes = encoded.bytes();
        let has_room = self.budget.take(bytes, Duration::ZERO)
            || (room_timeout > 0.0 && wait(py, Some(room_timeout), |slice| self.budget.take(bytes, slice))?);
        if !has_room {
            return Ok(None);
        }
        let deadline = Instant::now() + duration(timeout);
        let send = Arc::new(PendingSend::new(encoded, target, deadline, options));
        connections.send(&send, &self.completions);
        Ok(Some(SendFuture::new(send, self.owner)))
    }
}

fn target(address: &str, broker: &str, queue_id: i32) -> Target {
    Target { address: address.into(), broker: broker.into(), queue_id }
}
