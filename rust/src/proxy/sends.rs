//! Sends: SendMessage and RecallMessage.

use std::sync::Arc;

use super::api::{
    RecallMessageRequest, RecallMessageResponse, SendMessageRequest, SendMessageResponse, SendResultEntry,
    SystemProperties, TopicMessage, message_type,
};
use super::broker_call::Answer;
use super::caller::Caller;
use super::halves::HalfPlace;
use super::shared::{Asking, Proxy, shown};
use super::status::{Refused, code, ok, overall, status};
use super::topics::{BrokerPlace, TopicRoute};
use super::{messages, names};
use crate::message::MessageType;
use crate::message::id::OffsetMessageId;
use crate::message::lite;
use crate::message::recall_handle;
use crate::message::topic::is_of_group;
use crate::remoting::codes::{request, response};
use crate::requests::send::{SendHeader, SendOrigin};

/// Messages of one request.
const MESSAGES_MAX: usize = 1_024;

impl Proxy {
    pub(super) async fn send_message(
        &self,
        caller: &Caller,
        asked: &SendMessageRequest,
    ) -> SendMessageResponse {
        match self.send(caller, asked).await {
            Ok(entries) => {
                let statuses = entries.iter().filter_map(|entry| entry.status.as_ref());
                let status = overall(statuses, "send status is empty");
                SendMessageResponse { status: Some(status), entries }
            }
            Err(refused) => SendMessageResponse { status: Some(refused.status()), entries: Vec::new() },
        }
    }

    async fn send(
        &self,
        caller: &Caller,
        asked: &SendMessageRequest,
    ) -> Result<Vec<SendResultEntry>, Refused> {
        let corrupted = |text: &str| Refused::new(code::MESSAGE_CORRUPTED, text);
        let first = asked.messages.first().ok_or_else(|| corrupted("no message to send"))?;
        if asked.messages.iter().any(|message| message.topic != first.topic) {
            return Err(corrupted("the messages of one request must have one topic"));
        }
        if asked.messages.len() > MESSAGES_MAX {
            let text = format!("a request of {} messages; the limit is {MESSAGES_MAX}", asked.messages.len());
            return Err(Refused::new(code::BAD_REQUEST, text));
        }
        let name = names::topic(first.topic.as_ref())?;
        let (bytes_max, now_ms) = (self.options.message_bytes_max, self.now_ms());
        for message in &asked.messages {
            names::message(message, bytes_max, now_ms)?;
        }
        let topic = self.topic(name, caller.credentials().as_ref()).await?;
        let next = self.writable(&topic)?;
        for system in asked.messages.iter().filter_map(|message| message.system_properties.as_ref()) {
            check_type(&topic, name, messages::type_of(system))?;
        }
        let asking = Asking::of(self, caller)?;
        // All are on the way before the first answer, so that the broker stores them together.
        let sent: Vec<_> = asked
            .messages
            .iter()
            .map(|message| {
                let (broker, queue) = place_of(message, &topic, &next);
                (broker, begin(&asking, caller, message, name, (broker, queue), now_ms))
            })
            .collect();
        let mut entries = Vec::with_capacity(sent.len());
        for (message, (broker, answer)) in asked.messages.iter().zip(sent) {
            let stored = answer.await.and_then(|answer| self.stored(message, name, broker, answer));
            entries.push(stored.unwrap_or_else(|refused| SendResultEntry {
                status: Some(refused.status()),
                ..SendResultEntry::default()
            }));
        }
        Ok(entries)
    }

    /// Returns the result of one message.
    fn stored(
        &self,
        message: &TopicMessage,
        topic: &str,
        broker: &BrokerPlace,
        answer: Answer,
    ) -> Result<SendResultEntry, Refused> {
        let persisted = match answer.code {
            response::SUCCESS => ok(),
            response::FLUSH_DISK_TIMEOUT => {
                Refused::new(code::MASTER_PERSISTENCE_TIMEOUT, "the disk of the broker is slow").status()
            }
            response::FLUSH_SLAVE_TIMEOUT => {
                Refused::new(code::SLAVE_PERSISTENCE_TIMEOUT, "a slave of the broker is slow").status()
            }
            response::SLAVE_NOT_AVAILABLE => {
                Refused::new(code::HA_NOT_AVAILABLE, "too few slaves of the broker are connected").status()
            }
            _ => return Err(Refused::by_broker(answer.code, &answer.remark, self.is_guarded())),
        };
        let system = message.system_properties.as_ref();
        let message_id = system.map(|system| system.message_id.clone()).unwrap_or_default();
        let transaction_id = match answer.get("transactionId") {
            "" => message_id.clone(),
            id => id.to_owned(),
        };
        let offset = answer.get("queueOffset").parse().unwrap_or_default();
        let is_half = system.is_some_and(|system| system.message_type == message_type::TRANSACTION);
        if is_half && let Ok(id) = OffsetMessageId::decode(answer.get("msgId")) {
            let position = id.physical.0.cast_signed();
            let place = HalfPlace { broker: Arc::clone(&broker.name), offset, position };
            self.halves.remember(topic, &transaction_id, place);
        }
        let recall_handle = answer.get("recallHandle").to_owned();
        Ok(SendResultEntry { status: Some(persisted), message_id, transaction_id, offset, recall_handle })
    }

    pub(super) async fn recall_message(
        &self,
        caller: &Caller,
        asked: &RecallMessageRequest,
    ) -> RecallMessageResponse {
        let recalled = self.recall(caller, asked).await;
        RecallMessageResponse { status: Some(status(&recalled)), message_id: recalled.unwrap_or_default() }
    }

    async fn recall(&self, caller: &Caller, asked: &RecallMessageRequest) -> Result<String, Refused> {
        let name = names::topic(asked.topic.as_ref())?;
        let credentials = caller.credentials();
        let topic = self.topic(name, credentials.as_ref()).await?;
        check_type(&topic, name, MessageType::Delay)?;
        let asking = Asking::of(self, caller)?;
        let text = recall_handle::text(&asked.recall_handle);
        let named = text.as_deref().and_then(recall_handle::parse).map_or("", |handle| handle.broker);
        let broker = self.broker(name, named, credentials.as_ref()).await?;
        let call = asking
            .call(request::RECALL_MESSAGE)
            .with("producerGroup", name)
            .with("topic", name)
            .with("recallHandle", &*asked.recall_handle)
            .with("bname", &*broker.name);
        let answer = asking.ask(&broker, call).await?;
        let is_stored = matches!(answer.code, response::FLUSH_DISK_TIMEOUT | response::FLUSH_SLAVE_TIMEOUT);
        let answer = if is_stored { answer } else { answer.success(asking.is_guarded)? };
        Ok(answer.get("msgId").to_owned())
    }
}

/// Returns broker and queue of a message: those of its message group or lite topic, or any queue of `next`.
fn place_of<'a>(
    message: &TopicMessage,
    topic: &'a TopicRoute,
    next: &'a BrokerPlace,
) -> (&'a BrokerPlace, i32) {
    let system = message.system_properties.as_ref();
    let group = system.and_then(|system| system.message_group.as_deref()).filter(|group| !group.is_empty());
    let lite_topic = system.and_then(|system| system.lite_topic.as_deref());
    // The messages of a lite topic stay at one broker.
    let group = group.or_else(|| lite_topic.filter(|lite_topic| !lite_topic.is_empty()));
    let queue = group.and_then(|group| topic.writable_queue(lite::bucket(group, topic.writes())));
    queue.unwrap_or((next, -1))
}

fn begin<'p>(
    asking: &Asking<'p>,
    caller: &Caller,
    message: &TopicMessage,
    topic: &str,
    (broker, queue_id): (&BrokerPlace, i32),
    now_ms: i64,
) -> impl Future<Output = Result<Answer, Refused>> + Send + use<'p> {
    let none = SystemProperties::default();
    let system = message.system_properties.as_ref().unwrap_or(&none);
    let properties = messages::properties_of(message, topic, &shown(caller.addresses.peer));
    let properties = String::from_utf8_lossy(&properties);
    let fields = SendHeader {
        topic,
        queue_id,
        sys_flag: messages::sys_flag_of(system),
        born_timestamp_ms: system.born_timestamp.map_or(now_ms, |at| at.ms()),
        properties: &properties,
        ..SendHeader::default()
    };
    let origin = SendOrigin { group: topic, template_queues: 4, broker: "" };
    let call = asking.call(request::SEND_MESSAGE_V2).send(&fields, &origin).body(&message.body);
    asking.ask(broker, call)
}

/// Refuses a message of another type than its topic declares, with the text of Apache's proxy.
fn check_type(topic: &TopicRoute, name: &str, actual: MessageType) -> Result<(), Refused> {
    match topic.message_type.filter(|_| !is_of_group(name)) {
        Some(expected) if expected != actual => {
            let (expected, actual) = (expected.name(), actual.name());
            let text = format!(
                "TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}"
            );
            Err(Refused::new(code::MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text))
        }
        _ => Ok(()),
    }
}
