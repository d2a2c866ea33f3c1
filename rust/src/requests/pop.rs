//! Headers of POP requests: POP_MESSAGE, PEEK_MESSAGE, NOTIFICATION, POLLING_INFO, ACK_MESSAGE,
//! CHANGE_MESSAGE_INVISIBLETIME. A batch of acknowledgements has a body instead.

use std::fmt::{self, Display};

use crate::remoting::error::FieldError;
use crate::remoting::header::{Header, number};

/// The text by which a consumer names a message that it popped: eight fields with a space between them.
pub(crate) struct HandleText<'a> {
    /// The start offset of the read.
    pub(crate) start: &'a dyn Display,
    pub(crate) pop_ms: &'a dyn Display,
    pub(crate) invisible_ms: &'a dyn Display,
    pub(crate) revive_queue: &'a dyn Display,
    /// 0 for the topic, 1 and 2 for its retry topics.
    pub(crate) mark: &'a dyn Display,
    pub(crate) broker: &'a str,
    pub(crate) queue: &'a dyn Display,
    pub(crate) offset: &'a dyn Display,
}

impl Display for HandleText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, pop_ms, invisible_ms, revive_queue, mark, broker, queue, offset } = self;
        write!(f, "{start} {pop_ms} {invisible_ms} {revive_queue} {mark} {broker} {queue} {offset}")
    }
}

/// Fields of POP_MESSAGE, and of PEEK_MESSAGE, NOTIFICATION and POLLING_INFO, which have some of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PopHeader<'h> {
    pub(crate) group: &'h str,
    pub(crate) topic: &'h str,
    /// Below 0 for any queue.
    pub(crate) queue_id: i32,
    pub(crate) messages_max: i32,
    pub(crate) invisible_ms: i64,
    /// Longest wait for a message, counted from `born_ms`.
    pub(crate) poll_ms: i64,
    /// When the client sent it; 0 where it does not say.
    pub(crate) born_ms: i64,
    /// Where a group without progress begins: 0 at the first message, 1 at the last.
    pub(crate) init_mode: i32,
    pub(crate) expression_type: &'h str,
    pub(crate) expression: &'h str,
    pub(crate) is_ordered: bool,
    /// The client's name for a pop in order, with which it repeats one whose answer it did not get.
    pub(crate) attempt: Option<&'h str>,
}

impl<'h> PopHeader<'h> {
    pub(crate) fn decode(header: &'h Header) -> Result<Self, FieldError> {
        let mut fields = Self::default();
        for (name, value) in header.ext() {
            match name {
                "consumerGroup" => fields.group = value,
                "topic" => fields.topic = value,
                "queueId" => fields.queue_id = number(name, value)?,
                "maxMsgNums" => fields.messages_max = number(name, value)?,
                "invisibleTime" => fields.invisible_ms = number(name, value)?,
                "pollTime" => fields.poll_ms = number(name, value)?,
                "bornTime" => fields.born_ms = number(name, value)?,
                "initMode" => fields.init_mode = number(name, value)?,
                "expType" => fields.expression_type = value,
                "exp" => fields.expression = value,
                "order" => fields.is_ordered = value.eq_ignore_ascii_case("true"),
                "attemptId" => fields.attempt = Some(value).filter(|value| !value.is_empty()),
                _ => {}
            }
        }
        Ok(fields)
    }
}

/// Fields of ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AckHeader<'h> {
    pub(crate) group: &'h str,
    /// The topic the message was popped from: the retry topic of a message that came again.
    pub(crate) topic: &'h str,
    pub(crate) queue_id: i32,
    /// The handle of the message.
    pub(crate) handle: &'h str,
    pub(crate) offset: i64,
    /// The new time, of a change only.
    pub(crate) invisible_ms: i64,
    /// Whether the next delivery counts as a repeat, of a change only.
    pub(crate) is_suspended: bool,
    /// The lite topic of the message; empty for a message of `topic` itself.
    pub(crate) lite_topic: &'h str,
}

impl<'h> AckHeader<'h> {
    pub(crate) fn decode(header: &'h Header) -> Result<Self, FieldError> {
        let mut fields = Self::default();
        for (name, value) in header.ext() {
            match name {
                "consumerGroup" => fields.group = value,
                "topic" => fields.topic = value,
                "queueId" => fields.queue_id = number(name, value)?,
                "extraInfo" => fields.handle = value,
                "offset" => fields.offset = number(name, value)?,
                "invisibleTime" => fields.invisible_ms = number(name, value)?,
                "liteTopic" => fields.lite_topic = value,
                "suspend" => fields.is_suspended = value.eq_ignore_ascii_case("true"),
                _ => {}
            }
        }
        Ok(fields)
    }
}
