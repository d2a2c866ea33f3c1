//! Message type: what a message is by its properties, and what a topic may be kept for.

/// What a message is. The names are those of the attribute `message.type` of topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageType {
    /// None of the others.
    #[default]
    Normal,
    /// One of those that are consumed in order, with a sharding key.
    Fifo,
    /// To be delivered later, or delivered late.
    Delay,
    /// Half of a transaction, or committed by one.
    Transaction,
}

impl MessageType {
    /// All types, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Normal, Self::Fifo, Self::Delay, Self::Transaction];

    /// The type of this name; none for a name that is no type of messages, as MIXED is not.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name in the attribute of a topic.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "NORMAL",
            Self::Fifo => "FIFO",
            Self::Delay => "DELAY",
            Self::Transaction => "TRANSACTION",
        }
    }

    /// What makes a message one of this type, as its sender may be told.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Normal => "has neither sharding key nor delay and belongs to no transaction",
            Self::Fifo => "has a sharding key, and no delay",
            Self::Delay => "has a delay level or a time of delivery",
            Self::Transaction => "is sent in a transaction",
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
        for none in ["MIXED", "UNSPECIFIED", "PRIORITY", "normal", ""] {
            assert_eq!(MessageType::named(none), None);
        }
    }
}
