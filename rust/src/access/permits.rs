//! Permits: caches the permissions of one connection.
//!
//! Refusals are not cached: they are rare, or their sender can wait. Permits belong to one user, one address and one
//! generation of the rules; `Permits` are cleared when any of these changes.

use hashbrown::{Equivalent, HashSet};

use super::action::Actions;
use super::policy::Needed;
use super::resource::ResourceKind;

/// Maximum number of permits per connection, at which they are cleared. A consumer of 100 topics has some 300.
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

/// The cached permissions of a connection.
#[derive(Debug, Default)]
pub struct Permits {
    known: HashSet<Permit>,
}

impl Permits {
    /// Returns whether this was permitted before.
    #[must_use]
    pub fn has(&self, needed: Needed<'_>) -> bool {
        let Needed { resource, actions, .. } = needed;
        self.known.contains(&Wanted { kind: resource.kind, actions, name: resource.name })
    }

    /// Adds a permission.
    pub fn add(&mut self, needed: Needed<'_>) {
        if self.known.len() >= PERMITS_MAX {
            self.known.clear();
        }
        let Needed { resource, actions, .. } = needed;
        self.known.insert(Permit { kind: resource.kind, actions, name: resource.name.into() });
    }

    /// Removes everything and frees the memory.
    pub fn clear(&mut self) {
        self.known = HashSet::new();
    }

    /// Returns the memory in use, without the names.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.known.capacity() * size_of::<Permit>()
    }
}
