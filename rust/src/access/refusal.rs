//! Refusals: why a request is not served, as its sender and the audit read it.

use std::net::IpAddr;

use thiserror::Error;

use super::policy::{Entry, Needed};
use super::resource::Resource;

/// What kind of refusal it is, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// Nobody knows who sent it.
    Unauthenticated,
    /// Its sender may not do that.
    Unauthorized,
    /// Its sender asks for too much at once.
    Limited,
}

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It names no user.
    #[error("the request is not signed: give the client an access key and its secret key")]
    Unsigned,
    /// The user is not there, or the signature is not theirs: which of both is not told.
    #[error("User:{user} is unknown, or the signature was not made with its secret key")]
    Mismatch {
        /// As the request names it.
        user: Box<str>,
    },
    /// The certificate of its connection is for nobody who is a user, and it is not signed.
    #[error(
        "User:{user}, whom the client's certificate is for, is unknown: make this user, or sign the request"
    )]
    Uncertified {
        /// The common name of the certificate.
        user: Box<str>,
    },
    /// The user is there, and was disabled.
    #[error("User:{user} is disabled")]
    Disabled {
        /// As the request, or its connection's certificate, names it.
        user: Box<str>,
    },
    /// Too many of its header fields to be signed.
    #[error("the request has too many header fields to be checked")]
    TooManyFields,
    /// It is signed, and has a field into which the end of another one may have been moved.
    #[error(
        "the signed request has the field {field}, which no client sends: it may have been changed on its way"
    )]
    Undeclared {
        /// Its name.
        field: Box<str>,
    },
    /// Its connection has just failed to authenticate, and waits.
    #[error("too many requests from {source_address} could not be authenticated")]
    Guessing {
        /// Where they came from.
        source_address: IpAddr,
    },
    /// The user has used up what it may.
    #[error("[OVERLOAD]User:{user} may use {limit} {what}, and has done so: try again later")]
    Limited {
        /// Who asked.
        user: Box<str>,
        /// Of what.
        what: &'static str,
        /// How much.
        limit: u64,
    },
    /// The user may not do that.
    #[error("User:{user} has no permission to {actions} {resource} from {source_address}: {reason}")]
    Forbidden {
        /// Who asked.
        user: Box<str>,
        /// One of these would do.
        actions: Box<str>,
        /// What they are done to.
        resource: Box<str>,
        /// Where it came from.
        source_address: IpAddr,
        /// The deciding entry, or that there is none.
        reason: Box<str>,
    },
}

/// Why a policy has no say.
pub(crate) const RESERVED: &str = "internal topics and groups are reserved for super users";

/// Characters of a name that are shown: it may be anything that somebody sent.
const SHOWN_CHARS_MAX: usize = 64;

/// A name as answers and logs show it: its beginning, on one line.
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
    /// The refusal of what `user` needs, by `entry` or for want of one.
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

    /// The refusal of what only super users may do.
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

    /// Which kind this is.
    #[must_use]
    pub fn kind(&self) -> RefusalKind {
        match self {
            Self::Forbidden { .. } => RefusalKind::Unauthorized,
            Self::Limited { .. } => RefusalKind::Limited,
            _ => RefusalKind::Unauthenticated,
        }
    }
}
