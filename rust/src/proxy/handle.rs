//! Receipt handles: the handle of a popped message, with the position of its record behind it.

use super::status::{Refused, code};
use crate::message::topic::pop_retry_topic;
use crate::requests::pop::HandleText;

/// Longest handle that is read; those of this server have some 120 bytes.
const HANDLE_BYTES_MAX: usize = 1_024;

/// A handle of a client, with the fields that requests to the broker need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReceiptHandle {
    /// The text as the client sent it, which the broker reads.
    pub(super) text: String,
    pub(super) pop_ms: i64,
    pub(super) invisible_ms: i64,
    pub(super) mark: u8,
    pub(super) broker: String,
    pub(super) queue: i64,
    pub(super) offset: i64,
    /// The position of the record, for dead letters.
    pub(super) position: Option<i64>,
    /// The lite topic of the message; empty for any other message. It is not part of the text.
    pub(super) lite_topic: String,
}

impl ReceiptHandle {
    /// Reads a handle.
    pub(super) fn parse(text: &str) -> Result<Self, Refused> {
        let read = || -> Option<Self> {
            let mut fields = text.split(' ');
            let mut next = || fields.next().filter(|field| !field.is_empty());
            let _start: i64 = next()?.parse().ok()?;
            let pop_ms = next()?.parse().ok()?;
            let invisible_ms = next()?.parse().ok()?;
            let _revive: u32 = next()?.parse().ok()?;
            let mark = next()?.parse::<u8>().ok().filter(|mark| *mark <= 2)?;
            let broker = next()?.to_owned();
            let queue =
                next()?.parse::<i64>().ok().filter(|queue| (0..=i64::from(i32::MAX)).contains(queue))?;
            let offset = next()?.parse::<i64>().ok().filter(|offset| *offset >= 0)?;
            let position = next().map(str::parse::<i64>).transpose().ok()?;
            let position = position.filter(|position| *position >= 0);
            let text = text.to_owned();
            let is_whole = next().is_none();
            let lite_topic = String::new();
            is_whole.then_some(Self {
                text,
                pop_ms,
                invisible_ms,
                mark,
                broker,
                queue,
                offset,
                position,
                lite_topic,
            })
        };
        let handle = if text.len() <= HANDLE_BYTES_MAX { read() } else { None };
        handle.ok_or_else(|| Refused::new(code::INVALID_RECEIPT_HANDLE, "receipt handle is not valid"))
    }

    /// Refuses a handle whose message is visible again.
    pub(super) fn check_time(&self, now_ms: i64) -> Result<(), Refused> {
        if self.due_ms() <= now_ms {
            return Err(Refused::new(code::INVALID_RECEIPT_HANDLE, "receipt handle is expired"));
        }
        Ok(())
    }

    /// Refuses a handle of another broker.
    pub(super) fn check_broker(&self, name: &str) -> Result<(), Refused> {
        if self.broker != name {
            let text = format!("the receipt handle is of broker {}, this is {name}", self.broker);
            return Err(Refused::new(code::INVALID_RECEIPT_HANDLE, text));
        }
        Ok(())
    }

    /// Returns when the message becomes visible again.
    pub(super) fn due_ms(&self) -> i64 {
        self.pop_ms.saturating_add(self.invisible_ms)
    }

    /// Returns the topic that the message was popped from.
    pub(super) fn real_topic(&self, group: &str, topic: &str) -> String {
        match self.mark {
            0 => topic.to_owned(),
            mark => pop_retry_topic(group, topic, mark == 2),
        }
    }

    /// Returns the handle after a change of its time, from the fields of the broker's reply.
    pub(super) fn renewed(
        &self,
        pop_ms: &str,
        invisible_ms: &str,
        revive_queue: &str,
    ) -> Result<Self, Refused> {
        let text = HandleText {
            start: &self.offset,
            pop_ms: &pop_ms,
            invisible_ms: &invisible_ms,
            revive_queue: &revive_queue,
            mark: &self.mark,
            broker: &self.broker,
            queue: &self.queue,
            offset: &self.offset,
        };
        let text = match self.position {
            Some(position) => format!("{text} {position}"),
            None => text.to_string(),
        };
        Ok(Self { lite_topic: self.lite_topic.clone(), ..Self::parse(&text)? })
    }

    /// Returns the handle of a message of this lite topic, if there is one.
    pub(super) fn in_lite_topic(self, lite_topic: Option<&String>) -> Self {
        match lite_topic {
            Some(lite_topic) if !lite_topic.is_empty() => Self { lite_topic: lite_topic.clone(), ..self },
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_handle_is_read_whole_or_refused() {
        let text = "10 1000 60000 3 0 broker-a 2 12 4711";
        let handle = ReceiptHandle::parse(text).expect("a handle");
        assert_eq!((handle.queue, handle.offset, handle.position), (2, 12, Some(4_711)));
        assert_eq!(handle.due_ms(), 61_000);
        assert!(handle.check_time(60_999).is_ok() && handle.check_time(61_000).is_err());
        let renewed = handle.renewed("2000", "1", "4").expect("a handle");
        assert_eq!(renewed.text, "12 2000 1 4 0 broker-a 2 12 4711");
        assert_eq!(handle.real_topic("g", "t"), "t");
        assert!(handle.check_broker("broker-a").is_ok() && handle.check_broker("b").is_err());
        let broken = [
            "",
            "garbage",
            "1 2 3",
            "10 1000 60000 3 9 b 2 12",
            "10 1000 60000 3 0 b 2 -12",
            "a b c d e f g h",
        ];
        for text in broken.into_iter().chain([&*format!("{text} 1"), &*"1 ".repeat(600)]) {
            let refused = ReceiptHandle::parse(text).expect_err("not a handle");
            assert_eq!(refused.code, code::INVALID_RECEIPT_HANDLE, "{text}");
        }
    }
    proptest! {
        #[test]
        fn no_text_is_read_as_another_handle(text in ".{0,80}", at in 0_usize..40, byte in any::<char>()) {
            for text in [text, mutated("10 1000 60000 3 0 broker-a 2 12 4711", at, byte)] {
                let Ok(handle) = ReceiptHandle::parse(&text) else { continue };
                // A handle that is read has places and times that requests to the broker can hold.
                prop_assert!(handle.queue >= 0 && handle.offset >= 0 && handle.mark <= 2);
                prop_assert_eq!(&handle.text, &text);
                prop_assert!(handle.check_time(i64::MAX).is_err());
                let renewed = handle.renewed("1", "2", "3").expect("a handle");
                prop_assert_eq!((renewed.queue, renewed.offset), (handle.queue, handle.offset));
                prop_assert_eq!(renewed.position, handle.position);
            }
        }
    }

    /// Replaces a character.
    fn mutated(text: &str, at: usize, by: char) -> String {
        text.chars().enumerate().map(|(index, found)| if index == at { by } else { found }).collect()
    }
}
