//! Rejection: why a request is not served now, and the error replies behind it.

use std::borrow::Cow;
use std::time::Duration;

use crate::remoting::codes::response;
use crate::remoting::error::FieldError;
use crate::store::{PutError, StoreError};

/// How long a frame waits for what Python has to make.
pub(super) const PARKED_MAX: Duration = Duration::from_secs(3);
/// How long a send waits for room in the log.
pub(super) const PARKED_SEND_MAX: Duration = Duration::from_secs(5);

/// Why a request does not go on.
#[derive(Debug)]
pub(super) enum Rejection {
    Refused(ErrorReply),
    /// Refused, and told so after a while.
    Late(ErrorReply, Duration),
    Missing(Missing, String),
    /// The log has no room now for what is to be stored; it can wait.
    NoRoom,
}

impl From<ErrorReply> for Rejection {
    fn from(error_reply: ErrorReply) -> Self {
        Self::Refused(error_reply)
    }
}

/// What a parked frame waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Missing {
    /// A topic that the first send creates.
    Topic,
    /// A subscription group that the first pull creates.
    Group,
}

/// Why a request is not served, as its sender will read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReply {
    pub(crate) code: i32,
    /// What was wrong, and what to do.
    pub(crate) remark: Cow<'static, str>,
    /// For pulls refused by a permission: 1 broker, 2 group, 3 topic, 4 broadcast, 5 subscription.
    pub(super) forbidden: Option<i32>,
}

impl ErrorReply {
    pub(crate) fn new(code: i32, remark: impl Into<Cow<'static, str>>) -> Self {
        Self { code, remark: remark.into(), forbidden: None }
    }

    pub(super) fn forbidden(code: i32, kind: i32, remark: impl Into<Cow<'static, str>>) -> Self {
        Self { code, remark: remark.into(), forbidden: Some(kind) }
    }
}

/// The refusal of a request for which there is no room.
pub(crate) fn overload() -> ErrorReply {
    ErrorReply::new(response::SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")
}

/// The refusal of a request that waited too long for its turn; operators look for the prefix.
pub(super) fn took_too_long(waited: Duration, left: usize) -> ErrorReply {
    let remark = format!(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {}ms, size of queue: {left}",
        waited.as_millis(),
    );
    ErrorReply::new(response::SYSTEM_BUSY, remark)
}

impl From<FieldError> for ErrorReply {
    fn from(error: FieldError) -> Self {
        Self::new(response::SYSTEM_ERROR, error.to_string())
    }
}

/// What the store cannot do now. Clients try a request with this answer again where they are.
impl From<StoreError> for ErrorReply {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::TopicDeleted { topic } => unknown_topic(&topic),
            error => Self::new(response::SYSTEM_ERROR, error.to_string()),
        }
    }
}

impl From<FieldError> for Rejection {
    fn from(error: FieldError) -> Self {
        Self::Refused(error.into())
    }
}

/// The answer for a topic that is not there and will not be made.
pub(crate) fn unknown_topic(name: &str) -> ErrorReply {
    let remark =
        format!("topic[{name}] not exist, apply first please! Create it with: rmqpy topic create {name}");
    ErrorReply::new(response::TOPIC_NOT_EXIST, remark)
}

/// The answer to a send whose queue the store does not give.
pub(super) fn unavailable(error: StoreError) -> ErrorReply {
    match error {
        StoreError::TopicDeleted { topic } => unknown_topic(&topic),
        error => ErrorReply::new(response::SERVICE_NOT_AVAILABLE, error.to_string()),
    }
}

/// The answer of a slave to messages, its own and those that consumers return: what is sent to one master can be sent to
/// another. Operators know an original slave by the prefix.
pub(super) fn takes_no_messages() -> ErrorReply {
    let remark = "[REJECTREQUEST]system busy, start flow control for a while: this broker is a slave, which takes no messages; \
                  send to its master";
    ErrorReply::new(response::SYSTEM_BUSY, remark)
}

/// The answer of a slave to a pull, where it does not serve them.
pub(super) fn serves_no_reads() -> ErrorReply {
    let remark = "[REJECTREQUEST]system busy, start flow control for a while: this broker is a slave, which serves no \
                  consumers with slaveReadEnable=false; pull from its master";
    ErrorReply::new(response::SYSTEM_BUSY, remark)
}

/// The answer of a slave to what is about a message that its master has.
pub(super) fn ask_the_master() -> ErrorReply {
    ErrorReply::new(response::SLAVE_NOT_AVAILABLE, "this broker is a slave; ask its master")
}

/// The answer for messages that would be stored and never delivered.
pub(super) fn not_served(what: &str) -> ErrorReply {
    ErrorReply::new(response::MESSAGE_ILLEGAL, format!("{what} are not served yet; nothing was stored"))
}

/// The end of a wait for a name that was not made in time.
pub(super) fn not_made(missing: Missing, name: &str) -> ErrorReply {
    let remark = format!("{name} was not made within {} s", PARKED_MAX.as_secs());
    ErrorReply { remark: remark.into(), ..missing_reply(missing, name) }
}

pub(super) fn missing_reply(missing: Missing, name: &str) -> ErrorReply {
    match missing {
        Missing::Topic => unknown_topic(name),
        Missing::Group => ErrorReply::new(
            response::SUBSCRIPTION_GROUP_NOT_EXIST,
            format!("subscription group [{name}] does not exist"),
        ),
    }
}

/// The answer for a message that the store did not take.
pub(super) fn put_refused(error: &PutError) -> ErrorReply {
    let code = match error {
        PutError::TooLarge => response::MESSAGE_ILLEGAL,
        PutError::Pending | PutError::Busy => response::SYSTEM_BUSY,
        PutError::QueueGone => response::TOPIC_NOT_EXIST,
        PutError::ReadOnly | PutError::DiskFull | PutError::Replica => response::SERVICE_NOT_AVAILABLE,
    };
    ErrorReply::new(code, error.to_string())
}

/// The refusal of a send that has waited for room in the log, or of one for which there is no room to wait.
pub(super) fn no_room() -> ErrorReply {
    // Operators know the overload of an original broker by this prefix.
    let remark = format!("[PC_SYNCHRONIZED]broker busy, start flow control for a while: {}", PutError::Busy);
    ErrorReply::new(response::SYSTEM_BUSY, remark)
}
