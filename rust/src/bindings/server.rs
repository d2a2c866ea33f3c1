//! `Server`: the two ends of the ring between the data plane and Python's loop.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use tokio::runtime::Handle;

use super::access;
use super::errors::raise;
use super::hand_clock::{self, PyHandClock};
use super::metadata::PyMetadata;
use super::offsets::PyOffsets;
use super::request::PyRequest;
use super::server_answers::{Answer, frame, settle};
use super::server_statistics::counts;
use super::store::PyStore;
use super::tls::PyServerTls;
use crate::access::limits::Limits;
use crate::access::rules::Checks;
use crate::access::white_list::WhiteList;
use crate::dataplane::data_plane::DataPlane;
use crate::dataplane::deliveries::FetchPosition;
use crate::dataplane::event::Event;
use crate::dataplane::latency::Histogram;
use crate::dataplane::rejection::{ErrorReply, Missing};
use crate::dataplane::request::RequestKind;
use crate::remoting::codes::{flag, response};
use crate::remoting::frame::Encoding;
use crate::remoting::{LinkId, Server, ServerOptions};

/// Calls from Python into any server of the process.
static ATTACHES: AtomicU64 = AtomicU64::new(0);

/// Times that control crossed from Python into a server object since the process began.
///
/// Hot requests are served without any: the number stands still while messages are sent and pulled.
#[pyfunction]
pub fn attach_count() -> u64 {
    ATTACHES.load(Ordering::Relaxed)
}

/// Group, topic, queue id; pulls, messages, bytes, and messages given back.
type Delivered = (String, String, u32, u64, u64, u64, u64);

/// request code, response code, whether it waited for a message, answers by bucket, microseconds of all together and of
/// the longest
type Latency = (i32, i32, bool, Vec<u64>, u64, u64);

/// A remoting server. With a store it is a broker's: hot requests end there, everything else comes up.
///
/// `fileno` becomes readable when `take` has something. One thread drains it. Connections beyond `connections_max`,
/// those of one address beyond `connections_per_address_max`, and those that come while the process has
/// `descriptors_max` descriptors open, are closed as they come. With `tls`, those that begin so are encrypted.
#[pyclass(name = "Server", module = "rmqpy._native", frozen)]
pub struct PyServer {
    pub(super) data_plane: Arc<DataPlane>,
    server: Mutex<Option<Server<DataPlane>>>,
}

impl PyServer {
    /// The runtime of the first I/O thread; `None` once it has stopped.
    pub(super) fn first_thread(&self) -> Option<Handle> {
        self.server.lock().as_ref().and_then(|server| server.first_thread().cloned())
    }
}

#[pymethods]
impl PyServer {
    #[new]
    #[pyo3(signature = (*, idle_ms, connections_max, connections_per_address_max, descriptors_max,
                        store=None, metadata=None, offsets=None, clock=None, tls=None))]
    fn new(
        idle_ms: u64,
        connections_max: usize,
        connections_per_address_max: usize,
        descriptors_max: usize,
        store: Option<&PyStore>,
        metadata: Option<&PyMetadata>,
        offsets: Option<&PyOffsets>,
        clock: Option<&PyHandClock>,
        tls: Option<&PyServerTls>,
    ) -> PyResult<Self> {
        let hand_clock = clock;
        let clock = hand_clock::given(hand_clock);
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
        if let Some(hand_clock) = hand_clock {
            hand_clock.follow(&data_plane);
        }
        let mut options = ServerOptions {
            idle: Duration::from_millis(idle_ms),
            connections_max,
            connections_per_address_max,
            descriptors_max,
            tls: tls.map(|tls| Arc::clone(&tls.tls)),
            ..ServerOptions::default()
        };
        if store.is_none() {
            // The largest request of a name server is a registration, and registrations may wait for each other.
            options.large_frames_bytes_max = options.frame.frame_bytes_max;
        }
        let server = Server::start(Arc::clone(&data_plane), options)?;
        Ok(Self { data_plane, server: Mutex::new(Some(server)) })
    }

    /// Bind and serve; port 0 picks a free one. Returns the bound address. Raises `OSError`.
    #[pyo3(signature = (host, port, *, vip=false))]
    fn listen(&self, py: Python<'_>, host: &str, port: u16, vip: bool) -> PyResult<(String, u16)> {
        let bound = py.detach(|| -> PyResult<SocketAddr> {
            let server = self.server.lock();
            let server = server.as_ref().ok_or_else(stopped)?;
            let addresses = (host, port).to_socket_addrs()?;
            let address = addresses.into_iter().next().ok_or_else(|| PyOSError::new_err("no such host"))?;
            server.listen(address, vip).map_err(|error| cannot_listen(address, &error))
        })?;
        Ok((bound.ip().to_string(), bound.port()))
    }

    /// Say which requests come up, by code, and how many bytes of a body are read of each. Of a body with more the
    /// number of bytes comes up alone, and a request of any other code is refused with 3. Only the first call counts;
    /// before it, everything comes up.
    fn declare_requests(&self, bodies_bytes_max: HashMap<i32, usize>) {
        self.data_plane.declare_requests(bodies_bytes_max.into_iter().collect());
    }

    /// Put these checks and users in the place of those before; what connections were allowed is forgotten. With
    /// `takes_certificates` a request without a signature is of the user its connection's certificate is for. A user:
    /// name, secret, whether super, whether enabled, custom and default entries as `check_entry` takes them, and an
    /// entry of a white list. `trusted` are entries for everybody; `limits` of each user: connections, requests and
    /// bytes a second. Raises `ValueError` for an entry that cannot be read.
    #[pyo3(signature = (*, authenticates, authorizes, takes_certificates, unsigned_codes, unguarded_codes, cluster, users, trusted, limits))]
    fn set_access(
        &self,
        py: Python<'_>,
        authenticates: bool,
        authorizes: bool,
        takes_certificates: bool,
        unsigned_codes: HashSet<i32>,
        unguarded_codes: HashSet<i32>,
        cluster: &str,
        users: Vec<access::UserRow>,
        trusted: Vec<String>,
        limits: (u32, u32, u64),
    ) -> PyResult<()> {
        let cluster = cluster.into();
        let mut trusted_from = WhiteList::default();
        for text in trusted {
            trusted_from.extend(access::white_list(&text)?);
        }
        let (connections, requests_per_second, bytes_per_second) = limits;
        let limits = Limits { connections, requests_per_second, bytes_per_second };
        let checks = Checks {
            authenticates,
            authorizes,
            takes_certificates,
            unsigned_codes,
            unguarded_codes,
            cluster,
            trusted_from,
            limits,
        };
        py.detach(|| {
            let users = users.into_iter().map(access::user).collect::<PyResult<Vec<_>>>()?;
            Ok(self.data_plane.publish_access(checks, users)?)
        })
    }

    /// Whether this user may do all of that in a request of this code from `peer`, an `ip:port`: kind and name of
    /// each resource, and the actions of which one is needed. The sentence for its sender where not; the refusal is
    /// counted.
    fn authorize(
        &self,
        code: i32,
        user: Option<&str>,
        peer: &str,
        needs: Vec<access::Need>,
    ) -> PyResult<Option<String>> {
        let peer: SocketAddr = peer.parse().map_err(|_| PyValueError::new_err("peer must be ip:port"))?;
        let needed = needs.iter().map(access::needed).collect::<PyResult<Vec<_>>>()?;
        let permitted = self.data_plane.guard.authorize(code, user, peer, needed);
        Ok(permitted.err().map(|refusal| refusal.to_string()))
    }

    /// Whether this user might do all of that from `peer`: as `authorize`, and nothing is counted.
    fn might(&self, user: Option<&str>, peer: &str, needs: Vec<access::Need>) -> PyResult<bool> {
        let peer: SocketAddr = peer.parse().map_err(|_| PyValueError::new_err("peer must be ip:port"))?;
        let needed = needs.iter().map(access::needed).collect::<PyResult<Vec<_>>>()?;
        Ok(self.data_plane.guard.decide(user, peer, needed).is_ok())
    }

    /// What was refused since the last call: code of the request, `ip:port` of its sender, what that was told; and
    /// how many more.
    fn take_refusals(&self) -> (Vec<(i32, String, String)>, u64) {
        let refused = self.data_plane.guard.take_refused();
        let rows = refused.rows.into_iter().map(|(code, peer, told)| (code, peer.to_string(), told));
        (rows.collect(), refused.more)
    }

    /// Clients of other protocols that were closed since the last call, each address once a minute: `ip:port`, and
    /// what they speak.
    fn take_foreign_clients(&self) -> Vec<(String, &'static str)> {
        let server = self.server.lock();
        let clients = server.as_ref().map(Server::take_foreign_clients).unwrap_or_default();
        clients.into_iter().map(|(peer, protocol)| (peer.to_string(), protocol)).collect()
    }

    /// A descriptor that is readable while requests or events wait.
    fn fileno(&self) -> i32 {
        self.data_plane.upcalls.wakeup()
    }

    /// Requests and events that wait, of each connection in turn, oldest first, and a few; clears `fileno` when it
    /// took the last one.
    #[pyo3(signature = (limit=256))]
    fn take(&self, limit: usize) -> Vec<PyRequest> {
        ATTACHES.fetch_add(1, Ordering::Relaxed);
        self.data_plane.take(limit).into_iter().map(PyRequest::new).collect()
    }

    /// Send replies. A reply to a connection that is gone is dropped. A HEART_BEAT answered with code 0 is
    /// remembered: equal bytes on that connection are answered natively from then on, until `forget_heartbeats`.
    fn answer(&self, answers: Vec<Answer<'_>>) {
        ATTACHES.fetch_add(1, Ordering::Relaxed);
        answers.into_iter().for_each(|answer| settle(&self.data_plane, answer));
    }

    /// Count a request that came up and is refused for want of room; a one-way request is dropped.
    fn count_overload(&self, is_oneway: bool) {
        self.data_plane.overloaded(is_oneway);
    }

    /// Send a one-way request to a client; False when its connection is gone.
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
        let bytes = frame.len();
        Ok(link.notify(Event::Write(frame), bytes))
    }

    /// Send a client a request whose answer comes up as a `Request` of the kind `answer` with this token. None when
    /// its connection is gone, or too many clients are being asked.
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
        let Some(opaque) = self.data_plane.upcalls.client_requests.expect_answer(connection, code) else {
            return Ok(None);
        };
        let body = body.as_deref().unwrap_or_default();
        let asked = frame(Encoding::Json, code, opaque, 0, None, Some(ext), body)
            .map(|frame| (frame.len(), Event::Write(frame)))
            .map(|(bytes, request)| link.notify(request, bytes));
        if !matches!(asked, Ok(true)) {
            self.data_plane.upcalls.client_requests.forget(connection, opaque);
        }
        Ok(asked?.then_some(u64::from(opaque.cast_unsigned())))
    }

    /// Drop the answer when it comes: its waiter has given up.
    fn forget_answer(&self, connection: u64, token: u64) {
        self.data_plane.upcalls.client_requests.forget(connection, (token as u32).cast_signed());
    }

    /// Let requests parked for `name` run again (code 0, its metadata published before), or refuse them.
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

    /// Answer the pulls that wait for messages now: the role of the broker is another.
    fn wake_pulls(&self, py: Python<'_>) {
        py.detach(|| self.data_plane.broker.iter().for_each(|broker| broker.polls.wake_all()));
    }

    /// Make every client's next heartbeat come up again.
    fn forget_heartbeats(&self) {
        self.data_plane.forget_heartbeats();
    }

    /// Time since the last accepted heartbeat of the connection; None when it is gone or never sent one.
    fn heartbeat_age_ms(&self, connection: u64) -> Option<u64> {
        self.data_plane.heartbeat_age(LinkId(connection)).map(|age| age.as_millis() as u64)
    }

    /// End a connection; nothing where it is gone.
    fn close_connection(&self, connection: u64) {
        if let Some(link) = self.server.lock().as_ref().and_then(|server| server.link(LinkId(connection))) {
            link.close();
        }
    }

    /// Group, topic, queue id, and since the last call: answered pulls, messages and bytes in them, messages the
    /// group gave back. One caller keeps count.
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

    /// Group, topic, queue id, and the offset after the last message the group was given there: of those that take
    /// messages, or did a moment ago.
    fn fetch_positions(&self) -> Vec<(String, String, u32, u64)> {
        let broker = self.data_plane.broker.as_ref();
        let positions = broker.map(|broker| broker.deliveries.fetch_positions()).unwrap_or_default();
        let row = |one: FetchPosition| (one.group.to_string(), one.topic.to_string(), one.queue_id, one.next);
        positions.into_iter().map(row).collect()
    }

    /// Request code, response code, whether the request waited for a message; how many answers took up to
    /// each of `LATENCY_BOUNDS_US` and longer, each counted once; microseconds of all together, and of the longest.
    /// Since the start.
    fn latencies(&self) -> Vec<Latency> {
        let read = |(kind, histogram): (RequestKind, Arc<Histogram>)| {
            let (buckets, sum_us, max_us) = histogram.read();
            (kind.code, kind.answer, kind.is_long_polling, buckets, sum_us, max_us)
        };
        self.data_plane.latencies.read().into_iter().map(read).collect()
    }

    /// connections, refused_connections, requests, upcalls, sends, pulls, parked_pulls, buffer_bytes, ...
    fn statistics(&self) -> BTreeMap<&'static str, u64> {
        let server = self.server.lock().as_ref().map(Server::statistics);
        counts(&self.data_plane, server)
    }

    /// Stop accepting, let replies drain, close every connection, join the threads. Idempotent.
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

/// The error with its number, of which the caller makes a sentence that names the setting.
fn cannot_listen(address: SocketAddr, error: &io::Error) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), format!("cannot listen on {address}: {error}")))
}
