//! Header of POP_LITE_MESSAGE.

use super::pop::PopHeader;
use crate::remoting::error::FieldError;
use crate::remoting::header::{Header, number};

/// Fields of POP_LITE_MESSAGE: those of a pop in order, and the client that has subscribed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PopLiteHeader<'h> {
    pub(crate) client: &'h str,
    /// `topic` is the parent.
    pub(crate) pop: PopHeader<'h>,
}

impl<'h> PopLiteHeader<'h> {
    pub(crate) fn decode(header: &'h Header) -> Result<Self, FieldError> {
        // A group without progress begins at the last message.
        let mut pop = PopHeader { queue_id: -1, init_mode: 1, is_ordered: true, ..PopHeader::default() };
        let mut client = "";
        for (name, value) in header.ext() {
            match name {
                "clientId" => client = value,
                "consumerGroup" => pop.group = value,
                "topic" => pop.topic = value,
                "maxMsgNum" => pop.messages_max = number(name, value)?,
                "invisibleTime" => pop.invisible_ms = number(name, value)?,
                "pollTime" => pop.poll_ms = number(name, value)?,
                "bornTime" => pop.born_ms = number(name, value)?,
                "attemptId" => pop.attempt = Some(value).filter(|value| !value.is_empty()),
                _ => {}
            }
        }
        Ok(Self { client, pop })
    }
}
