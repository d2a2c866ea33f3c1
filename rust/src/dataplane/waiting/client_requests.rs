//! Client requests: expected answers to queries of administrators, and to replies forwarded to requesters.
//!
//! *Invariant*: each answer is accepted once, and the number of expected ones is bounded. Answers to queries are
//! kept whole, so few may be in flight. Answers to replies are reduced to code and remark, so their limit is higher.
//!
//! Threads: any; one lock, held for an operation on a set.

use std::sync::atomic::{AtomicI32, Ordering};

use hashbrown::HashSet;
use parking_lot::Mutex;

use crate::remoting::codes::request;

/// Maximum number of queries in flight to clients.
const QUESTIONS_MAX: usize = 64;
/// Maximum number of replies in flight to requesters.
const REPLIES_MAX: usize = 4_096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dataplane) enum ExpectedAnswer {
    /// The whole answer.
    Whole,
    /// The code and the beginning of the remark.
    Code,
}

#[derive(Debug, Default)]
struct Open {
    /// By connection and opaque.
    questions: HashSet<(u64, i32)>,
    replies: HashSet<(u64, i32)>,
}

/// Requests to clients that await an answer.
#[derive(Debug, Default)]
pub(crate) struct ClientRequests {
    open: Mutex<Open>,
    next_opaque: AtomicI32,
}

impl ClientRequests {
    /// Registers a request to a client, whose answer is forwarded to Python; `None` if too many are in flight.
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

    /// Removes an expected answer that has arrived or was given up, and returns what to keep of it.
    pub(in crate::dataplane) fn take(&self, connection: u64, opaque: i32) -> Option<ExpectedAnswer> {
        let mut open = self.open.lock();
        if open.questions.remove(&(connection, opaque)) {
            Some(ExpectedAnswer::Whole)
        } else {
            open.replies.remove(&(connection, opaque)).then_some(ExpectedAnswer::Code)
        }
    }

    pub(crate) fn forget(&self, connection: u64, opaque: i32) {
        self.take(connection, opaque);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_in_flight_leave_room_for_queries_and_each_answer_is_expected_once() {
        let (requests, reply) = (ClientRequests::default(), request::PUSH_REPLY_MESSAGE_TO_CLIENT);
        let replies: Vec<_> = (0..=REPLIES_MAX).map_while(|_| requests.expect_answer(1, reply)).collect();
        assert_eq!(replies.len(), REPLIES_MAX);
        let questions: Vec<_> = (0..=QUESTIONS_MAX).map_while(|_| requests.expect_answer(2, 307)).collect();
        assert_eq!(questions.len(), QUESTIONS_MAX);
        let (reply, question) = (replies[0], questions[0]);
        assert_eq!(requests.take(2, reply), None, "it belongs to another connection");
        assert_eq!(requests.take(1, reply), Some(ExpectedAnswer::Code));
        assert_eq!(requests.take(1, reply), None);
        requests.forget(2, question);
        assert_eq!(requests.take(2, question), None);
        assert!(requests.expect_answer(1, 307).is_some());
    }
}
