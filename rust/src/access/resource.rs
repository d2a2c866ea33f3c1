//! Resources: what a request is about, and the patterns in which policies speak of them.
//!
//! `*` is anything. `Topic:*` is every topic, `Topic:ord*` those that begin so, `Topic:orders` that one.

use std::fmt;

/// Kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResourceKind {
    /// The cluster, and all that has no name of its own: settings, users, brokers.
    Cluster,
    /// Names that begin alike. No request needs one; policies may name it.
    Namespace,
    /// A topic.
    Topic,
    /// A group of consumers.
    Group,
}

impl ResourceKind {
    const EACH: [Self; 4] = [Self::Cluster, Self::Namespace, Self::Topic, Self::Group];

    /// The name of the original.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Namespace => "Namespace",
            Self::Topic => "Topic",
            Self::Group => "Group",
        }
    }

    /// The kind of this name, in any case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::EACH.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }
}

/// One resource, as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resource<'a> {
    /// What it is.
    pub kind: ResourceKind,
    /// Its name on the wire, namespace included.
    pub name: &'a str,
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.name)
    }
}

/// The resources an entry of a policy is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ResourcePattern {
    /// Anything.
    Any,
    /// All of a kind.
    Kind(ResourceKind),
    /// Those of a kind whose names begin so.
    Prefix(ResourceKind, Box<str>),
    /// One.
    Literal(ResourceKind, Box<str>),
}

/// How precise a pattern is: what is greater wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    /// Anything.
    Any,
    /// All of a kind.
    Kind,
    /// The characters that names begin with, by their number.
    Prefix(usize),
    /// One name.
    Literal,
}

impl ResourcePattern {
    /// Reads `*`, `Kind:*`, `Kind:prefix*` or `Kind:name`; `None` for anything else.
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

    /// Whether it speaks of `resource`.
    #[must_use]
    pub fn matches(&self, resource: Resource<'_>) -> bool {
        match self {
            Self::Any => true,
            Self::Kind(kind) => *kind == resource.kind,
            Self::Prefix(kind, prefix) => *kind == resource.kind && resource.name.starts_with(&**prefix),
            Self::Literal(kind, name) => *kind == resource.kind && resource.name == &**name,
        }
    }

    /// Which of two patterns that match the same resource decides.
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
