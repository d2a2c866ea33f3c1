//! Sends to lite topics: the queue that a message is stored in besides that of its topic.

use crate::dataplane::state::metadata::Topic;
use crate::dataplane::state::rejection::ErrorReply;
use crate::message::MessageType;
use crate::message::lite::{self, NAME_BYTES_MAX};
use crate::message::properties::{self, name};
use crate::remoting::codes::response;

/// Returns the queue of the lite topic that a message names; `None` if it names none, or its topic has no lite topics.
pub(super) fn queue(topic: &Topic, properties: &str) -> Result<Option<String>, ErrorReply> {
    if topic.message_type != Some(MessageType::Lite) {
        return Ok(None);
    }
    let Some(named) = properties::get(properties.as_bytes(), name::LITE_TOPIC) else { return Ok(None) };
    // Parts of text between separators of one byte are text.
    let named = std::str::from_utf8(named).unwrap_or_default();
    let illegal = || {
        let remark = format!(
            "the message is illegal: lite topic [{}] must have 1 to {NAME_BYTES_MAX} letters, digits, _ and -",
            named.escape_debug()
        );
        ErrorReply::new(response::MESSAGE_ILLEGAL, remark)
    };
    lite::queue_of(&topic.name, named).map(Some).ok_or_else(illegal)
}
