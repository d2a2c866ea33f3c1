//! Requests: questions and changes of brokers and tools, with their outcomes.

use std::collections::BTreeSet;

use super::state::{BrokerId, BrokerSet};

/// A request about one broker set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The id for the next applicant.
    NextBrokerId,
    /// Apply for an id.
    ApplyBrokerId {
        /// The id.
        id: BrokerId,
        /// Proves a repetition.
        check_code: String,
    },
    /// A broker has started.
    Register {
        /// Its id.
        id: BrokerId,
        /// Its `host:port`.
        address: String,
        /// The connection it asks on.
        connection: u64,
        /// Whether its process has started since its last registration.
        has_started: bool,
    },
    /// The master and the in-sync set.
    ReplicaInfo,
    /// Elect a master.
    Elect {
        /// The broker that asks, or the one to elect.
        id: BrokerId,
        /// Whether only that one may win.
        is_designated: bool,
    },
    /// The master changes the in-sync set.
    AlterSyncStateSet {
        /// The broker that asks.
        master: BrokerId,
        /// The epoch it leads in.
        master_epoch: i32,
        /// The wanted set.
        in_sync: BTreeSet<BrokerId>,
        /// The version of the present set.
        in_sync_epoch: i32,
        /// In this epoch it acknowledges only messages that the whole set has.
        waits_for_all: bool,
    },
    /// Remove replicas; without ids the whole set.
    Clean {
        /// The ids.
        ids: Option<BTreeSet<BrokerId>>,
        /// Whether living replicas may be removed, too.
        may_live: bool,
    },
}

/// A request with the broker set it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The cluster; empty if the sender does not name it.
    pub cluster: String,
    /// The broker name.
    pub name: String,
    /// The request.
    pub request: Request,
}

/// The response codes of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as the codes of the protocol")]
#[repr(i32)]
pub enum Code {
    Success = 0,
    SystemError = 1,
    SystemBusy = 2,
    FencedMasterEpoch = 2000,
    FencedSyncStateSetEpoch = 2001,
    InvalidMaster = 2002,
    InvalidReplicas = 2003,
    MasterNotAvailable = 2004,
    InvalidRequest = 2005,
    BrokerNotAlive = 2006,
    NotLeader = 2007,
    BrokerMetadataNotExist = 2008,
    InvalidCleanBrokerMetadata = 2009,
    BrokerNeedToBeRegistered = 2010,
    MasterStillExist = 2011,
    ElectMasterFailed = 2012,
    AlterSyncStateSetFailed = 2013,
    BrokerIdInvalid = 2014,
}

/// A replica as an outcome shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaView {
    /// Its id.
    pub id: BrokerId,
    /// Its `host:port`.
    pub address: String,
    /// Whether it sends heartbeats.
    pub is_alive: bool,
    /// Whether it is in the in-sync set.
    pub is_in_sync: bool,
}

/// A broker set as an outcome shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetView {
    /// Its name.
    pub name: String,
    /// Its cluster.
    pub cluster: String,
    /// The id for the next applicant.
    pub next_id: BrokerId,
    /// Its master: id and `host:port`.
    pub master: Option<(BrokerId, String)>,
    /// The epoch of the master.
    pub master_epoch: i32,
    /// The version of the in-sync set.
    pub in_sync_epoch: i32,
    /// The in-sync set, which may have ids of removed replicas.
    pub in_sync: Vec<BrokerId>,
    /// Every replica.
    pub replicas: Vec<ReplicaView>,
    /// Milliseconds until another replica than the master may be elected; 0 without a lease.
    pub lease_ms: u64,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The response code.
    pub code: Code,
    /// The reason for a code other than 0.
    pub remark: String,
    /// The broker set after the request, if it exists.
    pub set: Option<SetView>,
    /// The lease that a heartbeat was granted, in milliseconds; 0 if it is withdrawn.
    pub lease_ms: Option<u64>,
}

impl Outcome {
    /// A refusal.
    #[must_use]
    pub fn refused(code: Code, remark: impl Into<String>) -> Self {
        Self { code, remark: remark.into(), set: None, lease_ms: None }
    }

    /// Success.
    #[must_use]
    pub fn done(set: Option<SetView>) -> Self {
        Self { code: Code::Success, remark: String::new(), set, lease_ms: None }
    }
}

impl SetView {
    /// Shows a broker set; `is_alive` decides which replicas send heartbeats.
    #[must_use]
    pub fn of(name: &str, set: &BrokerSet, is_alive: impl Fn(BrokerId) -> bool, lease_ms: u64) -> Self {
        let replicas = set.replicas.iter().map(|(id, replica)| ReplicaView {
            id: *id,
            address: replica.address.clone(),
            is_alive: is_alive(*id),
            is_in_sync: set.in_sync.contains(id),
        });
        Self {
            name: name.to_owned(),
            cluster: set.cluster.clone(),
            next_id: set.next_id,
            master: set.master.and_then(|id| Some((id, set.address(id)?.to_owned()))),
            master_epoch: set.master_epoch,
            in_sync_epoch: set.in_sync_epoch,
            in_sync: set.in_sync.iter().copied().collect(),
            replicas: replicas.collect(),
            lease_ms,
        }
    }
}
