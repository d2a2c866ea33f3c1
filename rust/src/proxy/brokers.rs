//! Brokers: the one of this process, known by its snapshots, or those of a cluster.

use std::sync::Arc;
use std::time::Instant;

use super::cluster::Cluster;
use super::topics::{BrokerPlace, GroupRules, TopicPart, TopicRoute};
use crate::dataplane::state::metadata::{Metadata, PERMISSION_READ, PERMISSION_WRITE};

/// The brokers behind the proxy.
pub(super) enum Brokers {
    Local(Local),
    Cluster(Cluster),
}

impl Brokers {
    /// Returns the broker for every request, if there is only one.
    pub(super) fn only(&self) -> Option<&BrokerPlace> {
        match self {
            Self::Local(local) => Some(&local.place),
            Self::Cluster(_) => None,
        }
    }

    /// Returns whether brokers can be found.
    pub(super) fn are_found(&self) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Cluster(cluster) => cluster.has_name_server(),
        }
    }

    /// Returns whether a broker did not answer recently. The one of this process always does.
    pub(super) fn has_failed(&self, broker: &BrokerPlace) -> bool {
        matches!(self, Self::Cluster(cluster) if cluster.has_failed(broker.key()))
    }

    /// Notes that a broker did not answer.
    pub(super) fn failed(&self, broker: &BrokerPlace) {
        if let Self::Cluster(cluster) = self {
            cluster.failed(broker.key(), Instant::now());
        }
    }
}

/// The broker of this process.
pub(super) struct Local {
    metadata: Arc<Metadata>,
    pub(super) place: BrokerPlace,
}

impl Local {
    /// Knows a broker by its snapshots.
    pub(super) fn new(metadata: Arc<Metadata>) -> Self {
        let name = metadata.identity.broker.as_str().into();
        Self { metadata, place: BrokerPlace { name, address: None } }
    }

    pub(super) fn topic(&self, name: &str) -> Option<TopicRoute> {
        let topic = self.metadata.topic(name)?;
        let bits = topic.permission & self.metadata.permission();
        let part = TopicPart {
            broker: self.place.clone(),
            read_queues: topic.read_queues,
            write_queues: topic.write_queues,
            is_readable: bits & PERMISSION_READ != 0,
            is_writable: bits & PERMISSION_WRITE != 0,
            has_master: true,
        };
        Some(TopicRoute { message_type: topic.message_type, parts: vec![part] })
    }

    pub(super) fn group(&self, name: &str) -> Option<GroupRules> {
        let group = self.metadata.group(name)?;
        Some(GroupRules {
            retry_max: group.retry_max,
            is_ordered: group.is_ordered,
            lite_parent: group.lite_parent.clone(),
            lite_quota: group.lite_quota,
        })
    }
}
