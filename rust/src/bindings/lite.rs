//! `LiteConsumers`: the consumers of lite topics, for Python's requests and life spans.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::errors::raise_with;
use super::server::PyServer;
use crate::dataplane::requests::lites::Lites;
use crate::dataplane::service::data_plane::DataPlane;
use crate::dataplane::waiting::lite_consumers::{LiteMember, LiteNotice, TooManyLite};
use crate::message::lite;
use crate::remoting::codes::response;

/// A subscription that another consumer of an exclusive group has.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct LostLiteTopic {
    /// The client that has lost it.
    client_id: String,
    /// The connection for the notice.
    connection: u64,
    /// The lite topic.
    lite_topic: String,
}

/// A consumer of lite topics.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct LiteConsumer {
    /// The topic whose lite topics it consumes.
    parent: String,
    /// When it last asked for messages, in milliseconds since the epoch.
    accessed_ms: i64,
    /// When it last got messages, in milliseconds since the epoch.
    consumed_ms: i64,
    /// The number of its subscriptions.
    subscriptions: usize,
    /// Some of the queues that it has subscribed to.
    queues: Vec<String>,
}

/// The consumers of lite topics of a broker.
#[pyclass(module = "rmqpy._native", frozen)]
pub(super) struct LiteConsumers {
    data_plane: Arc<DataPlane>,
}

impl LiteConsumers {
    fn lites(&self) -> PyResult<&Lites> {
        let missing = || PyValueError::new_err("only brokers have lite topics");
        self.data_plane.lites().ok_or_else(missing)
    }

    fn now_ms(&self) -> i64 {
        self.data_plane.clock.wall_ms().cast_signed()
    }
}

#[pymethods]
impl LiteConsumers {
    #[new]
    fn new(server: &PyServer) -> Self {
        Self { data_plane: Arc::clone(&server.data_plane) }
    }

    /// Add subscriptions of a client as a member of a group to lite topics of `parent`, or with `is_complete`
    /// make them exactly these. In an exclusive group, added ones are taken over from other clients; a complete set
    /// leaves those of others. Returns the subscriptions that a client has lost. Unknown names are skipped. Raises
    /// `BrokerError` with 2018 for too many subscriptions.
    #[pyo3(signature = (group, client_id, parent, lite_topics, *, connection, events_max, is_exclusive, is_complete))]
    fn subscribe(
        &self,
        group: &str,
        client_id: &str,
        parent: &str,
        lite_topics: Vec<String>,
        connection: u64,
        events_max: usize,
        is_exclusive: bool,
        is_complete: bool,
    ) -> PyResult<Vec<LostLiteTopic>> {
        let queues = queues_of(parent, &lite_topics);
        let member = LiteMember { group, client: client_id, parent, connection, events_max, is_exclusive };
        let consumers = &self.lites()?.consumers;
        let done = match is_complete {
            true => consumers.replace(&member, &queues, self.now_ms()),
            false => consumers.add(&member, &queues, self.now_ms()),
        };
        let (lost, parked) = done.map_err(|error| too_many(&error))?;
        self.data_plane.wake_lites(&[parked]);
        Ok(lost.into_iter().map(LostLiteTopic::from).collect())
    }

    /// Remove subscriptions of a client.
    fn unsubscribe(
        &self,
        group: &str,
        client_id: &str,
        parent: &str,
        lite_topics: Vec<String>,
    ) -> PyResult<()> {
        let queues = queues_of(parent, &lite_topics);
        self.lites()?.consumers.remove(group, client_id, &queues, self.now_ms());
        Ok(())
    }

    /// Remove a client that has left its group; others get its pending messages.
    fn leave(&self, group: &str, client_id: &str) -> PyResult<()> {
        self.data_plane.wake_lites(&self.lites()?.consumers.end(group, client_id, self.now_ms()));
        Ok(())
    }

    /// Remove the clients that have not sent their subscriptions for `silent_ms`, and return their groups and ids.
    /// Pending messages of clients that do not ask for them go to others.
    fn expire(&self, py: Python<'_>, silent_ms: i64) -> PyResult<Vec<(String, String)>> {
        let consumers = &self.lites()?.consumers;
        let gone = py.detach(|| {
            let now_ms = self.now_ms();
            let (gone, parked) = consumers.expire(now_ms.saturating_sub(silent_ms), now_ms);
            self.data_plane.wake_lites(&parked);
            self.data_plane.wake_lites(&consumers.spread(now_ms));
            gone
        });
        Ok(gone.into_iter().map(|(group, client)| (group.to_string(), client.to_string())).collect())
    }

    /// Have a client, or with `None` all clients of a group, look at all of their lite topics.
    fn dispatch(&self, group: &str, client_id: Option<&str>) -> PyResult<()> {
        self.data_plane.wake_lites(&self.lites()?.consumers.offer_all(group, client_id));
        Ok(())
    }

    /// Remove the subscriptions to deleted queues.
    fn remove_queues(&self, py: Python<'_>, queues: Vec<String>) -> PyResult<()> {
        let consumers = &self.lites()?.consumers;
        py.detach(|| consumers.remove_queues(&queues));
        Ok(())
    }

    /// Return the clients and groups that have subscribed to a queue.
    fn subscribers(&self, queue: &str) -> PyResult<Vec<(String, String)>> {
        let subscribers = self.lites()?.consumers.subscribers(queue);
        Ok(subscribers.into_iter().map(|(client, group)| (client.to_string(), group.to_string())).collect())
    }

    /// Return a client as a member of a group, with at most `queues_max` of its queues; `None` if it is unknown.
    fn consumer(&self, group: &str, client_id: &str, queues_max: usize) -> PyResult<Option<LiteConsumer>> {
        let report = self.lites()?.consumers.report(group, client_id, queues_max);
        Ok(report.map(|report| LiteConsumer {
            parent: report.parent.to_string(),
            accessed_ms: report.accessed_ms,
            consumed_ms: report.consumed_ms,
            subscriptions: report.subscriptions,
            queues: report.queues.iter().map(ToString::to_string).collect(),
        }))
    }

    /// Return the numbers of consumers, subscriptions and events.
    fn counts(&self) -> PyResult<BTreeMap<&'static str, usize>> {
        let counts = self.lites()?.consumers.counts();
        Ok(BTreeMap::from([
            ("consumers", counts.consumers),
            ("subscriptions", counts.subscriptions),
            ("events", counts.events),
        ]))
    }
}

/// Return the queue of a lite topic; `None` for a name that no lite topic may have.
#[pyfunction]
pub(super) fn lite_queue(parent: &str, lite_topic: &str) -> Option<String> {
    lite::queue_of(parent, lite_topic)
}

/// Return the parent and the lite topic of a queue; `None` for other queues.
#[pyfunction]
pub(super) fn lite_parts(queue: &str) -> Option<(&str, &str)> {
    lite::parts_of(queue)
}

impl From<LiteNotice> for LostLiteTopic {
    fn from(notice: LiteNotice) -> Self {
        let lite_topic = lite::parts_of(&notice.queue).map_or("", |(_, lite_topic)| lite_topic);
        Self {
            client_id: notice.client.to_string(),
            connection: notice.connection,
            lite_topic: lite_topic.to_owned(),
        }
    }
}

fn queues_of(parent: &str, lite_topics: &[String]) -> Vec<Arc<str>> {
    lite_topics.iter().filter_map(|name| lite::queue_of(parent, name)).map(Arc::from).collect()
}

fn too_many(error: &TooManyLite) -> PyErr {
    let code = response::LITE_SUBSCRIPTION_QUOTA_EXCEEDED;
    raise_with("BrokerError", &error.to_string(), |keywords| keywords.set_item("code", code))
}
