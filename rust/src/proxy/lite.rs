//! Lite topics: SyncLiteSubscription, and the messages of a pop of lite topics.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::api::StatusResponse;
use super::api_lite::{OffsetChoice, OffsetOption, SyncLiteSubscriptionRequest, action};
use super::api_telemetry::{Command, LiteTopicName, Role, TelemetryCommand, client_type};
use super::broker_call::Answer;
use super::caller::Caller;
use super::client::ConnectedClient;
use super::handle::ReceiptHandle;
use super::names;
use super::shared::{Asking, Proxy};
use super::status::{Refused, code, status};
use crate::message::properties::{self, name};
use crate::message::record::{RecordView, records};
use crate::message::{lite, multi_dispatch};
use crate::remoting::header::Header;
use crate::requests::pop::HandleText;

/// Changes of subscriptions at a broker.
const LITE_SUBSCRIPTION_CTL: i32 = 200_071;
/// Messages of a lite client that it has not acknowledged; it gets no others until then.
pub(super) const UNACKED_MAX: usize = 100;
/// Lite topics of one request.
const TOPICS_MAX: usize = 10_000;
/// The time of each broker to drop the subscriptions of a client that has left.
const REMOVAL: Duration = Duration::from_secs(2);

impl Proxy {
    pub(super) async fn sync_lite_subscription(
        &self,
        caller: &Caller,
        asked: &SyncLiteSubscriptionRequest,
    ) -> StatusResponse {
        StatusResponse { status: Some(status(&self.sync_lite(caller, asked).await)) }
    }

    async fn sync_lite(&self, caller: &Caller, asked: &SyncLiteSubscriptionRequest) -> Result<(), Refused> {
        let (topic, group) = (names::topic(asked.topic.as_ref())?, names::group(asked.group.as_ref())?);
        let lite_topics = &asked.lite_topic_set;
        if lite_topics.len() > TOPICS_MAX {
            let text = format!("a request of {} lite topics; the limit is {TOPICS_MAX}", lite_topics.len());
            return Err(Refused::new(code::BAD_REQUEST, text));
        }
        if asked.action == action::PARTIAL_ADD {
            lite_topics.iter().try_for_each(|lite_topic| names::lite_topic(lite_topic))?;
        }
        let asking = Asking::of(self, caller)?;
        let credentials = asking.credentials.as_ref();
        let rules = self.group(group, Some(topic), credentials).await?;
        let rules = rules
            .ok_or_else(|| Refused::new(code::ILLEGAL_CONSUMER_GROUP, format!("group not found: {group}")))?;
        match rules.lite_parent.as_deref() {
            Some(parent) if parent == topic => {}
            Some(parent) => {
                let text = format!("group {group} is bound to topic {parent}, not to {topic}");
                return Err(Refused::new(code::ILLEGAL_TOPIC, text));
            }
            None => {
                let text = format!("group {group} consumes no lite topics: it has no lite.bind.topic");
                return Err(Refused::new(code::ILLEGAL_CONSUMER_GROUP, text));
            }
        }
        if lite_topics.is_empty() && matches!(asked.action, action::PARTIAL_ADD | action::PARTIAL_REMOVE) {
            return Ok(());
        }
        let body = body_of(&asking.client.id, group, topic, asked)?;
        self.change_lite(&asking, topic, &body).await
    }

    /// Sends a change to each broker that may have some of the lite topics; the first refusal is the result.
    async fn change_lite(&self, asking: &Asking<'_>, topic: &str, body: &str) -> Result<(), Refused> {
        let brokers = self.brokers_of(std::iter::once(topic), asking.credentials.as_ref()).await?;
        let call = || asking.call(LITE_SUBSCRIPTION_CTL).body(body.as_bytes()).within(REMOVAL);
        let asked: Vec<_> = brokers.iter().map(|broker| asking.ask(broker, call())).collect();
        let mut changed = Ok(());
        for answer in asked {
            let answer = answer.await.and_then(|answer| answer.success(asking.is_guarded)).map(drop);
            changed = changed.and(answer);
        }
        changed
    }

    /// Withdraws the subscriptions of a client that has left.
    pub(super) async fn leave_lite(&self, client: &Arc<ConnectedClient>) {
        let Some(settings) = client.settings() else { return };
        let Some(Role::Subscription(subscription)) = &settings.role else { return };
        if !client_type::is_lite(settings.client_type) {
            return;
        }
        let name = |resource: Option<&super::api::Resource>| {
            resource.map_or("", |resource| resource.name.trim()).to_owned()
        };
        let (group, topics) = (name(subscription.group.as_ref()), &subscription.subscriptions);
        for topic in topics.iter().map(|entry| name(entry.topic.as_ref())) {
            let left = SyncLiteSubscriptionRequest { action: action::COMPLETE_REMOVE, ..Default::default() };
            let Ok(body) = body_of(&client.id, &group, &topic, &left) else { continue };
            // What fails here expires at the broker.
            drop(self.change_lite(&Asking::for_client(self, client), &topic, &body).await);
        }
    }

    /// Passes on that another client of an exclusive group has a lite topic of this one.
    pub(super) fn lost_lite_topic(client: &ConnectedClient, header: &Header) {
        let lite_topic = header.get("liteTopic").unwrap_or_default().to_owned();
        let command = Some(Command::NotifyUnsubscribeLite(LiteTopicName { lite_topic }));
        // A client without a stream learns of it with its next complete set.
        client.command(TelemetryCommand { status: None, command });
    }
}

/// Returns a change of subscriptions in remoting's form.
fn body_of(
    client_id: &str,
    group: &str,
    topic: &str,
    asked: &SyncLiteSubscriptionRequest,
) -> Result<String, Refused> {
    let name = match asked.action {
        action::PARTIAL_ADD => "PARTIAL_ADD",
        action::PARTIAL_REMOVE => "PARTIAL_REMOVE",
        action::COMPLETE_ADD => "COMPLETE_ADD",
        action::COMPLETE_REMOVE => "COMPLETE_REMOVE",
        other => return Err(Refused::new(code::BAD_REQUEST, format!("unknown action {other}"))),
    };
    let option = asked.offset_option.and_then(|OffsetOption { choice }| choice);
    let option = option.map(|choice| match choice {
        OffsetChoice::Policy(policy) => json!({ "type": "POLICY", "value": policy }),
        OffsetChoice::Offset(offset) => json!({ "type": "OFFSET", "value": offset }),
        OffsetChoice::TailN(count) => json!({ "type": "TAIL_N", "value": count }),
        OffsetChoice::Timestamp(at) => json!({ "type": "TIMESTAMP", "value": at }),
    });
    let change = json!({
        "action": name,
        "clientId": client_id,
        "group": group,
        "topic": topic,
        "liteTopicSet": asked.lite_topic_set,
        "offsetOption": option,
        "version": asked.version.unwrap_or_default(),
    });
    Ok(json!({ "subscriptionSet": [change] }).to_string())
}

/// A message of a lite topic as a broker gave it.
pub(super) struct PoppedLite<'a> {
    pub(super) record: RecordView<'a>,
    pub(super) handle: ReceiptHandle,
    /// Earlier deliveries.
    pub(super) count: i32,
}

/// Reads the messages of an answer to a pop of lite topics. Their offsets are those in the queues of the lite topics.
pub(super) fn popped<'a>(
    answer: &'a Answer,
    broker: &str,
    parent: &str,
) -> Result<VecDeque<PoppedLite<'a>>, Refused> {
    let unreadable = || Refused::new(code::INTERNAL_SERVER_ERROR, "the broker's answer is unreadable");
    let mut counts = answer.get("orderCountInfo").split(';');
    let mut found = VecDeque::new();
    for record in records(&answer.body) {
        let record = record.map_err(|_| unreadable())?;
        let lite_topic = properties::get(record.properties(), name::LITE_TOPIC).unwrap_or_default();
        let lite_topic = String::from_utf8_lossy(lite_topic).into_owned();
        let queue = lite::queue_of(parent, &lite_topic).ok_or_else(unreadable)?;
        let offset = multi_dispatch::place(record.topic(), record.properties(), &queue);
        let offset = offset.ok_or_else(unreadable)?.0;
        let handle = HandleText {
            start: &offset,
            pop_ms: &answer.get("popTime"),
            invisible_ms: &answer.get("invisibleTime"),
            revive_queue: &answer.get("reviveQid"),
            mark: &0,
            broker,
            queue: &0,
            offset: &offset,
        };
        let text = format!("{handle} {}", record.physical_offset().0);
        let handle = ReceiptHandle { lite_topic, ..ReceiptHandle::parse(&text)? };
        let count = counts.next().and_then(|row| row.rsplit_once(' '));
        let count = count.and_then(|(_, count)| count.parse().ok()).unwrap_or(0);
        found.push_back(PoppedLite { record, handle, count });
    }
    Ok(found)
}
