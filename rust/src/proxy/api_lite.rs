//! Messages of the method `SyncLiteSubscription`.

use prost::{Message, Oneof};

use super::api::Resource;

pub(super) mod action {
    pub(in crate::proxy) const PARTIAL_ADD: i32 = 0;
    pub(in crate::proxy) const PARTIAL_REMOVE: i32 = 1;
    pub(in crate::proxy) const COMPLETE_ADD: i32 = 2;
    pub(in crate::proxy) const COMPLETE_REMOVE: i32 = 3;
}

/// Where a group begins in added lite topics.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct OffsetOption {
    #[prost(oneof = "OffsetChoice", tags = "1, 2, 3, 4")]
    pub(super) choice: Option<OffsetChoice>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub(super) enum OffsetChoice {
    #[prost(int32, tag = "1")]
    Policy(i32),
    #[prost(int64, tag = "2")]
    Offset(i64),
    #[prost(int64, tag = "3")]
    TailN(i64),
    #[prost(int64, tag = "4")]
    Timestamp(i64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SyncLiteSubscriptionRequest {
    #[prost(int32, tag = "1")]
    pub(super) action: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) topic: Option<Resource>,
    #[prost(message, optional, tag = "3")]
    pub(super) group: Option<Resource>,
    #[prost(string, repeated, tag = "4")]
    pub(super) lite_topic_set: Vec<String>,
    #[prost(int64, optional, tag = "5")]
    pub(super) version: Option<i64>,
    #[prost(message, optional, tag = "6")]
    pub(super) offset_option: Option<OffsetOption>,
}
