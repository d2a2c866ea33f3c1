//! `Load`: generates load for brokers and measures their replies.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use rmqpy_load::{Load as Core, LoadError, Plan, Position, Target, Work};

use super::client::CredentialsTuple;
use super::errors::raise;
use super::owner_process::OwnerProcess;
use super::tls::PyClientTls;
use super::waiting::{duration, wait};
use crate::load::{RocketMq, RocketMqOptions};
use crate::remoting::Encoding;
use crate::requests::credentials::Credentials;

/// address, broker name, queues with the readers' first offsets
type TargetTuple = (String, String, Vec<(u32, u64)>);

/// A `LoadPlan`, read by name.
#[derive(FromPyObject)]
struct LoadPlan {
    work: String,
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
    tls: Option<Py<PyClientTls>>,
}

/// Load for any RocketMQ broker, on separate threads, started by the constructor.
///
/// Raises `ConfigError` for settings out of bounds, and `ConnectError` when a broker is unreachable.
#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct Load {
    core: Core,
    owner: OwnerProcess,
}

#[pymethods]
impl Load {
    #[new]
    fn new(py: Python<'_>, plan: LoadPlan) -> PyResult<Self> {
        let messages_each = plan.messages_each;
        let work = match plan.work.as_str() {
            "produce" => Work::Produce { body_bytes: plan.body_bytes, batch: messages_each },
            "transact" => Work::Transact { body_bytes: plan.body_bytes },
            "consume" => Work::Consume { messages_max: messages_each },
            "pop" => Work::Pop { messages_max: messages_each },
            _ => return Err(raise("ConfigError", "work must be produce, transact, consume or pop")),
        };
        let options = RocketMqOptions {
            encoding: if plan.binary { Encoding::Binary } else { Encoding::Json },
            credentials: plan.credentials.map(Credentials::from),
            tls: plan.tls.map(|tls| Arc::clone(&tls.get().tls)),
        };
        let plan = Plan {
            work,
            targets: plan.targets.into_iter().map(target).collect(),
            topic: plan.topic,
            group: plan.group,
            due_ms: plan.due_ms,
            connections: plan.connections,
            window: plan.window,
            threads: plan.threads,
            rate: plan.rate,
            warm_up: duration(plan.warm_up),
            duration: duration(plan.duration_s),
            count: plan.count,
            timeout: duration(plan.timeout),
            pids: plan.pids,
        };
        let core = py.detach(|| Core::start::<RocketMq>(plan, &options)).map_err(|error| failure(&error))?;
        Ok(Self { core, owner: OwnerProcess::here() })
    }

    /// Wait for the end. Returns False after `timeout` seconds. Ctrl-C interrupts it.
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

    /// Stop sending. The load ends when the requests in flight have their responses.
    fn stop(&self) {
        self.core.stop();
    }

    /// Return the measurements as a JSON object, once; None before the end.
    ///
    /// Raises `ConnectError` when a connection broke, `RequestTimeout` when a broker stopped responding.
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
