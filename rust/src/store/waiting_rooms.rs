//! Waiting rooms: the places where messages wait for a time or a decision, and reasons for discarding them.
//!
//! Values only. A message that leaves its room undelivered is reported through
//! [`Store::report_undelivered`](super::Store::report_undelivered), which counts and logs it.

use std::fmt;

use crate::positions::{PhysicalOffset, QueueOffset};

/// A place where messages wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitingRoom {
    /// A delay level.
    Level(usize),
    /// The queue of timed messages.
    Timed,
    /// The queue of half messages.
    Half,
}

impl WaitingRoom {
    pub(super) const DELAYED: &'static str = "delayed";

    fn adjective(self) -> &'static str {
        match self {
            Self::Level(_) => Self::DELAYED,
            Self::Timed => "timed",
            Self::Half => "half",
        }
    }
}

/// The pending messages of a broker, for retention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// No message is pending.
    Nothing,
    /// No message before this position is pending.
    From(PhysicalOffset),
    /// Unknown so far.
    Unknown,
}

/// The place of the first of several messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstOf {
    /// An offset in the queue of the room.
    Queue(QueueOffset),
    /// A position of the log.
    Log(PhysicalOffset),
}

/// The reason why a message left its room undelivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// The log file with its record was deleted.
    Gone,
    /// Its record is damaged.
    Unreadable,
    /// Its record is larger than the log accepts now.
    TooLarge,
    /// Its properties do not name a queue.
    Nowhere,
    /// Its topic was deleted while it waited.
    TopicDeleted,
}

impl Left {
    fn sentence(self) -> &'static str {
        match self {
            Self::Gone => "the record is gone from the log",
            Self::Unreadable => "the record cannot be read",
            Self::TooLarge => {
                "the record is larger than the log takes; raise commitLogRingBytes and send the message again"
            }
            Self::Nowhere => "the message does not name a queue to go to",
            Self::TopicDeleted => "the topic was deleted",
        }
    }
}

/// Messages that left their room undelivered for the same reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Undelivered {
    pub room: WaitingRoom,
    pub reason: Left,
    pub first: FirstOf,
    pub count: u64,
}

impl fmt::Display for Undelivered {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { room, reason, first, count } = self;
        out.write_str(&messages(*count, room.adjective(), ["", ""]))?;
        if let WaitingRoom::Level(level) = room {
            write!(out, " of level {level}")?;
        }
        match first {
            FirstOf::Queue(offset) => write!(out, ", the first at offset {offset}")?,
            FirstOf::Log(position) => write!(out, ", the first at position {position} of the log")?,
        }
        let verb = if *count == 1 { "is" } else { "are" };
        write!(out, ", {verb} not delivered: {}", reason.sentence())
    }
}

/// Formats a count of messages, with the verb for one or many.
pub(super) fn messages(count: u64, adjective: &str, [one, many]: [&str; 2]) -> String {
    let (noun, verb) = if count == 1 { ("message", one) } else { ("messages", many) };
    let space = if verb.is_empty() { "" } else { " " };
    format!("{count} {adjective} {noun}{space}{verb}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_room_place_and_reason() {
        let first = FirstOf::Queue(QueueOffset(7));
        let one = Undelivered { room: WaitingRoom::Level(3), reason: Left::Gone, first, count: 1 };
        assert_eq!(
            one.to_string(),
            "1 delayed message of level 3, the first at offset 7, is not delivered: the record is gone from the log"
        );
        let first = FirstOf::Log(PhysicalOffset(9));
        let two = Undelivered { room: WaitingRoom::Timed, reason: Left::TopicDeleted, first, count: 2 };
        assert_eq!(
            two.to_string(),
            "2 timed messages, the first at position 9 of the log, are not delivered: the topic was deleted"
        );
    }
}
