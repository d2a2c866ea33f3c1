//! `Client`: the connections of one process to one cluster, and requests through them.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::call::Call;
use super::columns::Columns;
use super::completions::Completions;
use super::errors::raise;
use super::ext;
use super::namespace::Namespace;
use super::owner_process::OwnerProcess;
use super::tls::PyClientTls;
use super::waiting::duration;
use crate::client::completions::CompletionTarget;
use crate::client::connections::{Connections, RawRequest};
use crate::columns::Origin;
use crate::message::tag::TagFilter;
use crate::remoting::Encoding;
use crate::remoting::codes::request;
use crate::requests::credentials::Credentials;

/// Access key, secret key and token.
pub(super) type CredentialsTuple = (String, String, Option<String>);

impl From<CredentialsTuple> for Credentials {
    fn from((access_key, secret_key, token): CredentialsTuple) -> Self {
        Self::new(&access_key, &secret_key, token.as_deref())
    }
}

/// One pull of a range, read by name.
#[derive(FromPyObject)]
struct RangePull {
    address: String,
    queue: (String, String, i32),
    tags: String,
    offset: u64,
    end: u64,
    token: u64,
}

/// Connections to any number of addresses, made on first use, on one I/O thread that never enters Python.
///
/// In a child process every method raises `ForkedError`.
#[pyclass(frozen, module = "rmqpy._native")]
pub(super) struct Client {
    pub(super) core: SharedConnections,
    /// The namespace of topics and groups that users name.
    #[pyo3(get)]
    pub(super) namespace: Option<Namespace>,
}

/// Connections that a child process must not touch: their thread exists only in the parent, so joining it would
/// never return.
#[derive(Clone)]
pub(super) struct SharedConnections {
    /// `Some` until dropped.
    core: Option<Arc<Connections>>,
    owner: OwnerProcess,
}

impl SharedConnections {
    /// Returns the connections in the process that made them. Raises `ForkedError` in any other.
    pub(super) fn get(&self) -> PyResult<&Connections> {
        self.owner.check("client")?;
        self.core.as_deref().ok_or_else(|| raise("ClosedError", "the client is closed"))
    }
}

impl Drop for SharedConnections {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            std::mem::forget(self.core.take());
        }
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (*, connect_timeout_ms = 3000, binary = false, namespace = "", credentials = None,
                        tls = None))]
    fn new(
        connect_timeout_ms: u64,
        binary: bool,
        namespace: &str,
        credentials: Option<CredentialsTuple>,
        tls: Option<&PyClientTls>,
    ) -> PyResult<Self> {
        let encoding = if binary { Encoding::Binary } else { Encoding::Json };
        let credentials = credentials.map(Credentials::from);
        let connections = Connections::start(
            Duration::from_millis(connect_timeout_ms),
            encoding,
            credentials,
            tls.map(|tls| Arc::clone(&tls.tls)),
        )?;
        let core = SharedConnections { core: Some(Arc::new(connections)), owner: OwnerProcess::here() };
        let namespace = (!namespace.is_empty()).then(|| Namespace::new(namespace)).transpose()?;
        Ok(Self { core, namespace })
    }

    /// Start a request and return immediately. Its outcome arrives within `timeout_ms` and is posted to
    /// `completions`.
    #[pyo3(signature = (address, code, ext = None, body = None, *, timeout_ms, completions = None, token = 0))]
    fn call(
        &self,
        address: &str,
        code: i32,
        ext: Option<&Bound<'_, PyDict>>,
        body: Option<&[u8]>,
        timeout_ms: u64,
        completions: Option<&Completions>,
        token: u64,
    ) -> PyResult<Call> {
        let reader =
            completions.map(|completions| CompletionTarget { to: Arc::clone(&completions.core), token });
        let ext = ext::pairs(ext)?;
        let request = RawRequest { code, ext: &ext, body: body.unwrap_or_default() };
        let call = self.core.get()?.call(address, &request, Duration::from_millis(timeout_ms), reader);
        Ok(Call::new(call, token))
    }

    /// Start a pull in the same way. The I/O thread adds the messages that have one of the tags and offsets in
    /// [offset, end) to `columns`; they are complete when the call is posted, see `Call.rows`.
    #[pyo3(signature = (pull, ext, columns, *, timeout_ms, completions))]
    fn pull(
        &self,
        pull: RangePull,
        ext: &Bound<'_, PyDict>,
        columns: &Columns,
        timeout_ms: u64,
        completions: &Completions,
    ) -> PyResult<Call> {
        let RangePull { address, queue, tags, offset, end, token } = pull;
        let reader = CompletionTarget { to: Arc::clone(&completions.core), token };
        let ext = ext::pairs(Some(ext))?;
        let request = RawRequest { code: request::PULL_MESSAGE, ext: &ext, body: &[] };
        let (table, tags) = (columns.table(), TagFilter::parse(&tags));
        let read = move |body: &[u8]| {
            let (topic, broker, queue_id) = &queue;
            table.lock().append(body, &Origin { topic, broker, queue_id: *queue_id }, &(offset..end), &tags)
        };
        let call = self.core.get()?.pull(&address, &request, Duration::from_millis(timeout_ms), reader, read);
        Ok(Call::new(call, token))
    }

    /// Send a request that has no reply. Raises `ConnectError` if it cannot be queued.
    #[pyo3(signature = (address, code, ext = None, body = None))]
    fn call_oneway(
        &self,
        address: &str,
        code: i32,
        ext: Option<&Bound<'_, PyDict>>,
        body: Option<&[u8]>,
    ) -> PyResult<()> {
        let ext = ext::pairs(ext)?;
        let request = RawRequest { code, ext: &ext, body: body.unwrap_or_default() };
        self.core
            .get()?
            .call_oneway(address, &request)
            .map_err(|error| raise("ConnectError", &error.to_string()))
    }

    /// Post requests from servers, and the ends of connections, to `completions` as `ServerRequest`s: requests of
    /// these codes, or, without codes, all that no other listener takes. The last listener for a code wins; requests
    /// without a listener are dropped.
    #[pyo3(signature = (completions, token = 0, *, codes = Vec::new()), text_signature = "($self, completions, token=0, *, codes=())")]
    fn listen(&self, completions: &Completions, token: u64, codes: Vec<i32>) -> PyResult<()> {
        let reader = CompletionTarget { to: Arc::clone(&completions.core), token };
        self.core.get()?.listen(&reader, &codes);
        Ok(())
    }

    /// Return the addresses of servers that have left a request without a reply for `seconds`.
    fn silent(&self, seconds: f64) -> PyResult<Vec<String>> {
        let found = self.core.get()?.silent(duration(seconds));
        Ok(found.iter().map(ToString::to_string).collect())
    }

    /// End the connection to a server that does not answer: its requests fail as `lost`, and the next request
    /// connects again.
    fn abandon(&self, address: &str) -> PyResult<()> {
        self.core.get()?.abandon(address);
        Ok(())
    }

    /// Close every connection. Requests without a reply within `grace_ms` fail as closed. Idempotent.
    #[pyo3(signature = (*, grace_ms = 0))]
    fn close(&self, py: Python<'_>, grace_ms: u64) -> PyResult<()> {
        let core = self.core.get()?;
        py.detach(|| core.stop(Duration::from_millis(grace_ms)));
        Ok(())
    }
}
