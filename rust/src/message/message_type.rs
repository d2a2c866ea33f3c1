//! Message type: derives the type from a message's properties, and names the types of topics.

/// The type of a message, named as in the topic attribute `message.type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageType {
    /// None of the other types.
    #[default]
    Normal,
    /// Consumed in order, with a sharding key.
    Fifo,
    /// Delivered after a delay, or already delivered.
    Delay,
    /// A half message, or committed from one.
    Transaction,
    /// With a priority, which chooses its queue.
    Priority,
    /// Of a lite topic.
    Lite,
}

impl MessageType {
    /// All types, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Normal, Self::Fifo, Self::Delay, Self::Transaction, Self::Priority, Self::Lite];

    /// Returns the type of this name; `None` for names such as MIXED, which is not a message type.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the name in the topic attribute.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "NORMAL",
            Self::Fifo => "FIFO",
            Self::Delay => "DELAY",
            Self::Transaction => "TRANSACTION",
            Self::Priority => "PRIORITY",
            Self::Lite => "LITE",
        }
    }

    /// Returns a description of the type, for its sender.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Normal => "has no lite topic, priority, sharding key, delay or transaction",
            Self::Fifo => "has a sharding key and no delay",
            Self::Delay => "has a delay level or a delivery time",
            Self::Transaction => "is sent in a transaction",
            Self::Priority => "has a priority, and no sharding key, delay or transaction",
            Self::Lite => "names a lite topic, and has no priority, sharding key, delay or transaction",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_found_by_its_name_and_stands_at_its_number() {
        for (number, kind) in MessageType::ALL.into_iter().enumerate() {
            assert_eq!(MessageType::named(kind.name()), Some(kind));
            assert_eq!(kind as usize, number);
        }
        for none in ["MIXED", "UNSPECIFIED", "normal", ""] {
            assert_eq!(MessageType::named(none), None);
        }
    }
}
