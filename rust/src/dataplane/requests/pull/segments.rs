//! Segments: answers to pulls from logical queues. At the end of a segment, consumers continue in the next one.
//!
//! Threads: the I/O thread of the connection.

use super::PullAnswer;
use crate::dataplane::requests::logical::Logical;
use crate::positions::QueueOffset;
use crate::remoting::codes::response;
use crate::remoting::header::HeaderWriter;
use crate::store::GetResult;

impl Logical {
    /// Corrects an answer at the end of a segment, and for an offset outside it; later rules take precedence.
    /// `is_drained`: all messages of the broker's queue are visible, so that the next segment may follow.
    pub(super) fn correct(
        &self,
        asked: QueueOffset,
        is_drained: bool,
        found: &mut GetResult,
        answer: &mut PullAnswer,
    ) {
        if answer.code == response::SUCCESS {
            return;
        }
        let is_earliest = self.queue.earliest() == Some(self.index());
        if self.is_newest() && asked > found.max && answer.code == response::PULL_OFFSET_MOVED {
            found.next_begin = found.max;
            if is_earliest {
                answer.code = response::PULL_NOT_FOUND;
            }
        }
        if asked < found.min {
            let moved =
                if is_earliest { response::PULL_OFFSET_MOVED } else { response::PULL_RETRY_IMMEDIATELY };
            (answer.code, found.next_begin) = (moved, found.min);
        } else if !self.is_newest() && asked >= found.max {
            (answer.code, found.next_begin) = (response::PULL_NOT_FOUND, asked);
            if let Some(next) = self.queue.after(self.index()).filter(|_| is_drained) {
                let start = self.queue.segments().get(next).map_or(0, |segment| segment.start.max(0));
                let start = QueueOffset(start as u64);
                (found.next_begin, found.min, found.max) = (start, start, start);
                (answer.code, answer.segment) = (response::PULL_RETRY_IMMEDIATELY, next);
            }
        }
    }

    /// Writes the offsets of an answer.
    pub(super) fn write(&self, answer: PullAnswer, found: &GetResult, reply: &mut HeaderWriter<'_>) {
        let Some(segment) = self.queue.segments().get(answer.segment) else { return };
        reply.ext_i64("nextBeginOffset", segment.logical(found.next_begin.0));
        reply.ext_i64("minOffset", segment.logical(found.min.0));
        reply.ext_i64("maxOffset", segment.logical(found.max.0).max(self.queue.known_end()));
        reply.ext_i64("offsetDelta", segment.delta());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataplane::state::mapping::{Mapping, Segment};

    /// Two decided segments and an undecided one, all of this broker.
    fn logical(index: usize) -> Logical {
        let segment = |logical_start| Segment { queue_id: 0, is_own: true, logical_start, start: 0, end: -1 };
        let mapping = Mapping::new(vec![(0, vec![segment(0), segment(10_000), segment(-1)])]);
        Logical::new(0, mapping.led(0).expect("it is led"), index)
    }

    /// Returns the code, the segment and the next offset of a corrected answer, for a queue that has [10, 20).
    fn corrected(index: usize, asked: u64, code: i32, is_drained: bool) -> (i32, usize, u64) {
        let mut found = GetResult::default();
        (found.min, found.max) = (QueueOffset(10), QueueOffset(20));
        found.next_begin = QueueOffset(asked);
        let mut answer = PullAnswer { code, suggested: 0, may_wait: true, segment: index };
        logical(index).correct(QueueOffset(asked), is_drained, &mut found, &mut answer);
        (answer.code, answer.segment, found.next_begin.0)
    }

    #[test]
    fn only_the_end_of_an_older_segment_leads_to_the_next_decided_one() {
        const NOTHING: i32 = response::PULL_NOT_FOUND;
        const AGAIN: i32 = response::PULL_RETRY_IMMEDIATELY;
        assert_eq!(corrected(0, 15, response::SUCCESS, true), (response::SUCCESS, 0, 15));
        assert_eq!(corrected(0, 20, NOTHING, true), (AGAIN, 1, 0));
        // Messages of the segment are stored and not visible yet.
        assert_eq!(corrected(0, 20, NOTHING, false), (NOTHING, 0, 20));
        assert_eq!(corrected(1, 20, NOTHING, true), (NOTHING, 1, 20));
        assert_eq!(corrected(2, 20, NOTHING, true), (NOTHING, 2, 20));
    }

    #[test]
    fn an_offset_outside_a_segment_is_corrected_by_its_place() {
        const MOVED: i32 = response::PULL_OFFSET_MOVED;
        assert_eq!(corrected(0, 5, MOVED, true), (MOVED, 0, 10));
        assert_eq!(corrected(1, 5, MOVED, true), (response::PULL_RETRY_IMMEDIATELY, 1, 10));
        assert_eq!(corrected(2, 25, MOVED, true), (MOVED, 2, 20));
    }
}
