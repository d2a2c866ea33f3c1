//! Requests to clients whose answers are expected: questions of administrators, and replies on their way to requesters.
//!
//! Invariant: an answer is expected once, and so many are at most. Of the answer to a question its body is kept, up to a
//! bound, and there are few; of that to a reply only the code and a short remark, so that there may be many.
//!
//! Threads: any; one lock, held for an operation on a set.

use std::sync::atomic::{AtomicI32, Ordering};

use hashbrown::HashSet;
use parking_lot::Mutex;

use crate::remoting::codes::request;

/// Questions that clients may be answering at once.
const QUESTIONS_MAX: usize = 64;
/// Replies that may be on their way to requesters at once.
const REPLIES_MAX: usize = 4_096;

/// What is kept of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedAnswer {
    /// Everything.
    Whole,
    /// Its code and the beginning of its remark.
    Code,
}

#[derive(Debug, Default)]
struct Open {
    /// By connection and number.
    questions: HashSet<(u64, i32)>,
    replies: HashSet<(u64, i32)>,
}

/// The requests that clients have not answered yet.
#[derive(Debug, Default)]
pub(crate) struct ClientRequests {
    open: Mutex<Open>,
    next_opaque: AtomicI32,
}

impl ClientRequests {
    /// Names a request to a client whose answer is to come up; `None` when too many are under way.
    pub(crate) fn expect_answer(&self, connection: u64, code: i32) -> Option<i32> {
        let mut open = self.open.lock();
        let is_reply = code == request::PUSH_REPLY_MESSAGE_TO_CLIENT;
        let (open, max) =
            if is_reply { (&mut open.replies, REPLIES_MAX) } else { (&mut open.questions, QUESTIONS_MAX) };
        if open.len() >= max {
            return None;
        }
        let opaque = self.next_opaque.fetch_add(1, Ordering::Relaxed);
        open.insert((connection, opaque));
        Some(opaque)
    }

    /// The answer is here, or given up; what is to be kept of it where it was still expected.
    pub(super) fn take(&self, connection: u64, opaque: i32) -> Option<ExpectedAnswer> {
        let mut open = self.open.lock();
        if open.questions.remove(&(connection, opaque)) {
            Some(ExpectedAnswer::Whole)
        } else {
            open.replies.remove(&(connection, opaque)).then_some(ExpectedAnswer::Code)
        }
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn forget(&self, connection: u64, opaque: i32) {
        self.take(connection, opaque);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_under_way_leave_room_for_questions_and_each_answer_is_expected_once() {
        let (requests, reply) = (ClientRequests::default(), request::PUSH_REPLY_MESSAGE_TO_CLIENT);
        let replies: Vec<_> = (0..=REPLIES_MAX).map_while(|_| requests.expect_answer(1, reply)).collect();
        assert_eq!(replies.len(), REPLIES_MAX);
        let questions: Vec<_> = (0..=QUESTIONS_MAX).map_while(|_| requests.expect_answer(2, 307)).collect();
        assert_eq!(questions.len(), QUESTIONS_MAX);
        let (reply, question) = (replies[0], questions[0]);
        assert_eq!(requests.take(2, reply), None, "it is another connection's");
        assert_eq!(requests.take(1, reply), Some(ExpectedAnswer::Code));
        assert_eq!(requests.take(1, reply), None);
        requests.forget(2, question);
        assert_eq!(requests.take(2, question), None);
        assert!(requests.expect_answer(1, 307).is_some());
    }
}
