//! Send header: the fields of SEND_MESSAGE under their long names, of its second version and of a batch under letters.

use crate::remoting::codes::{RECONSUME_MAX_SINCE, request};
use crate::remoting::error::FieldError;
use crate::remoting::header::{Header, number};

#[derive(Debug, Default)]
pub(super) struct SendHeader<'h> {
    pub topic: &'h str,
    /// Negative for any.
    pub queue_id: i32,
    pub sys_flag: i32,
    pub born_timestamp_ms: i64,
    pub flag: i32,
    pub properties: &'h str,
    /// Deliveries the message has behind it.
    pub reconsume_times: i32,
    /// The client's limit of retries, where its release may set one.
    pub reconsume_max: Option<i32>,
    pub is_batch: bool,
}

impl<'h> SendHeader<'h> {
    /// Reads every field in one pass.
    pub fn decode(header: &'h Header) -> Result<Self, FieldError> {
        let mut fields = Self::default();
        let mut queue_id = None;
        let is_long = header.code == request::SEND_MESSAGE;
        for (name, value) in header.ext() {
            match (is_long, name) {
                (false, "b") | (true, "topic") => fields.topic = value,
                (false, "e") | (true, "queueId") => queue_id = Some(number(name, value)?),
                (false, "f") | (true, "sysFlag") => fields.sys_flag = number(name, value)?,
                (false, "g") | (true, "bornTimestamp") => fields.born_timestamp_ms = number(name, value)?,
                (false, "h") | (true, "flag") => fields.flag = number(name, value)?,
                (false, "i") | (true, "properties") => fields.properties = value,
                (false, "j") | (true, "reconsumeTimes") => fields.reconsume_times = number(name, value)?,
                (false, "l") | (true, "maxReconsumeTimes") => {
                    fields.reconsume_max = Some(number(name, value)?)
                }
                (false, "m") | (true, "batch") => fields.is_batch = value.eq_ignore_ascii_case("true"),
                _ => {}
            }
        }
        fields.queue_id = queue_id.ok_or(FieldError::Missing("queueId"))?;
        fields.reconsume_max = fields.reconsume_max.filter(|_| header.version >= RECONSUME_MAX_SINCE);
        Ok(fields)
    }
}
