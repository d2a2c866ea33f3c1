//! Receives: ReceiveMessage, a pop that waits for messages.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use tokio_stream::Stream;

use super::acks::{self, INVISIBLE_MS_MAX, RETURNED_MS};
use super::api::{
    self, FilterExpression, ReceiveMessageRequest, ReceiveMessageResponse, Received, Resource, Timestamp,
    TopicMessage,
};
use super::broker_call::{Answer, TIMEOUT};
use super::caller::Caller;
use super::client::{ConnectedClient, Renewal, RenewalKey};
use super::handle::ReceiptHandle;
use super::shared::{Asking, Proxy};
use super::status::{Refused, code, ok};
use super::{lite, messages, names};
use crate::client::popped::{PopFields, each_popped};
use crate::message::properties::{self, name};
use crate::message::record::RecordView;
use crate::message::tag::TagFilter;
use crate::remoting::codes::{request, response};

/// Messages of one answer.
pub(super) const BATCH_MAX: i32 = 32;
const INVISIBLE_MS_MIN: i64 = 10_000;
/// The time of a message that is extended until the client acknowledges it.
const RENEWED_MS: i64 = 60_000;
/// The answer leaves this long before the client gives up.
const RESERVE_MS: i64 = 100;
/// A wait of clients that name none: half the default timeout of their requests is left.
const REQUEST_MS_HALF: i64 = 1_500;
/// The first release of clients that know the code of a wait that is too short.
const POLLING_CODE_SINCE: &str = "5.0.3";

/// A message for the client, and the handle that returns it to the queue.
struct Handed {
    message: TopicMessage,
    handle: ReceiptHandle,
}

/// The answer to a receive. Messages that the client does not take are returned to the queue.
pub(super) struct ReceiveStream {
    proxy: Arc<Proxy>,
    first: Option<ReceiveMessageResponse>,
    messages: VecDeque<Handed>,
    last: Option<ReceiveMessageResponse>,
    origin: Option<Origin>,
}

/// The client that received messages, its group, and their topic.
#[derive(Clone)]
struct Origin {
    client: Arc<ConnectedClient>,
    group: String,
    topic: String,
}

impl ReceiveStream {
    /// Returns the answer to a receive that is refused.
    pub(super) fn refused(proxy: Arc<Proxy>, refused: &Refused) -> Self {
        let last = Some(content(Received::DeliveryTimestamp(Timestamp::of_ms(proxy.now_ms()))));
        let first = Some(content(Received::Status(refused.status())));
        Self { proxy, first, messages: VecDeque::new(), last, origin: None }
    }

    /// Returns the code of its status, before that is taken.
    pub(super) fn code(&self) -> i32 {
        match self.first.as_ref().and_then(|first| first.content.as_ref()) {
            Some(Received::Status(status)) => status.code,
            _ => code::OK,
        }
    }
}

fn content(content: Received) -> ReceiveMessageResponse {
    ReceiveMessageResponse { content: Some(content) }
}

impl Stream for ReceiveStream {
    type Item = Result<ReceiveMessageResponse, tonic::Status>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let next = this
            .first
            .take()
            .or_else(|| this.messages.pop_front().map(|sent| content(Received::Message(sent.message))))
            .or_else(|| this.last.take());
        Poll::Ready(next.map(Ok))
    }
}

impl Drop for ReceiveStream {
    fn drop(&mut self) {
        let (messages, Some(origin)) = (std::mem::take(&mut self.messages), self.origin.take()) else {
            return;
        };
        if !messages.is_empty() {
            let handles = messages.into_iter().map(|sent| sent.handle).collect();
            give_back(&self.proxy, origin, handles);
        }
    }
}

/// Makes messages visible again soon.
fn give_back(proxy: &Arc<Proxy>, origin: Origin, handles: Vec<ReceiptHandle>) {
    let proxy = Arc::clone(proxy);
    let Some(runtime) = proxy.remoting().map(|remoting| remoting.runtime().clone()) else { return };
    runtime.spawn(async move {
        for handle in handles {
            let Origin { client, group, topic } = &origin;
            // What fails here becomes visible when its time is over.
            drop(acks::change_for(&proxy, client, group, topic, &handle, RETURNED_MS).await);
        }
    });
}

/// The messages of an answer, and the handles of those that the filter left out.
struct Sorted {
    messages: VecDeque<Handed>,
    filtered: Vec<ReceiptHandle>,
}

impl Proxy {
    pub(super) async fn receive_message(
        self: &Arc<Self>,
        caller: &Caller,
        asked: &ReceiveMessageRequest,
    ) -> ReceiveStream {
        match self.receive(caller, asked).await {
            Ok((messages, origin)) => ReceiveStream {
                proxy: Arc::clone(self),
                first: Some(content(Received::Status(ok()))),
                messages,
                last: Some(content(Received::DeliveryTimestamp(Timestamp::of_ms(self.now_ms())))),
                origin: Some(origin),
            },
            Err(refused) => ReceiveStream::refused(Arc::clone(self), &refused),
        }
    }

    async fn receive(
        self: &Arc<Self>,
        caller: &Caller,
        asked: &ReceiveMessageRequest,
    ) -> Result<(VecDeque<Handed>, Origin), Refused> {
        let poll_ms = self.poll_ms(caller, asked)?;
        let queue = asked.message_queue.as_ref();
        let resource = queue.and_then(|queue| queue.topic.as_ref());
        let topic = names::topic(resource)?;
        let group = names::group(asked.group.as_ref())?;
        let invisible_ms = invisible_ms(asked)?;
        let filter = filter_of(asked.filter_expression.as_ref())?;
        let asking = Asking::of(self, caller)?;
        let credentials = asking.credentials.as_ref();
        let broker = queue.and_then(|queue| queue.broker.as_ref()).map_or("", |broker| &broker.name);
        let broker = self.readable(topic, broker, credentials).await?;
        let rules = self.group(group, Some(topic), credentials).await?.unwrap_or_default();
        let is_lite = rules.lite_parent.as_deref() == Some(topic);
        if is_lite {
            check_lite_client(&asking.client)?;
        }
        // Clocks of other machines differ.
        let born_ms = if broker.address.is_none() { self.now_ms() } else { 0 };
        let messages_max = asked.batch_size.clamp(1, BATCH_MAX).into();
        let call = if is_lite {
            let call = asking.call(request::POP_LITE_MESSAGE).with("clientId", &*asking.client.id);
            call.number("maxMsgNum", messages_max)
        } else {
            asking
                .call(request::POP_MESSAGE)
                .number("queueId", -1)
                .number("maxMsgNums", messages_max)
                .number("initMode", 1)
                .with("expType", filter.kind)
                .with("exp", filter.expression)
                .with("order", if rules.is_ordered { "true" } else { "false" })
        };
        let mut call = call
            .with("consumerGroup", group)
            .with("topic", topic)
            .number("invisibleTime", invisible_ms)
            .number("pollTime", poll_ms)
            .number("bornTime", born_ms);
        if let Some(attempt) = asked.attempt_id.as_deref().filter(|attempt| !attempt.is_empty()) {
            call = call.with("attemptId", attempt);
        }
        let wait = Duration::from_millis(poll_ms.cast_unsigned()) + TIMEOUT;
        // A client that gives up drops this future, and with it the pop that waits.
        let answer = asking.wait_for(&broker, call.within(wait)).await?;
        let answer = found(answer, asking.is_guarded)?;
        let origin =
            Origin { client: Arc::clone(&asking.client), group: group.to_owned(), topic: topic.to_owned() };
        let named = resource.cloned().unwrap_or_default();
        let sorted = match is_lite {
            true => self.sort_lite(&answer, &broker.name, topic, &named)?,
            false => self.sort(&answer, &broker.name, named, &filter)?,
        };
        if !sorted.filtered.is_empty() {
            self.ack_filtered(origin.clone(), sorted.filtered);
        }
        if sorted.messages.is_empty() {
            return Err(Refused::new(code::MESSAGE_NOT_FOUND, "no match message"));
        }
        if asked.auto_renew {
            if !origin.client.is_connected() {
                let handles = sorted.messages.into_iter().map(|sent| sent.handle).collect();
                let text = format!("The client [{}] is disconnected.", origin.client.id);
                give_back(self, origin, handles);
                return Err(Refused::new(code::MESSAGE_NOT_FOUND, text));
            }
            self.renew_all(&origin, &sorted.messages);
        }
        Ok((sorted.messages, origin))
    }

    /// Returns how long a pull may wait.
    pub(super) fn poll_ms_left(&self, caller: &Caller) -> i64 {
        remaining_ms(caller).clamp(0, self.options.poll_ms_max)
    }

    /// Returns how long the receive may wait.
    fn poll_ms(&self, caller: &Caller, asked: &ReceiveMessageRequest) -> Result<i64, Refused> {
        let remaining = remaining_ms(caller);
        let wanted = asked.long_polling_timeout.map(|wait| wait.ms());
        let wanted = wanted.unwrap_or_else(|| remaining.saturating_sub(REQUEST_MS_HALF));
        let (min, max) = (self.options.poll_ms_min, self.options.poll_ms_max);
        let wait = wanted.clamp(min, max);
        if wait <= remaining {
            return Ok(wait);
        }
        if remaining >= min {
            return Ok(remaining);
        }
        let is_known = caller.version.as_str() >= POLLING_CODE_SINCE;
        let code = if is_known { code::ILLEGAL_POLLING_TIME } else { code::BAD_REQUEST };
        let text = "The deadline time remaining is not enough for polling, please check network condition";
        Err(Refused::new(code, text))
    }

    /// Decodes the messages of an answer.
    fn sort(
        &self,
        answer: &Answer,
        broker: &str,
        topic: Resource,
        filter: &Filter<'_>,
    ) -> Result<Sorted, Refused> {
        let fields = PopFields {
            pop_time: answer.get("popTime"),
            invisible_time: answer.get("invisibleTime"),
            revive_queue: answer.get("reviveQid"),
            starts: answer.get("startOffsetInfo"),
        };
        let counts = OrderCounts::parse(answer.get("orderCountInfo"));
        let mut records: Vec<Bytes> = Vec::new();
        let unreadable = |_| Refused::new(code::INTERNAL_SERVER_ERROR, "the broker's answer is unreadable");
        each_popped(&answer.body, &fields, broker, |record, _| records.push(record)).map_err(unreadable)?;
        let mut sorted = Sorted { messages: VecDeque::new(), filtered: Vec::new() };
        let now_ms = self.now_ms();
        for bytes in &records {
            let Ok(record) = RecordView::parse(bytes) else { continue };
            let text = properties::get(record.properties(), name::POP_CK).unwrap_or_default();
            let position = record.physical_offset().0;
            let text = format!("{} {position}", String::from_utf8_lossy(text));
            let handle = ReceiptHandle::parse(&text)?;
            if !filter.tags.matches_tag(properties::get(record.properties(), name::TAGS)) {
                sorted.filtered.push(handle);
                continue;
            }
            let mut message = messages::of_record(&record, &topic, now_ms);
            if let Some(system) = &mut message.system_properties {
                system.receipt_handle = Some(handle.text.clone());
                if let Some(count) = counts.of(&handle) {
                    system.delivery_attempt = Some(count.saturating_add(1));
                }
            }
            sorted.messages.push_back(Handed { message, handle });
        }
        Ok(sorted)
    }

    /// Decodes the messages of lite topics.
    fn sort_lite(
        &self,
        answer: &Answer,
        broker: &str,
        parent: &str,
        topic: &Resource,
    ) -> Result<Sorted, Refused> {
        let now_ms = self.now_ms();
        let handed = |lite::PoppedLite { record, handle, count }| {
            let mut message = messages::of_record(&record, topic, now_ms);
            if let Some(system) = &mut message.system_properties {
                system.receipt_handle = Some(handle.text.clone());
                system.queue_id = 0;
                system.queue_offset = Some(handle.offset);
                system.delivery_attempt = Some(count.saturating_add(1));
            }
            Handed { message, handle }
        };
        let messages = lite::popped(answer, broker, parent)?.into_iter().map(handed).collect();
        Ok(Sorted { messages, filtered: Vec::new() })
    }

    fn renew_all(&self, origin: &Origin, messages: &VecDeque<Handed>) {
        let now_ms = self.now_ms();
        for Handed { message, handle } in messages {
            let id = message.system_properties.as_ref().map_or("", |system| &system.message_id);
            let renewal = Renewal {
                handle: handle.clone(),
                topic: origin.topic.clone(),
                since_ms: now_ms,
                count: 0,
                failures: 0,
            };
            origin.client.renew(RenewalKey::of(&origin.group, id, handle), renewal);
        }
    }

    /// Acknowledges messages whose tags only have the hash of a wanted one.
    fn ack_filtered(self: &Arc<Self>, origin: Origin, handles: Vec<ReceiptHandle>) {
        let proxy = Arc::clone(self);
        let Some(runtime) = self.remoting().map(|remoting| remoting.runtime().clone()) else { return };
        runtime.spawn(async move {
            for handle in handles {
                let Origin { client, group, topic } = &origin;
                // What fails here is filtered again.
                drop(acks::ack_for(&proxy, client, group, topic, &handle).await);
            }
        });
    }
}

/// Returns the time until the client gives up, less the time for the answer.
fn remaining_ms(caller: &Caller) -> i64 {
    let remaining = caller.remaining().map(|left| i64::try_from(left.as_millis()).unwrap_or(i64::MAX));
    remaining.map_or(i64::MAX, |left| left.saturating_sub(RESERVE_MS))
}

/// Returns an answer with messages.
fn found(answer: Answer, is_guarded: bool) -> Result<Answer, Refused> {
    match answer.code {
        response::PULL_NOT_FOUND | response::NO_MESSAGE | response::POLLING_TIMEOUT => {
            Err(Refused::new(code::MESSAGE_NOT_FOUND, "no new message"))
        }
        response::POLLING_FULL => Err(Refused::new(code::TOO_MANY_REQUESTS, "polling full")),
        _ => answer.success(is_guarded),
    }
}

/// Refuses a client of lite topics that is gone, or has too many messages already.
fn check_lite_client(client: &ConnectedClient) -> Result<(), Refused> {
    if !client.is_connected() {
        let text = format!("The client [{}] is disconnected.", client.id);
        return Err(Refused::new(code::BAD_REQUEST, text));
    }
    let unacked = client.renewals();
    if unacked >= lite::UNACKED_MAX {
        let text =
            format!("The client [{}] has too many unacked messages. Unacked count: {unacked}", client.id);
        return Err(Refused::new(code::FORBIDDEN, text));
    }
    Ok(())
}

fn invisible_ms(asked: &ReceiveMessageRequest) -> Result<i64, Refused> {
    if asked.auto_renew {
        return Ok(RENEWED_MS);
    }
    let ms = asked.invisible_duration.map_or(0, |time| time.ms());
    if (INVISIBLE_MS_MIN..=INVISIBLE_MS_MAX).contains(&ms) {
        return Ok(ms);
    }
    let text = format!("the invisible time {ms} ms is not in {INVISIBLE_MS_MIN}..={INVISIBLE_MS_MAX} ms");
    Err(Refused::new(code::ILLEGAL_INVISIBLE_TIME, text))
}

/// A filter for the broker, and the exact tags for its results.
pub(super) struct Filter<'a> {
    pub(super) kind: &'static str,
    pub(super) expression: &'a str,
    pub(super) tags: TagFilter,
}

pub(super) fn filter_of(asked: Option<&FilterExpression>) -> Result<Filter<'_>, Refused> {
    let expression = asked.map_or("", |filter| filter.expression.trim());
    let illegal = |text: &str| Refused::new(code::ILLEGAL_FILTER_EXPRESSION, text);
    if asked.is_some_and(|filter| filter.kind == api::FILTER_SQL) {
        if expression.is_empty() {
            return Err(illegal("the SQL92 expression is empty"));
        }
        return Ok(Filter { kind: "SQL92", expression, tags: TagFilter::parse("*") });
    }
    let expression = if expression.is_empty() { "*" } else { expression };
    if expression.split("||").all(|tag| tag.trim().is_empty()) {
        return Err(illegal("the expression has no tag"));
    }
    Ok(Filter { kind: "TAG", expression, tags: TagFilter::parse(expression) })
}

/// Earlier deliveries of messages that are popped in order: of single ones, and of all of a queue.
struct OrderCounts<'a>(HashMap<(&'a str, &'a str), i32>);

impl<'a> OrderCounts<'a> {
    /// Reads `mark key count`, with a semicolon between them.
    fn parse(text: &'a str) -> Self {
        let rows = text.split(';').filter_map(|row| {
            let mut parts = row.split(' ');
            let key = (parts.next()?, parts.next()?);
            Some((key, parts.next()?.parse().ok()?))
        });
        Self(rows.collect())
    }

    fn of(&self, handle: &ReceiptHandle) -> Option<i32> {
        let mark = handle.mark.to_string();
        let single = format!("qo{}%{}", handle.queue, handle.offset);
        let queue = handle.queue.to_string();
        let count = |key: &str| self.0.get(&(mark.as_str(), key)).copied();
        count(&single).or_else(|| count(&queue))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_counts_name_messages_or_whole_queues() {
        let counts = OrderCounts::parse("0 qo2%12 3;0 2 1;0 5 0");
        let of = |queue, offset| {
            let text = format!("1 1 1 999 0 b {queue} {offset}");
            counts.of(&ReceiptHandle::parse(&text).expect("a handle"))
        };
        assert_eq!((of(2, 12), of(2, 13), of(5, 1), of(6, 1)), (Some(3), Some(1), Some(0), None));
    }

    #[test]
    fn a_filter_without_tags_is_refused() {
        let filter = |kind, expression: &str| FilterExpression { kind, expression: expression.to_owned() };
        assert!(filter_of(Some(&filter(1, "||"))).is_err() && filter_of(Some(&filter(2, " "))).is_err());
        for all in ["", "*", "a || b"] {
            assert!(filter_of(Some(&filter(0, all))).is_ok());
        }
        assert_eq!(filter_of(None).map(|filter| filter.expression).ok(), Some("*"));
    }
}
