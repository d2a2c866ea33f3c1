//! Permits: what one connection was allowed, so that it is not looked up again for each request.
//!
//! Refusals are not kept: they are rare, or their sender has time. A permit is of one user, one address and one
//! generation of the rules; `Permits` are emptied when any of these is another.

use hashbrown::{Equivalent, HashSet};

use super::action::Actions;
use super::policy::Needed;
use super::resource::ResourceKind;

/// Permits that one connection may have; beyond, it begins anew. A consumer of 100 topics has some 300.
const PERMITS_MAX: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Permit {
    kind: ResourceKind,
    actions: Actions,
    name: Box<str>,
}

#[derive(Hash)]
struct Wanted<'a> {
    kind: ResourceKind,
    actions: Actions,
    name: &'a str,
}

impl Equivalent<Permit> for Wanted<'_> {
    fn equivalent(&self, permit: &Permit) -> bool {
        self.kind == permit.kind && self.actions == permit.actions && self.name == &*permit.name
    }
}

/// What a connection was allowed.
#[derive(Debug, Default)]
pub struct Permits {
    known: HashSet<Permit>,
}

impl Permits {
    /// Whether this was allowed before.
    #[must_use]
    pub fn has(&self, needed: Needed<'_>) -> bool {
        let Needed { resource, actions, .. } = needed;
        self.known.contains(&Wanted { kind: resource.kind, actions, name: resource.name })
    }

    /// Remembers that this is allowed.
    pub fn add(&mut self, needed: Needed<'_>) {
        if self.known.len() >= PERMITS_MAX {
            self.known.clear();
        }
        let Needed { resource, actions, .. } = needed;
        self.known.insert(Permit { kind: resource.kind, actions, name: resource.name.into() });
    }

    /// Forgets everything, and keeps no memory for what comes.
    pub fn clear(&mut self) {
        self.known = HashSet::new();
    }

    /// Memory kept, without the names.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.known.capacity() * size_of::<Permit>()
    }
}
