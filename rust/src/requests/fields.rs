//! Fields: the complete field names of sends and pulls.
//!
//! A signature covers the concatenated values, not the names: moving the end of a value into an unread field keeps
//! the signature valid. So a signed request with a complete field list here is refused if it has any other field.
//! Java clients up to 5.5, and the Go, C++ and Node clients, send no others.
//!
//! The border between two adjacent fields remains movable; only encryption protects it.

use crate::access::signature::{ACCESS_KEY, SECURITY_TOKEN, SIGNATURE};
use crate::remoting::codes::request;
use crate::remoting::header::Header;

/// Fields of every request: signatures, client hooks, and those of all 5.x headers.
const INHERITED: [&str; 10] =
    [ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, "OnsChannel", "ReqT", "bname", "ns", "nsd", "lo", "oway"];
/// Fields of sends with one-letter names.
const SEND: [&str; 14] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"];
const PULL: [&str; 15] = [
    "consumerGroup",
    "topic",
    "queueId",
    "queueOffset",
    "maxMsgNums",
    "sysFlag",
    "commitOffset",
    "suspendTimeoutMillis",
    "subscription",
    "subVersion",
    "expressionType",
    "maxMsgBytes",
    "requestSource",
    "proxyFrowardClientId",
    "liteTopic",
];

/// Returns the first field that no client sends with this request; `None` also if the request's fields are not
/// listed.
pub(crate) fn undeclared(header: &Header) -> Option<&str> {
    let own: &[&str] = match header.code {
        request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => &SEND,
        request::PULL_MESSAGE | request::LITE_PULL_MESSAGE => &PULL,
        _ => return None,
    };
    let mut names = header.ext().map(|(name, _)| name);
    names.find(|name| !own.contains(name) && !INHERITED.contains(name))
}
