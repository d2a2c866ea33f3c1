//! Offsets: GetOffset, UpdateOffset and QueryOffset, which Apache's proxy refuses.

use super::api::{
    GetOffsetRequest, MessageQueue, OffsetResponse, QueryOffsetRequest, StatusResponse, UpdateOffsetRequest,
};
use super::caller::Caller;
use super::names;
use super::shared::{Asking, Proxy};
use super::status::{Refused, code, status};
use super::topics::BrokerPlace;
use crate::remoting::codes::request;

/// Requests that Python serves.
const SEARCH_OFFSET_BY_TIMESTAMP: i32 = 29;
const GET_MAX_OFFSET: i32 = 30;
const GET_MIN_OFFSET: i32 = 31;

fn queue(queue: Option<&MessageQueue>) -> Result<(&str, i64), Refused> {
    let topic = names::topic(queue.and_then(|queue| queue.topic.as_ref()))?;
    Ok((topic, queue.map_or(0, |queue| queue.id.into())))
}

impl Proxy {
    /// Returns the broker that a client names with a queue.
    pub(super) async fn broker_of_queue(
        &self,
        queue: Option<&MessageQueue>,
        topic: &str,
        asking: &Asking<'_>,
    ) -> Result<BrokerPlace, Refused> {
        let name = queue.and_then(|queue| queue.broker.as_ref()).map_or("", |broker| &broker.name);
        self.broker(topic, name, asking.credentials.as_ref()).await
    }

    pub(super) async fn get_offset(&self, caller: &Caller, asked: &GetOffsetRequest) -> OffsetResponse {
        let found = async {
            let (topic, queue_id) = queue(asked.message_queue.as_ref())?;
            let group = names::group(asked.group.as_ref())?;
            let asking = Asking::of(self, caller)?;
            let broker = self.broker_of_queue(asked.message_queue.as_ref(), topic, &asking).await?;
            let call = asking
                .call(request::QUERY_CONSUMER_OFFSET)
                .with("consumerGroup", group)
                .with("topic", topic)
                .number("queueId", queue_id)
                .with("setZeroIfNotFound", "false");
            offset_of(asking.ask(&broker, call).await?.success(asking.is_guarded)?.get("offset"))
        };
        answered(found.await)
    }

    pub(super) async fn update_offset(&self, caller: &Caller, asked: &UpdateOffsetRequest) -> StatusResponse {
        let updated = async {
            let (topic, queue_id) = queue(asked.message_queue.as_ref())?;
            let group = names::group(asked.group.as_ref())?;
            if asked.offset < 0 {
                return Err(Refused::new(code::ILLEGAL_OFFSET, "the offset is below 0"));
            }
            let asking = Asking::of(self, caller)?;
            let broker = self.broker_of_queue(asked.message_queue.as_ref(), topic, &asking).await?;
            let call = asking
                .call(request::UPDATE_CONSUMER_OFFSET)
                .with("consumerGroup", group)
                .with("topic", topic)
                .number("queueId", queue_id)
                .number("commitOffset", asked.offset);
            asking.ask(&broker, call).await?.success(asking.is_guarded).map(drop)
        };
        StatusResponse { status: Some(status(&updated.await)) }
    }

    pub(super) async fn query_offset(&self, caller: &Caller, asked: &QueryOffsetRequest) -> OffsetResponse {
        let found = async {
            let (topic, queue_id) = queue(asked.message_queue.as_ref())?;
            let asking = Asking::of(self, caller)?;
            let broker = self.broker_of_queue(asked.message_queue.as_ref(), topic, &asking).await?;
            let code = match asked.policy {
                0 => GET_MIN_OFFSET,
                1 => GET_MAX_OFFSET,
                _ => SEARCH_OFFSET_BY_TIMESTAMP,
            };
            let mut call = asking.call(code).with("topic", topic).number("queueId", queue_id);
            if code == SEARCH_OFFSET_BY_TIMESTAMP {
                call = call.number("timestamp", asked.timestamp.map_or(0, |at| at.ms()));
            }
            offset_of(asking.ask(&broker, call).await?.success(asking.is_guarded)?.get("offset"))
        };
        answered(found.await)
    }
}

fn offset_of(text: &str) -> Result<i64, Refused> {
    text.parse().map_err(|_| Refused::new(code::INTERNAL_SERVER_ERROR, "the broker's answer has no offset"))
}

fn answered(found: Result<i64, Refused>) -> OffsetResponse {
    OffsetResponse { status: Some(status(&found)), offset: found.unwrap_or_default() }
}
