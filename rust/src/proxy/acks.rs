//! Acknowledgements: AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue.

use std::sync::Arc;

use super::api::{
    AckMessageEntry, AckMessageRequest, AckMessageResponse, AckMessageResultEntry,
    ChangeInvisibleDurationRequest, ChangeInvisibleDurationResponse, ForwardToDeadLettersRequest,
    StatusResponse,
};
use super::caller::Caller;
use super::client::{ConnectedClient, RenewalKey};
use super::handle::ReceiptHandle;
use super::names;
use super::shared::{Asking, Proxy};
use super::status::{Refused, code, overall, status};
use crate::remoting::codes::request;

/// Longest time for which a message can be hidden, in milliseconds.
pub(super) const INVISIBLE_MS_MAX: i64 = 43_200_000;
/// The time of a message that its client cannot take: it is redelivered soon.
pub(super) const RETURNED_MS: i64 = 1_000;
/// Acknowledgements of one request.
const ENTRIES_MAX: usize = 1_024;

impl Proxy {
    pub(super) async fn ack_message(&self, caller: &Caller, asked: &AckMessageRequest) -> AckMessageResponse {
        match self.ack_all(caller, asked).await {
            Ok(entries) => {
                let statuses = entries.iter().filter_map(|entry| entry.status.as_ref());
                let status = overall(statuses, "ack message result is empty");
                AckMessageResponse { status: Some(status), entries }
            }
            Err(refused) => AckMessageResponse { status: Some(refused.status()), entries: Vec::new() },
        }
    }

    async fn ack_all(
        &self,
        caller: &Caller,
        asked: &AckMessageRequest,
    ) -> Result<Vec<AckMessageResultEntry>, Refused> {
        let (topic, group) = (names::topic(asked.topic.as_ref())?, names::group(asked.group.as_ref())?);
        if asked.entries.len() > ENTRIES_MAX {
            let text = format!("a request of {} entries; the limit is {ENTRIES_MAX}", asked.entries.len());
            return Err(Refused::new(code::BAD_REQUEST, text));
        }
        let asking = Asking::of(self, caller)?;
        let mut entries = Vec::with_capacity(asked.entries.len());
        for AckMessageEntry { message_id, receipt_handle, lite_topic } in &asked.entries {
            let handle = self.current(&asking.client, group, message_id, receipt_handle);
            let acked = match handle.map(|handle| handle.in_lite_topic(lite_topic.as_ref())) {
                Ok(handle) => self.ack(&asking, group, topic, &handle).await,
                Err(refused) => Err(refused),
            };
            let (message_id, receipt_handle) = (message_id.clone(), receipt_handle.clone());
            entries.push(AckMessageResultEntry { message_id, receipt_handle, status: Some(status(&acked)) });
        }
        Ok(entries)
    }

    pub(super) async fn change_invisible_duration(
        &self,
        caller: &Caller,
        asked: &ChangeInvisibleDurationRequest,
    ) -> ChangeInvisibleDurationResponse {
        let changed = self.change_invisible(caller, asked).await;
        let status = Some(status(&changed));
        // A client that was refused for now continues with its handle.
        let receipt_handle = changed.map_or_else(|_| asked.receipt_handle.clone(), |handle| handle.text);
        ChangeInvisibleDurationResponse { status, receipt_handle }
    }

    async fn change_invisible(
        &self,
        caller: &Caller,
        asked: &ChangeInvisibleDurationRequest,
    ) -> Result<ReceiptHandle, Refused> {
        let (topic, group) = (names::topic(asked.topic.as_ref())?, names::group(asked.group.as_ref())?);
        let ms = asked.invisible_duration.map_or(0, |time| time.ms());
        if !(0..=INVISIBLE_MS_MAX).contains(&ms) {
            let text = format!("the invisible time {ms} ms is not in 0..={INVISIBLE_MS_MAX} ms");
            return Err(Refused::new(code::ILLEGAL_INVISIBLE_TIME, text));
        }
        let asking = Asking::of(self, caller)?;
        let handle = self.current(&asking.client, group, &asked.message_id, &asked.receipt_handle)?;
        let handle = handle.in_lite_topic(asked.lite_topic.as_ref());
        let is_suspended = asked.suspend == Some(true);
        self.change(&asking, group, topic, &handle, ms, is_suspended).await
    }

    pub(super) async fn forward_to_dead_letters(
        &self,
        caller: &Caller,
        asked: &ForwardToDeadLettersRequest,
    ) -> StatusResponse {
        StatusResponse { status: Some(status(&self.forward(caller, asked).await)) }
    }

    async fn forward(&self, caller: &Caller, asked: &ForwardToDeadLettersRequest) -> Result<(), Refused> {
        let (topic, group) = (names::topic(asked.topic.as_ref())?, names::group(asked.group.as_ref())?);
        let asking = Asking::of(self, caller)?;
        let renewal = if asked.receipt_handle.is_empty() {
            asking.client.take_renewal_of(group, &asked.message_id)
        } else {
            let handle = ReceiptHandle::parse(&asked.receipt_handle)?;
            asking.client.take_renewal(&RenewalKey::of(group, &asked.message_id, &handle))
        };
        let handle = match renewal {
            Some(renewal) => renewal.handle,
            None => ReceiptHandle::parse(&asked.receipt_handle)?,
        };
        let handle = handle.in_lite_topic(asked.lite_topic.as_ref());
        let broker = self.broker_of(&handle, topic, asking.credentials.as_ref()).await?;
        let invalid = |text: &str| Refused::new(code::INVALID_RECEIPT_HANDLE, text);
        let position = handle.position.ok_or_else(|| invalid("commit log offset is empty"))?;
        let real_topic = handle.real_topic(group, topic);
        let call = asking
            .call(request::CONSUMER_SEND_MSG_BACK)
            .with("group", group)
            .number("offset", position)
            .number("delayLevel", -1)
            .with("originMsgId", &*asked.message_id)
            .with("originTopic", real_topic)
            .with("unitMode", "false")
            .number("maxReconsumeTimes", 0);
        asking.ask(&broker, call).await?.success(asking.is_guarded)?;
        // The dead letter is stored; without the acknowledgement the message would be redelivered.
        drop(self.ack(&asking, group, topic, &handle).await);
        Ok(())
    }

    /// Returns the newest handle of a message: that of an extension, which ends here, or the client's.
    fn current(
        &self,
        client: &ConnectedClient,
        group: &str,
        message_id: &str,
        text: &str,
    ) -> Result<ReceiptHandle, Refused> {
        let handle = ReceiptHandle::parse(text)?;
        let renewal = client.take_renewal(&RenewalKey::of(group, message_id, &handle));
        let handle = renewal.map_or(handle, |renewal| renewal.handle);
        handle.check_time(self.now_ms())?;
        Ok(handle)
    }

    async fn ack(
        &self,
        asking: &Asking<'_>,
        group: &str,
        topic: &str,
        handle: &ReceiptHandle,
    ) -> Result<(), Refused> {
        let broker = self.broker_of(handle, topic, asking.credentials.as_ref()).await?;
        let call = asking
            .call(request::ACK_MESSAGE)
            .with("consumerGroup", group)
            .with("topic", handle.real_topic(group, topic))
            .number("queueId", handle.queue)
            .with("extraInfo", &*handle.text)
            .number("offset", handle.offset)
            .lite_topic(&handle.lite_topic);
        asking.ask(&broker, call).await?.success(asking.is_guarded).map(drop)
    }

    async fn change(
        &self,
        asking: &Asking<'_>,
        group: &str,
        topic: &str,
        handle: &ReceiptHandle,
        ms: i64,
        is_suspended: bool,
    ) -> Result<ReceiptHandle, Refused> {
        let broker = self.broker_of(handle, topic, asking.credentials.as_ref()).await?;
        let call = asking
            .call(request::CHANGE_MESSAGE_INVISIBLETIME)
            .with("consumerGroup", group)
            .with("topic", handle.real_topic(group, topic))
            .number("queueId", handle.queue)
            .with("extraInfo", &*handle.text)
            .number("offset", handle.offset)
            .number("invisibleTime", ms)
            .with("suspend", if is_suspended { "true" } else { "false" })
            .lite_topic(&handle.lite_topic);
        let answer = asking.ask(&broker, call).await?.success(asking.is_guarded)?;
        handle.renewed(answer.get("popTime"), answer.get("invisibleTime"), answer.get("reviveQid"))
    }
}

/// Acknowledges a message in the name of a client that is not calling.
pub(super) async fn ack_for(
    proxy: &Proxy,
    client: &Arc<ConnectedClient>,
    group: &str,
    topic: &str,
    handle: &ReceiptHandle,
) -> Result<(), Refused> {
    proxy.ack(&Asking::for_client(proxy, client), group, topic, handle).await
}

/// Changes the time of a message in the name of a client that is not calling; returns its new handle.
pub(super) async fn change_for(
    proxy: &Proxy,
    client: &Arc<ConnectedClient>,
    group: &str,
    topic: &str,
    handle: &ReceiptHandle,
    ms: i64,
) -> Result<ReceiptHandle, Refused> {
    proxy.change(&Asking::for_client(proxy, client), group, topic, handle, ms, false).await
}
