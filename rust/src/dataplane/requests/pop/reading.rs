//! Reads of a pop: the queues it checks, the next offset in each, and the messages found there.
//!
//! Threads: the I/O thread of the connection, while it holds the lock of the group.

use std::sync::Arc;

use super::answer::{PopAnswer, PopRead, renamed};
use super::handle::{Handle, TopicMark};
use super::request::{Attempt, Pop};
use crate::dataplane::requests::broker::Broker;
use crate::dataplane::requests::session::Session;
use crate::dataplane::state::metadata::Topic;
use crate::dataplane::state::orders::{Batch, Place};
use crate::dataplane::state::rejection::{ErrorReply, Missing, Rejection, overload};
use crate::message::MessageType;
use crate::message::record::records;
use crate::message::topic::{DEAD_LETTER_PREFIX, RETRY_PREFIX};
use crate::positions::QueueOffset;
use crate::store::{ConsumeQueue, Get, GetResult, GetStatus};

/// The mode of a group that begins at the last message.
const INIT_AT_LAST: i32 = 1;

/// A queue that a pop looks at.
pub(super) struct PopQueue {
    pub(super) topic: Arc<Topic>,
    pub(super) queue: Arc<ConsumeQueue>,
    pub(super) mark: TopicMark,
}

/// The order in which a pop looks at the queues of a topic.
#[derive(Clone, Copy)]
enum ScanOrder {
    /// From this queue on.
    From(u32),
    /// The most urgent first.
    ByPriority { is_descending: bool },
}

impl ScanOrder {
    fn ids(self, count: u32) -> impl Iterator<Item = u32> {
        (0..count).map(move |index| match self {
            Self::From(first) => (first + index) % count,
            Self::ByPriority { is_descending: true } => count - 1 - index,
            Self::ByPriority { is_descending: false } => index,
        })
    }
}

impl PopQueue {
    pub(super) fn id(&self) -> u32 {
        self.queue.key().queue_id
    }
}

/// One read of a queue.
pub(super) enum ReadOutcome {
    Found(PopRead),
    /// There is nothing before this offset. More is there to be read where the queue ends behind it.
    Nothing(QueueOffset),
    /// It may have to come from the disk first.
    Cold(Get),
}

/// A queue that gives nothing until something else than a message happens.
const UNTIL_WOKEN: ReadOutcome = ReadOutcome::Nothing(QueueOffset(u64::MAX));

impl Broker {
    /// The queues to look at, in turn: those of the topic from a random one on, or by priority, and the retry topics
    /// before or behind them.
    pub(super) fn queues_of(&self, session: &mut Session, pop: &Pop<'_>) -> Result<Vec<PopQueue>, Rejection> {
        let open = |topic: &Arc<Topic>, queue_id, mark| {
            let queue = topic.queue(&self.store, queue_id).map_err(ErrorReply::from)?;
            Ok::<_, Rejection>(PopQueue { topic: Arc::clone(topic), queue, mark })
        };
        let options = &self.metadata.identity.pop;
        let is_by_priority = pop.topic.message_type == Some(MessageType::Priority)
            && !pop.fields.is_ordered
            && session.random.below(100) < pop.group.priority_percent;
        let mut order = |topic: &Topic| match is_by_priority {
            true => ScanOrder::ByPriority { is_descending: options.is_larger_more_urgent },
            false => ScanOrder::From(session.random.below(topic.read_queues)),
        };
        let mut queues = Vec::new();
        for (topic, mark) in &pop.retries {
            for queue_id in order(topic).ids(topic.read_queues) {
                queues.push(open(topic, queue_id, *mark)?);
            }
        }
        let retry_count = queues.len();
        match u32::try_from(pop.fields.queue_id) {
            Ok(queue_id) => queues.push(open(&pop.topic, queue_id, TopicMark::Normal)?),
            Err(_) => {
                for queue_id in order(&pop.topic).ids(pop.topic.read_queues) {
                    queues.push(open(&pop.topic, queue_id, TopicMark::Normal)?);
                }
            }
        }
        let retry_first_percent = match is_by_priority {
            true => options.retry_first_percent_by_priority,
            false => options.retry_first_percent,
        };
        if session.random.below(100) >= retry_first_percent {
            queues.rotate_left(retry_count);
        }
        Ok(queues)
    }

    /// Reads one queue behind the group's progress, as far as the answer has room.
    pub(super) fn read_queue(
        &self,
        session: &mut Session,
        pop: &Pop<'_>,
        from: &PopQueue,
        answer: &mut PopAnswer,
        attempt: Attempt,
    ) -> Result<ReadOutcome, Rejection> {
        let queue = &from.queue;
        let room = (pop.fields.messages_max.max(0) as usize).saturating_sub(answer.count());
        let start = self.start_offset(session, pop, from)?;
        if self.is_held_back(session, pop, from) {
            answer.rest += if pop.fields.is_ordered { 0 } else { queue.max().0.saturating_sub(start.0) };
            return Ok(UNTIL_WOKEN);
        }
        if room == 0 {
            answer.rest += queue.max().0.saturating_sub(start.0);
            return Ok(UNTIL_WOKEN);
        }
        let bytes_max = self.metadata.identity.pull_bytes_max.saturating_sub(answer.bytes());
        let mut get = Get { offset: start, messages_max: room as u32, bytes_max };
        if !self.read_corrected(session, pop, queue, &mut get, attempt)? {
            return Ok(ReadOutcome::Cold(get));
        }
        let found = &mut session.found;
        let (next, max) = (found.next_begin, found.max);
        if found.status != GetStatus::Found {
            found.clear();
            if next == start || next > max {
                return Ok(ReadOutcome::Nothing(max));
            }
            self.offsets.commit(pop.fields.group, &from.topic, from.id().into(), next.0 as i64)?;
            return Ok(ReadOutcome::Nothing(next));
        }
        answer.rest += max.0.saturating_sub(next.0);
        let mut found = std::mem::take(&mut session.found);
        let read = self.take_found(pop, &mut found, get.offset, from, answer);
        found.clear();
        session.found = found;
        let mut read = read?;
        if pop.fields.is_ordered {
            let batch = Batch {
                pop_ms: answer.pop_ms,
                invisible_ms: Some(answer.invisible_ms),
                offsets: read.offsets.clone(),
                used_ms: answer.pop_ms,
                attempt: pop.fields.attempt.map(Box::from),
                ..Batch::default()
            };
            read.counts = self.offsets.orders.give(pop.place(from.id()), batch).ok_or_else(overload)?;
        }
        Ok(ReadOutcome::Found(read))
    }

    /// Reads from an offset, and from the right one where that is not in the queue. False where it may have to come from the
    /// disk.
    pub(super) fn read_corrected(
        &self,
        session: &mut Session,
        pop: &Pop<'_>,
        queue: &ConsumeQueue,
        get: &mut Get,
        attempt: Attempt,
    ) -> Result<bool, Rejection> {
        for is_corrected in [false, true] {
            let found = &mut session.found;
            let is_read = pop.filter.read(&mut session.filter_cost, |filter| match attempt {
                Attempt::Fresh => self.store.get_hot(queue, get, filter, found),
                Attempt::Read => self.store.get_filtered(queue, get, filter, found).map(|()| true),
            });
            if !is_read.map_err(ErrorReply::from)? {
                return Ok(false);
            }
            let is_off = matches!(
                found.status,
                GetStatus::OffsetTooSmall | GetStatus::OffsetOverflowBadly | GetStatus::OffsetFoundNull
            );
            if !is_off || is_corrected {
                break;
            }
            get.offset = found.next_begin;
        }
        Ok(true)
    }

    /// Whether the group gets nothing of a queue now: it is blocked in order, or too many of its messages are in flight.
    pub(super) fn is_held_back(&self, session: &mut Session, pop: &Pop<'_>, from: &PopQueue) -> bool {
        if pop.fields.is_ordered {
            let (invisible_ms, attempt) = (pop.fields.invisible_ms, pop.fields.attempt);
            return self.offsets.orders.is_blocked(pop.place(from.id()), attempt, invisible_ms, pop.now_ms);
        }
        let in_flight_max = self.metadata.identity.pop.in_flight_max;
        in_flight_max.is_some_and(|in_flight_max| {
            let delivery = session.deliveries.of(&self.deliveries, pop.fields.group, &from.queue);
            delivery.in_flight() > in_flight_max
        })
    }

    /// The messages that were found, those of a retry topic under the topic that was asked for.
    fn take_found(
        &self,
        pop: &Pop<'_>,
        found: &mut GetResult,
        start: QueueOffset,
        from: &PopQueue,
        answer: &PopAnswer,
    ) -> Result<PopRead, Rejection> {
        let handle = Handle {
            start: start.0 as i64,
            pop_ms: answer.pop_ms,
            invisible_ms: answer.invisible_ms,
            revive_queue: answer.revive_queue,
            broker: &self.metadata.identity.broker,
        };
        let options = &self.metadata.identity.pop;
        let is_renamed = from.mark != TopicMark::Normal && !options.shows_retry_topic;
        let has_dead_letters = options.has_dead_letters && !pop.fields.is_ordered;
        let mut offsets = Vec::with_capacity(found.count as usize);
        let mut slices = Vec::with_capacity(found.slices.len());
        for slice in found.slices.drain(..) {
            for record in records(&slice).flatten() {
                if has_dead_letters && record.reconsume_times() >= pop.group.retry_max {
                    // Its next copy is a dead letter, whose topic has to exist by then.
                    self.check_dead_letters(pop)?;
                }
                offsets.push(from.queue.offset_of(&record).0);
                if is_renamed {
                    slices.push(renamed(&record, &pop.topic.name, &handle, from.mark));
                }
            }
            if !is_renamed {
                slices.push(slice);
            }
        }
        let (topic, next) = (Arc::clone(&from.topic), found.next_begin);
        Ok(PopRead {
            mark: from.mark,
            topic,
            queue: Arc::clone(&from.queue),
            start: start.0,
            offsets,
            slices,
            next,
            counts: Default::default(),
        })
    }

    fn check_dead_letters(&self, pop: &Pop<'_>) -> Result<(), Rejection> {
        let name = format!("{DEAD_LETTER_PREFIX}{}", pop.fields.group);
        match self.metadata.topic(&name) {
            Some(_) => Ok(()),
            None => Err(Rejection::Missing(Missing::Topic, name)),
        }
    }

    /// Returns the next offset of the group in a queue. Without progress, chooses and commits the first one.
    fn start_offset(
        &self,
        session: &mut Session,
        pop: &Pop<'_>,
        from: &PopQueue,
    ) -> Result<QueueOffset, Rejection> {
        let (group, topic, queue, queue_id) = (pop.fields.group, &from.topic, &from.queue, from.id());
        if let Some(target) = self.offsets.take_reset(group, &topic.name, queue_id) {
            self.offsets.orders.clear(Place { group, topic: &topic.name, queue_id });
            session.deliveries.of(&self.deliveries, group, queue).set_in_flight(0);
            self.offsets.commit(group, topic, queue_id.into(), target as i64)?;
            return Ok(QueueOffset(target));
        }
        if let Some(offset) = self.offsets.query(group, &topic.name, queue_id) {
            return Ok(QueueOffset(offset));
        }
        let begins_at_last = pop.fields.init_mode == INIT_AT_LAST && !topic.name.starts_with(RETRY_PREFIX);
        let begin = if !begins_at_last {
            queue.min()
        } else if queue.min() == QueueOffset(0)
            && self.store.may_be_in_memory(queue, QueueOffset(0)).map_err(ErrorReply::from)?
        {
            // As in Apache's broker, a small new topic is read from its beginning.
            QueueOffset(0)
        } else {
            QueueOffset(queue.max().0.saturating_sub(1))
        };
        self.offsets.commit(group, topic, queue_id.into(), begin.0 as i64)?;
        Ok(begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_has_every_queue_once() {
        let ids = |order: ScanOrder, count| order.ids(count).collect::<Vec<_>>();
        assert_eq!(ids(ScanOrder::From(2), 4), [2, 3, 0, 1]);
        assert_eq!(ids(ScanOrder::ByPriority { is_descending: true }, 4), [3, 2, 1, 0]);
        assert_eq!(ids(ScanOrder::ByPriority { is_descending: false }, 4), [0, 1, 2, 3]);
        assert!(ids(ScanOrder::From(0), 0).is_empty());
        assert!(ids(ScanOrder::ByPriority { is_descending: true }, 0).is_empty());
    }
}
