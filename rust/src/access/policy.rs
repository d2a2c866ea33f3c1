//! Policies: what one user may do, and which entry decides.
//!
//! An entry allows or denies some actions on some resources, from anywhere or from some addresses. Of those that speak
//! of a request the most precise one decides, and a Deny before an Allow that is as precise. Default entries are asked
//! where no custom one speaks of the request at all.

use std::fmt;
use std::net::IpAddr;

use super::action::Actions;
use super::network::Network;
use super::resource::{Resource, ResourcePattern};

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// Of two that are as precise, the one that yields.
    Allow,
    /// The one that wins.
    Deny,
}

/// One rule of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is about.
    pub resources: ResourcePattern,
    /// What is done with it.
    pub actions: Actions,
    /// Where from; with none, from anywhere.
    pub sources: Box<[Network]>,
    /// Whether that may be done.
    pub decision: Decision,
}

impl Entry {
    fn speaks_of(&self, needed: Needed<'_>, source: IpAddr) -> bool {
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

/// What a request needs: one of these actions on this resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed<'a> {
    /// What it is done to.
    pub resource: Resource<'a>,
    /// Any of these is enough.
    pub actions: Actions,
    /// Super users alone may do it, whatever policies say.
    pub is_reserved: bool,
}

/// Everything that one user may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// Asked first.
    pub custom: Vec<Entry>,
    /// Asked where no custom entry speaks of the request.
    pub default: Vec<Entry>,
}

impl Policies {
    /// The entry that decides about `needed` from `source`; `None` where none speaks of it, which is a refusal.
    #[must_use]
    pub fn deciding(&self, needed: Needed<'_>, source: IpAddr) -> Option<&Entry> {
        let most_precise = |entries: &'_ [Entry]| {
            let speaking = entries.iter().enumerate().filter(|(_, entry)| entry.speaks_of(needed, source));
            speaking.max_by_key(|(_, entry)| (entry.resources.precision(), entry.decision)).map(|(at, _)| at)
        };
        let custom = most_precise(&self.custom).and_then(|at| self.custom.get(at));
        custom.or_else(|| most_precise(&self.default).and_then(|at| self.default.get(at)))
    }
}
