//! Answers to pulls, without their messages: the code, and the broker to pull from next.
//!
//! Threads: the I/O thread of the connection.

use crate::dataplane::broker::Broker;
use crate::dataplane::role::Role;
use crate::dataplane::session::PendingPull;
use crate::positions::QueueOffset;
use crate::remoting::codes::response;
use crate::store::{GetResult, GetStatus};

/// Of the broker that takes messages; slaves have others.
const MASTER_ID: u64 = 0;

/// Code of the answer, and the id of the broker to pull from next.
#[derive(Clone, Copy, Debug)]
pub(super) struct PullAnswer {
    pub(super) code: i32,
    pub(super) suggested: u64,
    /// Whether to wait for a message here, where there is none.
    pub(super) may_wait: bool,
}

impl Broker {
    /// What to answer to what was found. A slave whose master answers sends consumers back to it, unless they are far
    /// behind; one that does not correct offsets lets them wait for what it does not have. Consumers may believe for a
    /// while still that a slave is the master it acted for: they wait for messages here, or they would come again at once.
    pub(super) fn pull_answer(&self, pull: &PendingPull, found: &mut GetResult) -> PullAnswer {
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
            return PullAnswer { code, suggested: MASTER_ID, may_wait: reads.may_act };
        }
        let suggested = match (reads.is_served, is_far) {
            (false, _) => MASTER_ID,
            _ if role == Role::Acting => MASTER_ID,
            (true, true) => pull.group.slow_broker_id,
            (true, false) => pull.group.broker_id,
        };
        PullAnswer { code, suggested, may_wait: true }
    }

    /// Whether what was found is further from the end of the log than memory may hold. Where nobody knows, it is not.
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
