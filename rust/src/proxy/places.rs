//! Places: the brokers that methods ask, for a topic, a group, a queue or a handle.
//!
//! A proxy inside a broker has one answer; the other looks into its cluster.

use std::sync::Arc;

use super::broker_call::Answer;
use super::brokers::Brokers;
use super::handle::ReceiptHandle;
use super::shared::Proxy;
use super::status::{Refused, code};
use super::topics::{BrokerPlace, GroupRules, TopicRoute, no_route};
use crate::requests::credentials::Credentials;

impl Proxy {
    /// Returns a topic. The credentials sign the question to a cluster.
    ///
    /// # Errors
    /// It does not exist, or its cluster does not answer.
    pub(super) async fn topic(
        &self,
        name: &str,
        credentials: Option<&Credentials>,
    ) -> Result<Arc<TopicRoute>, Refused> {
        match &self.brokers {
            Brokers::Local(local) => local.topic(name).map(Arc::new).ok_or_else(|| no_route(name)),
            Brokers::Cluster(cluster) => cluster.topic(self.running()?, name, self.signer(credentials)).await,
        }
    }

    /// Returns a consumer group of this topic; `None` if it does not exist.
    pub(super) async fn group(
        &self,
        name: &str,
        topic: Option<&str>,
        credentials: Option<&Credentials>,
    ) -> Result<Option<GroupRules>, Refused> {
        match (&self.brokers, topic) {
            (Brokers::Local(local), _) => Ok(local.group(name)),
            (Brokers::Cluster(cluster), Some(topic)) => {
                let (remoting, credentials) = (self.running()?, self.signer(credentials));
                let topic = cluster.topic(remoting, topic, credentials).await?;
                cluster.group(remoting, name, &topic, credentials).await
            }
            // Without a topic, no broker can be asked.
            (Brokers::Cluster(_), None) => Ok(Some(GroupRules::default())),
        }
    }

    /// Returns whether a group consumes in order.
    pub(super) async fn is_ordered(
        &self,
        group: &str,
        topic: &str,
        credentials: Option<&Credentials>,
    ) -> Result<bool, Refused> {
        Ok(self.group(group, Some(topic), credentials).await?.is_some_and(|group| group.is_ordered))
    }

    /// Returns the broker of a handle.
    pub(super) async fn broker_of(
        &self,
        handle: &ReceiptHandle,
        topic: &str,
        credentials: Option<&Credentials>,
    ) -> Result<BrokerPlace, Refused> {
        match &self.brokers {
            Brokers::Local(local) => handle.check_broker(&local.place.name).map(|()| local.place.clone()),
            Brokers::Cluster(_) => self.broker(topic, &handle.broker, credentials).await,
        }
    }

    /// Returns the broker of this name; a proxy in a broker has no other.
    pub(super) async fn broker(
        &self,
        topic: &str,
        name: &str,
        credentials: Option<&Credentials>,
    ) -> Result<BrokerPlace, Refused> {
        let unknown = || Refused::new(code::INVALID_RECEIPT_HANDLE, format!("cannot find broker {name}"));
        self.one(topic, credentials, |topic| topic.broker(name).cloned().ok_or_else(unknown)).await
    }

    /// Returns the broker for a receive: the named one if it has the topic, or another one.
    pub(super) async fn readable(
        &self,
        topic: &str,
        name: &str,
        credentials: Option<&Credentials>,
    ) -> Result<BrokerPlace, Refused> {
        let choose = |topic: &TopicRoute| {
            let next =
                || topic.turn(self.turn(), |part| part.reads() > 0, |broker| self.brokers.has_failed(broker));
            let broker = topic.broker(name).or_else(next).cloned();
            broker.ok_or_else(|| Refused::new(code::FORBIDDEN, "no readable queue"))
        };
        self.one(topic, credentials, choose).await
    }

    /// Returns the only broker, else what `choose` takes from the route of the topic.
    async fn one(
        &self,
        topic: &str,
        credentials: Option<&Credentials>,
        choose: impl FnOnce(&TopicRoute) -> Result<BrokerPlace, Refused>,
    ) -> Result<BrokerPlace, Refused> {
        match self.brokers.only() {
            Some(broker) => Ok(broker.clone()),
            None => choose(&*self.topic(topic, credentials).await?),
        }
    }

    /// Returns the broker for a message of no message group.
    pub(super) fn writable(&self, topic: &TopicRoute) -> Result<BrokerPlace, Refused> {
        let next =
            topic.turn(self.turn(), |part| part.writes() > 0, |broker| self.brokers.has_failed(broker));
        next.cloned().ok_or_else(|| Refused::new(code::FORBIDDEN, "no writable queue"))
    }

    /// Returns the brokers of these topics, for the registration of a client. Unknown topics have none.
    pub(super) async fn brokers_of<'t>(
        &self,
        topics: impl Iterator<Item = &'t str>,
        credentials: Option<&Credentials>,
    ) -> Result<Vec<BrokerPlace>, Refused> {
        if let Some(broker) = self.brokers.only() {
            return Ok(vec![broker.clone()]);
        }
        let mut brokers: Vec<BrokerPlace> = Vec::new();
        let mut failed = None;
        for topic in topics {
            match self.topic(topic, credentials).await {
                Ok(topic) => {
                    for part in &topic.parts {
                        if !brokers.contains(&part.broker) {
                            brokers.push(part.broker.clone());
                        }
                    }
                }
                Err(refused) if refused.code == code::TOPIC_NOT_FOUND => {}
                Err(refused) => failed = Some(refused),
            }
        }
        match failed {
            Some(refused) if brokers.is_empty() => Err(refused),
            _ => Ok(brokers),
        }
    }

    /// Notes the outcome of a request, so that others avoid a broker that failed, and find a new master.
    pub(super) fn note(&self, broker: &BrokerPlace, outcome: &Result<Answer, Refused>) {
        let has_failed = match outcome {
            Ok(answer) => answer.may_be_of_slave(),
            Err(refused) => matches!(refused.code, code::INTERNAL_SERVER_ERROR | code::PROXY_TIMEOUT),
        };
        if has_failed {
            self.brokers.failed(broker);
        }
    }
}
