//! Answers to pulls: the response code, and the broker to pull from next.
//!
//! Threads: the I/O thread of the connection.

use crate::dataplane::requests::broker::Broker;
use crate::dataplane::requests::session::PendingPull;
use crate::dataplane::state::role::Role;
use crate::positions::QueueOffset;
use crate::remoting::codes::response;
use crate::store::{GetResult, GetStatus};

/// The id of a master; slaves have others.
const MASTER_ID: u64 = 0;

/// The response code, and the id of the broker to pull from next.
#[derive(Clone, Copy, Debug)]
pub(super) struct PullAnswer {
    pub(super) code: i32,
    pub(super) suggested: u64,
    /// Whether the pull may be parked.
    pub(super) may_wait: bool,
    /// For a logical queue: the segment of the offsets in the answer.
    pub(super) segment: usize,
}

impl Broker {
    /// Returns the answer for a result.
    pub(super) fn pull_answer(&self, pull: &PendingPull, found: &mut GetResult) -> PullAnswer {
        let mut answer = self.local_answer(pull, found);
        if let Some(logical) = &pull.logical {
            answer.segment = logical.index();
            // The end of a slave's copy is not the end of the segment, and a reset decides by itself.
            if self.metadata.role() == Role::Master && found.status != GetStatus::OffsetReset {
                let is_drained = pull.get.offset >= pull.queue.next();
                logical.correct(pull.get.offset, is_drained, found, &mut answer);
            }
        }
        answer
    }

    /// Returns the answer for a result in a queue of this broker. A slave with a live master redirects consumers to
    /// the master, unless they are far behind. A slave that does not check offsets lets consumers wait for missing
    /// messages. After acting ends, consumers may take the slave for the master a while longer; it parks their pulls,
    /// or they would return immediately.
    fn local_answer(&self, pull: &PendingPull, found: &mut GetResult) -> PullAnswer {
        let (role, reads) = (self.metadata.role(), self.metadata.identity.slave_reads);
        let mut code = answer_code(found.status, pull.get.offset);
        if role != Role::Master && code == response::PULL_OFFSET_MOVED && !reads.checks_offsets {
            found.next_begin = pull.get.offset;
            code = response::PULL_NOT_FOUND;
        }
        let is_far = reads.is_served && code == response::SUCCESS && self.is_far(pull, found);
        if role == Role::Slave && !is_far {
            let stays = code == response::SUCCESS || (reads.may_act && code == response::PULL_NOT_FOUND);
            let code = if stays { code } else { response::PULL_RETRY_IMMEDIATELY };
            return PullAnswer { code, suggested: MASTER_ID, may_wait: reads.may_act, segment: 0 };
        }
        let suggested = match (reads.is_served, is_far) {
            (false, _) => MASTER_ID,
            _ if role == Role::Acting => MASTER_ID,
            (true, true) => pull.group.slow_broker_id,
            (true, false) => pull.group.broker_id,
        };
        PullAnswer { code, suggested, may_wait: true, segment: 0 }
    }

    /// Returns whether the result is further from the end of the log than memory holds; false if unknown.
    fn is_far(&self, pull: &PendingPull, found: &GetResult) -> bool {
        let last = QueueOffset(found.next_begin.0.saturating_sub(1));
        matches!(self.store.may_be_in_memory(&pull.queue, last), Ok(false))
    }
}

fn answer_code(status: GetStatus, asked: QueueOffset) -> i32 {
    match status {
        GetStatus::Found => response::SUCCESS,
        GetStatus::NoMatchedMessage | GetStatus::MessageWasRemoving => response::PULL_RETRY_IMMEDIATELY,
        GetStatus::NoMatchedLogicQueue | GetStatus::NoMessageInQueue if asked.0 != 0 => {
            response::PULL_OFFSET_MOVED
        }
        GetStatus::NoMatchedLogicQueue | GetStatus::NoMessageInQueue => response::PULL_NOT_FOUND,
        GetStatus::OffsetFoundNull | GetStatus::OffsetOverflowOne => response::PULL_NOT_FOUND,
        GetStatus::OffsetOverflowBadly | GetStatus::OffsetTooSmall | GetStatus::OffsetReset => {
            response::PULL_OFFSET_MOVED
        }
    }
}
