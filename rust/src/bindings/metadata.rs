//! `Metadata`: publishes topics, groups and subscriptions to the data plane.
//!
//! Fields of topics and groups are read by name, from the records used in their files and requests.

use std::sync::Arc;

use hashbrown::HashMap;
use pyo3::prelude::*;

use super::config::{field, identity};
use crate::dataplane::state::mapping::{Mapping, Segment};
use crate::dataplane::state::metadata::{
    Group, LITE_QUOTA_USUAL, Metadata, PRIORITY_PERCENT_USUAL, Subscription, Subscriptions, Topic,
};
use crate::dataplane::state::role::Role;
use crate::message::MessageType;

/// The data plane's copy of topics, groups, subscriptions and the broker's settings.
///
/// Every change is published atomically before the call returns; requests in flight see the old or the new value.
#[pyclass(name = "Metadata", module = "rmqpy._native", frozen)]
pub struct PyMetadata {
    pub(super) metadata: Arc<Metadata>,
}

#[pymethods]
impl PyMetadata {
    #[new]
    fn new(config: &Bound<'_, PyAny>, store_host: &str) -> PyResult<Self> {
        let metadata = Metadata::new(identity(config, store_host)?, field(config, "permission")?);
        Ok(Self { metadata: Arc::new(metadata) })
    }

    /// Publish a new topic, or its new settings.
    fn put_topic(&self, entry: &Bound<'_, PyAny>) -> PyResult<()> {
        let name: String = field(entry, "topic_name")?;
        let (read_queues, write_queues) =
            (field(entry, "read_queue_nums")?, field(entry, "write_queue_nums")?);
        let mut topic = Topic::new(&name, read_queues, write_queues, field(entry, "perm")?);
        topic.sys_flag = field(entry, "topic_sys_flag")?;
        topic.is_ordered = field(entry, "order")?;
        topic.is_multi_tag = field::<String>(&entry.getattr("topic_filter_type")?, "name")? == "MULTI_TAG";
        topic.is_compacted = attribute(entry, "cleanup.policy")?.as_deref() == Some("COMPACTION");
        topic.message_type = attribute(entry, "message.type")?.as_deref().and_then(MessageType::named);
        self.metadata.set_topic(&name, Some(topic));
        Ok(())
    }

    /// Remove a topic.
    fn remove_topic(&self, name: &str) {
        self.metadata.set_topic(name, None);
    }

    /// Publish the logical queues of a static topic, which exists: each with its segments, oldest first, as (local
    /// queue, is it of this broker, first logical offset, first and last local offset).
    fn put_mapping(&self, topic: &str, queues: Vec<(u32, Vec<SegmentFields>)>) {
        let queues =
            queues.into_iter().map(|(queue_id, segments)| (queue_id, segments.into_iter().map(segment)));
        let queues = queues.map(|(queue_id, segments)| (queue_id, segments.collect())).collect();
        self.metadata.set_mapping(topic, Some(Mapping::new(queues)));
    }

    /// Make a static topic an ordinary one.
    fn remove_mapping(&self, topic: &str) {
        self.metadata.set_mapping(topic, None);
    }

    /// Publish a new group, or its new settings.
    fn put_group(&self, entry: &Bound<'_, PyAny>) -> PyResult<()> {
        let percent = attribute(entry, "priority.factor")?.and_then(|text| text.parse().ok());
        let quota = attribute(entry, "lite.sub.client.quota")?.and_then(|text| text.parse().ok());
        let group = Group {
            is_consume_enabled: field(entry, "consume_enable")?,
            is_broadcast_enabled: field(entry, "consume_broadcast_enable")?,
            retry_max: field(entry, "retry_max_times")?,
            retry_queues: field(entry, "retry_queue_nums")?,
            sys_flag: field(entry, "group_sys_flag")?,
            broker_id: field(entry, "broker_id")?,
            slow_broker_id: field(entry, "which_broker_when_consume_slowly")?,
            is_ordered: field(entry, "consume_message_orderly")?,
            priority_percent: percent.unwrap_or(PRIORITY_PERCENT_USUAL),
            lite_quota: quota.unwrap_or(LITE_QUOTA_USUAL),
            lite_parent: attribute(entry, "lite.bind.topic")?.map(Into::into),
        };
        self.metadata.groups.set(&field::<String>(entry, "group_name")?, Some(group));
        Ok(())
    }

    /// Remove a group.
    fn remove_group(&self, name: &str) {
        self.metadata.groups.set(name, None);
    }

    /// Publish the subscriptions of the registered members of `group`: (topic, expression type, expression,
    /// version).
    #[pyo3(signature = (group, *, is_broadcast, subscriptions))]
    fn put_subscriptions(
        &self,
        group: &str,
        is_broadcast: bool,
        subscriptions: Vec<(String, String, String, i64)>,
    ) {
        let by_topic: HashMap<Box<str>, Subscription> = subscriptions
            .into_iter()
            .map(|(topic, kind, expression, version)| {
                let filter = self.metadata.filter(&kind, &expression);
                (topic.into(), Subscription { version, filter })
            })
            .collect();
        self.metadata.subscriptions.set(group, Some(Subscriptions { is_broadcast, by_topic }));
    }

    /// Remove the subscriptions of a group without registered members.
    fn remove_subscriptions(&self, group: &str) {
        self.metadata.subscriptions.set(group, None);
    }

    /// Set whether pulls of this group from this topic are refused.
    fn forbid(&self, group: &str, topic: &str, is_forbidden: bool) {
        self.metadata.forbid(group, topic, is_forbidden);
    }

    /// Set whether a member of `group` holds a queue lock. Messages that such a group sends to its retry topic go to
    /// its dead letters.
    fn put_in_order(&self, group: &str, is_in_order: bool) {
        self.metadata.in_order.set(group, is_in_order.then_some(()));
    }

    /// Set whether half messages are refused, and how long producers have to decide.
    fn set_transactions(&self, rejects: bool, timeout_ms: i64) {
        self.metadata.set_transactions(rejects, timeout_ms);
    }

    /// Set whether topics with a declared message type accept only messages of that type.
    fn set_message_type_check(&self, is_on: bool) {
        self.metadata.set_message_type_check(is_on);
    }

    /// Set whether the broker is a slave, whether its master responds, and whether it acts for the master. A slave
    /// accepts no messages.
    #[pyo3(signature = (is_slave, has_master, *, is_acting=false))]
    fn set_role(&self, is_slave: bool, has_master: bool, is_acting: bool) {
        self.metadata.set_role(match (is_slave, has_master) {
            (false, _) => Role::Master,
            (true, _) if is_acting => Role::Acting,
            (true, true) => Role::Slave,
            (true, false) => Role::Orphan,
        });
    }

    /// Set the number of replicas in sync below which messages are refused.
    fn set_copies_min(&self, count: usize) {
        self.metadata.set_copies_min(count);
    }

    /// Set the broker's permission bits.
    fn set_permission(&self, permission: u8) {
        self.metadata.set_permission(permission);
    }
}

/// The fields of a segment, in the order of `put_mapping`.
type SegmentFields = (u32, bool, i64, i64, i64);

fn segment((queue_id, is_own, logical_start, start, end): SegmentFields) -> Segment {
    Segment { queue_id, is_own, logical_start, start, end }
}

/// Returns an attribute of a topic or group.
fn attribute(entry: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<String>> {
    entry.getattr("attributes")?.call_method1("get", (name,))?.extract()
}
