//! Cluster: brokers found at name servers, and what they say of topics and groups.
//!
//! Answers are cached (`cache`). A broker that failed is avoided for some seconds, and every route is asked for again,
//! at most once a second while it fails: another one may be master by now.
//!
//! Threads: any; short locks, none across an `await`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde_json::Value;

use super::broker_call::{Answer, BrokerCall};
use super::cache::{Cache, Found};
use super::status::{Refused, code};
use super::topics::{BrokerPlace, GroupRules, TopicPart, TopicRoute, no_route};
use crate::dataplane::state::metadata::{PERMISSION_READ, PERMISSION_WRITE};
use crate::message::MessageType;
use crate::message::topic::{AUTO_CREATE_TOPIC, is_of_group};
use crate::remoting::Client;
use crate::remoting::codes::{language, response};
use crate::requests::credentials::Credentials;

/// Topics and groups that are cached.
const TOPICS_MAX: usize = 20_000;
const GROUPS_MAX: usize = 20_000;
/// Connections to brokers, of all clients.
const CONNECTIONS_MAX: usize = 100_000;
/// A broker that failed is avoided for this long.
const AVOIDED: Duration = Duration::from_secs(5);
/// A broker that keeps failing has the name servers asked again at most this often.
const ASKED_AGAIN: Duration = Duration::from_secs(1);
/// Brokers that are asked about a topic or group, until one answers.
const ASKED_MAX: usize = 2;
/// The time of one question to a name server, or to a broker about a topic or group.
const ANSWER: Duration = Duration::from_secs(2);
/// Queues of a topic at one broker, as many as all brokers together admit.
const QUEUES_MAX: u32 = 131_072;
/// Requests to name servers and about topics and groups.
const GET_ROUTEINFO_BY_TOPIC: i32 = 105;
const GET_TOPIC_CONFIG: i32 = 351;
const GET_SUBSCRIPTIONGROUP_CONFIG: i32 = 352;

/// A broker that failed.
struct Failure {
    /// The last time.
    at: Instant,
    /// When it outdated the routes.
    outdated: Instant,
}

/// The brokers of some name servers.
pub(super) struct Cluster {
    name_servers: Vec<String>,
    /// The name server that answered last.
    answering: AtomicUsize,
    /// Whether one has answered the last question.
    is_answered: AtomicBool,
    topics: Cache<TopicRoute>,
    groups: Cache<GroupRules>,
    /// Brokers that failed, by address.
    failures: Mutex<HashMap<Box<str>, Failure>>,
    connections: AtomicUsize,
}

impl Cluster {
    /// Asks the name servers at these addresses, `host:port`.
    pub(super) fn new(name_servers: Vec<String>) -> Self {
        Self {
            name_servers,
            answering: AtomicUsize::new(0),
            is_answered: AtomicBool::new(false),
            topics: Cache::new(TOPICS_MAX),
            groups: Cache::new(GROUPS_MAX),
            failures: Mutex::default(),
            connections: AtomicUsize::new(0),
        }
    }

    pub(super) async fn topic(
        &self,
        remoting: &Client,
        name: &str,
        credentials: Option<&Credentials>,
    ) -> Result<Arc<TopicRoute>, Refused> {
        let known = match self.topics.find(name, Instant::now()) {
            Found::Fresh(route) => return Ok(route),
            Found::Stale(route) => Some(route),
            Found::Missing => None,
        };
        match self.ask_topic(remoting, name, credentials).await {
            Ok(route) => {
                // Another master may be known a moment later.
                let is_whole = route.parts.iter().all(|part| part.has_master);
                Ok(self.topics.put(name, route, !is_whole, Instant::now()))
            }
            Err(refused) if refused.code == code::TOPIC_NOT_FOUND => {
                self.topics.remove(name);
                Err(refused)
            }
            Err(refused) => known.ok_or(refused),
        }
    }

    pub(super) async fn group(
        &self,
        remoting: &Client,
        name: &str,
        topic: &TopicRoute,
        credentials: Option<&Credentials>,
    ) -> Result<Option<GroupRules>, Refused> {
        let known = match self.groups.find(name, Instant::now()) {
            Found::Fresh(group) => return Ok(Some(GroupRules::clone(&group))),
            Found::Stale(group) => Some(group),
            Found::Missing => None,
        };
        let call = || question(GET_SUBSCRIPTIONGROUP_CONFIG, credentials).with("group", name);
        let group = match self.ask_any(remoting, &topic.parts, call).await {
            Ok(answer) => match answer.code {
                response::SUCCESS => group_of(&answer.body),
                response::SUBSCRIPTION_GROUP_NOT_EXIST => {
                    self.groups.remove(name);
                    return Ok(None);
                }
                // Releases before 5 do not know the question.
                _ => GroupRules::default(),
            },
            Err(refused) => {
                return known.map(|group| Some(GroupRules::clone(&group))).ok_or(refused);
            }
        };
        Ok(Some(GroupRules::clone(&self.groups.put(name, group, false, Instant::now()))))
    }

    async fn ask_topic(
        &self,
        remoting: &Client,
        name: &str,
        credentials: Option<&Credentials>,
    ) -> Result<TopicRoute, Refused> {
        let answer = self.ask_name_servers(remoting, name, credentials).await?;
        if answer.code == response::TOPIC_NOT_EXIST {
            return Err(no_route(name));
        }
        let parts = parts_of(&answer.success(false)?.body)?;
        if parts.is_empty() {
            return Err(no_route(name));
        }
        if is_of_group(name) {
            return Ok(TopicRoute { message_type: None, parts });
        }
        let call = || question(GET_TOPIC_CONFIG, credentials).with("topic", name);
        let answer = self.ask_any(remoting, &parts, call).await?;
        let is_told = answer.code == response::SUCCESS;
        let message_type = if is_told { message_type_of(&answer.body) } else { None };
        Ok(TopicRoute { message_type, parts })
    }

    async fn ask_name_servers(
        &self,
        remoting: &Client,
        topic: &str,
        credentials: Option<&Credentials>,
    ) -> Result<Answer, Refused> {
        let first = self.answering.load(Ordering::Relaxed);
        let mut failed = Refused::new(code::INTERNAL_SERVER_ERROR, "no name server is configured");
        for turn in 0..self.name_servers.len() {
            let index = (first + turn) % self.name_servers.len();
            let Some(address) = self.name_servers.get(index) else { continue };
            let call = question(GET_ROUTEINFO_BY_TOPIC, credentials)
                .with("topic", topic)
                .with("acceptStandardJsonOnly", "true");
            match call.ask(&remoting.peer(address)).await {
                Ok(answer) => {
                    self.answering.store(index, Ordering::Relaxed);
                    self.is_answered.store(true, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(refused) => failed = refused,
            }
        }
        self.is_answered.store(false, Ordering::Relaxed);
        Err(failed)
    }

    /// Notes whether a name server answers, for the case that no client asks for a route.
    pub(super) async fn probe(&self, remoting: &Client) {
        drop(self.ask_name_servers(remoting, AUTO_CREATE_TOPIC, None).await);
    }

    /// Returns whether a name server has answered the last question.
    pub(super) fn has_name_server(&self) -> bool {
        self.is_answered.load(Ordering::Relaxed)
    }

    /// Asks the brokers of a topic until one answers, those that failed last.
    async fn ask_any<'a>(
        &self,
        remoting: &Client,
        parts: &[TopicPart],
        call: impl Fn() -> BrokerCall<'a>,
    ) -> Result<Answer, Refused> {
        let mut brokers: Vec<&str> = parts.iter().map(|part| part.broker.key()).collect();
        brokers.sort_by_key(|address| self.has_failed(address));
        let mut failed = Refused::new(code::FORBIDDEN, "no broker has the topic");
        for address in brokers.into_iter().take(ASKED_MAX) {
            match call().ask(&remoting.peer(address)).await {
                Ok(answer) => return Ok(answer),
                Err(refused) => {
                    self.failed(address, Instant::now());
                    failed = refused;
                }
            }
        }
        Err(failed)
    }

    pub(super) fn has_failed(&self, address: &str) -> bool {
        self.failures.lock().get(address).is_some_and(|failure| failure.at.elapsed() < AVOIDED)
    }

    /// Notes that a broker does not answer, or refuses as a slave.
    pub(super) fn failed(&self, address: &str, now: Instant) {
        let mut failures = self.failures.lock();
        failures.retain(|_, failure| now.saturating_duration_since(failure.at) < AVOIDED);
        if let Some(failure) = failures.get_mut(address) {
            failure.at = now;
            if now.saturating_duration_since(failure.outdated) < ASKED_AGAIN {
                return;
            }
            failure.outdated = now;
        } else {
            failures.insert(address.into(), Failure { at: now, outdated: now });
        }
        drop(failures);
        self.topics.outdate();
    }

    /// Counts a connection to a broker, unless there are too many.
    pub(super) fn connect(&self) -> Result<(), Refused> {
        let more = |count| (count < CONNECTIONS_MAX).then_some(count + 1);
        let counted = self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let too_many = |_| Refused::new(code::TOO_MANY_REQUESTS, "too many connections to brokers");
        counted.map(drop).map_err(too_many)
    }

    pub(super) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Begins a question of the proxy itself.
fn question(code: i32, credentials: Option<&Credentials>) -> BrokerCall<'_> {
    BrokerCall::new(code, language::PYTHON, credentials).within(ANSWER)
}

/// Reads the route of a topic; it is written where its brokers have a master.
fn parts_of(body: &[u8]) -> Result<Vec<TopicPart>, Refused> {
    let unreadable =
        || Refused::new(code::INTERNAL_SERVER_ERROR, "the route from the name server is unreadable");
    let route: Value = serde_json::from_slice(body).map_err(|_| unreadable())?;
    let list = |name: &str| route.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text = |entry: &Value| entry.get("brokerName").and_then(Value::as_str).map(str::to_owned);
    let mut parts = Vec::new();
    for queues in list("queueDatas") {
        let name = text(queues).ok_or_else(unreadable)?;
        let broker = list("brokerDatas").iter().find(|broker| text(broker).as_ref() == Some(&name));
        let addresses = broker.and_then(|broker| broker.get("brokerAddrs")).and_then(Value::as_object);
        let by_id = addresses
            .into_iter()
            .flatten()
            .filter_map(|(id, address)| id.parse::<u64>().ok().zip(address.as_str()));
        let Some((id, address)) = by_id.min_by_key(|(id, _)| *id) else { continue };
        let number = |name: &str| {
            let count = queues.get(name).and_then(Value::as_u64);
            count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0).min(QUEUES_MAX)
        };
        let bits = u8::try_from(number("perm")).unwrap_or(0);
        parts.push(TopicPart {
            broker: BrokerPlace { name: name.into(), address: Some(address.into()) },
            read_queues: number("readQueueNums"),
            write_queues: number("writeQueueNums"),
            is_readable: bits & PERMISSION_READ != 0,
            is_writable: bits & PERMISSION_WRITE != 0,
            has_master: id == 0,
        });
    }
    parts.sort_by(|one, other| one.broker.name.cmp(&other.broker.name));
    Ok(parts)
}

/// Reads the declared type of a topic from its settings; `None` if it declares none, or takes all types.
fn message_type_of(body: &[u8]) -> Option<MessageType> {
    let topic: Value = serde_json::from_slice(body).ok()?;
    MessageType::named(topic.get("attributes")?.get("message.type")?.as_str()?)
}

fn group_of(body: &[u8]) -> GroupRules {
    let group: Value = serde_json::from_slice(body).unwrap_or_default();
    let usual = GroupRules::default();
    let attribute = |name: &str| group.get("attributes")?.get(name)?.as_str();
    let lite_quota = attribute("lite.sub.client.quota").and_then(|quota| quota.parse().ok());
    let retry_max = group.get("retryMaxTimes").and_then(Value::as_i64);
    GroupRules {
        retry_max: retry_max.and_then(|count| i32::try_from(count).ok()).unwrap_or(usual.retry_max),
        is_ordered: group.get("consumeMessageOrderly").and_then(Value::as_bool).unwrap_or(usual.is_ordered),
        lite_parent: attribute("lite.bind.topic").map(Box::from),
        lite_quota: lite_quota.unwrap_or(usual.lite_quota),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_has_masters_for_writing_and_others_for_reading() {
        let body = r#"{
            "brokerDatas": [
                {"brokerName": "b", "brokerAddrs": {"0": "h:2", "1": "h:3"}},
                {"brokerName": "a", "brokerAddrs": {"2": "h:4", "1": "h:1"}},
                {"brokerName": "gone", "brokerAddrs": {}}
            ],
            "queueDatas": [
                {"brokerName": "b", "readQueueNums": 4, "writeQueueNums": 2, "perm": 6},
                {"brokerName": "a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6},
                {"brokerName": "gone", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
            ]
        }"#;
        let parts = parts_of(body.as_bytes()).expect("a route");
        let seen: Vec<_> =
            parts.iter().map(|part| (part.broker.key(), part.reads(), part.writes())).collect();
        assert_eq!(seen, [("h:1", 1, 0), ("h:2", 4, 2)]);
        let permitted: Vec<_> = parts.iter().map(TopicPart::permitted_writes).collect();
        assert_eq!(permitted, [1, 2]);
        for broken in ["", "[", r#"{"queueDatas": [{}]}"#] {
            assert!(parts_of(broken.as_bytes()).is_err(), "{broken}");
        }
    }

    #[test]
    fn types_and_groups_are_read_from_settings_of_brokers() {
        let typed =
            |kind: &str| format!(r#"{{"topicName": "t", "attributes": {{"message.type": "{kind}"}}}}"#);
        assert_eq!(message_type_of(typed("FIFO").as_bytes()), Some(MessageType::Fifo));
        assert_eq!(message_type_of(typed("PRIORITY").as_bytes()), Some(MessageType::Priority));
        assert_eq!(message_type_of(typed("MIXED").as_bytes()), None);
        assert_eq!(message_type_of(b"{}"), None);
        let group = group_of(br#"{"retryMaxTimes": 3, "consumeMessageOrderly": true}"#);
        assert_eq!(group, GroupRules { retry_max: 3, is_ordered: true, ..GroupRules::default() });
        let lite = br#"{"attributes": {"lite.bind.topic": "sessions", "lite.sub.client.quota": "7"}}"#;
        let lite = group_of(lite);
        assert_eq!((lite.lite_parent.as_deref(), lite.lite_quota), (Some("sessions"), 7));
        assert_eq!(group_of(b"?"), GroupRules::default());
    }

    #[test]
    fn a_failing_broker_outdates_every_route_once_a_second() {
        let cluster = Cluster::new(Vec::new());
        let route = TopicRoute { message_type: None, parts: Vec::new() };
        let begin = Instant::now();
        cluster.topics.put("t", route.clone(), false, begin);
        cluster.failed("h:1", begin);
        assert!(cluster.has_failed("h:1") && !cluster.has_failed("h:2"));
        assert!(matches!(cluster.topics.find("t", begin), Found::Stale(_)));
        // The name server still knew the old master.
        cluster.topics.put("t", route.clone(), false, begin);
        let soon = begin + ASKED_AGAIN / 2;
        cluster.failed("h:1", soon);
        assert!(matches!(cluster.topics.find("t", soon), Found::Fresh(_)));
        let later = begin + ASKED_AGAIN;
        cluster.failed("h:1", later);
        assert!(matches!(cluster.topics.find("t", later), Found::Stale(_)));
        cluster.topics.put("t", route, false, later);
        cluster.failed("h:2", later);
        assert!(matches!(cluster.topics.find("t", later), Found::Stale(_)), "another broker");
    }

    #[test]
    fn connections_to_brokers_are_bounded() {
        let cluster = Cluster::new(Vec::new());
        cluster.connections.store(CONNECTIONS_MAX - 1, Ordering::Relaxed);
        assert!(cluster.connect().is_ok() && cluster.connect().is_err());
        cluster.disconnected();
        assert!(cluster.connect().is_ok());
    }
}
