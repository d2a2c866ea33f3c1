//! `Sender`: the native half of a producer. Messages become frames here, and their outcomes land here.

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
use super::rows::{Parcel, Rows, refused};
use super::send_future::SendFuture;
use super::waiting::{Home, duration, wait};
use crate::client::completions::{Announce, Completions as CompletionsCore};
use crate::client::fields::check_group;
use crate::client::outgoing::{Letterhead, Outgoing};
use crate::client::rota::Rotas;
use crate::client::shipment::{Shipment, ShipmentOptions, Target};
use crate::client::window::Window;
use crate::clock::{SharedClock, SystemClock};
use crate::message::sysflag::Compression;

/// See `_native.pyi`.
#[pyclass(frozen, module = "rmqpy._native")]
pub struct Sender {
    connections: SharedConnections,
    letterhead: Arc<Letterhead>,
    window: Arc<Window>,
    completions: Arc<CompletionsCore>,
    retry_not_safe: bool,
    defaults: Defaults,
    rotas: Rotas,
    clock: SharedClock,
    home: Home,
}

/// What holds for a message whose sender says nothing else. Seconds, bytes.
struct Defaults {
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
        let ids = Letterhead::unique_ids(RandomState::new().hash_one(0) as u32);
        Ok(Self {
            connections: client.share(),
            letterhead: Arc::new(Letterhead {
                group,
                compress_from_bytes: compress_above,
                compression,
                template_queues,
                ids,
            }),
            window: Arc::new(Window::new(max_in_flight.max(1), max_buffered_bytes)),
            completions: completions.core(),
            retry_not_safe,
            defaults: Defaults { timeout, room_timeout, body_bytes_max },
            rotas: Rotas::default(),
            clock: SystemClock::shared(),
            home: Home::here(),
        })
    }

    fn learn(&self, topic: &str, queues: Vec<(String, String, i32)>, fresh: f64) {
        let targets = queues.iter().map(|(address, broker, queue_id)| target(address, broker, *queue_id));
        let first = RandomState::new().hash_one(topic) as usize >> 1;
        self.rotas.learn(topic, targets.collect(), first, Instant::now() + duration(fresh));
    }

    fn forget(&self, topic: &str) {
        self.rotas.forget(topic);
    }

    #[pyo3(signature = (message, body = None, *, announce = "failures"))]
    fn post(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        body: Option<&Bound<'_, PyAny>>,
        announce: &str,
    ) -> PyResult<Option<SendFuture>> {
        let Some((outgoing, target, is_pinned)) = self.address(py, message, body)? else { return Ok(None) };
        let Defaults { timeout, room_timeout, .. } = self.defaults;
        let options = self.options(announce, 0, is_pinned)?;
        let future = self.ship(py, outgoing, target, timeout, room_timeout, options)?;
        let is_full =
            || raise("BufferFull", &format!("{} messages are on their way", self.window.messages()));
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
        let outgoing = self.outgoing(py, message);
        let target = target(address, broker, queue_id);
        let options = self.options(announce, token, is_pinned)?;
        self.ship(py, outgoing, target, timeout, room_timeout, options)
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
        let outgoing = self.letterhead.batch(&first.fields().topic, members, self.clock.wall_ms());
        let target = target(address, broker, queue_id);
        let options = self.options(announce, token, is_pinned)?;
        self.ship(py, outgoing, target, timeout, room_timeout, options)
    }

    #[pyo3(signature = (rows, parcel, address, broker, queue_id, *, timeout, room_timeout = 0.0, is_pinned = false))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python method, not a Rust interface")]
    fn send_parcel(
        &self,
        py: Python<'_>,
        rows: &Rows,
        parcel: &Parcel,
        address: &str,
        broker: &str,
        queue_id: i32,
        timeout: f64,
        room_timeout: f64,
        is_pinned: bool,
    ) -> PyResult<Option<SendFuture>> {
        let (part, now_ms) = (rows.part(parcel)?, self.clock.wall_ms());
        let packed = py.detach(|| part.pack(&self.letterhead, parcel.core(), now_ms)).map_err(refused)?;
        let options = self.options("failures", 0, is_pinned)?;
        self.ship(py, packed, target(address, broker, queue_id), timeout, room_timeout, options)
    }

    fn send_oneway(
        &self,
        py: Python<'_>,
        message: &Message,
        address: &str,
        broker: &str,
        queue_id: i32,
    ) -> PyResult<()> {
        let outgoing = self.outgoing(py, message);
        let told = self.connections.get()?.ship_oneway(&outgoing, &target(address, broker, queue_id));
        told.map_err(|error| raise("ConnectError", &error.to_string()))
    }

    fn again(&self, future: &SendFuture, address: &str, broker: &str, queue_id: i32) -> PyResult<()> {
        let connections = self.connections.get()?;
        if future.shipment().again(target(address, broker, queue_id)) {
            connections.ship(future.shipment());
        }
        Ok(())
    }

    #[pyo3(signature = (timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.connections.get()?;
        wait(py, timeout, |slice| self.window.drained(slice))
    }

    fn has_room(&self, size: usize) -> bool {
        self.window.has_room(size)
    }

    #[getter]
    fn in_flight(&self) -> usize {
        self.window.messages()
    }
}

impl Sender {
    fn outgoing(&self, py: Python<'_>, message: &Message) -> Outgoing {
        let (fields, body, now_ms) = (message.fields(), message.body_bytes(py), self.clock.wall_ms());
        self.pack(py, body.len(), || self.letterhead.message(fields, body, now_ms))
    }

    /// Compressing takes tens of microseconds: others may run meanwhile.
    fn pack(&self, py: Python<'_>, body_bytes: usize, pack: impl FnOnce() -> Outgoing + Send) -> Outgoing {
        match self.letterhead.compress_from_bytes {
            Some(limit) if body_bytes >= limit => py.detach(pack),
            _ => pack(),
        }
    }

    /// What is sent, where to, and whether only there. `None` where that takes a closer look.
    fn address(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        body: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<(Outgoing, Target, bool)>> {
        let fits = |body: &[u8]| (1..=self.defaults.body_bytes_max).contains(&body.len());
        if !self.home.is_here() {
            return Ok(None);
        }
        let now = Instant::now();
        if let Ok(topic) = message.cast::<PyString>() {
            let (Some(rota), Some(body)) = (self.rotas.get(topic.to_cow()?.as_ref(), now), body) else {
                return Ok(None);
            };
            let body = bytes_of(body)?;
            let (body, now_ms) = (body.as_bytes(), self.clock.wall_ms());
            let Some(target) = rota.next().filter(|_| fits(body)) else { return Ok(None) };
            let plain = || self.letterhead.plain(rota.topic(), body, now_ms);
            return Ok(Some((self.pack(py, body.len(), plain), target.clone(), false)));
        }
        let Ok(message) = message.cast::<Message>() else { return Ok(None) };
        let message = message.get();
        let fields = message.fields();
        let Some(rota) = self.rotas.get(&fields.topic, now).filter(|_| body.is_none()) else {
            return Ok(None);
        };
        let key = fields.sharding_key.as_deref();
        let target = key.map_or_else(|| rota.next(), |key| rota.of_key(key));
        let Some(target) = target.filter(|_| fits(message.body_bytes(py))) else { return Ok(None) };
        Ok(Some((self.outgoing(py, message), target.clone(), key.is_some())))
    }

    fn options(&self, announce: &str, token: u64, is_pinned: bool) -> PyResult<ShipmentOptions> {
        let (is_announced, failures_only) = match announce {
            "never" => (false, false),
            "failures" => (true, true),
            "always" => (true, false),
            other => return Err(PyValueError::new_err(format!("announce {other:?}"))),
        };
        Ok(ShipmentOptions {
            window: Some(Arc::clone(&self.window)),
            announce: is_announced.then(|| Announce { to: Arc::clone(&self.completions), token }),
            failures_only,
            retry_not_safe: self.retry_not_safe,
            is_pinned,
        })
    }

    fn ship(
        &self,
        py: Python<'_>,
        outgoing: Outgoing,
        target: Target,
        timeout: f64,
        room_timeout: f64,
        options: ShipmentOptions,
    ) -> PyResult<Option<SendFuture>> {
        let connections = self.connections.get()?;
        let bytes = outgoing.bytes();
        let has_room = self.window.take(bytes, Duration::ZERO)
            || (room_timeout > 0.0 && wait(py, Some(room_timeout), |slice| self.window.take(bytes, slice))?);
        if !has_room {
            return Ok(None);
        }
        let deadline = Instant::now() + duration(timeout);
        let shipment = Arc::new(Shipment::new(outgoing, target, deadline, options));
        connections.ship(&shipment);
        Ok(Some(SendFuture::new(shipment, self.home)))
    }
}

fn target(address: &str, broker: &str, queue_id: i32) -> Target {
    Target { address: address.into(), broker: broker.into(), queue_id }
}
