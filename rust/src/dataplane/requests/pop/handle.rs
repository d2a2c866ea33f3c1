//! Handle: the text by which a consumer names a message that it popped (`POP_CK`, `extraInfo`).
//!
//! Clients build it from the answer; the broker builds it for redelivered messages. Only its first four fields and the
//! broker name matter here: topic, queue and offset are fields of the request.

use crate::dataplane::state::rejection::ErrorReply;
use crate::remoting::codes::response;
use crate::requests::pop::HandleText;

/// Longest handle that is read; those of clients have some 100 bytes.
const HANDLE_BYTES_MAX: usize = 1_024;

/// The topic that a message was popped from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TopicMark {
    /// The topic itself.
    Normal = 0,
    /// The group's retry topic of this topic.
    Retry = 1,
    /// The same, of the second kind.
    RetryV2 = 2,
}

impl TopicMark {
    /// The mark of this number.
    pub(super) fn named(text: &str) -> Option<Self> {
        match text {
            "0" => Some(Self::Normal),
            "1" => Some(Self::Retry),
            "2" => Some(Self::RetryV2),
            _ => None,
        }
    }
}

/// The fields of a handle that name a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Handle<'h> {
    pub(in crate::dataplane) start: i64,
    pub(in crate::dataplane) pop_ms: i64,
    pub(in crate::dataplane) invisible_ms: i64,
    pub(in crate::dataplane) revive_queue: u32,
    pub(in crate::dataplane) broker: &'h str,
}

impl<'h> Handle<'h> {
    /// Reads a handle.
    ///
    /// # Errors
    /// 1 where it is not one.
    pub(in crate::dataplane) fn parse(text: &'h str) -> Result<Self, ErrorReply> {
        let mut fields = text.split(' ');
        let mut next = || fields.next().filter(|field| !field.is_empty());
        let mut read = || -> Option<Self> {
            let start = next()?.parse().ok()?;
            let pop_ms = next()?.parse().ok()?;
            let invisible_ms = next()?.parse().ok()?;
            let revive_queue = next()?.parse().ok()?;
            let _mark: i32 = next()?.parse().ok()?;
            Some(Self { start, pop_ms, invisible_ms, revive_queue, broker: next()? })
        };
        let handle = if text.len() <= HANDLE_BYTES_MAX { read() } else { None };
        handle.ok_or_else(|| {
            ErrorReply::new(response::SYSTEM_ERROR, "extraInfo is not the handle of a popped message")
        })
    }

    /// The time at which the message becomes visible again, in milliseconds since the epoch.
    pub(in crate::dataplane) fn due_ms(&self) -> i64 {
        self.pop_ms.saturating_add(self.invisible_ms)
    }

    /// The whole text, for a message at this queue and offset.
    pub(in crate::dataplane) fn text(&self, mark: TopicMark, queue_id: u32, offset: u64) -> String {
        let Self { start, pop_ms, invisible_ms, revive_queue, broker } = self;
        let (mark, queue, offset) = (&(mark as i32), &queue_id, &offset);
        HandleText { start, pop_ms, invisible_ms, revive_queue, mark, broker, queue, offset }.to_string()
    }
}

/// Reads a handle; writing it again and reading that gives the same.
#[cfg(feature = "fuzzing")]
pub(crate) fn reads_back(text: &str) -> bool {
    let Ok(handle) = Handle::parse(text) else { return false };
    assert!(Handle::parse(&handle.text(TopicMark::RetryV2, 7, 9)).is_ok_and(|again| again == handle));
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_handle_reads_back(
            start in 0_i64.., pop_ms in 0_i64.., invisible_ms in 0_i64..1 << 40, revive_queue in 0_u32..1000,
            queue_id in any::<u32>(), offset in any::<u64>(),
        ) {
            let handle = Handle { start, pop_ms, invisible_ms, revive_queue, broker: "broker-a" };
            let text = handle.text(TopicMark::Retry, queue_id, offset);
            prop_assert_eq!(Handle::parse(&text)?, handle);
        }

        #[test]
        fn any_text_is_a_handle_or_refused(text in "[0-9a-z ]{0,60}") {
            let _ = Handle::parse(&text);
        }
    }

    impl From<ErrorReply> for TestCaseError {
        fn from(error_reply: ErrorReply) -> Self {
            Self::fail(error_reply.remark.into_owned())
        }
    }
}
