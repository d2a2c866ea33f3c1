//! Send: SEND_MESSAGE with long names, and its second version and batches with the same fields under letters.

use crate::message::topic::AUTO_CREATE_TOPIC;
use crate::remoting::codes::{RECONSUME_MAX_SINCE, request};
use crate::remoting::error::FieldError;
use crate::remoting::header::{Header, HeaderWriter, number};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SendHeader<'h> {
    pub(crate) topic: &'h str,
    /// Negative for any queue.
    pub(crate) queue_id: i32,
    pub(crate) sys_flag: i32,
    pub(crate) born_timestamp_ms: i64,
    pub(crate) flag: i32,
    pub(crate) properties: &'h str,
    /// The number of earlier deliveries.
    pub(crate) reconsume_times: i32,
    /// The client's retry limit, if its release sends a meaningful one.
    pub(crate) reconsume_max: Option<i32>,
    pub(crate) is_batch: bool,
}

/// Fields that only other brokers read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendOrigin<'h> {
    pub(crate) group: &'h str,
    /// Queue count of a topic created by its first message.
    pub(crate) template_queues: i32,
    pub(crate) broker: &'h str,
}

/// Returns the letter of a long name.
fn letter(name: &str) -> &str {
    match name {
        "topic" => "b",
        "queueId" => "e",
        "sysFlag" => "f",
        "bornTimestamp" => "g",
        "flag" => "h",
        "properties" => "i",
        "reconsumeTimes" => "j",
        "maxReconsumeTimes" => "l",
        "batch" => "m",
        _ => "",
    }
}

impl<'h> SendHeader<'h> {
    /// Decodes every field in one pass.
    pub(crate) fn decode(header: &'h Header) -> Result<Self, FieldError> {
        let mut fields = Self::default();
        let mut queue_id = None;
        let is_long = header.code == request::SEND_MESSAGE;
        for (name, value) in header.ext() {
            let letter = if is_long { letter(name) } else { name };
            match letter.as_bytes() {
                b"b" => fields.topic = value,
                b"e" => queue_id = Some(number(name, value)?),
                b"f" => fields.sys_flag = number(name, value)?,
                b"g" => fields.born_timestamp_ms = number(name, value)?,
                b"h" => fields.flag = number(name, value)?,
                b"i" => fields.properties = value,
                b"j" => fields.reconsume_times = number(name, value)?,
                b"l" => fields.reconsume_max = Some(number(name, value)?),
                b"m" => fields.is_batch = value.eq_ignore_ascii_case("true"),
                _ => {}
            }
        }
        fields.queue_id = queue_id.ok_or(FieldError::Missing("queueId"))?;
        fields.reconsume_max = fields.reconsume_max.filter(|_| header.version >= RECONSUME_MAX_SINCE);
        Ok(fields)
    }

    /// Returns the request code to use.
    pub(crate) fn code(&self) -> i32 {
        if self.is_batch { request::SEND_BATCH_MESSAGE } else { request::SEND_MESSAGE_V2 }
    }

    /// Writes every field under its letter.
    pub(crate) fn encode(&self, origin: &SendOrigin<'_>, out: &mut HeaderWriter<'_>) {
        out.ext("a", origin.group)
            .ext("b", self.topic)
            .ext("c", AUTO_CREATE_TOPIC)
            .ext_i64("d", origin.template_queues.into())
            .ext_i64("e", self.queue_id.into())
            .ext_i64("f", self.sys_flag.into())
            .ext_i64("g", self.born_timestamp_ms)
            .ext_i64("h", self.flag.into())
            .ext("i", self.properties)
            .ext_i64("j", self.reconsume_times.into())
            .ext_bool("k", false);
        if let Some(reconsume_max) = self.reconsume_max {
            out.ext_i64("l", reconsume_max.into());
        }
        out.ext_bool("m", self.is_batch).ext("n", origin.broker);
    }
}
