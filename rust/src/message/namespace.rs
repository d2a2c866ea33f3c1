//! Namespaces: separate topics and groups for several users of one cluster.
//!
//! Only clients know namespaces: on the wire a topic or group `orders` of the namespace `shop` is `shop%orders`, and
//! its retry topic `%RETRY%shop%orders`. System names are shared and unchanged. The rules are those of Java's
//! `NamespaceUtil`.

use std::borrow::Cow;
use std::sync::Arc;

use super::topic::{self, DEAD_LETTER_PREFIX, RETRY_PREFIX};

/// The separator between namespace and name.
const SEPARATOR: char = '%';

/// The namespace of a client. Never empty.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Namespace {
    name: Arc<str>,
}

impl Namespace {
    /// `None` for an empty or invalid name, or a name with the separator.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let is_valid = |byte| topic::is_name_byte(byte) && char::from(byte) != SEPARATOR;
        (!name.is_empty() && name.bytes().all(is_valid)).then(|| Self { name: name.into() })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name on the wire; a wrapped name is unchanged.
    pub(crate) fn wrap<'a>(&self, name: &'a str) -> Cow<'a, str> {
        let (kind, rest) = split(name);
        if name.is_empty() || is_everybodys(name, rest) || self.inside(rest).is_some() {
            return Cow::Borrowed(name);
        }
        Cow::Owned([kind, &self.name, "%", rest].concat())
    }

    /// Returns the name as users of this namespace write it; other names are unchanged.
    pub(crate) fn unwrap<'a>(&self, name: &'a str) -> Cow<'a, str> {
        let (kind, rest) = split(name);
        match self.inside(rest) {
            None => Cow::Borrowed(name),
            Some(plain) if kind.is_empty() => Cow::Borrowed(plain),
            Some(plain) => Cow::Owned([kind, plain].concat()),
        }
    }

    /// Returns whether users of this namespace see a wire name: one of this namespace, or a shared one.
    pub(crate) fn shows(&self, name: &str) -> bool {
        let (_, rest) = split(name);
        is_everybodys(name, rest) || self.inside(rest).is_some()
    }

    fn inside<'a>(&self, rest: &'a str) -> Option<&'a str> {
        rest.strip_prefix(&*self.name)?.strip_prefix(SEPARATOR)
    }
}

/// Splits a name into the prefix of a group's topic, if any, and the rest.
fn split(name: &str) -> (&str, &str) {
    let kind = [RETRY_PREFIX, DEAD_LETTER_PREFIX].into_iter().find(|kind| name.starts_with(kind));
    name.split_at(kind.map_or(0, str::len))
}

fn is_everybodys(name: &str, rest: &str) -> bool {
    topic::is_system(name) || rest.starts_with(topic::SYSTEM_GROUP_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_wrapped_and_unwrapped_as_java_does() {
        let shop = Namespace::new("shop").unwrap();
        for (plain, wire) in [
            ("orders", "shop%orders"),
            ("%RETRY%billing", "%RETRY%shop%billing"),
            ("%DLQ%billing", "%DLQ%shop%billing"),
            ("other%orders", "shop%other%orders"),
            ("shopping", "shop%shopping"),
            ("TBW102", "TBW102"),
            ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
            ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
            ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
            ("%RETRY%CID_RMQ_SYS_TRANS", "%RETRY%CID_RMQ_SYS_TRANS"),
            ("", ""),
        ] {
            assert_eq!(shop.wrap(plain), wire);
            assert_eq!(shop.wrap(wire), wire, "once is enough");
            assert_eq!(shop.unwrap(wire), plain);
            assert!(wire.is_empty() || shop.shows(wire), "{wire}");
        }
    }

    #[test]
    fn names_of_others_are_neither_unwrapped_nor_shown() {
        let shop = Namespace::new("shop").unwrap();
        for name in ["orders", "other%orders", "%RETRY%other%billing", "shopping%orders", "shop", ""] {
            assert_eq!(shop.unwrap(name), name);
            assert!(!shop.shows(name), "{name}");
        }
    }

    #[test]
    fn a_namespace_is_a_name_without_the_separator() {
        for name in ["", "a%b", "a b", "ü"] {
            assert_eq!(Namespace::new(name), None, "{name}");
        }
    }
}
