//! Pull: PULL_MESSAGE and LITE_PULL_MESSAGE.

use crate::remoting::error::FieldError;
use crate::remoting::header::{Header, HeaderWriter, number};

/// Bit of `sys_flag`: commit `commit_offset`.
pub(crate) const COMMIT_OFFSET: i32 = 1;
/// Bit of `sys_flag`: the pull may wait for a message.
pub(crate) const SUSPEND: i32 = 2;
/// Bit of `sys_flag`: the pull carries its subscription.
pub(crate) const SUBSCRIPTION: i32 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PullHeader<'h> {
    pub(crate) group: &'h str,
    pub(crate) topic: &'h str,
    pub(crate) queue_id: i32,
    pub(crate) offset: i64,
    pub(crate) messages_max: i32,
    pub(crate) bytes_max: Option<i32>,
    pub(crate) sys_flag: i32,
    pub(crate) commit_offset: i64,
    pub(crate) suspend_ms: u64,
    pub(crate) expression: Option<&'h str>,
    pub(crate) expression_type: &'h str,
    /// The client's version of the subscription.
    pub(crate) subscription_version: i64,
}

impl<'h> PullHeader<'h> {
    pub(crate) fn decode(header: &'h Header) -> Result<Self, FieldError> {
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
                // A negative value means no wait.
                "suspendTimeoutMillis" => fields.suspend_ms = number::<i64>(name, value)?.max(0) as u64,
                "subscription" => fields.expression = Some(value),
                "expressionType" => fields.expression_type = value,
                "subVersion" => fields.subscription_version = number(name, value)?,
                _ => {}
            }
        }
        Ok(fields)
    }
    pub(crate) fn encode(&self, out: &mut HeaderWriter<'_>) {
        out.ext("consumerGroup", self.group)
            .ext("topic", self.topic)
            .ext_i64("queueId", self.queue_id.into())
            .ext_i64("queueOffset", self.offset)
            .ext_i64("maxMsgNums", self.messages_max.into())
            .ext_i64("sysFlag", self.sys_flag.into())
            .ext_i64("commitOffset", self.commit_offset)
            .ext_u64("suspendTimeoutMillis", self.suspend_ms);
        if let Some(expression) = self.expression {
            out.ext("subscription", expression);
        }
        out.ext_i64("subVersion", self.subscription_version).ext("expressionType", self.expression_type);
        if let Some(bytes_max) = self.bytes_max {
            out.ext_i64("maxMsgBytes", bytes_max.into());
        }
    }
}
