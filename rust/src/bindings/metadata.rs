//! `Metadata`: the way down for topics, groups and subscriptions.

use std::sync::Arc;

use hashbrown::HashMap;
use pyo3::prelude::*;

use super::config;
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
        let identity = config::identity(config, store_host)?;
        let permission = config::field(config, "permission")?;
        Ok(Self { metadata: Arc::new(Metadata::new(identity, permission)) })
    }

    #[pyo3(signature = (name, *, read_queues, write_queues, permission, sys_flag=0, is_ordered=false,
        multi_tag=false, message_type=""))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python method")]
    fn put_topic(
        &self,
        name: &str,
        read_queues: u32,
        write_queues: u32,
        permission: u8,
        sys_flag: i32,
        is_ordered: bool,
        multi_tag: bool,
        message_type: &str,
    ) {
        // Kinds of topics that need more than storing are refused by the control plane until they are served.
        let _ = message_type;
        let mut topic = Topic::new(name, read_queues, write_queues, permission);
        topic.sys_flag = sys_flag;
        topic.is_ordered = is_ordered;
        topic.is_multi_tag = multi_tag;
        self.metadata.topics.set(name, Some(topic));
    }

    fn remove_topic(&self, name: &str) {
        self.metadata.topics.set(name, None);
    }

    #[pyo3(signature = (name, *, consume_enabled=true, broadcast_enabled=true, retry_max=16, retry_queues=1, sys_flag=0,
        broker_id=0))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python method")]
    fn put_group(
        &self,
        name: &str,
        consume_enabled: bool,
        broadcast_enabled: bool,
        retry_max: i32,
        retry_queues: u32,
        sys_flag: i32,
        broker_id: u64,
    ) {
        let group = Group {
            is_consume_enabled: consume_enabled,
            is_broadcast_enabled: broadcast_enabled,
            retry_max,
            retry_queues,
            sys_flag,
            broker_id,
        };
        self.metadata.groups.set(name, Some(group));
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
