//! Telemetry: settings of clients, their registration at the broker, and the stream for commands.
//!
//! A producer registers under a group of the name of each topic, a consumer under its group. Both are ordinary heartbeats
//! to each broker of its topics, whose tables show the client and whose checks of transactions find it.

use std::sync::Arc;
use std::time::Duration as Span;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Streaming;

use super::acks::{self, RETURNED_MS};
use super::api::{self, Duration, HeartbeatRequest, NotifyClientTerminationRequest, StatusResponse};
use super::api_telemetry::{
    Command, CustomizedBackoff, ExponentialBackoff, LANGUAGE_NODE_JS, Metric, Publishing, RetryPolicy, Role,
    Settings, Strategy, Subscription, TelemetryCommand, client_type,
};
use super::broker_call::TIMEOUT;
use super::caller::Caller;
use super::client::{CommandPart, CommandSender, ConnectedClient};
use super::names;
use super::shared::{Asking, Proxy};
use super::status::{Refused, code, ok, status};
use super::topics::GroupRules;
use crate::message::lite;
use crate::remoting::codes::request;
use crate::requests::credentials::Credentials;

/// Commands that wait for a client to read.
const COMMANDS_MAX: usize = 64;
/// Messages of one answer to a receive, for push consumers.
const BATCH: i32 = 32;
/// Topics of one client.
const TOPICS_MAX: usize = 1_000;
/// Time to return the messages of a client that has left.
const DISMISSAL: Span = Span::from_secs(3);
/// The time of each of several brokers to register a client.
const REGISTRATION: Span = Span::from_secs(2);
const PRODUCER_ATTEMPTS: i32 = 3;
/// Delays before a message is delivered again, in seconds, the default of Apache's groups.
pub(super) const BACKOFF_SECONDS: [i64; 18] =
    [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200];

impl Proxy {
    /// Opens the stream of a client. Its head is sent immediately: some clients wait for that alone.
    pub(super) fn telemetry(
        self: &Arc<Self>,
        caller: Result<Caller, Refused>,
        commands: Streaming<TelemetryCommand>,
    ) -> impl Stream<Item = Result<TelemetryCommand, tonic::Status>> + use<> {
        let (sender, receiver) = mpsc::channel(COMMANDS_MAX);
        match caller {
            Ok(caller) => {
                let proxy = Arc::clone(self);
                tokio::spawn(async move { proxy.follow(&caller, commands, sender).await });
            }
            Err(refused) => {
                let command = TelemetryCommand { status: Some(refused.status()), command: None };
                drop(sender.try_send(Box::new(Ok(command))));
            }
        }
        ReceiverStream::new(receiver).map(|part: CommandPart| *part)
    }

    /// Answers the client's settings until one side ends the stream.
    async fn follow(
        self: Arc<Self>,
        caller: &Caller,
        mut commands: Streaming<TelemetryCommand>,
        sender: CommandSender,
    ) {
        let id = self.next();
        let mut known: Option<Arc<ConnectedClient>> = None;
        loop {
            let command = tokio::select! {
                command = commands.message() => command,
                () = sender.closed() => break,
            };
            let Ok(Some(command)) = command else { break };
            // Other commands answer requests that this server does not make.
            let Some(Command::Settings(settings)) = command.command else { continue };
            let reply = match self.settle(caller, settings, id, &sender).await {
                Ok((client, settings)) => {
                    known = Some(client);
                    Ok(TelemetryCommand { status: Some(ok()), command: Some(Command::Settings(settings)) })
                }
                Err(refused) if refused.code == code::UNAUTHORIZED => {
                    let command = TelemetryCommand { status: Some(refused.status()), command: None };
                    drop(sender.send(Box::new(Ok(command))).await);
                    break;
                }
                Err(refused) if refused.code < code::INTERNAL_SERVER_ERROR => {
                    Err(tonic::Status::invalid_argument(refused.to_string()))
                }
                Err(refused) => Err(tonic::Status::internal(refused.to_string())),
            };
            let is_over = reply.is_err();
            if sender.send(Box::new(reply)).await.is_err() || is_over {
                break;
            }
        }
        if let Some(client) = known {
            client.remove_stream(id);
        }
    }

    /// Registers a client by its settings; returns them as the client is to use them.
    async fn settle(
        &self,
        caller: &Caller,
        settings: Settings,
        stream: u64,
        sender: &CommandSender,
    ) -> Result<(Arc<ConnectedClient>, Settings), Refused> {
        check(&settings)?;
        let client = self.client(caller)?;
        client.set_settings(settings.clone(), self.now_ms());
        let asking = Asking::of(self, caller)?;
        self.register(&asking, &settings).await?;
        if !client.add_stream(stream, sender.clone()) {
            return Err(Refused::new(code::TOO_MANY_REQUESTS, "too many telemetry streams of one client"));
        }
        let settings = self.completed(settings, asking.credentials.as_ref()).await?;
        Ok((client, settings))
    }

    /// Adds what the server decides to the settings of a client.
    async fn completed(
        &self,
        mut settings: Settings,
        credentials: Option<&Credentials>,
    ) -> Result<Settings, Refused> {
        let is_node = settings.user_agent.as_ref().is_some_and(|agent| agent.language == LANGUAGE_NODE_JS);
        settings.metric = Some(Metric { on: false });
        match &mut settings.role {
            Some(Role::Publishing(publishing)) => {
                let bytes_max = self.options.message_bytes_max;
                publishing.max_body_size = i32::try_from(bytes_max).unwrap_or(i32::MAX);
                publishing.validate_message_type = true;
                settings.backoff_policy = Some(RetryPolicy {
                    max_attempts: PRODUCER_ATTEMPTS,
                    strategy: Some(exponential(10, 1_000)),
                });
            }
            Some(Role::Subscription(subscription)) => {
                let name = names::group(subscription.group.as_ref())?;
                let topics = subscription.subscriptions.iter();
                let mut topics = topics.filter_map(|entry| entry.topic.as_ref());
                let topic = topics.next().map(|topic| topic.name.trim());
                let group = match self.group(name, topic, credentials).await {
                    // The topic may be created later.
                    Err(refused) if refused.code == code::TOPIC_NOT_FOUND => Some(GroupRules::default()),
                    found => found?,
                };
                let group = group.ok_or_else(|| {
                    Refused::new(code::ILLEGAL_CONSUMER_GROUP, format!("group not found: {name}"))
                })?;
                check_lite(settings.client_type, name, &group, topic)?;
                if group.lite_parent.is_some() {
                    subscription.lite_subscription_quota = Some(group.lite_quota);
                    subscription.max_lite_topic_size = Some(lite::NAME_BYTES_MAX as i32);
                }
                subscription.fifo = Some(group.is_ordered);
                subscription.receive_batch_size = Some(BATCH);
                subscription.long_polling_timeout = Some(Duration::of_ms(self.options.poll_ms_max));
                // The Node client ignores a list, and the Python client anything else.
                let strategy = if is_node {
                    exponential(5_000, 7_200_000)
                } else {
                    let next = BACKOFF_SECONDS.map(|seconds| Duration { seconds, nanos: 0 }).to_vec();
                    Strategy::Customized(CustomizedBackoff { next })
                };
                let max_attempts = group.retry_max.saturating_add(1);
                settings.backoff_policy = Some(RetryPolicy { max_attempts, strategy: Some(strategy) });
            }
            None => {}
        }
        Ok(settings)
    }

    pub(super) async fn heartbeat(&self, caller: &Caller, asked: &HeartbeatRequest) -> StatusResponse {
        let beaten = async {
            let asking = Asking::of(self, caller)?;
            if let Some(settings) = asking.client.settings() {
                return self.register(&asking, &settings).await;
            }
            if asked.client_type == client_type::PRODUCER || asked.group.is_none() {
                let text = "cannot find client settings for this client";
                return Err(Refused::new(code::UNRECOGNIZED_CLIENT_TYPE, text));
            }
            // The settings come later, perhaps minutes after a restart of this server.
            let subscription = Subscription { group: asked.group.clone(), ..Subscription::default() };
            let settings = Settings {
                client_type: Some(asked.client_type),
                role: Some(Role::Subscription(subscription)),
                ..Settings::default()
            };
            check(&settings)?;
            self.register(&asking, &settings).await
        };
        StatusResponse { status: Some(status(&beaten.await)) }
    }

    pub(super) async fn notify_termination(
        &self,
        caller: &Caller,
        _asked: &NotifyClientTerminationRequest,
    ) -> StatusResponse {
        let ended = match self.forget(caller) {
            Some(client) => {
                let has_settings = client.settings().is_some();
                self.dismiss(&client).await;
                if has_settings { Ok(()) } else { Err(()) }
            }
            None => Err(()),
        };
        let ended = ended.map_err(|()| {
            let text = "cannot find client settings for this client";
            Refused::new(code::UNRECOGNIZED_CLIENT_TYPE, text)
        });
        StatusResponse { status: Some(status(&ended)) }
    }

    /// Registers a client at the brokers of its topics. A later heartbeat repeats it where a broker did not answer.
    async fn register(&self, asking: &Asking<'_>, settings: &Settings) -> Result<(), Refused> {
        let (version, release) = (asking.client.settings_ms(), asking.client.release);
        let Some(body) = heartbeat_body(&asking.client.id, settings, version) else { return Ok(()) };
        let body = body.to_string();
        let brokers = self.brokers_of(topics_of(settings), asking.credentials.as_ref()).await?;
        // Some clients wait three seconds for their settings, so one of several brokers must not take as long.
        let wait = if brokers.len() > 1 { REGISTRATION } else { TIMEOUT };
        let call = || asking.call(request::HEART_BEAT).version(release).body(body.as_bytes()).within(wait);
        let asked: Vec<_> = brokers.iter().map(|broker| asking.ask(broker, call())).collect();
        let (mut is_registered, mut failed) = (false, None);
        for answer in asked {
            match answer.await.and_then(|answer| answer.success(asking.is_guarded)) {
                Ok(_) => is_registered = true,
                Err(refused) => failed = Some(refused),
            }
        }
        failed.filter(|_| !is_registered).map_or(Ok(()), Err)
    }

    /// Returns the messages of a client that has left, and ends its connections, which unregisters it.
    pub(super) async fn dismiss(&self, client: &Arc<ConnectedClient>) {
        let returned = async {
            for (key, renewal) in client.take_renewals() {
                let (group, topic) = (&key.group, &renewal.topic);
                // What fails here becomes visible when its time is over.
                drop(acks::change_for(self, client, group, topic, &renewal.handle, RETURNED_MS).await);
            }
            self.leave_lite(client).await;
        };
        drop(timeout(DISMISSAL, returned).await);
        client.close();
    }
}

fn exponential(initial_ms: i64, max_ms: i64) -> Strategy {
    Strategy::Exponential(ExponentialBackoff {
        initial: Some(Duration::of_ms(initial_ms)),
        max: Some(Duration::of_ms(max_ms)),
        multiplier: 2.0,
    })
}

/// Refuses a client of lite topics in a group of other topics, and the other way round.
fn check_lite(kind: Option<i32>, name: &str, group: &GroupRules, topic: Option<&str>) -> Result<(), Refused> {
    match (client_type::is_lite(kind), group.lite_parent.as_deref()) {
        (false, None) => Ok(()),
        (true, Some(parent)) if topic == Some(parent) => Ok(()),
        (true, Some(parent)) => {
            let text =
                format!("group {name} is bound to topic {parent}, not to {}", topic.unwrap_or_default());
            Err(Refused::new(code::ILLEGAL_TOPIC, text))
        }
        (true, None) => {
            let text = format!("group {name} consumes no lite topics: it has no lite.bind.topic");
            Err(Refused::new(code::ILLEGAL_CONSUMER_GROUP, text))
        }
        (false, Some(parent)) => {
            let text = format!("group {name} consumes lite topics of {parent}, with lite consumers only");
            Err(Refused::new(code::ILLEGAL_CONSUMER_GROUP, text))
        }
    }
}

/// Refuses settings that contradict themselves, or of which nothing can be registered.
fn check(settings: &Settings) -> Result<(), Refused> {
    let bad = |text: String| Refused::new(code::BAD_REQUEST, text);
    let too_many = || bad(format!("more than {TOPICS_MAX} topics"));
    names::client_properties(&settings.client_properties)?;
    let kind = settings.client_type.unwrap_or_default();
    match &settings.role {
        Some(Role::Publishing(Publishing { topics, .. })) => {
            if !matches!(kind, 0 | client_type::PRODUCER) {
                return Err(bad(format!("client type {kind} cannot publish")));
            }
            if topics.len() > TOPICS_MAX {
                return Err(too_many());
            }
            topics.iter().try_for_each(|topic| names::topic(Some(topic)).map(drop))
        }
        Some(Role::Subscription(Subscription { group, subscriptions, .. })) => {
            if kind == client_type::PRODUCER {
                return Err(bad("a producer cannot subscribe".to_owned()));
            }
            names::group(group.as_ref())?;
            if subscriptions.len() > TOPICS_MAX {
                return Err(too_many());
            }
            subscriptions.iter().try_for_each(|entry| names::topic(entry.topic.as_ref()).map(drop))
        }
        None => Err(bad("the settings have neither publishing nor subscription data".to_owned())),
    }
}

/// Returns the topics that a client sends to or has subscribed to.
fn topics_of(settings: &Settings) -> impl Iterator<Item = &str> + Send {
    let (published, subscribed) = match &settings.role {
        Some(Role::Publishing(publishing)) => (&*publishing.topics, &[][..]),
        Some(Role::Subscription(subscription)) => (&[][..], &*subscription.subscriptions),
        None => (&[][..], &[][..]),
    };
    let subscribed = subscribed.iter().filter_map(|entry| entry.topic.as_ref());
    published.iter().chain(subscribed).map(|topic| topic.name.trim())
}

/// Returns a heartbeat in remoting's form; `None` for a producer without topics, which has nothing to register.
fn heartbeat_body(client_id: &str, settings: &Settings, version: i64) -> Option<Value> {
    match settings.role.as_ref()? {
        Role::Publishing(publishing) => {
            let groups: Vec<Value> =
                publishing.topics.iter().map(|topic| json!({ "groupName": topic.name.trim() })).collect();
            (!groups.is_empty())
                .then(|| json!({ "clientID": client_id, "producerDataSet": groups, "consumerDataSet": [] }))
        }
        Role::Subscription(subscription) => {
            let entries: Vec<Value> = subscription
                .subscriptions
                .iter()
                .map(|entry| {
                    let expression = entry.expression.as_ref();
                    let is_sql = expression.is_some_and(|expression| expression.kind == api::FILTER_SQL);
                    let text = expression.map_or("", |expression| expression.expression.trim());
                    json!({
                        "topic": entry.topic.as_ref().map_or("", |topic| topic.name.trim()),
                        "subString": if text.is_empty() { "*" } else { text },
                        "expressionType": if is_sql { "SQL92" } else { "TAG" },
                        "subVersion": version,
                    })
                })
                .collect();
            let kind = settings.client_type.unwrap_or_default();
            let is_push = matches!(kind, client_type::PUSH_CONSUMER | client_type::LITE_PUSH_CONSUMER);
            let group = json!({
                "groupName": subscription.group.as_ref().map_or("", |group| group.name.trim()),
                "consumeType": if is_push { "CONSUME_PASSIVELY" } else { "CONSUME_ACTIVELY" },
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": entries,
                "unitMode": false,
            });
            Some(json!({ "clientID": client_id, "producerDataSet": [], "consumerDataSet": [group] }))
        }
    }
}
