//! `Server`: the Python side of the queue between the data plane and Python's loop.

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

use super::access::{self, AccessRefusal};
use super::errors::raise;
use super::hand_clock::{self, PyHandClock};
use super::metadata::PyMetadata;
use super::offsets::PyOffsets;
use super::request::PyRequest;
use super::server_answers::{Answer, frame, settle};
use super::server_statistics::{DeliveryCounts, ReplyLatencies, counts};
use super::store::PyStore;
use super::tls::{PyClientTls, PyServerTls};
use crate::dataplane::service::data_plane::DataPlane;
use crate::dataplane::state::deliveries::{FetchPosition, InFlight};
use crate::dataplane::state::rejection::{ErrorReply, Missing};
use crate::dataplane::waiting::event::Event;
use crate::proxy::{ClusterOptions, ProxyServer};
use crate::remoting::codes::{flag, response};
use crate::remoting::frame::Encoding;
use crate::remoting::{LinkId, Server, ServerOptions};
use crate::requests::credentials::Credentials;

/// Calls from Python into any server of the process.
static ATTACHES: AtomicU64 = AtomicU64::new(0);

/// Return how many calls Python has made into server objects since the process began.
///
/// Hot requests need none: the number does not change while messages are sent and pulled.
#[pyfunction]
pub fn attach_count() -> u64 {
    ATTACHES.load(Ordering::Relaxed)
}

/// A remoting server. With a store it serves a broker: hot requests are served natively, others are forwarded to
/// Python.
///
/// `fileno` becomes readable when `take` has something. One thread drains it. Connections are closed on arrival
/// beyond `connections_max`, beyond `connections_per_address_max` of one address, and while the process has
/// `descriptors_max` open descriptors. With `tls`, connections may be encrypted.
#[pyclass(name = "Server", module = "rmqpy._native", frozen)]
pub struct PyServer {
    pub(super) data_plane: Arc<DataPlane>,
    server: Mutex<Option<Server<DataPlane>>>,
    proxy: Mutex<Option<ProxyServer>>,
}

impl PyServer {
    /// Returns the runtime of the first I/O thread; `None` once it has stopped.
    pub(super) fn first_thread(&self) -> Option<Handle> {
        self.server.lock().as_ref().and_then(|server| server.first_thread().cloned())
    }

    /// Serves 5.x clients, in front of a cluster or of the own broker.
    fn serve_grpc(
        &self,
        py: Python<'_>,
        listen: (&str, u16),
        tls: &PyServerTls,
        cluster: Option<ClusterOptions>,
    ) -> PyResult<(String, u16)> {
        let bound = py.detach(|| -> PyResult<SocketAddr> {
            let server = self.server.lock();
            let connector = server.as_ref().ok_or_else(stopped)?.connector();
            let addresses = listen.to_socket_addrs()?;
            let address = addresses.into_iter().next().ok_or_else(|| PyOSError::new_err("no such host"))?;
            let (data_plane, tls) = (Arc::clone(&self.data_plane), Arc::clone(&tls.tls));
            let started = match cluster {
                Some(cluster) => ProxyServer::start_for(cluster, data_plane, connector, address, tls),
                None => ProxyServer::start(data_plane, connector, address, tls),
            };
            let (proxy, bound) = started.map_err(|error| cannot_listen(address, &error))?;
            drop(self.proxy.lock().replace(proxy));
            Ok(bound)
        })?;
        Ok((bound.ip().to_string(), bound.port()))
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
        Ok(Self { data_plane, server: Mutex::new(Some(server)), proxy: Mutex::default() })
    }

    /// Bind and serve; port 0 selects a free port. Returns the bound address. Raises `OSError`.
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

    /// Bind and serve 5.x clients, which speak gRPC; port 0 selects a free port. Returns the bound address. Raises
    /// `OSError`.
    fn listen_grpc(
        &self,
        py: Python<'_>,
        host: &str,
        port: u16,
        tls: &PyServerTls,
    ) -> PyResult<(String, u16)> {
        self.serve_grpc(py, (host, port), tls, None)
    }

    /// Bind and serve 5.x clients in front of the brokers of these name servers, `host:port`; port 0 selects a free
    /// port. `client_tls` encrypts the connections to them, and `user`, name and secret, signs the proxy's own
    /// requests. Returns the bound address. Raises `OSError`.
    #[pyo3(signature = (host, port, tls, *, name_servers, message_bytes_max, user=None, client_tls=None))]
    fn listen_proxy(
        &self,
        py: Python<'_>,
        host: &str,
        port: u16,
        tls: &PyServerTls,
        name_servers: Vec<String>,
        message_bytes_max: usize,
        user: Option<(String, String)>,
        client_tls: Option<&PyClientTls>,
    ) -> PyResult<(String, u16)> {
        let client_tls = client_tls.map(|tls| Arc::clone(&tls.tls));
        let user = user.map(|(name, secret)| Credentials::new(&name, &secret, None));
        let cluster = ClusterOptions { name_servers, tls: client_tls, user, message_bytes_max };
        self.serve_grpc(py, (host, port), tls, Some(cluster))
    }

    /// Declare the request codes that are forwarded to Python, and the maximum body size of each. A larger body is
    /// discarded and only its size forwarded; other codes are refused with 3. Only the first call has an effect;
    /// before it, everything is forwarded.
    fn declare_requests(&self, bodies_bytes_max: HashMap<i32, usize>) {
        self.data_plane.declare_requests(bodies_bytes_max.into_iter().collect());
    }

    /// Replace checks and users, and discard cached decisions. Requests with `open_codes` need neither signature nor
    /// policy. A user: name, secret, whether super, whether enabled, custom and default entries as `check_entry`
    /// takes them, and a white list entry. `trusted` entries apply to every user. Raises `ValueError` for an invalid
    /// entry.
    #[pyo3(signature = (config, *, open_codes, cluster, users, trusted))]
    fn set_access(
        &self,
        py: Python<'_>,
        config: access::AccessConfig,
        open_codes: HashSet<i32>,
        cluster: &str,
        users: Vec<access::UserRow>,
        trusted: Vec<String>,
    ) -> PyResult<()> {
        let checks = config.checks(&open_codes, cluster, &trusted)?;
        py.detach(|| {
            let users = users.into_iter().map(access::user).collect::<PyResult<Vec<_>>>()?;
            Ok(self.data_plane.publish_access(checks, users)?)
        })
    }

    /// Check whether this user may make a request of this code from `peer` (`ip:port`), given the kind and name of
    /// each resource and the actions of which one is needed. Returns None, or the reason for the sender; the refusal
    /// is counted.
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

    /// Check as `authorize` does, without counting a refusal.
    fn might(&self, user: Option<&str>, peer: &str, needs: Vec<access::Need>) -> PyResult<bool> {
        let peer: SocketAddr = peer.parse().map_err(|_| PyValueError::new_err("peer must be ip:port"))?;
        let needed = needs.iter().map(access::needed).collect::<PyResult<Vec<_>>>()?;
        Ok(self.data_plane.guard.decide(user, peer, needed).is_ok())
    }

    /// Take the refusals since the last call, and how many more there were.
    fn take_refusals(&self) -> (Vec<AccessRefusal>, u64) {
        let refused = self.data_plane.guard.take_refused();
        let rows = refused.rows.into_iter();
        let row = |(code, peer, reason): (i32, SocketAddr, String)| AccessRefusal {
            code,
            address: peer.to_string(),
            reason,
        };
        (rows.map(row).collect(), refused.more)
    }

    /// Take the clients of other protocols that were closed since the last call, each address once a minute:
    /// `ip:port`, and protocol.
    fn take_foreign_clients(&self) -> Vec<(String, &'static str)> {
        let server = self.server.lock();
        let clients = server.as_ref().map(Server::take_foreign_clients).unwrap_or_default();
        clients.into_iter().map(|(peer, protocol)| (peer.to_string(), protocol)).collect()
    }

    /// A descriptor that is readable while requests or events are pending.
    fn fileno(&self) -> i32 {
        self.data_plane.upcalls.wakeup()
    }

    /// Take pending requests and events, a few from each connection round-robin, oldest first; `fileno` is cleared
    /// when none are left.
    #[pyo3(signature = (limit=256))]
    fn take(&self, limit: usize) -> Vec<PyRequest> {
        ATTACHES.fetch_add(1, Ordering::Relaxed);
        self.data_plane.take(limit).into_iter().map(PyRequest::new).collect()
    }

    /// Send replies. A reply to a closed connection is dropped. A HEART_BEAT answered with code 0 is remembered:
    /// identical bytes on that connection are answered natively until `forget_heartbeats`.
    fn answer(&self, answers: Vec<Answer<'_>>) {
        ATTACHES.fetch_add(1, Ordering::Relaxed);
        answers.into_iter().for_each(|answer| settle(&self.data_plane, answer));
    }

    /// Count a forwarded request that is refused because Python is overloaded; a one-way request is dropped.
    fn count_overload(&self, is_oneway: bool) {
        self.data_plane.overloaded(is_oneway);
    }

    /// Send a one-way request to a client. Returns False when its connection is gone.
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
        // A one-way request has no reply, so its correlation id is meaningless.
        let frame = frame(Encoding::Json, code, 0, flag::ONEWAY, None, Some(ext), body)?;
        let bytes = frame.len();
        Ok(link.notify(Event::Write(frame), bytes))
    }

    /// Send a request to a client, whose response arrives as a `Request` of kind `answer` with the returned token.
    /// None when its connection is gone, or too many of these requests are in flight.
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

    /// Discard the response when it arrives: the caller timed out.
    fn forget_answer(&self, connection: u64, token: u64) {
        self.data_plane.upcalls.client_requests.forget(connection, (token as u32).cast_signed());
    }

    /// Resume the requests parked for `name` (code 0, after its metadata was published), or refuse them.
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

    /// Set the end of a master's lease, in seconds of `time.monotonic`; `None` if it needs none. After the end it
    /// accepts and acknowledges no messages.
    #[pyo3(signature = (end=None))]
    fn set_lease(&self, py: Python<'_>, end: Option<f64>) -> PyResult<()> {
        let Some(end) = end else {
            self.data_plane.set_lease_end(None);
            return Ok(());
        };
        // Read before Python's clock, so that a pause between the two shortens the lease.
        let now = self.data_plane.clock.elapsed();
        let theirs: f64 = py.import("time")?.call_method0("monotonic")?.extract()?;
        let left = Duration::try_from_secs_f64(end - theirs).unwrap_or_default();
        self.data_plane.set_lease_end(Some(now + left));
        Ok(())
    }

    /// Answer all waiting pulls now, because the broker's role has changed.
    fn wake_pulls(&self, py: Python<'_>) {
        py.detach(|| {
            self.data_plane.broker.iter().for_each(|broker| broker.polls.wake_all());
            let lites = self.data_plane.lites().map(|lites| lites.consumers.all_parked());
            self.data_plane.wake_lites(&lites.unwrap_or_default());
        });
    }

    /// Forward the next heartbeat of every client again.
    fn forget_heartbeats(&self) {
        self.data_plane.forget_heartbeats();
    }

    /// Milliseconds since the connection's last accepted heartbeat; None when it is gone or never sent one.
    fn heartbeat_age_ms(&self, connection: u64) -> Option<u64> {
        self.data_plane.heartbeat_age(LinkId(connection)).map(|age| age.as_millis() as u64)
    }

    /// Close a connection; no-op if it is gone.
    fn close_connection(&self, connection: u64) {
        if let Some(link) = self.server.lock().as_ref().and_then(|server| server.link(LinkId(connection))) {
            link.close();
        }
    }

    /// Take the counts of deliveries since the last call. Only one caller may use it.
    fn take_deliveries(&self) -> Vec<DeliveryCounts> {
        let broker = self.data_plane.broker.as_ref();
        let taken = broker.map(|broker| broker.deliveries.take()).unwrap_or_default();
        taken.into_iter().map(DeliveryCounts::from).collect()
    }

    /// Return the offset after the last delivered message by group, topic and queue id, for groups that pull or did
    /// recently.
    fn fetch_positions(&self) -> HashMap<(String, String, u32), u64> {
        let broker = self.data_plane.broker.as_ref();
        let positions = broker.map(|broker| broker.deliveries.fetch_positions()).unwrap_or_default();
        let item =
            |one: FetchPosition| ((one.group.to_string(), one.topic.to_string(), one.queue_id), one.next);
        positions.into_iter().map(item).collect()
    }

    /// Return the number of messages that were popped since the start and are not finished, by group, topic and
    /// queue id.
    fn in_flight(&self) -> BTreeMap<(String, String, u32), u64> {
        let broker = self.data_plane.broker.as_ref();
        let counts = broker.map(|broker| broker.deliveries.in_flight()).unwrap_or_default();
        let row =
            |one: InFlight| ((one.group.to_string(), one.topic.to_string(), one.queue_id), one.messages);
        counts.into_iter().map(row).collect()
    }

    /// Return the latencies of replies since the start, by kind of request.
    fn latencies(&self) -> Vec<ReplyLatencies> {
        self.data_plane.latencies.read().into_iter().map(ReplyLatencies::from).collect()
    }

    /// connections, refused_connections, requests, upcalls, sends, pulls, parked_pulls, buffer_bytes, ...
    fn statistics(&self) -> BTreeMap<&'static str, u64> {
        let server = self.server.lock().as_ref().map(Server::statistics);
        counts(&self.data_plane, server)
    }

    /// Return calls of 5.x clients and refused calls, by method; empty unless they are served.
    fn grpc_calls(&self) -> Vec<(&'static str, u64, u64)> {
        self.proxy.lock().as_ref().map_or_else(Vec::new, ProxyServer::counts)
    }

    /// Return whether the brokers of a proxy can be found: a name server has answered its last question.
    fn finds_brokers(&self) -> bool {
        self.proxy.lock().as_ref().is_some_and(ProxyServer::is_ready)
    }

    /// Stop accepting, drain replies, close every connection, join the threads. Idempotent.
    #[pyo3(signature = (grace_ms=2_000))]
    fn stop(&self, py: Python<'_>, grace_ms: u64) {
        py.detach(|| {
            drop(self.proxy.lock().take());
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

/// Returns an error with its errno, so the caller can name the setting.
fn cannot_listen(address: SocketAddr, error: &io::Error) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), format!("cannot listen on {address}: {error}")))
}
