//! Send-back header: the fields of CONSUMER_SEND_MSG_BACK.

use crate::remoting::codes::RECONSUME_MAX_SINCE;
use crate::remoting::error::FieldError;
use crate::remoting::header::{Header, number};

#[derive(Debug, Default)]
pub(super) struct SendBackHeader<'h> {
    pub group: &'h str,
    /// Position in the log; -1 where it is missing.
    pub offset: i64,
    /// Below 0 for the dead letters, 0 for what comes next.
    pub delay_level: i32,
    /// The client's limit of retries, where its release may set one.
    pub reconsume_max: Option<i32>,
}

impl<'h> SendBackHeader<'h> {
    pub fn decode(header: &'h Header) -> Result<Self, FieldError> {
        let mut fields = Self { offset: -1, ..Self::default() };
        for (name, value) in header.ext() {
            match name {
                "group" => fields.group = value,
                "offset" => fields.offset = number(name, value)?,
                "delayLevel" => fields.delay_level = number(name, value)?,
                "maxReconsumeTimes" if header.version >= RECONSUME_MAX_SINCE => {
                    fields.reconsume_max = Some(number(name, value)?);
                }
                _ => {}
            }
        }
        Ok(fields)
    }
}
