//! Send back: CONSUMER_SEND_MSG_BACK, written by Python with fields for other brokers.

use crate::remoting::codes::RECONSUME_MAX_SINCE;
use crate::remoting::error::FieldError;
use crate::remoting::header::{Header, number};

#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct SendBackHeader<'h> {
    pub(crate) group: &'h str,
    /// Position in the log; -1 if missing.
    pub(crate) offset: i64,
    /// Below 0 for the dead-letter topic, 0 for the next level.
    pub(crate) delay_level: i32,
    /// The client's retry limit, if its release sends a meaningful one.
    pub(crate) reconsume_max: Option<i32>,
}

impl<'h> SendBackHeader<'h> {
    pub(crate) fn decode(header: &'h Header) -> Result<Self, FieldError> {
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
