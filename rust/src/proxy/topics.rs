//! Topics: the queues of a topic at each broker, and the choice of one.

use std::sync::Arc;

use super::status::{Refused, code};
use crate::dataplane::state::metadata::Group;
use crate::message::MessageType;

/// A broker, and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BrokerPlace {
    pub(super) name: Arc<str>,
    /// `host:port`; `None` for the broker of this process.
    pub(super) address: Option<Arc<str>>,
}

/// The queues of a topic at one broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopicPart {
    pub(super) broker: BrokerPlace,
    pub(super) read_queues: u32,
    pub(super) write_queues: u32,
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    /// Whether a name server knows the master of the broker. Without it nothing can be written.
    pub(super) has_master: bool,
}

/// A topic, with its parts in the order of their brokers' names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopicRoute {
    /// The type of its messages, if the topic declares one.
    pub(super) message_type: Option<MessageType>,
    pub(super) parts: Vec<TopicPart>,
}

/// What the proxy needs to know of a consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupRules {
    /// The number of deliveries after which a message goes to the dead letters.
    pub(super) retry_max: i32,
    pub(super) is_ordered: bool,
    /// The topic whose lite topics it consumes, if it consumes lite topics.
    pub(super) lite_parent: Option<Box<str>>,
    /// The lite topics of one client; below 0 for any number.
    pub(super) lite_quota: i32,
}

impl Default for GroupRules {
    fn default() -> Self {
        let Group { retry_max, is_ordered, lite_quota, .. } = Group::default();
        Self { retry_max, is_ordered, lite_parent: None, lite_quota }
    }
}

impl BrokerPlace {
    /// Returns the name of its connections: the address, empty for the broker of this process.
    pub(super) fn key(&self) -> &str {
        self.address.as_deref().unwrap_or_default()
    }
}

impl TopicPart {
    /// Returns how many queues can be read.
    pub(super) fn reads(&self) -> u32 {
        if self.is_readable { self.read_queues } else { 0 }
    }

    /// Returns how many queues can be written.
    pub(super) fn writes(&self) -> u32 {
        if self.has_master { self.permitted_writes() } else { 0 }
    }

    /// Returns how many queues the topic permits to write, also without a master.
    pub(super) fn permitted_writes(&self) -> u32 {
        if self.is_writable { self.write_queues } else { 0 }
    }
}

impl TopicRoute {
    pub(super) fn broker(&self, name: &str) -> Option<&BrokerPlace> {
        self.parts.iter().map(|part| &part.broker).find(|broker| &*broker.name == name)
    }

    /// Returns how many queues can be written, at all brokers.
    pub(super) fn writes(&self) -> u32 {
        self.parts.iter().map(TopicPart::writes).fold(0, u32::saturating_add)
    }

    /// Returns broker and id of the `nth` writable queue.
    pub(super) fn writable_queue(&self, nth: u32) -> Option<(&BrokerPlace, i32)> {
        let mut rest = nth;
        for part in &self.parts {
            if rest < part.writes() {
                return Some((&part.broker, rest.cast_signed()));
            }
            rest -= part.writes();
        }
        None
    }

    /// Returns the broker whose turn it is among those with queues, those that failed last.
    pub(super) fn turn(
        &self,
        turn: usize,
        has_queues: impl Fn(&TopicPart) -> bool,
        has_failed: impl Fn(&BrokerPlace) -> bool,
    ) -> Option<&BrokerPlace> {
        let eligible: Vec<_> = self.parts.iter().filter(|part| has_queues(part)).collect();
        let sound: Vec<_> = eligible.iter().copied().filter(|part| !has_failed(&part.broker)).collect();
        let choice = if sound.is_empty() { eligible } else { sound };
        choice.get(turn % choice.len().max(1)).map(|part| &part.broker)
    }
}

/// Returns the refusal of a topic that does not exist, with the text of Apache's proxy.
pub(super) fn no_route(topic: &str) -> Refused {
    let text = format!("CODE: 17  DESC: No topic route info in name server for the topic: {topic}");
    Refused::new(code::TOPIC_NOT_FOUND, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, queues: u32, is_writable: bool) -> TopicPart {
        let broker = BrokerPlace { name: name.into(), address: Some(format!("{name}:10911").into()) };
        TopicPart {
            broker,
            read_queues: queues,
            write_queues: queues,
            is_readable: true,
            is_writable,
            has_master: true,
        }
    }

    fn name(broker: Option<&BrokerPlace>) -> Option<&str> {
        broker.map(|broker| &*broker.name)
    }

    #[test]
    fn queues_of_all_brokers_are_counted_through() {
        let parts = vec![part("a", 2, true), part("b", 9, false), part("c", 3, true)];
        let route = TopicRoute { message_type: None, parts };
        assert_eq!(route.writes(), 5);
        let found: Vec<_> =
            (0..6).map(|nth| route.writable_queue(nth).map(|(broker, id)| (&*broker.name, id))).collect();
        let wanted = [Some(("a", 0)), Some(("a", 1)), Some(("c", 0)), Some(("c", 1)), Some(("c", 2)), None];
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_broker_that_failed_is_used_when_no_other_has_queues() {
        let route = TopicRoute { message_type: None, parts: vec![part("a", 1, true), part("b", 1, true)] };
        let turn = |turn, failed: &[&str]| {
            let has_failed = |broker: &BrokerPlace| failed.contains(&&*broker.name);
            name(route.turn(turn, |part| part.writes() > 0, has_failed))
        };
        assert_eq!([turn(0, &[]), turn(1, &[]), turn(2, &[])], [Some("a"), Some("b"), Some("a")]);
        assert_eq!([turn(0, &["a"]), turn(1, &["a"])], [Some("b"), Some("b")]);
        assert_eq!([turn(0, &["a", "b"]), turn(1, &["a", "b"])], [Some("a"), Some("b")]);
        assert_eq!(name(route.turn(0, |_| false, |_| false)), None);
    }
}
