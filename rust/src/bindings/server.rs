//! `Server`: the two ends of the ring between the data plane and Python's loop.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyDict;

use super::errors::raise;
use super::metadata::PyMetadata;
use super::offsets::PyOffsets;
use super::request::PyRequest;
use super::store::PyStore;
use crate::clock::SystemClock;
use crate::dataplane::data_plane::DataPlane;
use crate::dataplane::deliveries::FetchPosition;
use crate::dataplane::event::{Event, KnownHeartbeat};
use crate::dataplane::latency::Histogram;
use crate::dataplane::rejection::{ErrorReply, Missing};
use crate::dataplane::request::RequestKind;
use crate::remoting::codes::{flag, response};
use crate::remoting::frame::Encoding;
use crate::remoting::header::HeaderWriter;
use crate::remoting::{LinkId, Server, ServerOptions};

/// Calls from Python into any server of the process.
static ATTACHES: AtomicU64 = AtomicU64::new(0);

/// Times that control crossed from Python into a server object.
#[pyfunction]
pub fn attach_count() -> u64 {
    ATTACHES.load(Ordering::Relaxed)
}

/// Group, topic, queue id; pulls, messages, bytes, and messages given back.
type Delivered = (String, String, u32, u64, u64, u64, u64);

/// request code, response code, whether it waited for a message, answers by bucket, microseconds of all together
type Latency = (i32, i32, bool, Vec<u64>, u64);

/// token, response code, remark, header fields, body
type Answer<'py> = (u64, i32, Option<String>, Option<Bound<'py, PyDict>>, Option<PyBackedBytes>);

/// A remoting server: with a store a broker's, without one a name server's.
#[pyclass(name = "Server", module = "rmqpy._native", frozen)]
pub struct PyServer {
    data_plane: Arc<DataPlane>,
    server: Mutex<Option<Server<DataPlane>>>,
}

#[pymethods]
impl PyServer {
    #[new]
    #[pyo3(signature = (*, idle_ms, store=None, metadata=None, offsets=None))]
    fn new(
        idle_ms: u64,
        store: Option<&PyStore>,
        metadata: Option<&PyMetadata>,
        offsets: Option<&PyOffsets>,
    ) -> PyResult<Self> {
        let clock = SystemClock::shared();
        let data_plane = match (store, metadata, offsets) {
            (None, None, None) => Arc::new(DataPlane::new(clock)?),
            (Some(store), Some(metadata), Some(offsets)) => DataPlane::with_broker(
                clock,
                store.opened()?,
                Arc::clone(&metadata.metadata),
                Arc::clone(&offsets.offsets),
            )?,
            _ => {
                return Err(PyValueError::new_err(
                    "a broker's server needs store, metadata and offsets together",
                ));
            }
        };
        let mut options = ServerOptions { idle: Duration::from_millis(idle_ms), ..ServerOptions::default() };
        if store.is_none() {
            // The largest request of a name server is a registration, and registrations may wait for each other.
            options.large_frames_bytes_max = options.frame.frame_bytes_max;
        }
        let server = Server::start(Arc::clone(&data_plane), options)?;
        Ok(Self { data_plane, server: Mutex::new(Some(server)) })
    }

    #[pyo3(signature = (host, port, *, vip=false))]
    fn listen(&self, py: Python<'_>, host: &str, port: u16, vip: bool) -> PyResult<(String, u16)> {
        let bound = py.detach(|| -> PyResult<SocketAddr> {
            let server = self.server.lock();
            let server = server.as_ref().ok_or_else(stopped)?;
            let addresses = (host, port).to_socket_addrs()?;
            let address = addresses.into_iter().next().ok_or_else(|| PyOSError::new_err("no such host"))?;
            let named = |error| cannot_listen(address, &error);
            Ok(server.listen(address, vip).map_err(named)?)
        })?;
        Ok((bound.ip().to_string(), bound.port()))
    }

    fn fileno(&self) -> i32 {
        self.data_plane.upcalls.wakeup()
    }

    #[pyo3(signature = (limit=256))]
    fn take(&self, limit: usize) -> Vec<PyRequest> {
        ATTACHES.fetch_add(1, Ordering::Relaxed);
        self.data_plane.take(limit).into_iter().map(PyRequest::new).collect()
    }

    fn answer(&self, answers: Vec<Answer<'_>>) -> PyResult<()> {
        ATTACHES.fetch_add(1, Ordering::Relaxed);
        for (token, code, remark, ext, body) in answers {
            let Some(asked) = self.data_plane.upcalls.reply_to(token) else { continue };
            let body = body.as_deref().unwrap_or_default();
            let frame = frame(
                asked.context.encoding,
                code,
                asked.context.opaque,
                flag::RESPONSE,
                remark.as_deref(),
                ext.as_ref(),
                body,
            )?;
            if let Some((body, epoch)) = asked.heartbeat
                && code == response::SUCCESS
            {
                let change = ext.as_ref().map(|ext| ext.get_item("IS_SUB_CHANGE")).transpose()?.flatten();
                let is_sub_change = change.is_none_or(|change| change.eq("true").unwrap_or(true));
                asked.link.post(Event::Heartbeat(KnownHeartbeat { body, epoch, is_sub_change }));
            }
            self.data_plane.answered_by_python(asked.context, code);
            if !asked.link.post(Event::Write(frame)) {
                // Its mailbox is full because it does not read: an answer it waits for cannot reach it any more.
                asked.link.close();
            }
        }
        Ok(())
    }

    #[pyo3(signature = (connection, code, ext, body=None))]
    fn push(
        &self,
        connection: u64,
        code: i32,
        ext: &Bound<'_, PyDict>,
        body: Option<PyBackedBytes>,
    ) -> PyResult<bool> {
        ATTACHES.fetch_add(1, Ordering::Relaxed);
        let server = self.server.lock();
        let Some(link) = server.as_ref().and_then(|server| server.link(LinkId(connection))) else {
            return Ok(false);
        };
        let body = body.as_deref().unwrap_or_default();
        // A one-way request has no answer, so its correlation id means nothing.
        let frame = frame(Encoding::Json, code, 0, flag::ONEWAY, None, Some(ext), body)?;
        Ok(link.post(Event::Write(frame)))
    }

    #[pyo3(signature = (connection, code, ext, body=None))]
    fn ask(
        &self,
        connection: u64,
        code: i32,
        ext: &Bound<'_, PyDict>,
        body: Option<PyBackedBytes>,
    ) -> PyResult<Option<u64>> {
        ATTACHES.fetch_add(1, Ordering::Relaxed);
        let server = self.server.lock();
        let Some(link) = server.as_ref().and_then(|server| server.link(LinkId(connection))) else {
            return Ok(None);
        };
        let Some(opaque) = self.data_plane.upcalls.expect_answer(connection) else { return Ok(None) };
        let body = body.as_deref().unwrap_or_default();
        let asked = frame(Encoding::Json, code, opaque, 0, None, Some(ext), body)
            .map(|frame| link.post(Event::Write(frame)));
        if !matches!(asked, Ok(true)) {
            self.data_plane.upcalls.forget_answer(connection, opaque);
        }
        Ok(asked?.then_some(u64::from(opaque.cast_unsigned())))
    }

    fn forget_answer(&self, connection: u64, token: u64) {
        self.data_plane.upcalls.forget_answer(connection, (token as u32).cast_signed());
    }

    #[pyo3(signature = (kind, name, code=0, remark=None))]
    fn release(&self, kind: &str, name: &str, code: i32, remark: Option<&str>) -> PyResult<()> {
        let missing = match kind {
            "create_topic" => Missing::Topic,
            "create_group" => Missing::Group,
            _ => return Err(PyValueError::new_err(format!("unknown kind {kind:?}"))),
        };
        let remark = remark.unwrap_or_default().to_owned();
        let error_reply = (code != response::SUCCESS).then(|| ErrorReply::new(code, remark));
        self.data_plane.parked.release(missing, name, None, error_reply);
        Ok(())
    }

    fn deliver(&self, offsets: BTreeMap<u32, u64>) -> PyResult<()> {
        Ok(self.data_plane.deliver(&offsets)?)
    }

    fn delay_offsets(&self, py: Python<'_>) -> PyResult<BTreeMap<u32, u64>> {
        py.detach(|| {
            let offsets = self.data_plane.delay_offsets();
            // Offsets that outlive a power loss must not be ahead of the messages they stand for.
            if let Some(broker) = self.data_plane.broker.as_ref().filter(|_| !offsets.is_empty()) {
                broker.store.flush().map_err(|error| raise("StoreError", &error.to_string()))?;
            }
            Ok(offsets)
        })
    }

    fn delivered(&self) -> BTreeMap<u32, u64> {
        self.data_plane.delay_offsets()
    }

    fn forget_heartbeats(&self) {
        self.data_plane.forget_heartbeats();
    }

    fn heartbeat_age_ms(&self, connection: u64) -> Option<u64> {
        self.data_plane.heartbeat_age(LinkId(connection)).map(|age| age.as_millis() as u64)
    }

    fn close_connection(&self, connection: u64) {
        if let Some(link) = self.server.lock().as_ref().and_then(|server| server.link(LinkId(connection))) {
            link.close();
        }
    }

    fn take_deliveries(&self) -> Vec<Delivered> {
        let broker = self.data_plane.broker.as_ref();
        let taken = broker.map(|broker| broker.deliveries.take()).unwrap_or_default();
        taken
            .into_iter()
            .map(|one| {
                let (group, topic) = (one.group.to_string(), one.topic.to_string());
                (group, topic, one.queue_id, one.pulls, one.messages, one.bytes, one.returned)
            })
            .collect()
    }

    fn fetch_positions(&self) -> Vec<(String, String, u32, u64)> {
        let broker = self.data_plane.broker.as_ref();
        let positions = broker.map(|broker| broker.deliveries.fetch_positions()).unwrap_or_default();
        let row = |one: FetchPosition| (one.group.to_string(), one.topic.to_string(), one.queue_id, one.next);
        positions.into_iter().map(row).collect()
    }

    fn latencies(&self) -> Vec<Latency> {
        let read = |(kind, histogram): (RequestKind, Arc<Histogram>)| {
            let (buckets, sum_us) = histogram.read();
            (kind.code, kind.answer, kind.is_long_polling, buckets, sum_us)
        };
        self.data_plane.latencies.read().into_iter().map(read).collect()
    }

    fn statistics(&self) -> BTreeMap<&'static str, u64> {
        let counters = &self.data_plane.counters;
        let connections = self.server.lock().as_ref().map_or(0, |server| server.statistics().connections);
        let parked = self.data_plane.broker.as_ref().map_or(0, |broker| broker.polls.count());
        BTreeMap::from([
            ("connections", connections as u64),
            ("requests", counters.requests.load(Ordering::Relaxed)),
            ("upcalls", counters.upcalls.load(Ordering::Relaxed)),
            ("sends", counters.sends.load(Ordering::Relaxed)),
            ("pulls", counters.pulls.load(Ordering::Relaxed)),
            ("overloads", counters.overloads.load(Ordering::Relaxed)),
            ("parked_pulls", parked as u64),
            ("waiting_upcalls", self.data_plane.upcalls.waiting() as u64),
        ])
    }

    #[pyo3(signature = (grace_ms=2_000))]
    fn stop(&self, py: Python<'_>, grace_ms: u64) {
        py.detach(|| {
            let server = self.server.lock().take();
            if let Some(server) = server {
                server.stop(Duration::from_millis(grace_ms));
                self.data_plane.stop();
            }
        });
    }
}

fn stopped() -> PyErr {
    raise("ClosedError", "the server is stopped")
}

/// The error with the address it is about, and what to do.
fn cannot_listen(address: SocketAddr, error: &io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("; take another port, or see who has it: ss -ltnp 'sport = :{}'", address.port())
        }
        io::ErrorKind::PermissionDenied => "; take a port above 1023".to_owned(),
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address".to_owned(),
        _ => String::new(),
    };
    io::Error::new(error.kind(), format!("cannot listen on {address}: {error}{advice}"))
}

fn frame(
    encoding: Encoding,
    code: i32,
    opaque: i32,
    flag: i32,
    remark: Option<&str>,
    ext: Option<&Bound<'_, PyDict>>,
    body: &[u8],
) -> PyResult<Vec<u8>> {
    let mut out = Vec::with_capacity(256 + body.len());
    let mut header = HeaderWriter::begin(&mut out, encoding, code, opaque, flag, remark);
    for (name, value) in ext.into_iter().flatten() {
        header.ext(&name.extract::<PyBackedStr>()?, &value.extract::<PyBackedStr>()?);
    }
    header.finish(body.len()).map_err(|error| PyValueError::new_err(error.to_string()))?;
    out.extend_from_slice(body);
    Ok(out)
}
