//! POP_MESSAGE: messages for one of the group's consumers, hidden from the others for a time.
//!
//! One pop of a group and topic at a time: it reads behind the committed offset of each queue, stores one checkpoint a
//! queue, all in one append, and commits. A pop in order notes its batches instead, and commits where each begins. With
//! nothing to hand out it parks until a message comes, and is served again from the start.
//!
//! Threads: the I/O thread of the connection. What may have to come from the disk is read on the store's own thread first.

use std::net::SocketAddr;
use std::sync::Arc;

use super::ORDER_REVIVE_QUEUE;
use super::answer::PopAnswer;
use super::parking::{Parked, Seen};
use super::reading::ReadOutcome;
use super::request::{Attempt, Pop};
use crate::dataplane::delivery::revive::records::{Checkpoint, CheckpointKey, StagedRecord};
use crate::dataplane::requests::broker::Broker;
use crate::dataplane::requests::session::Session;
use crate::dataplane::state::rejection::{ErrorReply, Rejection, overload, unknown_topic};
use crate::dataplane::state::request::{OwnedFrame, RequestContext};
use crate::dataplane::state::settled::PopName;
use crate::dataplane::waiting::event::Event;
use crate::dataplane::waiting::held_replies::Wait;
use crate::dataplane::waiting::pop_groups::{PopGroup, Purpose};
use crate::positions::PhysicalOffset;
use crate::remoting::Outbox;
use crate::remoting::codes::response;
use crate::remoting::frame::Frame;
use crate::remoting::header::Header;
use crate::requests::pop::PopHeader;
use crate::store::{ConsumeQueue, Get, GetResult, Put};

impl Broker {
    /// Hands out messages, parks the request, or answers that there is none.
    pub(in crate::dataplane) fn pop(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        attempt: Attempt,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        session.with_header(|session, header| self.pop_with(session, header, frame, attempt, out))
    }

    fn pop_with(
        &self,
        session: &mut Session,
        header: &Header,
        frame: &Frame<'_>,
        attempt: Attempt,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let context = RequestContext::of(header, session.latency.began, frame.encoding);
        let pop = self.admit_pop(session, PopHeader::decode(header)?, context)?;
        let group = self.pops.of(pop.fields.group, &pop.topic.name);
        let Given { answer, end, seen } = match self.hand_out(session, &pop, &group, attempt)? {
            Ok(given) => given,
            Err((queue, get)) => return Ok(self.read_then_serve(session, frame, &pop, &queue, get)?),
        };
        if answer.count() > 0 {
            if answer.rest > 0 {
                self.pops.wake_next(&group, pop.fields.queue_id);
            }
            self.answer_pop(session, &pop, answer, end, out);
            return Ok(());
        }
        if pop.left_ms() == 0 {
            self.answer_nothing(session, context, &answer, response::POLLING_TIMEOUT, out);
            return Ok(());
        }
        match self.park_pop(session, frame, &pop, &group, Purpose::Messages, &seen)? {
            Parked::Waits => {}
            Parked::Full => self.answer_nothing(session, context, &answer, response::POLLING_FULL, out),
        }
        Ok(())
    }

    /// Reads, stores the checkpoints and commits; the queue to be read first where that may wait for the disk.
    fn hand_out(
        &self,
        session: &mut Session,
        pop: &Pop<'_>,
        group: &Arc<PopGroup>,
        attempt: Attempt,
    ) -> Result<Result<Given, (Arc<ConsumeQueue>, Get)>, Rejection> {
        let queues = self.queues_of(session, pop)?;
        let _one = group.lock();
        let is_ordered = pop.fields.is_ordered;
        let mut answer = PopAnswer {
            pop_ms: self.clock.wall_ms() as i64,
            invisible_ms: pop.fields.invisible_ms,
            revive_queue: if is_ordered { ORDER_REVIVE_QUEUE } else { self.any_revive_queue(session)? },
            is_ordered,
            ..PopAnswer::default()
        };
        let mut seen = Vec::with_capacity(queues.len());
        for from in queues {
            let end = match self.read_queue(session, pop, &from, &mut answer, attempt)? {
                ReadOutcome::Found(read) => {
                    let next = read.next;
                    answer.reads.push(read);
                    next
                }
                ReadOutcome::Nothing(end) => end,
                ReadOutcome::Cold(get) if answer.reads.is_empty() => return Ok(Err((from.queue, get))),
                ReadOutcome::Cold(get) => {
                    answer.rest += from.queue.max().0.saturating_sub(get.offset.0);
                    get.offset
                }
            };
            seen.push(Seen { from, end });
        }
        let end = if is_ordered {
            PhysicalOffset(0)
        } else {
            self.store_checkpoints(pop, &mut answer, session.link.peer())?
        };
        for read in &answer.reads {
            let next = if is_ordered { read.start } else { read.next.0 };
            self.offsets.commit(pop.fields.group, &read.topic, read.queue_id().into(), next as i64)?;
            let delivery = session.deliveries.of(&self.deliveries, pop.fields.group, &read.queue);
            let bytes: usize = read.slices.iter().map(bytes::Bytes::len).sum();
            delivery.count(read.offsets.len() as u64, bytes as u64);
            delivery.advance(read.next);
            if is_ordered {
                delivery.set_in_flight(read.offsets.len());
                self.release_in_time(group, pop.place(read.queue_id()));
            } else {
                delivery.popped(read.offsets.len());
            }
        }
        Ok(Ok(Given { answer, end, seen }))
    }

    fn any_revive_queue(&self, session: &mut Session) -> Result<u32, ErrorReply> {
        let name = &*self.metadata.revive_topic;
        let topic = self.metadata.topic(name).ok_or_else(|| unknown_topic(name))?;
        Ok(session.random.below(topic.write_queues))
    }

    /// Stores a checkpoint for each read, in one append. A read whose checkpoint is refused is not handed out.
    fn store_checkpoints(
        &self,
        pop: &Pop<'_>,
        answer: &mut PopAnswer,
        client: SocketAddr,
    ) -> Result<PhysicalOffset, Rejection> {
        let stage = self.revive_stage(answer.pop_ms, client);
        let mut staged: Vec<StagedRecord> = Vec::with_capacity(answer.reads.len());
        for read in &answer.reads {
            let checkpoint = Checkpoint {
                key: CheckpointKey {
                    topic: read.topic.name.to_string(),
                    group: pop.fields.group.to_owned(),
                    queue_id: read.queue_id(),
                    start: read.start as i64,
                    pop_ms: answer.pop_ms,
                    broker: self.metadata.identity.broker.clone(),
                },
                invisible_ms: answer.invisible_ms,
                offsets: read.offsets.clone(),
                is_suspended: false,
            };
            staged.push(stage.checkpoint(&checkpoint, answer.revive_queue)?);
        }
        let mut puts: Vec<Put<'_>> = staged.iter().map(|record| stage.put(record)).collect();
        let decided = if puts.is_empty() { 0 } else { self.store.try_append(&mut puts) };
        if decided == 0 && !puts.is_empty() {
            return Err(Rejection::NoRoom);
        }
        let ends: Vec<Option<PhysicalOffset>> =
            puts.iter().map(|put| put.outcome.as_ref().ok().map(|stored| stored.end)).collect();
        for ((read, record), put) in answer.reads.iter().zip(&staged).zip(&puts) {
            if let Some(stored) = put.outcome.as_ref().ok().filter(|_| record.is_timed) {
                let pop = PopName {
                    queue: read.queue.serial(),
                    group: pop.fields.group,
                    start: read.start as i64,
                    pop_ms: answer.pop_ms,
                    due_ms: answer.pop_ms.saturating_add(answer.invisible_ms),
                };
                self.settled.popped(&pop, &read.offsets, stored.physical.0, answer.pop_ms);
            }
        }
        let mut stored = ends.iter();
        let PopAnswer { reads, rest, .. } = answer;
        reads.retain(|read| {
            let is_stored = matches!(stored.next(), Some(Some(_)));
            *rest += if is_stored { 0 } else { read.offsets.len() as u64 };
            is_stored
        });
        let end = ends.iter().flatten().copied().max().unwrap_or(PhysicalOffset(0));
        Ok(end)
    }

    /// Answers with messages; where sends wait for the disk or for copies, so does this, for its checkpoints up to `end`.
    fn answer_pop(
        &self,
        session: &mut Session,
        pop: &Pop<'_>,
        answer: PopAnswer,
        end: PhysicalOffset,
        out: &mut Outbox,
    ) {
        let context = pop.context;
        if context.is_oneway {
            return;
        }
        let wait = self.wait_of_reply();
        if wait.is_held && !answer.is_ordered {
            session.held.hold(end, context, Wait { code: response::SUCCESS, ..wait }, |out| {
                answer.write_header(out, context, response::SUCCESS, "FOUND");
                answer.copy_messages(out);
            });
            self.wait_for_promises(session, end, out);
            return;
        }
        session.latency.note(context, response::SUCCESS);
        answer.write_header(out.bytes(), context, response::SUCCESS, "FOUND");
        answer.push_messages(out);
    }

    pub(super) fn answer_nothing(
        &self,
        session: &mut Session,
        context: RequestContext,
        answer: &PopAnswer,
        code: i32,
        out: &mut Outbox,
    ) {
        session.latency.note(context, code);
        if !context.is_oneway {
            answer.write_header(out.bytes(), context, code, "NO_MESSAGE_IN_QUEUE");
        }
    }

    /// Has a range of a queue read on the store's own thread, and the request served again.
    pub(super) fn read_then_serve(
        &self,
        session: &Session,
        frame: &Frame<'_>,
        pop: &Pop<'_>,
        queue: &Arc<ConsumeQueue>,
        get: Get,
    ) -> Result<(), ErrorReply> {
        let owned = OwnedFrame::of(frame, 0, session.latency.began);
        let (queue, filter) = (Arc::clone(queue), Arc::clone(&pop.filter));
        let is_taken = self.read_first(&session.link, owned.size() + filter.bytes(), move |store| {
            let (mut found, mut spent) = (GetResult::default(), 0);
            // What fails here fails again where it is answered.
            let _ = filter.read(&mut spent, |filter| store.get_filtered(&queue, &get, filter, &mut found));
            found.touch();
            Event::Found(owned)
        });
        if is_taken { Ok(()) } else { Err(overload()) }
    }
}

/// An answer whose checkpoints end at a position of the log, and the queues that were read for it.
struct Given {
    answer: PopAnswer,
    end: PhysicalOffset,
    seen: Vec<Seen>,
}
