//! `Sender`: the native half of a producer. Messages become frames here, and their outcomes land here.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::client::{Client, SharedConnections};
use super::completions::Completions;
use super::errors::raise;
use super::message::Message;
use super::rows::{Parcel, Rows, refused};
use super::send_future::SendFuture;
use super::waiting::{duration, wait};
use crate::client::completions::{Announce, Completions as CompletionsCore};
use crate::client::fields::check_group;
use crate::client::outgoing::{Letterhead, Outgoing};
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
    clock: SharedClock,
}

#[pymethods]
impl Sender {
    #[new]
    #[pyo3(signature = (client, completions, *, group, compress_above = None, compression = "zlib",
                        template_queues = 4, max_in_flight = 1024, max_buffered_bytes = 67_108_864,
                        retry_not_safe = false))]
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
            clock: SystemClock::shared(),
        })
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
        match self.letterhead.compress_from_bytes {
            // Compressing takes tens of microseconds: others may run meanwhile.
            Some(limit) if body.len() >= limit => py.detach(|| self.letterhead.message(fields, body, now_ms)),
            _ => self.letterhead.message(fields, body, now_ms),
        }
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
        Ok(Some(SendFuture::new(shipment)))
    }
}

fn target(address: &str, broker: &str, queue_id: i32) -> Target {
    Target { address: address.into(), broker: broker.into(), queue_id }
}
