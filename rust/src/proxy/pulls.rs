//! Pulls: PullMessage, which Apache's proxy refuses: a read of one queue from an offset.

use std::time::Duration;

use super::api::{PullMessageRequest, PullMessageResponse, Pulled, Resource};
use super::broker_call::{Answer, TIMEOUT};
use super::caller::Caller;
use super::messages;
use super::names;
use super::receives::{BATCH_MAX, filter_of};
use super::shared::{Asking, Proxy};
use super::status::{Refused, code, ok};
use crate::message::properties::{self, name};
use crate::message::record::records;
use crate::message::tag::TagFilter;
use crate::remoting::codes::{request, response};

/// Flags of a pull: it may wait, and it has a subscription.
const SUSPENDS: i64 = 2;
const SUBSCRIBES: i64 = 4;

/// The stream of an answer to a pull.
type PullStream = tokio_stream::Iter<std::vec::IntoIter<Result<PullMessageResponse, tonic::Status>>>;

fn content(content: Pulled) -> Result<PullMessageResponse, tonic::Status> {
    Ok(PullMessageResponse { content: Some(content) })
}

/// The parts of an answer to a pull: status, messages, the next offset.
type Parts = Vec<Result<PullMessageResponse, tonic::Status>>;

/// Returns the answer to a pull.
pub(super) fn stream(pulled: Result<Parts, Refused>) -> PullStream {
    tokio_stream::iter(pulled.unwrap_or_else(|refused| vec![content(Pulled::Status(refused.status()))]))
}

impl Proxy {
    pub(super) async fn pull(&self, caller: &Caller, asked: &PullMessageRequest) -> Result<Parts, Refused> {
        let queue = asked.message_queue.as_ref();
        let resource = queue.and_then(|queue| queue.topic.as_ref());
        let topic = names::topic(resource)?;
        let group = names::group(asked.group.as_ref())?;
        if asked.offset < 0 {
            return Err(Refused::new(code::ILLEGAL_OFFSET, "the offset is below 0"));
        }
        let filter = filter_of(asked.filter_expression.as_ref())?;
        let wait_ms = asked.long_polling_timeout.map_or(0, |wait| wait.ms());
        let wait_ms = wait_ms.clamp(0, self.poll_ms_left(caller));
        let asking = Asking::of(self, caller)?;
        let call = asking
            .call(request::PULL_MESSAGE)
            .with("consumerGroup", group)
            .with("topic", topic)
            .number("queueId", queue.map_or(0, |queue| queue.id.into()))
            .number("queueOffset", asked.offset)
            .number("maxMsgNums", asked.batch_size.clamp(1, BATCH_MAX).into())
            .number("sysFlag", SUBSCRIBES | if wait_ms > 0 { SUSPENDS } else { 0 })
            .number("commitOffset", 0)
            .number("suspendTimeoutMillis", wait_ms)
            .with("subscription", filter.expression)
            .number("subVersion", 0)
            .with("expressionType", filter.kind);
        let wait = Duration::from_millis(wait_ms.cast_unsigned()) + TIMEOUT;
        let broker = self.broker_of_queue(queue, topic, &asking).await?;
        let answer = asking.wait_for(&broker, call.within(wait)).await?;
        self.parts(answer, resource.cloned().unwrap_or_default(), &filter.tags, asking.is_guarded)
    }

    /// Returns the parts of the answer to a client.
    fn parts(
        &self,
        answer: Answer,
        topic: Resource,
        tags: &TagFilter,
        is_guarded: bool,
    ) -> Result<Parts, Refused> {
        let status = match answer.code {
            response::SUCCESS => ok(),
            response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY => {
                Refused::new(code::MESSAGE_NOT_FOUND, "no new message").status()
            }
            response::PULL_OFFSET_MOVED => {
                Refused::new(code::ILLEGAL_OFFSET, "the queue does not have this offset").status()
            }
            _ => return Err(Refused::by_broker(answer.code, &answer.remark, is_guarded)),
        };
        let mut parts = vec![content(Pulled::Status(status))];
        let now_ms = self.now_ms();
        for record in records(&answer.body) {
            let unreadable =
                |_| Refused::new(code::INTERNAL_SERVER_ERROR, "the broker's answer is unreadable");
            let record = record.map_err(unreadable)?;
            if tags.matches_tag(properties::get(record.properties(), name::TAGS)) {
                parts.push(content(Pulled::Message(messages::of_record(&record, &topic, now_ms))));
            }
        }
        let next = answer.get("nextBeginOffset").parse().unwrap_or_default();
        parts.push(content(Pulled::NextOffset(next)));
        Ok(parts)
    }
}
