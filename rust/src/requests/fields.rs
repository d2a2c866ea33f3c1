//! Fields: all names that the fields of sends and pulls may have.
//!
//! A signature is over values, one behind the other, and not over names: the end of a value, moved into a field that
//! nobody reads, leaves it as it was. Requests of which every field is known here are refused with another one, where
//! they are signed. Releases up to 5.5 of the Java client, and those of Go, C++ and Node, send no others.
//!
//! What is left is the border between two fields that follow one another: only encryption keeps it.

use crate::access::signature::{ACCESS_KEY, SECURITY_TOKEN, SIGNATURE};
use crate::remoting::codes::request;
use crate::remoting::header::Header;

/// Of every request: what signs it, what hooks of clients add, what all headers of 5.x have.
const INHERITED: [&str; 10] =
    [ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, "OnsChannel", "ReqT", "bname", "ns", "nsd", "lo", "oway"];
/// Of sends with letters for names.
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

/// The name of the first field that no client gives a request of this kind; `None` also where not all names are known.
pub(crate) fn undeclared(header: &Header) -> Option<&str> {
    let own: &[&str] = match header.code {
        request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => &SEND,
        request::PULL_MESSAGE | request::LITE_PULL_MESSAGE => &PULL,
        _ => return None,
    };
    let mut names = header.ext().map(|(name, _)| name);
    names.find(|name| !own.contains(name) && !INHERITED.contains(name))
}
