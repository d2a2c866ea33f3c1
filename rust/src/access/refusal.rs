//! Refusals: reasons for not serving a request, for its sender and the audit log.

use std::net::IpAddr;

use thiserror::Error;

use super::policy::{Entry, Needed};
use super::resource::Resource;

/// The kind of a refusal, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The sender is not authenticated.
    Unauthenticated,
    /// The sender lacks the permission.
    Unauthorized,
    /// The sender exceeds a limit.
    Limited,
}

/// The reason why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The request names no user.
    #[error("the request is not signed: give the client an access key and its secret key")]
    Unsigned,
    /// The user is unknown, or the signature is wrong: the error does not say which.
    #[error("User:{user} is unknown, or the signature was not made with its secret key")]
    Mismatch {
        /// The name in the request.
        user: Box<str>,
    },
    /// The certificate of the connection names no known user, and the request is not signed.
    #[error(
        "User:{user}, named by the client's certificate, is unknown: create this user, or sign the request"
    )]
    Uncertified {
        /// The common name of the certificate.
        user: Box<str>,
    },
    /// The user exists but is disabled.
    #[error("User:{user} is disabled")]
    Disabled {
        /// The name in the request, or in the certificate of the connection.
        user: Box<str>,
    },
    /// The request has too many header fields to check its signature.
    #[error("the request has too many header fields to be checked")]
    TooManyFields,
    /// The request is signed, and has a field to which the end of another may have been moved.
    #[error(
        "the signed request has the field {field}, which no client sends: it may have been changed in transit"
    )]
    Undeclared {
        /// The name of the field.
        field: Box<str>,
    },
    /// An authentication on this connection just failed, and its answer is delayed.
    #[error("too many requests from {source_address} could not be authenticated")]
    Guessing {
        /// The source address.
        source_address: IpAddr,
    },
    /// The user has used up a limit.
    #[error("[OVERLOAD]User:{user} has reached the limit of {limit} {what}: try again later")]
    Limited {
        /// The user.
        user: Box<str>,
        /// The unit of the limit.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The user lacks the permission.
    #[error("User:{user} has no permission to {actions} {resource} from {source_address}: {reason}")]
    Forbidden {
        /// The user.
        user: Box<str>,
        /// The actions, one of which is required.
        actions: Box<str>,
        /// The resource.
        resource: Box<str>,
        /// The source address.
        source_address: IpAddr,
        /// The deciding entry, or that there is none.
        reason: Box<str>,
    },
}

/// The reason when policies do not apply.
pub(crate) const RESERVED: &str = "internal topics and groups are reserved for super users";

/// Maximum characters shown of a name, which a client may choose freely.
const SHOWN_CHARS_MAX: usize = 64;

/// Returns a name for answers and logs: its beginning, on one line.
#[must_use]
pub fn shown(name: &str) -> Box<str> {
    let shown = name.chars().take(SHOWN_CHARS_MAX);
    shown.map(|char| if char.is_control() { '?' } else { char }).collect::<String>().into()
}

fn shown_resource(needed: Needed<'_>) -> Box<str> {
    let Resource { kind, name } = needed.resource;
    format!("{}:{}", kind.name(), shown(name)).into()
}

impl Refusal {
    /// Refuses what `user` needs, because of `entry`, or because there is none.
    #[cold]
    pub(super) fn forbidden(
        user: &str,
        needed: Needed<'_>,
        source_address: IpAddr,
        entry: Option<&Entry>,
    ) -> Self {
        let reason = entry.map_or_else(|| "no policy allows it".to_owned(), |entry| format!("{entry}"));
        Self::because(user, needed, source_address, reason.into())
    }

    /// Refuses an operation reserved for super users.
    #[cold]
    pub(super) fn reserved(user: &str, needed: Needed<'_>, source_address: IpAddr) -> Self {
        Self::because(user, needed, source_address, RESERVED.into())
    }

    fn because(user: &str, needed: Needed<'_>, source_address: IpAddr, reason: Box<str>) -> Self {
        Self::Forbidden {
            user: shown(user),
            actions: needed.actions.to_string().into(),
            resource: shown_resource(needed),
            source_address,
            reason,
        }
    }

    /// Returns the kind of the refusal.
    #[must_use]
    pub fn kind(&self) -> RefusalKind {
        match self {
            Self::Forbidden { .. } => RefusalKind::Unauthorized,
            Self::Limited { .. } => RefusalKind::Limited,
            _ => RefusalKind::Unauthenticated,
        }
    }
}
