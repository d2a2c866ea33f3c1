//! Actions: operations on resources, and sets of them.

use std::fmt;

/// An operation of a request on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Action {
    /// All operations; in policies, it allows or denies each of the others.
    All,
    /// Send messages.
    Pub,
    /// Receive messages, as a member of a group.
    Sub,
    /// Create the resource.
    Create,
    /// Change the resource.
    Update,
    /// Remove the resource.
    Delete,
    /// Read the resource.
    Get,
    /// List resources of its kind.
    List,
}

impl Action {
    /// Every action, in Apache's order.
    pub const EACH: [Self; 8] =
        [Self::All, Self::Pub, Self::Sub, Self::Create, Self::Update, Self::Delete, Self::Get, Self::List];

    /// Apache's name of the action.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "All",
            Self::Pub => "Pub",
            Self::Sub => "Sub",
            Self::Create => "Create",
            Self::Update => "Update",
            Self::Delete => "Delete",
            Self::Get => "Get",
            Self::List => "List",
        }
    }

    /// Returns the action with this name, in any case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::EACH.into_iter().find(|action| action.name().eq_ignore_ascii_case(name))
    }
}

/// A set of actions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Actions(u8);

impl Actions {
    /// Returns the set of these actions.
    #[must_use]
    pub const fn of(actions: &[Action]) -> Self {
        let mut bits = 0;
        let mut rest = actions;
        while let [first, behind @ ..] = rest {
            bits |= 1 << *first as u8;
            rest = behind;
        }
        Self(bits)
    }

    /// Returns whether an entry with these actions applies to a request that needs one of `needed`.
    #[must_use]
    pub const fn cover(self, needed: Self) -> bool {
        const ALL: Actions = Actions::of(&[Action::All]);
        self.0 & (needed.0 | ALL.0) != 0
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the actions of the set, in the order of `Action::EACH`.
    pub fn each(self) -> impl Iterator<Item = Action> {
        Action::EACH.into_iter().filter(move |action| self.0 & 1 << *action as u8 != 0)
    }
}

impl FromIterator<Action> for Actions {
    fn from_iter<I: IntoIterator<Item = Action>>(actions: I) -> Self {
        Self(actions.into_iter().fold(0, |bits, action| bits | 1 << action as u8))
    }
}

/// `Sub or Get`.
impl fmt::Display for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, action) in self.each().enumerate() {
            f.write_str(if index > 0 { " or " } else { "" })?;
            f.write_str(action.name())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Actions({self})")
    }
}
