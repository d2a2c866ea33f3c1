//! Resources: the objects of requests, and patterns for them in policies.
//!
//! `*` matches everything, `Topic:*` every topic, `Topic:ord*` topics with that prefix, `Topic:orders` one topic.

use std::fmt;

/// Kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResourceKind {
    /// The cluster, and everything without a separate name: settings, users, brokers.
    Cluster,
    /// Names with a common namespace. No request needs it, but policies may name it.
    Namespace,
    /// A topic.
    Topic,
    /// A group of consumers.
    Group,
}

impl ResourceKind {
    const EACH: [Self; 4] = [Self::Cluster, Self::Namespace, Self::Topic, Self::Group];

    /// Apache's name of the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Namespace => "Namespace",
            Self::Topic => "Topic",
            Self::Group => "Group",
        }
    }

    /// Returns the kind with this name, in any case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::EACH.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }
}

/// A resource, as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resource<'a> {
    /// The kind.
    pub kind: ResourceKind,
    /// The name on the wire, including the namespace.
    pub name: &'a str,
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.name)
    }
}

/// The resources to which an entry of a policy applies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ResourcePattern {
    /// Anything.
    Any,
    /// All resources of a kind.
    Kind(ResourceKind),
    /// Resources of a kind with this name prefix.
    Prefix(ResourceKind, Box<str>),
    /// One resource.
    Literal(ResourceKind, Box<str>),
}

/// The precision of a pattern; the greater one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    /// Anything.
    Any,
    /// All resources of a kind.
    Kind,
    /// A name prefix, by its length.
    Prefix(usize),
    /// One name.
    Literal,
}

impl ResourcePattern {
    /// Parses `*`, `Kind:*`, `Kind:prefix*` or `Kind:name`; returns `None` for anything else.
    #[must_use]
    pub fn parse(key: &str) -> Option<Self> {
        if key == "*" {
            return Some(Self::Any);
        }
        let (kind, name) = key.split_once(':')?;
        let kind = ResourceKind::named(kind)?;
        match name.strip_suffix('*') {
            _ if name.is_empty() => None,
            Some("") => Some(Self::Kind(kind)),
            Some(prefix) if !prefix.contains('*') => Some(Self::Prefix(kind, prefix.into())),
            None if !name.contains('*') => Some(Self::Literal(kind, name.into())),
            _ => None,
        }
    }

    /// Returns whether the pattern matches `resource`.
    #[must_use]
    pub fn matches(&self, resource: Resource<'_>) -> bool {
        match self {
            Self::Any => true,
            Self::Kind(kind) => *kind == resource.kind,
            Self::Prefix(kind, prefix) => *kind == resource.kind && resource.name.starts_with(&**prefix),
            Self::Literal(kind, name) => *kind == resource.kind && resource.name == &**name,
        }
    }

    /// Returns the precision, by which the deciding pattern is chosen.
    #[must_use]
    pub fn precision(&self) -> Precision {
        match self {
            Self::Any => Precision::Any,
            Self::Kind(_) => Precision::Kind,
            Self::Prefix(_, prefix) => Precision::Prefix(prefix.len()),
            Self::Literal(..) => Precision::Literal,
        }
    }
}

impl fmt::Display for ResourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Kind(kind) => write!(f, "{}:*", kind.name()),
            Self::Prefix(kind, prefix) => write!(f, "{}:{prefix}*", kind.name()),
            Self::Literal(kind, name) => write!(f, "{}:{name}", kind.name()),
        }
    }
}
