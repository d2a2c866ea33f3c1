//! Policies: the permissions of a user, and the choice of the deciding entry.
//!
//! An entry allows or denies some actions on some resources, from anywhere or from some addresses. Of the entries that apply
//! to a request the most precise one decides, and a Deny before an Allow of the same precision. Default entries count only
//! if no custom entry applies.

use std::fmt;
use std::net::IpAddr;

use super::action::Actions;
use super::network::Network;
use super::resource::{Resource, ResourcePattern};

/// The decision of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// Allow; yields to a Deny of the same precision.
    Allow,
    /// Deny.
    Deny,
}

/// An entry of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The resources it applies to.
    pub resources: ResourcePattern,
    /// The actions it applies to.
    pub actions: Actions,
    /// The source addresses it applies to; empty for all.
    pub sources: Box<[Network]>,
    /// Its decision.
    pub decision: Decision,
}

impl Entry {
    fn applies_to(&self, needed: Needed<'_>, source: IpAddr) -> bool {
        self.resources.matches(needed.resource)
            && self.actions.cover(needed.actions)
            && (self.sources.is_empty() || self.sources.iter().any(|network| network.contains(source)))
    }
}

/// `Deny of Pub, Sub on Topic:orders`, as refusals and audits name it.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} on {}", self.decision, self.actions, self.resources)
    }
}

/// The permission a request needs: one of these actions on this resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed<'a> {
    /// The resource.
    pub resource: Resource<'a>,
    /// The actions, any of which is enough.
    pub actions: Actions,
    /// Reserved for super users, regardless of policies.
    pub is_reserved: bool,
}

/// The policies of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// Custom entries, which come first.
    pub custom: Vec<Entry>,
    /// Entries for requests to which no custom entry applies.
    pub default: Vec<Entry>,
}

impl Policies {
    /// Returns the entry that decides about `needed` from `source`; `None` if none applies, which means refusal.
    #[must_use]
    pub fn deciding(&self, needed: Needed<'_>, source: IpAddr) -> Option<&Entry> {
        let most_precise = |entries: &'_ [Entry]| {
            let speaking = entries.iter().enumerate().filter(|(_, entry)| entry.applies_to(needed, source));
            speaking.max_by_key(|(_, entry)| (entry.resources.precision(), entry.decision)).map(|(at, _)| at)
        };
        let custom = most_precise(&self.custom).and_then(|at| self.custom.get(at));
        custom.or_else(|| most_precise(&self.default).and_then(|at| self.default.get(at)))
    }
}
