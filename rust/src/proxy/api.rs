//! Messages of `apache.rocketmq.v2`, the interface of 5.x clients, by their field numbers.
//!
//! Enumerations are plain numbers, so that an unknown value never refuses a request. Fields without a use here are left
//! out; decoders skip them.

use std::collections::HashMap;

use prost::{Message, Oneof};

/// A span of time.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Duration {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

impl Duration {
    pub(super) const fn of_ms(ms: i64) -> Self {
        Self { seconds: ms.div_euclid(1_000), nanos: ms.rem_euclid(1_000) as i32 * 1_000_000 }
    }

    pub(super) fn ms(self) -> i64 {
        self.seconds.saturating_mul(1_000).saturating_add(i64::from(self.nanos) / 1_000_000)
    }
}

/// A point in time since 1970; the same fields as a span.
pub(super) type Timestamp = Duration;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

/// The name of a topic or group.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct Resource {
    #[prost(string, tag = "1")]
    pub(super) namespace: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Address {
    #[prost(string, tag = "1")]
    pub(super) host: String,
    #[prost(int32, tag = "2")]
    pub(super) port: i32,
}

pub(super) mod scheme {
    pub(in crate::proxy) const IPV4: i32 = 1;
    pub(in crate::proxy) const IPV6: i32 = 2;
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Endpoints {
    #[prost(int32, tag = "1")]
    pub(super) scheme: i32,
    #[prost(message, repeated, tag = "2")]
    pub(super) addresses: Vec<Address>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Broker {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(int32, tag = "2")]
    pub(super) id: i32,
    #[prost(message, optional, tag = "3")]
    pub(super) endpoints: Option<Endpoints>,
}

pub(super) mod permission {
    pub(in crate::proxy) const NONE: i32 = 1;
    pub(in crate::proxy) const READ: i32 = 2;
    pub(in crate::proxy) const WRITE: i32 = 3;
    pub(in crate::proxy) const READ_WRITE: i32 = 4;
}

pub(super) mod message_type {
    pub(in crate::proxy) const NORMAL: i32 = 1;
    pub(in crate::proxy) const FIFO: i32 = 2;
    pub(in crate::proxy) const DELAY: i32 = 3;
    pub(in crate::proxy) const TRANSACTION: i32 = 4;
    pub(in crate::proxy) const LITE: i32 = 5;
    pub(in crate::proxy) const PRIORITY: i32 = 6;
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MessageQueue {
    #[prost(message, optional, tag = "1")]
    pub(super) topic: Option<Resource>,
    #[prost(int32, tag = "2")]
    pub(super) id: i32,
    #[prost(int32, tag = "3")]
    pub(super) permission: i32,
    #[prost(message, optional, tag = "4")]
    pub(super) broker: Option<Broker>,
    #[prost(int32, repeated, tag = "5")]
    pub(super) accept_message_types: Vec<i32>,
}

/// The type number of an SQL92 expression; every other number is a list of tags.
pub(super) const FILTER_SQL: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct FilterExpression {
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(string, tag = "2")]
    pub(super) expression: String,
}

pub(super) const DIGEST_MD5: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Digest {
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(string, tag = "2")]
    pub(super) checksum: String,
}

pub(super) const ENCODING_IDENTITY: i32 = 1;
pub(super) const ENCODING_GZIP: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeadLetterQueue {
    #[prost(string, tag = "1")]
    pub(super) topic: String,
    #[prost(string, tag = "2")]
    pub(super) message_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SystemProperties {
    #[prost(string, optional, tag = "1")]
    pub(super) tag: Option<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) keys: Vec<String>,
    #[prost(string, tag = "3")]
    pub(super) message_id: String,
    #[prost(message, optional, tag = "4")]
    pub(super) body_digest: Option<Digest>,
    #[prost(int32, tag = "5")]
    pub(super) body_encoding: i32,
    #[prost(int32, tag = "6")]
    pub(super) message_type: i32,
    #[prost(message, optional, tag = "7")]
    pub(super) born_timestamp: Option<Timestamp>,
    #[prost(string, tag = "8")]
    pub(super) born_host: String,
    #[prost(message, optional, tag = "9")]
    pub(super) store_timestamp: Option<Timestamp>,
    #[prost(string, tag = "10")]
    pub(super) store_host: String,
    #[prost(message, optional, tag = "11")]
    pub(super) delivery_timestamp: Option<Timestamp>,
    #[prost(string, optional, tag = "12")]
    pub(super) receipt_handle: Option<String>,
    #[prost(int32, tag = "13")]
    pub(super) queue_id: i32,
    #[prost(int64, optional, tag = "14")]
    pub(super) queue_offset: Option<i64>,
    #[prost(int32, optional, tag = "16")]
    pub(super) delivery_attempt: Option<i32>,
    #[prost(string, optional, tag = "17")]
    pub(super) message_group: Option<String>,
    #[prost(string, optional, tag = "18")]
    pub(super) trace_context: Option<String>,
    #[prost(message, optional, tag = "19")]
    pub(super) orphaned_transaction_recovery_duration: Option<Duration>,
    #[prost(message, optional, tag = "20")]
    pub(super) dead_letter_queue: Option<DeadLetterQueue>,
    #[prost(string, optional, tag = "21")]
    pub(super) lite_topic: Option<String>,
    #[prost(int32, optional, tag = "22")]
    pub(super) priority: Option<i32>,
}

/// A message of a topic.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TopicMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) topic: Option<Resource>,
    #[prost(map = "string, string", tag = "2")]
    pub(super) user_properties: HashMap<String, String>,
    #[prost(message, optional, tag = "3")]
    pub(super) system_properties: Option<SystemProperties>,
    #[prost(bytes = "bytes", tag = "4")]
    pub(super) body: bytes::Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct QueryRouteRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) topic: Option<Resource>,
    #[prost(message, optional, tag = "2")]
    pub(super) endpoints: Option<Endpoints>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct QueryRouteResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(message, repeated, tag = "2")]
    pub(super) message_queues: Vec<MessageQueue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct QueryAssignmentRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) topic: Option<Resource>,
    #[prost(message, optional, tag = "2")]
    pub(super) group: Option<Resource>,
    #[prost(message, optional, tag = "3")]
    pub(super) endpoints: Option<Endpoints>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Assignment {
    #[prost(message, optional, tag = "1")]
    pub(super) message_queue: Option<MessageQueue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct QueryAssignmentResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(message, repeated, tag = "2")]
    pub(super) assignments: Vec<Assignment>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SendMessageRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) messages: Vec<TopicMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SendResultEntry {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(string, tag = "2")]
    pub(super) message_id: String,
    #[prost(string, tag = "3")]
    pub(super) transaction_id: String,
    #[prost(int64, tag = "4")]
    pub(super) offset: i64,
    #[prost(string, tag = "5")]
    pub(super) recall_handle: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SendMessageResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(message, repeated, tag = "2")]
    pub(super) entries: Vec<SendResultEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ReceiveMessageRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) group: Option<Resource>,
    #[prost(message, optional, tag = "2")]
    pub(super) message_queue: Option<MessageQueue>,
    #[prost(message, optional, tag = "3")]
    pub(super) filter_expression: Option<FilterExpression>,
    #[prost(int32, tag = "4")]
    pub(super) batch_size: i32,
    #[prost(message, optional, tag = "5")]
    pub(super) invisible_duration: Option<Duration>,
    #[prost(bool, tag = "6")]
    pub(super) auto_renew: bool,
    #[prost(message, optional, tag = "7")]
    pub(super) long_polling_timeout: Option<Duration>,
    #[prost(string, optional, tag = "8")]
    pub(super) attempt_id: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ReceiveMessageResponse {
    #[prost(oneof = "Received", tags = "1, 2, 3")]
    pub(super) content: Option<Received>,
}

#[derive(Clone, PartialEq, Oneof)]
#[allow(clippy::large_enum_variant, reason = "one of them is in use at a time")]
pub(super) enum Received {
    #[prost(message, tag = "1")]
    Status(Status),
    #[prost(message, tag = "2")]
    Message(TopicMessage),
    #[prost(message, tag = "3")]
    DeliveryTimestamp(Timestamp),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AckMessageEntry {
    #[prost(string, tag = "1")]
    pub(super) message_id: String,
    #[prost(string, tag = "2")]
    pub(super) receipt_handle: String,
    #[prost(string, optional, tag = "3")]
    pub(super) lite_topic: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AckMessageRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) group: Option<Resource>,
    #[prost(message, optional, tag = "2")]
    pub(super) topic: Option<Resource>,
    #[prost(message, repeated, tag = "3")]
    pub(super) entries: Vec<AckMessageEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AckMessageResultEntry {
    #[prost(string, tag = "1")]
    pub(super) message_id: String,
    #[prost(string, tag = "2")]
    pub(super) receipt_handle: String,
    #[prost(message, optional, tag = "3")]
    pub(super) status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AckMessageResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(message, repeated, tag = "2")]
    pub(super) entries: Vec<AckMessageResultEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ForwardToDeadLettersRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) group: Option<Resource>,
    #[prost(message, optional, tag = "2")]
    pub(super) topic: Option<Resource>,
    #[prost(string, tag = "3")]
    pub(super) receipt_handle: String,
    #[prost(string, tag = "4")]
    pub(super) message_id: String,
    #[prost(string, optional, tag = "7")]
    pub(super) lite_topic: Option<String>,
}

/// A response that is a status alone.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeartbeatRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) group: Option<Resource>,
    #[prost(int32, tag = "2")]
    pub(super) client_type: i32,
}

pub(super) const COMMIT: i32 = 1;
pub(super) const ROLLBACK: i32 = 2;
pub(super) const SOURCE_SERVER_CHECK: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct EndTransactionRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) topic: Option<Resource>,
    #[prost(string, tag = "2")]
    pub(super) message_id: String,
    #[prost(string, tag = "3")]
    pub(super) transaction_id: String,
    #[prost(int32, tag = "4")]
    pub(super) resolution: i32,
    #[prost(int32, tag = "5")]
    pub(super) source: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChangeInvisibleDurationRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) group: Option<Resource>,
    #[prost(message, optional, tag = "2")]
    pub(super) topic: Option<Resource>,
    #[prost(string, tag = "3")]
    pub(super) receipt_handle: String,
    #[prost(message, optional, tag = "4")]
    pub(super) invisible_duration: Option<Duration>,
    #[prost(string, tag = "5")]
    pub(super) message_id: String,
    #[prost(string, optional, tag = "6")]
    pub(super) lite_topic: Option<String>,
    #[prost(bool, optional, tag = "7")]
    pub(super) suspend: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChangeInvisibleDurationResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(string, tag = "2")]
    pub(super) receipt_handle: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NotifyClientTerminationRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) group: Option<Resource>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RecallMessageRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) topic: Option<Resource>,
    #[prost(string, tag = "2")]
    pub(super) recall_handle: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RecallMessageResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(string, tag = "2")]
    pub(super) message_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PullMessageRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) group: Option<Resource>,
    #[prost(message, optional, tag = "2")]
    pub(super) message_queue: Option<MessageQueue>,
    #[prost(int64, tag = "3")]
    pub(super) offset: i64,
    #[prost(int32, tag = "4")]
    pub(super) batch_size: i32,
    #[prost(message, optional, tag = "5")]
    pub(super) filter_expression: Option<FilterExpression>,
    #[prost(message, optional, tag = "6")]
    pub(super) long_polling_timeout: Option<Duration>,
}

/// One part of the answer to a pull.
#[derive(Clone, PartialEq, Oneof)]
#[allow(clippy::large_enum_variant, reason = "one of them is in use at a time")]
pub(super) enum Pulled {
    #[prost(message, tag = "1")]
    Status(Status),
    #[prost(message, tag = "2")]
    Message(TopicMessage),
    #[prost(int64, tag = "3")]
    NextOffset(i64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PullMessageResponse {
    #[prost(oneof = "Pulled", tags = "1, 2, 3")]
    pub(super) content: Option<Pulled>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct UpdateOffsetRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) group: Option<Resource>,
    #[prost(message, optional, tag = "2")]
    pub(super) message_queue: Option<MessageQueue>,
    #[prost(int64, tag = "3")]
    pub(super) offset: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GetOffsetRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) group: Option<Resource>,
    #[prost(message, optional, tag = "2")]
    pub(super) message_queue: Option<MessageQueue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct QueryOffsetRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) message_queue: Option<MessageQueue>,
    /// 0 for the first offset, 1 for the end, 2 for the offset at `timestamp`.
    #[prost(int32, tag = "2")]
    pub(super) policy: i32,
    #[prost(message, optional, tag = "3")]
    pub(super) timestamp: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OffsetResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(int64, tag = "2")]
    pub(super) offset: i64,
}
