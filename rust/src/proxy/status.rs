//! Status: the codes of 5.x clients, and the refusal of a request.
//!
//! A refusal is a response like any other; errors of gRPC itself are left to transport and stream.

use std::fmt;

use super::api::Status;
use crate::remoting::CallError;
use crate::remoting::codes::response;

/// The codes in use, named as in the interface.
pub(super) mod code {
    pub(in crate::proxy) const OK: i32 = 20_000;
    pub(in crate::proxy) const MULTIPLE_RESULTS: i32 = 30_000;
    pub(in crate::proxy) const BAD_REQUEST: i32 = 40_000;
    pub(in crate::proxy) const ILLEGAL_TOPIC: i32 = 40_002;
    pub(in crate::proxy) const ILLEGAL_CONSUMER_GROUP: i32 = 40_003;
    pub(in crate::proxy) const ILLEGAL_MESSAGE_TAG: i32 = 40_004;
    pub(in crate::proxy) const ILLEGAL_MESSAGE_KEY: i32 = 40_005;
    pub(in crate::proxy) const ILLEGAL_MESSAGE_GROUP: i32 = 40_006;
    pub(in crate::proxy) const ILLEGAL_MESSAGE_PROPERTY_KEY: i32 = 40_007;
    pub(in crate::proxy) const INVALID_TRANSACTION_ID: i32 = 40_008;
    pub(in crate::proxy) const ILLEGAL_MESSAGE_ID: i32 = 40_009;
    pub(in crate::proxy) const ILLEGAL_FILTER_EXPRESSION: i32 = 40_010;
    pub(in crate::proxy) const ILLEGAL_INVISIBLE_TIME: i32 = 40_011;
    pub(in crate::proxy) const ILLEGAL_DELIVERY_TIME: i32 = 40_012;
    pub(in crate::proxy) const INVALID_RECEIPT_HANDLE: i32 = 40_013;
    pub(in crate::proxy) const MESSAGE_PROPERTY_CONFLICT_WITH_TYPE: i32 = 40_014;
    pub(in crate::proxy) const UNRECOGNIZED_CLIENT_TYPE: i32 = 40_015;
    pub(in crate::proxy) const MESSAGE_CORRUPTED: i32 = 40_016;
    pub(in crate::proxy) const CLIENT_ID_REQUIRED: i32 = 40_017;
    pub(in crate::proxy) const ILLEGAL_POLLING_TIME: i32 = 40_018;
    pub(in crate::proxy) const ILLEGAL_OFFSET: i32 = 40_019;
    pub(in crate::proxy) const ILLEGAL_LITE_TOPIC: i32 = 40_020;
    pub(in crate::proxy) const INVALID_CLIENT_PROPERTIES: i32 = 40_021;
    pub(in crate::proxy) const UNAUTHORIZED: i32 = 40_100;
    pub(in crate::proxy) const FORBIDDEN: i32 = 40_300;
    pub(in crate::proxy) const MESSAGE_NOT_FOUND: i32 = 40_401;
    pub(in crate::proxy) const TOPIC_NOT_FOUND: i32 = 40_402;
    pub(in crate::proxy) const CONSUMER_GROUP_NOT_FOUND: i32 = 40_403;
    pub(in crate::proxy) const OFFSET_NOT_FOUND: i32 = 40_404;
    pub(in crate::proxy) const MESSAGE_BODY_TOO_LARGE: i32 = 41_301;
    pub(in crate::proxy) const MESSAGE_BODY_EMPTY: i32 = 41_302;
    pub(in crate::proxy) const TOO_MANY_REQUESTS: i32 = 42_900;
    pub(in crate::proxy) const LITE_TOPIC_QUOTA_EXCEEDED: i32 = 42_901;
    pub(in crate::proxy) const LITE_SUBSCRIPTION_QUOTA_EXCEEDED: i32 = 42_902;
    pub(in crate::proxy) const MESSAGE_PROPERTIES_TOO_LARGE: i32 = 43_101;
    pub(in crate::proxy) const INTERNAL_SERVER_ERROR: i32 = 50_001;
    pub(in crate::proxy) const HA_NOT_AVAILABLE: i32 = 50_002;
    pub(in crate::proxy) const NOT_IMPLEMENTED: i32 = 50_100;
    pub(in crate::proxy) const PROXY_TIMEOUT: i32 = 50_400;
    pub(in crate::proxy) const MASTER_PERSISTENCE_TIMEOUT: i32 = 50_401;
    pub(in crate::proxy) const SLAVE_PERSISTENCE_TIMEOUT: i32 = 50_402;
}

/// Returns the status of success.
pub(super) fn ok() -> Status {
    Status { code: code::OK, message: "OK".to_owned() }
}

/// Returns the status of a result: success, or the refusal.
pub(super) fn status<T>(result: &Result<T, Refused>) -> Status {
    result.as_ref().map_or_else(Refused::status, |_| ok())
}

/// Returns the status of several results: theirs if all have the same code.
pub(super) fn overall<'a>(statuses: impl Iterator<Item = &'a Status>, empty: &str) -> Status {
    let mut first: Option<&Status> = None;
    for status in statuses {
        match first {
            Some(first) if first.code != status.code => {
                return Status { code: code::MULTIPLE_RESULTS, message: "MULTIPLE_RESULTS".to_owned() };
            }
            Some(_) => {}
            None => first = Some(status),
        }
    }
    first.cloned().unwrap_or_else(|| Refused::new(code::INTERNAL_SERVER_ERROR, empty).status())
}

/// A refused request, with the text for its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: i32,
    pub(super) text: String,
}

impl Refused {
    pub(super) fn new(code: i32, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    pub(super) fn status(&self) -> Status {
        Status { code: self.code, message: self.text.clone() }
    }

    /// Returns the refusal of a broker. With access control, a lack of permission is one of the sender.
    pub(super) fn by_broker(remoting_code: i32, remark: &str, is_guarded: bool) -> Self {
        let code = match remoting_code {
            // Clients repeat such a send, which may reach the new master; too many requests they do not repeat.
            response::SYSTEM_BUSY if remark.contains("this broker is a slave") => code::INTERNAL_SERVER_ERROR,
            response::SYSTEM_BUSY => code::TOO_MANY_REQUESTS,
            response::REQUEST_CODE_NOT_SUPPORTED => code::NOT_IMPLEMENTED,
            response::TOPIC_NOT_EXIST => code::TOPIC_NOT_FOUND,
            response::SUBSCRIPTION_GROUP_NOT_EXIST => code::CONSUMER_GROUP_NOT_FOUND,
            response::SUBSCRIPTION_PARSE_FAILED => code::ILLEGAL_FILTER_EXPRESSION,
            response::QUERY_NOT_FOUND => code::OFFSET_NOT_FOUND,
            response::LMQ_QUOTA_EXCEEDED => code::LITE_TOPIC_QUOTA_EXCEEDED,
            response::LITE_SUBSCRIPTION_QUOTA_EXCEEDED => code::LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
            response::NO_PERMISSION if is_guarded => code::UNAUTHORIZED,
            response::NO_PERMISSION => code::FORBIDDEN,
            response::MESSAGE_ILLEGAL if remark.contains("TopicMessageType") => {
                code::MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
            }
            _ => code::INTERNAL_SERVER_ERROR,
        };
        Self::new(code, remark)
    }
}

impl From<CallError> for Refused {
    fn from(error: CallError) -> Self {
        let code = match error {
            CallError::Overloaded { .. } => code::TOO_MANY_REQUESTS,
            CallError::Timeout { .. } => code::PROXY_TIMEOUT,
            _ => code::INTERNAL_SERVER_ERROR,
        };
        Self::new(code, error.to_string())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.code)
    }
}
