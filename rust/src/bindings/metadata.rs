//! `Metadata`: the way down for topics, groups and subscriptions.
//!
//! Fields of topics and groups are read by name, from the records that their files and requests consist of.

use std::sync::Arc;

use hashbrown::HashMap;
use pyo3::prelude::*;

use super::config::{field, identity};
use crate::dataplane::metadata::{Group, Metadata, Subscription, Subscriptions, Topic};
use crate::message::tag::TagFilter;

/// What the data plane may know.
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

    fn put_topic(&self, entry: &Bound<'_, PyAny>) -> PyResult<()> {
        let name: String = field(entry, "topic_name")?;
        let (read_queues, write_queues) =
            (field(entry, "read_queue_nums")?, field(entry, "write_queue_nums")?);
        let mut topic = Topic::new(&name, read_queues, write_queues, field(entry, "perm")?);
        topic.sys_flag = field(entry, "topic_sys_flag")?;
        topic.is_ordered = field(entry, "order")?;
        topic.is_multi_tag = field::<String>(&entry.getattr("topic_filter_type")?, "name")? == "MULTI_TAG";
        self.metadata.topics.set(&name, Some(topic));
        Ok(())
    }

    fn remove_topic(&self, name: &str) {
        self.metadata.topics.set(name, None);
    }

    fn put_group(&self, entry: &Bound<'_, PyAny>) -> PyResult<()> {
        let group = Group {
            is_consume_enabled: field(entry, "consume_enable")?,
            is_broadcast_enabled: field(entry, "consume_broadcast_enable")?,
            retry_max: field(entry, "retry_max_times")?,
            retry_queues: field(entry, "retry_queue_nums")?,
            sys_flag: field(entry, "group_sys_flag")?,
            broker_id: field(entry, "broker_id")?,
        };
        self.metadata.groups.set(&field::<String>(entry, "group_name")?, Some(group));
        Ok(())
    }

    fn remove_group(&self, name: &str) {
        self.metadata.groups.set(name, None);
    }

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
                let is_tag = kind.is_empty() || kind == "TAG";
                let filter = is_tag.then(|| Arc::new(TagFilter::parse(&expression)));
                (topic.into(), Subscription { version, filter })
            })
            .collect();
        self.metadata.subscriptions.set(group, Some(Subscriptions { is_broadcast, by_topic }));
    }

    fn remove_subscriptions(&self, group: &str) {
        self.metadata.subscriptions.set(group, None);
    }

    fn forbid(&self, group: &str, topic: &str, is_forbidden: bool) {
        self.metadata.forbid(group, topic, is_forbidden);
    }

    fn put_in_order(&self, group: &str, is_in_order: bool) {
        self.metadata.in_order.set(group, is_in_order.then_some(()));
    }

    fn set_permission(&self, permission: u8) {
        self.metadata.set_permission(permission);
    }
}
