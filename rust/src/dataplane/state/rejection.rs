//! Rejection: reasons for not serving a request now, and their error replies.

use std::borrow::Cow;
use std::time::Duration;

use crate::remoting::codes::response;
use crate::remoting::error::FieldError;
use crate::store::{LightError, PutError, StoreError};

/// Maximum wait of a frame for a topic or group from Python.
pub(in crate::dataplane) const PARKED_MAX: Duration = Duration::from_secs(3);
/// Maximum wait of a send for space in the log.
pub(in crate::dataplane) const PARKED_SEND_MAX: Duration = Duration::from_secs(5);

/// The reason for not serving a request now.
#[derive(Debug)]
pub(in crate::dataplane) enum Rejection {
    Refused(ErrorReply),
    /// Refused with a delayed reply.
    Late(ErrorReply, Duration),
    Missing(Missing, String),
    /// The log has no space at present; the request can wait.
    NoRoom,
    /// Another broker has the data; Python queries it.
    Elsewhere,
}

impl From<ErrorReply> for Rejection {
    fn from(error_reply: ErrorReply) -> Self {
        Self::Refused(error_reply)
    }
}

/// The object that a parked frame waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Missing {
    /// A topic that the first send creates.
    Topic,
    /// A subscription group that the first pull creates.
    Group,
}

/// A refusal with the text for the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReply {
    pub(crate) code: i32,
    /// The cause and the advice.
    pub(crate) remark: Cow<'static, str>,
    /// For pulls refused by a permission: 1 broker, 2 group, 3 topic, 4 broadcast, 5 subscription.
    pub(in crate::dataplane) forbidden: Option<i32>,
}

impl ErrorReply {
    pub(crate) fn new(code: i32, remark: impl Into<Cow<'static, str>>) -> Self {
        Self { code, remark: remark.into(), forbidden: None }
    }

    pub(in crate::dataplane) fn forbidden(
        code: i32,
        kind: i32,
        remark: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { code, remark: remark.into(), forbidden: Some(kind) }
    }
}

/// Returns the refusal of a request because of overload.
pub(crate) fn overload() -> ErrorReply {
    ErrorReply::new(response::SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")
}

/// Returns the refusal of a request that waited too long for its turn; operators search for the prefix.
pub(in crate::dataplane) fn took_too_long(waited: Duration, left: usize) -> ErrorReply {
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

/// A failure of the store; clients retry a request with this code at the same broker.
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

/// Returns the refusal for a topic that does not exist and is not created.
pub(crate) fn unknown_topic(name: &str) -> ErrorReply {
    let remark =
        format!("topic[{name}] not exist, apply first please! Create it with: rmqpy topic create {name}");
    ErrorReply::new(response::TOPIC_NOT_EXIST, remark)
}

/// Returns the refusal of a send whose queue the store cannot open.
pub(in crate::dataplane) fn unavailable(error: StoreError) -> ErrorReply {
    match error {
        StoreError::TopicDeleted { topic } => unknown_topic(&topic),
        StoreError::LightQueues { .. } => ErrorReply::new(response::LMQ_QUOTA_EXCEEDED, error.to_string()),
        error => ErrorReply::new(response::SERVICE_NOT_AVAILABLE, error.to_string()),
    }
}

/// Returns a slave's refusal of sends and returned messages; clients retry at another master. Operators know the
/// prefix from Apache's slaves.
pub(crate) fn takes_no_messages() -> ErrorReply {
    let remark = "[REJECTREQUEST]system busy, start flow control for a while: this broker is a slave, which takes no messages; \
                  send to its master";
    ErrorReply::new(response::SYSTEM_BUSY, remark)
}

/// Returns a slave's refusal of a pull if it does not serve pulls.
pub(in crate::dataplane) fn serves_no_reads() -> ErrorReply {
    let remark = "[REJECTREQUEST]system busy, start flow control for a while: this broker is a slave, which serves no \
                  consumers with slaveReadEnable=false; pull from its master";
    ErrorReply::new(response::SYSTEM_BUSY, remark)
}

/// Returns a slave's refusal of a request about a message of its master.
pub(crate) fn ask_the_master() -> ErrorReply {
    ErrorReply::new(response::SLAVE_NOT_AVAILABLE, "this broker is a slave; ask its master")
}

/// Returns the refusal of messages that would be stored and never delivered.
pub(in crate::dataplane) fn not_served(what: &str) -> ErrorReply {
    ErrorReply::new(response::MESSAGE_ILLEGAL, format!("{what} are not served yet; nothing was stored"))
}

/// Returns the refusal after a wait for a name that was not created in time.
pub(in crate::dataplane) fn not_made(missing: Missing, name: &str) -> ErrorReply {
    let remark = format!("{name} was not created within {} s", PARKED_MAX.as_secs());
    ErrorReply { remark: remark.into(), ..missing_reply(missing, name) }
}

pub(in crate::dataplane) fn missing_reply(missing: Missing, name: &str) -> ErrorReply {
    match missing {
        Missing::Topic => unknown_topic(name),
        Missing::Group => ErrorReply::new(
            response::SUBSCRIPTION_GROUP_NOT_EXIST,
            format!("subscription group [{name}] does not exist"),
        ),
    }
}

/// Returns the refusal of a message that the store did not append.
pub(in crate::dataplane) fn put_refused(error: &PutError) -> ErrorReply {
    let code = match error {
        PutError::TooLarge | PutError::TooManyLights => response::MESSAGE_ILLEGAL,
        PutError::Pending | PutError::Busy => response::SYSTEM_BUSY,
        PutError::QueueGone => response::TOPIC_NOT_EXIST,
        PutError::ReadOnly | PutError::DiskFull | PutError::Replica => response::SERVICE_NOT_AVAILABLE,
    };
    ErrorReply::new(code, error.to_string())
}

/// Returns the refusal of a message that names light queues.
pub(in crate::dataplane) fn lights_refused(error: LightError) -> ErrorReply {
    let code = match error {
        LightError::Store(error) => return unavailable(error),
        LightError::Put(error) => return put_refused(&error),
        LightError::List(_) => response::MESSAGE_ILLEGAL,
        LightError::Quota => response::LMQ_QUOTA_EXCEEDED,
    };
    ErrorReply::new(code, error.to_string())
}

/// Returns the refusal of a send after its wait for space in the log, or at the bounds on parked sends.
pub(in crate::dataplane) fn no_room() -> ErrorReply {
    // Operators know the overload of an original broker by this prefix.
    let remark = format!("[PC_SYNCHRONIZED]broker busy, start flow control for a while: {}", PutError::Busy);
    ErrorReply::new(response::SYSTEM_BUSY, remark)
}
