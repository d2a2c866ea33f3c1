//! Pull header: the fields of PULL_MESSAGE and LITE_PULL_MESSAGE.

use crate::remoting::error::FieldError;
use crate::remoting::header::{Header, number};

/// Bit of `sys_flag`: `commit_offset` is to be committed.
pub(super) const COMMIT_OFFSET: i32 = 1;
/// Bit of `sys_flag`: the pull may wait for a message.
pub(super) const SUSPEND: i32 = 2;
/// Bit of `sys_flag`: the pull carries its subscription.
pub(super) const SUBSCRIPTION: i32 = 4;

#[derive(Debug, Default)]
pub(super) struct PullHeader<'h> {
    pub group: &'h str,
    pub topic: &'h str,
    pub queue_id: i32,
    pub offset: i64,
    pub messages_max: i32,
    pub bytes_max: Option<i32>,
    pub sys_flag: i32,
    pub commit_offset: i64,
    pub suspend_ms: u64,
    pub expression: Option<&'h str>,
    pub expression_type: &'h str,
    /// The version of its subscription the client believes in.
    pub subscription_version: i64,
}

impl<'h> PullHeader<'h> {
    pub fn decode(header: &'h Header) -> Result<Self, FieldError> {
        let mut fields = Self::default();
        for (name, value) in header.ext() {
            match name {
                "consumerGroup" => fields.group = value,
                "topic" => fields.topic = value,
                "queueId" => fields.queue_id = number(name, value)?,
                "queueOffset" => fields.offset = number(name, value)?,
                "maxMsgNums" => fields.messages_max = number(name, value)?,
                "maxMsgBytes" => fields.bytes_max = Some(number(name, value)?),
                "sysFlag" => fields.sys_flag = number(name, value)?,
                "commitOffset" => fields.commit_offset = number(name, value)?,
                // Negative where a client means no wait at all.
                "suspendTimeoutMillis" => fields.suspend_ms = number::<i64>(name, value)?.max(0) as u64,
                "subscription" => fields.expression = Some(value),
                "expressionType" => fields.expression_type = value,
                "subVersion" => fields.subscription_version = number(name, value)?,
                _ => {}
            }
        }
        Ok(fields)
    }
}
