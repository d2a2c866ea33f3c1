//! Messages of the stream `Telemetry`: settings of clients, and commands of the server.

use std::collections::BTreeMap;

use prost::{Message, Oneof};

use super::api::{Duration, Endpoints, FilterExpression, Resource, Status, TopicMessage};

pub(super) mod client_type {
    pub(in crate::proxy) const PRODUCER: i32 = 1;
    pub(in crate::proxy) const PUSH_CONSUMER: i32 = 2;
    pub(in crate::proxy) const LITE_PUSH_CONSUMER: i32 = 5;
    pub(in crate::proxy) const LITE_SIMPLE_CONSUMER: i32 = 6;

    /// Returns whether a client consumes lite topics.
    pub(in crate::proxy) fn is_lite(kind: Option<i32>) -> bool {
        matches!(kind, Some(LITE_PUSH_CONSUMER | LITE_SIMPLE_CONSUMER))
    }
}

/// The language number of the Node client.
pub(super) const LANGUAGE_NODE_JS: i32 = 8;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExponentialBackoff {
    #[prost(message, optional, tag = "1")]
    pub(super) initial: Option<Duration>,
    #[prost(message, optional, tag = "2")]
    pub(super) max: Option<Duration>,
    #[prost(float, tag = "3")]
    pub(super) multiplier: f32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CustomizedBackoff {
    #[prost(message, repeated, tag = "1")]
    pub(super) next: Vec<Duration>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RetryPolicy {
    #[prost(int32, tag = "1")]
    pub(super) max_attempts: i32,
    #[prost(oneof = "Strategy", tags = "2, 3")]
    pub(super) strategy: Option<Strategy>,
}

#[derive(Clone, PartialEq, Oneof)]
#[allow(clippy::large_enum_variant, reason = "one of them is in use at a time")]
pub(super) enum Strategy {
    #[prost(message, tag = "2")]
    Exponential(ExponentialBackoff),
    #[prost(message, tag = "3")]
    Customized(CustomizedBackoff),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Publishing {
    #[prost(message, repeated, tag = "1")]
    pub(super) topics: Vec<Resource>,
    #[prost(int32, tag = "2")]
    pub(super) max_body_size: i32,
    #[prost(bool, tag = "3")]
    pub(super) validate_message_type: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SubscriptionEntry {
    #[prost(message, optional, tag = "1")]
    pub(super) topic: Option<Resource>,
    #[prost(message, optional, tag = "2")]
    pub(super) expression: Option<FilterExpression>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Subscription {
    #[prost(message, optional, tag = "1")]
    pub(super) group: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) subscriptions: Vec<SubscriptionEntry>,
    #[prost(bool, optional, tag = "3")]
    pub(super) fifo: Option<bool>,
    #[prost(int32, optional, tag = "4")]
    pub(super) receive_batch_size: Option<i32>,
    #[prost(message, optional, tag = "5")]
    pub(super) long_polling_timeout: Option<Duration>,
    #[prost(int32, optional, tag = "6")]
    pub(super) lite_subscription_quota: Option<i32>,
    #[prost(int32, optional, tag = "7")]
    pub(super) max_lite_topic_size: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct UserAgent {
    #[prost(int32, tag = "1")]
    pub(super) language: i32,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(string, tag = "3")]
    pub(super) platform: String,
    #[prost(string, tag = "4")]
    pub(super) hostname: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metric {
    #[prost(bool, tag = "1")]
    pub(super) on: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Settings {
    #[prost(int32, optional, tag = "1")]
    pub(super) client_type: Option<i32>,
    #[prost(message, optional, tag = "2")]
    pub(super) access_point: Option<Endpoints>,
    #[prost(message, optional, tag = "3")]
    pub(super) backoff_policy: Option<RetryPolicy>,
    #[prost(message, optional, tag = "4")]
    pub(super) request_timeout: Option<Duration>,
    #[prost(oneof = "Role", tags = "5, 6")]
    pub(super) role: Option<Role>,
    #[prost(message, optional, tag = "7")]
    pub(super) user_agent: Option<UserAgent>,
    #[prost(message, optional, tag = "8")]
    pub(super) metric: Option<Metric>,
    #[prost(btree_map = "string, string", tag = "9")]
    pub(super) client_properties: BTreeMap<String, String>,
}

/// What a client does.
#[derive(Clone, PartialEq, Oneof)]
#[allow(clippy::large_enum_variant, reason = "one of them is in use at a time")]
pub(super) enum Role {
    #[prost(message, tag = "5")]
    Publishing(Publishing),
    #[prost(message, tag = "6")]
    Subscription(Subscription),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RecoverOrphanedTransaction {
    #[prost(message, optional, tag = "1")]
    pub(super) message: Option<TopicMessage>,
    #[prost(string, tag = "2")]
    pub(super) transaction_id: String,
}

/// A command with, or an answer to, a number; its other fields are not used here.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Nonce {
    #[prost(string, tag = "1")]
    pub(super) nonce: String,
}

/// A lite topic that another client has taken over.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LiteTopicName {
    #[prost(string, tag = "1")]
    pub(super) lite_topic: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TelemetryCommand {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(oneof = "Command", tags = "2, 3, 4, 5, 9")]
    pub(super) command: Option<Command>,
}

#[derive(Clone, PartialEq, Oneof)]
#[allow(clippy::large_enum_variant, reason = "one of them is in use at a time")]
pub(super) enum Command {
    #[prost(message, tag = "2")]
    Settings(Settings),
    #[prost(message, tag = "3")]
    ThreadStackTrace(Nonce),
    #[prost(message, tag = "4")]
    VerifyMessageResult(Nonce),
    #[prost(message, tag = "5")]
    RecoverOrphanedTransaction(RecoverOrphanedTransaction),
    #[prost(message, tag = "9")]
    NotifyUnsubscribeLite(LiteTopicName),
}
