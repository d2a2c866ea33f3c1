//! `Load`: load for a broker, and what it said to it.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;

use super::client::CredentialsTuple;
use super::errors::raise;
use super::owner_process::OwnerProcess;
use super::tls::PyClientTls;
use super::waiting::{duration, wait};
use crate::load::{Credentials, Load as Core, LoadError, Plan, Position, RocketMq, Target, Work};
use crate::remoting::Encoding;

/// Address, broker name, and queues with the offsets their readers begin at.
type TargetTuple = (String, String, Vec<(u32, u64)>);

/// Load for any RocketMQ broker, on threads of its own; begun by the constructor.
///
/// `work` is `produce` (sends, codes 310 and 320), `transact` (half messages, each committed when it is stored, codes
/// 310 and 37: one request with two answers) or `consume` (pulls, code 11). `targets` are brokers: address, name, and
/// queues with the offsets their readers begin at. `messages_each` is the size of a client batch, or what one pull
/// asks for. `connections` are dealt among brokers and `threads`; each has up to `window` requests under way: the
/// closed loop, as fast as answers come. With `rate`, messages are due at fixed times instead, and latencies count
/// from these. What happens within the first `warm_up` seconds is not measured. Ends after `duration_s` measured
/// seconds or `count` messages. What is sent is due within the second from `due_ms` on, or at once. Without any answer
/// for `timeout` seconds it fails. Seconds of processor time of `pids` are told. Requests are signed with
/// `credentials`: access key, secret key, token; connections are encrypted with `tls`.
///
/// Raises `ConfigError` for settings out of their bounds, and `ConnectError` when a broker cannot be reached.
#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct Load {
    core: Core,
    owner: OwnerProcess,
}

#[pymethods]
impl Load {
    #[new]
    #[pyo3(signature = (work, topic, group, targets, *, body_bytes=128, messages_each=1, binary=false, connections=1,
        window=1, threads=1, rate=None, warm_up=0.0, duration_s=10.0, count=None, due_ms=None, timeout=5.0, pids=Vec::new(),
        credentials=None, tls=None))]
    fn new(
        py: Python<'_>,
        work: &str,
        topic: String,
        group: String,
        targets: Vec<TargetTuple>,
        body_bytes: usize,
        messages_each: usize,
        binary: bool,
        connections: usize,
        window: usize,
        threads: usize,
        rate: Option<f64>,
        warm_up: f64,
        duration_s: f64,
        count: Option<u64>,
        due_ms: Option<u64>,
        timeout: f64,
        pids: Vec<u32>,
        credentials: Option<CredentialsTuple>,
        tls: Option<&PyClientTls>,
    ) -> PyResult<Self> {
        let work = match work {
            "produce" => Work::Produce { body_bytes, batch: messages_each },
            "transact" => Work::Transact { body_bytes },
            "consume" => Work::Consume { messages_max: messages_each },
            _ => return Err(raise("ConfigError", "work is produce, transact or consume")),
        };
        let plan = Plan {
            work,
            targets: targets.into_iter().map(target).collect(),
            topic,
            group,
            due_ms,
            credentials: credentials.map(Credentials::from),
            tls: tls.map(|tls| Arc::clone(&tls.tls)),
            encoding: if binary { Encoding::Binary } else { Encoding::Json },
            connections,
            window,
            threads,
            rate,
            warm_up: duration(warm_up),
            duration: duration(duration_s),
            count,
            timeout: duration(timeout),
            pids,
        };
        let core = py.detach(|| Core::start::<RocketMq>(plan)).map_err(|error| failure(&error))?;
        Ok(Self { core, owner: OwnerProcess::here() })
    }

    /// Until the end; False when `timeout` seconds passed first. Answers Ctrl-C.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.owner.check("load")?;
        wait(py, timeout, |slice: Duration| self.core.wait(slice))
    }

    /// Messages accepted or received so far.
    #[getter]
    fn messages(&self) -> u64 {
        self.core.messages()
    }

    /// Send nothing more. The end comes with the answers to what is under way.
    fn stop(&self) {
        self.core.stop();
    }

    /// What was measured, as a JSON object, once; None before the end.
    ///
    /// Raises `ConnectError` when a connection broke, `RequestTimeout` when a broker stopped answering.
    fn report(&self) -> PyResult<Option<String>> {
        match self.core.report() {
            Some(Ok(report)) => Ok(Some(report.json())),
            Some(Err(error)) => Err(failure(&error)),
            None => Ok(None),
        }
    }
}

fn target((address, broker, queues): TargetTuple) -> Target {
    let queues = queues.into_iter().map(|(queue, begin)| Position { queue, begin }).collect();
    Target { address, broker, queues }
}

fn failure(error: &LoadError) -> PyErr {
    let class = match error {
        LoadError::Plan(_) | LoadError::TooLarge(_) => "ConfigError",
        LoadError::Connect { .. } | LoadError::Lost { .. } => "ConnectError",
        LoadError::Silent { .. } => "RequestTimeout",
        LoadError::Thread(_) => "RocketMQError",
    };
    raise(class, &error.to_string())
}
