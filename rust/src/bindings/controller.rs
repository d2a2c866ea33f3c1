//! `Controller`: one controller's decisions over its log.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::owner_process::OwnerProcess;
use crate::clock::{SharedClock, SystemClock};
use crate::controller::core::{Heartbeat, Settings};
use crate::controller::liveness::{Beat, PRIORITY_LAST};
use crate::controller::log::{Log, Report};
use crate::controller::node::{Node, OutgoingCall};
use crate::controller::raft::{ControllerId, Group, RaftLog};
use crate::controller::requests::{self, Asked, Request};
use crate::controller::single::SingleLog;

/// A replica of a broker set.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct ControlledReplica {
    /// Its id.
    id: i64,
    /// Its `host:port`.
    address: String,
    /// Whether it sends heartbeats.
    is_alive: bool,
    /// Whether it is in the in-sync set.
    is_in_sync: bool,
}

/// A broker set, as a controller knows it.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct BrokerSet {
    /// Its name.
    name: String,
    /// Its cluster.
    cluster: String,
    /// The id for the next applicant.
    next_id: i64,
    /// The id of its master, if there is one.
    master_id: Option<i64>,
    /// The `host:port` of its master.
    master_address: Option<String>,
    /// The epoch of the master; 0 before the first election.
    master_epoch: i32,
    /// The version of the in-sync set.
    in_sync_epoch: i32,
    /// The ids in the in-sync set.
    in_sync: Vec<i64>,
    /// Every replica.
    replicas: Vec<Py<ControlledReplica>>,
    /// Milliseconds until another replica than the master may be elected; 0 without a lease.
    lease_ms: u64,
}

/// The outcome of a request to a controller.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct ControllerOutcome {
    /// The response code.
    code: i32,
    /// The reason for a code other than 0.
    remark: String,
    /// The broker set after the request, if it exists.
    set: Option<Py<BrokerSet>>,
    /// The lease that a heartbeat was granted; 0 if it is withdrawn, `None` if nothing is said about it.
    lease_ms: Option<u64>,
}

/// What a controller wants its owner to do.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct ControllerWork {
    /// Outcomes by the token of their request.
    answers: Vec<(u64, Py<ControllerOutcome>)>,
    /// Brokers to notify of their set, by `host:port`.
    notices: Vec<(String, Py<BrokerSet>)>,
    /// Lines for the log; true for a warning.
    notes: Vec<(bool, String)>,
    /// The reason that the controller cannot go on.
    fault: Option<String>,
    /// Calls to send to other controllers of the group.
    calls: Vec<Py<ControllerCall>>,
    /// Replies to calls of other controllers, by the token of the call.
    replies: Vec<(u64, Py<PyBytes>)>,
}

/// A call to another controller of the group.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct ControllerCall {
    /// Its number.
    number: u64,
    /// The name of the other controller.
    target: String,
    /// The call.
    body: Py<PyBytes>,
    /// Milliseconds for the reply.
    limit_ms: u64,
}

/// One controller: state, heartbeats, leases and elections of broker sets, over a durable log. `own_name` and
/// `members` are the names of this controller and of all in its group.
#[pyclass(name = "Controller", module = "rmqpy._native", frozen)]
pub struct PyController {
    node: Mutex<Node>,
    log: Arc<dyn Log>,
    /// The log, if the group has several controllers.
    group: Option<Arc<RaftLog>>,
    clock: SharedClock,
    owner: OwnerProcess,
}

#[pymethods]
impl PyController {
    #[new]
    #[pyo3(signature = (folder, *, own_name, members, lease_ms, first_election_wait_ms, elects_unclean))]
    fn new(
        py: Python<'_>,
        folder: &str,
        own_name: String,
        members: BTreeSet<String>,
        lease_ms: u64,
        first_election_wait_ms: u64,
        elects_unclean: bool,
    ) -> PyResult<Self> {
        if !members.contains(&own_name) {
            return Err(PyValueError::new_err(format!("{own_name} is not in its group")));
        }
        let folder = Path::new(folder);
        let (log, group): (Arc<dyn Log>, _) = if members.len() == 1 {
            (Arc::new(py.detach(|| SingleLog::open(folder))?), None)
        } else {
            let id = |name: &String| {
                ControllerId::from(name)
                    .map_err(|_| PyValueError::new_err(format!("{name} is too long a name")))
            };
            let group =
                Group { own: id(&own_name)?, members: members.iter().map(id).collect::<PyResult<_>>()? };
            let log = Arc::new(py.detach(|| RaftLog::open(folder, group))?);
            (Arc::clone(&log) as Arc<dyn Log>, Some(log))
        };
        let settings = settings(lease_ms, first_election_wait_ms, elects_unclean);
        // Two runs begin at different nanoseconds, or at least in different processes.
        let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let run = began ^ u64::from(std::process::id()).rotate_left(48);
        let node = Mutex::new(Node::new(settings, run, Arc::clone(&log)));
        Ok(Self { node, log, group, clock: SystemClock::shared(), owner: OwnerProcess::here() })
    }

    /// A descriptor that is readable while `pump` has work.
    fn fileno(&self) -> i32 {
        self.log.mailbox().descriptor()
    }

    /// Replace the settings.
    #[pyo3(signature = (*, lease_ms, first_election_wait_ms, elects_unclean))]
    fn configure(&self, lease_ms: u64, first_election_wait_ms: u64, elects_unclean: bool) {
        self.node.lock().set_settings(settings(lease_ms, first_election_wait_ms, elects_unclean));
    }

    /// Whether this controller leads its group.
    fn is_leader(&self) -> bool {
        self.node.lock().core().is_leader()
    }

    /// The name of the leading controller; `None` if it is this one, the only one, or unknown.
    fn leader(&self) -> Option<String> {
        self.group.as_ref().and_then(|group| group.leader()).map(|leader| leader.to_string())
    }

    /// Serve a call of another controller. The reply comes with the work, under this token.
    fn serve(&self, token: u64, body: Vec<u8>) {
        match &self.group {
            Some(group) => group.serve(token, body),
            None => self.log.mailbox().push(Report::Replied { token, body: Vec::new() }),
        }
    }

    /// Hand in the reply to a call; `None` without one.
    #[pyo3(signature = (number, body))]
    fn replied(&self, number: u64, body: Option<&[u8]>) {
        if let Some(group) = &self.group {
            group.replied(number, body);
        }
    }

    /// The names of all broker sets.
    fn names(&self) -> Vec<String> {
        self.node.lock().core().state().sets().map(|(name, _)| name.clone()).collect()
    }

    /// Return a broker set; `None` if it is unknown.
    fn broker_set(&self, py: Python<'_>, name: &str) -> PyResult<Option<Py<BrokerSet>>> {
        let view = self.node.lock().core().view(name, self.clock.elapsed());
        view.map(|view| set_of(py, view)).transpose()
    }

    /// The elections this controller decided: with a new master, with the present one, without any.
    fn elections(&self) -> (u64, u64, u64) {
        let elections = self.node.lock().core().elections();
        (elections.elected, elections.kept, elections.none)
    }

    /// Ask for the id of the next applicant.
    fn next_broker_id(&self, token: u64, cluster: String, name: String) {
        self.ask(token, cluster, name, Request::NextBrokerId);
    }

    /// Apply for an id.
    fn apply_broker_id(&self, token: u64, cluster: String, name: String, broker_id: i64, check_code: String) {
        self.ask(token, cluster, name, Request::ApplyBrokerId { id: broker_id, check_code });
    }

    /// Register a broker that has started.
    fn register(
        &self,
        token: u64,
        cluster: String,
        name: String,
        broker_id: i64,
        address: String,
        connection: u64,
    ) {
        self.ask(
            token,
            cluster,
            name,
            Request::Register { id: broker_id, address, connection, has_started: false },
        );
    }

    /// Ask for master and in-sync set.
    fn replica_info(&self, token: u64, name: String) {
        self.ask(token, String::new(), name, Request::ReplicaInfo);
    }

    /// Elect a master: the given broker, or whichever the rules choose.
    fn elect(&self, token: u64, cluster: String, name: String, broker_id: i64, is_designated: bool) {
        self.ask(token, cluster, name, Request::Elect { id: broker_id, is_designated });
    }

    /// Change the in-sync set. With `waits_for_all` the master acknowledges only messages that the whole set has.
    #[pyo3(signature = (token, name, master, master_epoch, in_sync, in_sync_epoch, *, waits_for_all=false))]
    fn alter_sync_state_set(
        &self,
        token: u64,
        name: String,
        master: i64,
        master_epoch: i32,
        in_sync: Vec<i64>,
        in_sync_epoch: i32,
        waits_for_all: bool,
    ) {
        let in_sync = in_sync.into_iter().collect();
        let request =
            Request::AlterSyncStateSet { master, master_epoch, in_sync, in_sync_epoch, waits_for_all };
        self.ask(token, String::new(), name, request);
    }

    /// Remove replicas; all without `ids`.
    fn clean(&self, token: u64, cluster: String, name: String, ids: Option<Vec<i64>>, may_live: bool) {
        let ids = ids.map(|ids| ids.into_iter().collect());
        self.ask(token, cluster, name, Request::Clean { ids, may_live });
    }

    /// Note a heartbeat. A broker that takes leases has a `token`, under which it is answered.
    #[pyo3(signature = (name, broker_id, *, token, connection, timeout_ms, epoch, max_offset, confirm_offset, priority=None,
                        releases=false))]
    fn heartbeat(
        &self,
        name: String,
        broker_id: i64,
        token: Option<u64>,
        connection: u64,
        timeout_ms: u64,
        epoch: i32,
        max_offset: i64,
        confirm_offset: i64,
        priority: Option<i32>,
        releases: bool,
    ) {
        let now = self.clock.elapsed();
        let beat = Beat {
            connection,
            at: now,
            timeout: Duration::from_millis(timeout_ms),
            epoch,
            max_offset,
            confirm_offset,
            priority: priority.unwrap_or(PRIORITY_LAST),
            takes_leases: token.is_some(),
        };
        self.node.lock().heartbeat(token, Heartbeat { name, id: broker_id, beat, releases }, now);
    }

    /// Note the end of a connection.
    fn closed(&self, connection: u64) {
        self.node.lock().closed(connection, self.clock.elapsed());
    }

    /// Carry out what has become possible, and return the rest. To be called after requests, when the descriptor is
    /// readable, and every 100 ms.
    fn pump(&self, py: Python<'_>) -> PyResult<ControllerWork> {
        self.owner.check("controller")?;
        let outbox = self.node.lock().pump(self.clock.elapsed());
        let mut work = ControllerWork {
            answers: Vec::with_capacity(outbox.answers.len()),
            notices: Vec::with_capacity(outbox.notices.len()),
            notes: outbox.notes,
            fault: outbox.fault,
            calls: Vec::with_capacity(outbox.calls.len()),
            replies: Vec::with_capacity(outbox.replies.len()),
        };
        for OutgoingCall { number, target, body, limit } in outbox.calls {
            let (body, limit_ms) = (PyBytes::new(py, &body).unbind(), limit.as_millis() as u64);
            work.calls.push(Py::new(py, ControllerCall { number, target, body, limit_ms })?);
        }
        for (token, body) in outbox.replies {
            work.replies.push((token, PyBytes::new(py, &body).unbind()));
        }
        for (token, outcome) in outbox.answers {
            let set = outcome.set.map(|view| set_of(py, view)).transpose()?;
            let (code, remark, lease_ms) = (outcome.code as i32, outcome.remark, outcome.lease_ms);
            work.answers.push((token, Py::new(py, ControllerOutcome { code, remark, set, lease_ms })?));
        }
        for (address, view) in outbox.notices {
            work.notices.push((address, set_of(py, view)?));
        }
        Ok(work)
    }

    /// Close the log. Idempotent.
    fn stop(&self, py: Python<'_>) {
        if self.owner.is_here() {
            py.detach(|| self.log.stop());
        }
    }
}

impl PyController {
    fn ask(&self, token: u64, cluster: String, name: String, request: Request) {
        let asked = Asked { cluster, name, request };
        self.node.lock().request(token, asked, self.clock.elapsed());
    }
}

fn settings(lease_ms: u64, first_election_wait_ms: u64, elects_unclean: bool) -> Settings {
    Settings {
        is_unclean_allowed: elects_unclean,
        lease: Duration::from_millis(lease_ms),
        first_election_wait: Duration::from_millis(first_election_wait_ms),
    }
}

fn set_of(py: Python<'_>, view: requests::SetView) -> PyResult<Py<BrokerSet>> {
    let (master_id, master_address) = view.master.unzip();
    let replicas: PyResult<Vec<_>> = view
        .replicas
        .into_iter()
        .map(|replica| {
            let requests::ReplicaView { id, address, is_alive, is_in_sync } = replica;
            Py::new(py, ControlledReplica { id, address, is_alive, is_in_sync })
        })
        .collect();
    let set = BrokerSet {
        name: view.name,
        cluster: view.cluster,
        next_id: view.next_id,
        master_id,
        master_address,
        master_epoch: view.master_epoch,
        in_sync_epoch: view.in_sync_epoch,
        in_sync: view.in_sync,
        replicas: replicas?,
        lease_ms: view.lease_ms,
    };
    Py::new(py, set)
}
