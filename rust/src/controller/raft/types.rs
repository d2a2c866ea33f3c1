//! Types: openraft's with ours in their places, and the calls between controllers as JSON.

use std::collections::BTreeSet;
use std::io::Cursor;

use arrayvec::ArrayString;
use openraft::error::{InstallSnapshotError, RaftError};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{EmptyNode, TokioRuntime};
use serde::{Deserialize, Serialize};

/// The interval of a leader's signs of life, and the timeout of its calls.
pub(super) const HEARTBEAT_MS: u64 = 200;
/// Silence of a leader after which another controller may be elected: this, and a random time up to the same.
pub(super) const ELECTION_MS: u64 = 400;

/// The name of a controller in its group, `n0` for example; openraft copies it.
pub type ControllerId = ArrayString<32>;

/// The controllers of a group.
#[derive(Debug, Clone)]
pub struct Group {
    /// This controller.
    pub own: ControllerId,
    /// Every controller, this one included.
    pub members: BTreeSet<ControllerId>,
}

openraft::declare_raft_types!(
    /// Entries are texts, which `state::Entry` encodes; addresses are the owner's.
    pub Types:
        D = String,
        R = (),
        NodeId = ControllerId,
        Node = EmptyNode,
        Entry = openraft::Entry<Types>,
        SnapshotData = Cursor<Vec<u8>>,
        AsyncRuntime = TokioRuntime,
);

pub(super) type Raft = openraft::Raft<Types>;
pub(super) type LogId = openraft::LogId<ControllerId>;
pub(super) type Vote = openraft::Vote<ControllerId>;
pub(super) type Entry = openraft::Entry<Types>;
pub(super) type StoredMembership = openraft::StoredMembership<ControllerId, EmptyNode>;
pub(super) type SnapshotMeta = openraft::SnapshotMeta<ControllerId, EmptyNode>;
pub(super) type Snapshot = openraft::Snapshot<Types>;
pub(super) type StorageError = openraft::StorageError<ControllerId>;

/// A call of one controller to another.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Call {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<ControllerId>),
    Install(InstallSnapshotRequest<Types>),
}

/// The reply to a call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Append(Result<AppendEntriesResponse<ControllerId>, RaftError<ControllerId>>),
    Vote(Result<VoteResponse<ControllerId>, RaftError<ControllerId>>),
    Install(Result<InstallSnapshotResponse<ControllerId>, RaftError<ControllerId, InstallSnapshotError>>),
    /// The call was not served; the caller repeats it.
    Refused(String),
}

impl Call {
    pub(super) fn encode(&self) -> Vec<u8> {
        json(self)
    }

    /// Returns the call; `None` for other bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

impl Reply {
    pub(super) fn encode(&self) -> Vec<u8> {
        json(self)
    }

    /// Returns the bytes of a reply to a call that was not served.
    pub(super) fn refused(reason: &str) -> Vec<u8> {
        json(&Self::Refused(reason.to_owned()))
    }

    /// Returns the reply; `None` for other bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// Encodes a value of this module, all of which have text for keys.
pub(super) fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
