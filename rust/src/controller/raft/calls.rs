//! Calls: requests to other controllers, which the owner sends.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use openraft::EmptyNode;
use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::types::{Call, ControllerId, Reply, Types};
use crate::controller::log::{Mailbox, Report};

/// The reason why a call has no reply.
#[derive(Debug)]
struct Failed(String);

impl fmt::Display for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

/// The calls without a reply yet. openraft makes a handful at a time.
pub(super) struct Calls {
    mailbox: Arc<Mailbox>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    replies: BTreeMap<u64, oneshot::Sender<Reply>>,
    last: u64,
    is_closed: bool,
}

impl Calls {
    pub(super) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self { mailbox, waiting: Mutex::default() }
    }

    /// Takes the reply to a call. A late one is dropped.
    pub(super) fn replied(&self, call: u64, body: Option<&[u8]>) {
        let sender = self.waiting.lock().replies.remove(&call);
        if let (Some(sender), Some(reply)) = (sender, body.and_then(Reply::decode)) {
            // The caller has given up.
            drop(sender.send(reply));
        }
    }

    /// Fails what waits, and every later call.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        waiting.replies.clear();
    }

    async fn call(&self, target: &ControllerId, call: &Call, limit: Duration) -> Result<Reply, NetworkError> {
        let (sender, receiver) = oneshot::channel();
        let number = {
            let mut waiting = self.waiting.lock();
            if waiting.is_closed {
                return Err(NetworkError::new(&Failed("the controller stops".to_owned())));
            }
            waiting.last += 1;
            let number = waiting.last;
            waiting.replies.insert(number, sender);
            number
        };
        let _forgotten = Forgotten { calls: self, number };
        self.mailbox.push(Report::Call {
            call: number,
            target: target.to_string(),
            body: call.encode(),
            limit,
        });
        match receiver.await {
            Ok(Reply::Refused(reason)) => Err(NetworkError::new(&Failed(format!("{target}: {reason}")))),
            Ok(reply) => Ok(reply),
            Err(_) => Err(NetworkError::new(&Failed(format!("{target} does not reply")))),
        }
    }
}

/// Removes a call when its caller has a reply or gives up.
struct Forgotten<'a> {
    calls: &'a Calls,
    number: u64,
}

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        self.calls.waiting.lock().replies.remove(&self.number);
    }
}

impl RaftNetworkFactory<Types> for Arc<Calls> {
    type Network = Connection;

    async fn new_client(&mut self, target: ControllerId, _: &EmptyNode) -> Connection {
        Connection { target, calls: Self::clone(self) }
    }
}

/// The way to one controller.
pub(super) struct Connection {
    target: ControllerId,
    calls: Arc<Calls>,
}

type Error<E = openraft::error::Infallible> = RPCError<ControllerId, EmptyNode, RaftError<ControllerId, E>>;

impl Connection {
    #[allow(clippy::result_large_err, reason = "openraft's signatures have this error")]
    fn outcome<T, E: std::error::Error>(
        &self,
        result: Result<T, RaftError<ControllerId, E>>,
    ) -> Result<T, Error<E>> {
        result.map_err(|error| RPCError::RemoteError(RemoteError::new(self.target, error)))
    }

    fn wrong<E: std::error::Error>(&self) -> Error<E> {
        RPCError::Network(NetworkError::new(&Failed(format!("{} replied to another call", self.target))))
    }
}

impl RaftNetwork<Types> for Connection {
    async fn append_entries(
        &mut self,
        call: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<ControllerId>, Error> {
        match self.calls.call(&self.target, &Call::Append(call), option.hard_ttl()).await? {
            Reply::Append(result) => self.outcome(result),
            _ => Err(self.wrong()),
        }
    }

    async fn install_snapshot(
        &mut self,
        call: InstallSnapshotRequest<Types>,
        option: RPCOption,
    ) -> Result<InstallSnapshotResponse<ControllerId>, Error<InstallSnapshotError>> {
        match self.calls.call(&self.target, &Call::Install(call), option.hard_ttl()).await? {
            Reply::Install(result) => self.outcome(result),
            _ => Err(self.wrong()),
        }
    }

    async fn vote(
        &mut self,
        call: VoteRequest<ControllerId>,
        option: RPCOption,
    ) -> Result<VoteResponse<ControllerId>, Error> {
        match self.calls.call(&self.target, &Call::Vote(call), option.hard_ttl()).await? {
            Reply::Vote(result) => self.outcome(result),
            _ => Err(self.wrong()),
        }
    }
}
