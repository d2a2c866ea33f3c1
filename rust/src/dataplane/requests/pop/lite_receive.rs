//! POP_LITE_MESSAGE: messages of the lite topics that a client has subscribed to.
//!
//! The events of the client name the queues to look at. Each queue is popped in order, as if by its own request: its
//! messages are hidden until each of them is acknowledged or visible again. Without messages the request parks until
//! there is an event.
//!
//! Threads: the I/O thread of the connection.

use std::sync::Arc;

use super::ORDER_REVIVE_QUEUE;
use super::answer::PopAnswer;
use super::handle::TopicMark;
use super::parking::Parked;
use super::reading::{PopQueue, ReadOutcome};
use super::request::{Attempt, Pop};
use crate::dataplane::requests::broker::{Broker, Deadline};
use crate::dataplane::requests::session::Session;
use crate::dataplane::state::orders::Place;
use crate::dataplane::state::rejection::{Rejection, unknown_topic};
use crate::dataplane::state::request::RequestContext;
use crate::dataplane::waiting::lite_consumers::LiteMember;
use crate::dataplane::waiting::pop_groups::{PopGroup, Purpose};
use crate::remoting::Outbox;
use crate::remoting::codes::response;
use crate::remoting::frame::Frame;
use crate::remoting::header::Header;
use crate::requests::lite::PopLiteHeader;

/// Queues without messages that one request passes over; other connections have their turn before it continues.
const EMPTY_MAX: usize = 256;

impl Broker {
    /// Hands out messages of lite topics, parks the request, or answers that there is none.
    pub(in crate::dataplane) fn pop_lite(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        attempt: Attempt,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        session.with_header(|session, header| self.pop_lite_with(session, header, frame, attempt, out))
    }

    fn pop_lite_with(
        &self,
        session: &mut Session,
        header: &Header,
        frame: &Frame<'_>,
        attempt: Attempt,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let context = RequestContext::of(header, session.latency.began, frame.encoding);
        let PopLiteHeader { client, pop: fields } = PopLiteHeader::decode(header)?;
        let pop = self.admit_lite_pop(session, fields, context)?;
        let mut answer = PopAnswer {
            pop_ms: self.clock.wall_ms() as i64,
            invisible_ms: fields.invisible_ms,
            revive_queue: ORDER_REVIVE_QUEUE,
            is_ordered: true,
            ..PopAnswer::default()
        };
        let member = LiteMember {
            group: fields.group,
            client,
            parent: fields.topic,
            connection: session.link.id().0,
            events_max: usize::MAX,
            is_exclusive: false,
        };
        let Some(parked) = self.lites.consumers.access(&member, pop.now_ms) else {
            self.answer_nothing(session, context, &answer, response::POLLING_FULL, out);
            return Ok(());
        };
        let mut attempt = attempt;
        let (mut empty, mut is_passed) = (0, false);
        while answer.count() < fields.messages_max.max(0) as usize {
            if empty >= EMPTY_MAX {
                is_passed = true;
                break;
            }
            let Some(queue) = self.lites.consumers.take(fields.group, client) else { break };
            let read = match self.read_lite(session, &pop, &queue, &mut answer, attempt) {
                Ok(read) => read,
                Err(rejection) => {
                    self.lites.consumers.give_back(fields.group, client, &queue);
                    if answer.reads.is_empty() {
                        return Err(rejection);
                    }
                    break;
                }
            };
            match read {
                Some(ReadOutcome::Found(read)) => answer.reads.push(read),
                Some(ReadOutcome::Cold(get)) => {
                    self.lites.consumers.give_back(fields.group, client, &queue);
                    if !answer.reads.is_empty() {
                        break;
                    }
                    let Some(queue) = self.store.queue(&queue, 0) else { continue };
                    return Ok(self.read_then_serve(session, frame, &pop, &queue, get)?);
                }
                Some(ReadOutcome::Nothing(_)) | None => empty += 1,
            }
            // Only the first queue was read into memory.
            attempt = Attempt::Fresh;
        }
        if answer.count() > 0 {
            self.lites.consumers.consumed(fields.group, client, pop.now_ms);
            if self.lites.consumers.has_events(fields.group, client) {
                self.pops.wake_next(&parked, -1);
            }
            self.answer_lite(session, context, answer, out);
            return Ok(());
        }
        if pop.left_ms() == 0 {
            self.answer_nothing(session, context, &answer, response::POLLING_TIMEOUT, out);
            return Ok(());
        }
        match self.park_pop(session, frame, &pop, &parked, Purpose::Messages, &[])? {
            Parked::Full => self.answer_nothing(session, context, &answer, response::POLLING_FULL, out),
            // An event before the request was parked woke nothing.
            Parked::Waits if is_passed || self.lites.consumers.has_events(fields.group, client) => {
                self.pops.wake_next(&parked, -1);
            }
            Parked::Waits => {}
        }
        Ok(())
    }

    /// Reads one queue behind the progress of the group; `None` if it does not exist.
    fn read_lite(
        &self,
        session: &mut Session,
        pop: &Pop<'_>,
        name: &Arc<str>,
        answer: &mut PopAnswer,
        attempt: Attempt,
    ) -> Result<Option<ReadOutcome>, Rejection> {
        let Some(queue) = self.store.queue(name, 0) else { return Ok(None) };
        let topic = self.metadata.topic(name).ok_or_else(|| unknown_topic(name))?;
        let from = PopQueue { topic: Arc::clone(&topic), queue, mark: TopicMark::Normal };
        let of_queue = pop.of_lite(name, topic);
        let _one = self.lites.lock(pop.fields.group, name);
        let read = self.read_queue(session, &of_queue, &from, answer, attempt)?;
        if let ReadOutcome::Found(read) = &read {
            let delivery = session.deliveries.of(&self.deliveries, pop.fields.group, &read.queue);
            let bytes: usize = read.slices.iter().map(bytes::Bytes::len).sum();
            delivery.count(read.offsets.len() as u64, bytes as u64);
            delivery.advance(read.next);
            delivery.set_in_flight(read.offsets.len());
        }
        if !matches!(read, ReadOutcome::Cold(_)) {
            // Without messages the group may wait for those of a batch from before a restart.
            self.release_lite_in_time(of_queue.place(0));
        }
        Ok(Some(read))
    }

    /// Has the end of a block be an event for the group. There is one deadline for each queue and group. Under the lock of
    /// the queue and the group.
    pub(super) fn release_lite_in_time(&self, at: Place<'_>) {
        let now_ms = self.clock.wall_ms() as i64;
        let free_ms = self.offsets.orders.free_ms(at, now_ms);
        let (group, queue): (Arc<str>, Arc<str>) = (at.group.into(), at.topic.into());
        let mut releases = self.lites.releases.lock();
        let key = (group, queue);
        let known = releases.get(&key).copied();
        if known.map(|(at_ms, _)| at_ms) == free_ms {
            return;
        }
        if let Some((_, deadline)) = known {
            self.deadlines.cancel(deadline);
            releases.remove(&key);
        }
        if let Some(free_ms) = free_ms {
            let after = std::time::Duration::from_millis(free_ms.saturating_sub(now_ms).unsigned_abs());
            let (group, queue) = (Arc::clone(&key.0), Arc::clone(&key.1));
            let deadline = self.deadlines.add(after, Deadline::Lite(group, queue));
            releases.insert(key, (free_ms, deadline));
        }
    }

    fn answer_lite(
        &self,
        session: &mut Session,
        context: RequestContext,
        answer: PopAnswer,
        out: &mut Outbox,
    ) {
        if context.is_oneway {
            return;
        }
        session.latency.note(context, response::SUCCESS);
        answer.write_lite(out.bytes(), context);
        answer.push_messages(out);
    }

    /// Makes a queue an event for the group.
    pub(super) fn offer_lite(&self, group: &str, queue: &str) {
        let now_ms = self.clock.wall_ms() as i64;
        let parked = self.lites.consumers.offer(group, queue, now_ms);
        parked.iter().for_each(|parked| self.pops.wake_next(parked, -1));
    }

    /// Wakes one pop of each consumer.
    pub(crate) fn wake_lites(&self, parked: &[Arc<PopGroup>]) {
        parked.iter().for_each(|parked| self.pops.wake_next(parked, -1));
    }
}
