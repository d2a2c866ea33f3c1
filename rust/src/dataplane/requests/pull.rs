//! Pulls: ranges of queues, filtered by tags or properties, as slices of the log.
//!
//! Records are not copied: the reply is a header and pages of the log, written together. A pull without messages may
//! be parked; it is executed again when its queue grows or its time is up.
//!
//! Threads: the I/O thread of the connection.

mod pull_answer;
mod segments;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::pull_answer::PullAnswer;
use super::admission;
use super::broker::{Broker, Deadline};
use super::logical;
use super::session::{PendingPull, Session};
use crate::dataplane::state::filter::{Filter, compile_cost};
use crate::dataplane::state::metadata::Metadata;
use crate::dataplane::state::rejection::{ErrorReply, Rejection, overload};
use crate::dataplane::state::reply;
use crate::dataplane::state::request::{RequestContext, RequestKind};
use crate::dataplane::waiting::event::Event;
use crate::dataplane::waiting::long_poll::Waiter;
use crate::positions::QueueOffset;
use crate::remoting::Outbox;
use crate::remoting::codes::response;
use crate::remoting::frame::Encoding;
use crate::requests::pull::{COMMIT_OFFSET, PullHeader, SUBSCRIPTION, SUSPEND};
use crate::store::{Get, GetResult, GetStatus, ReadFilter};

/// The default size of a reply, as in Apache's broker.
const PULL_BYTES_DEFAULT: usize = 256 << 10;
/// The longest wait for any client; beyond it connections count as dead.
const SUSPEND_MS_MAX: u64 = 110_000;
/// The longest wait at the end of a segment that does not grow: the next one is decided within seconds.
const ENDED_SUSPEND_MS_MAX: u64 = 500;
/// The longest expression that a connection caches; longer ones are parsed with every pull.
const KEPT_EXPRESSION_BYTES_MAX: usize = 16 << 10;
/// The maximum number of parked pulls of a connection.
const PARKED_PER_CONNECTION_MAX: usize = 8_192;
/// Requests of a closed connection that are taken out of the tables in one step.
pub(super) const FORGOTTEN_MAX: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Executed {
    Answered,
    /// The queue has no message yet, and the pull may be parked.
    NothingYet,
    /// The data may have to be read from disk first.
    Cold,
}

/// Whether a pull may be parked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Parking {
    Never,
    /// If the queue has no message.
    WithoutMessages,
    /// If there are messages and the filter matches none.
    WithoutMatches,
}

impl Broker {
    /// Answers a pull, or parks it.
    pub(in crate::dataplane) fn pull(
        &self,
        session: &mut Session,
        encoding: Encoding,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let context = session.context(encoding);
        let mut fields = PullHeader::decode(&session.header)?;
        let (group, topic) = admission::pull(&self.metadata, &fields)?;
        let identity = &self.metadata.identity;
        let logical = match topic.mapping {
            None => None,
            Some(_) => logical::pull(&topic, &mut fields, &session.header, &identity.broker)?,
        };
        let filter = if fields.sys_flag & SUBSCRIPTION == 0 {
            admission::registered_filter(&self.metadata, &fields)?
        } else {
            carried_filter(&self.metadata, &fields, &mut session.filter, &mut session.filter_cost)?
        };
        let queue_id = fields.queue_id as u32;
        let queue = topic.queue(&self.store, queue_id).map_err(ErrorReply::from)?;
        if fields.sys_flag & COMMIT_OFFSET != 0 && fields.commit_offset >= 0 {
            self.offsets.commit(fields.group, &topic, fields.queue_id.into(), fields.commit_offset)?;
        }
        let bytes_max = fields.bytes_max.map_or(PULL_BYTES_DEFAULT, |bytes| bytes.max(0) as usize);
        let pull = PendingPull {
            context,
            delivery: session.deliveries.of(&self.deliveries, fields.group, &queue),
            queue,
            get: Get {
                // The store has no negative offsets; one is below the minimum of any queue.
                offset: QueueOffset(fields.offset.max(0) as u64),
                messages_max: (fields.messages_max.max(1) as u32).min(identity.pull_messages_max),
                bytes_max: bytes_max.min(identity.pull_bytes_max),
            },
            group,
            topic,
            filter,
            waiter: session.principal.waiter(fields.group),
            deadline: None,
            logical,
        };
        let is_older = u64::try_from(fields.offset).is_ok_and(|offset| offset < pull.queue.min().0);
        if is_older && identity.is_tiered && pull.logical.is_none() && !pull.topic.is_compacted {
            return Err(Rejection::Elsewhere);
        }
        // A compacted queue may have messages before the beginning of the ordinary one.
        let corrected = if fields.offset < 0 && !pull.topic.is_compacted {
            Some((GetStatus::OffsetTooSmall, pull.queue.min()))
        } else {
            let target = self.offsets.take_reset(fields.group, fields.topic, queue_id);
            target.map(|target| (GetStatus::OffsetReset, QueueOffset(target)))
        };
        if let Some((status, next)) = corrected {
            let found = &mut session.found;
            found.clear();
            (found.status, found.next_begin) = (status, next);
            (found.min, found.max) = (pull.queue.min(), pull.queue.max());
            let said = self.pull_answer(&pull, found);
            session.latency.note(context, said.code);
            answer(out, &pull, &mut session.found, said);
            return Ok(());
        }
        let suspend = (fields.sys_flag & SUSPEND != 0).then(|| {
            let asked = if identity.is_long_polling { fields.suspend_ms } else { identity.short_polling_ms };
            let is_ended = pull.logical.as_ref().is_some_and(|logical| !logical.is_newest());
            Duration::from_millis(asked.min(if is_ended { ENDED_SUSPEND_MS_MAX } else { SUSPEND_MS_MAX }))
        });
        let parking = if suspend.is_some() { Parking::WithoutMessages } else { Parking::Never };
        match (self.execute(session, &pull, parking, out), suspend) {
            (Executed::Answered, _) => {}
            (Executed::NothingYet, Some(suspend)) => self.park(session, pull, suspend, out),
            _ => self.read_later(session, pull, out),
        }
        Ok(())
    }

    /// Executes a parked pull: for the last time, unless its filter needs the new records.
    pub(in crate::dataplane) fn wake(&self, session: &mut Session, token: u64, out: &mut Outbox) {
        // The pull may have been answered before this event.
        let Some(pull) = self.take_parked(session, token) else { return };
        if let Err(error_reply) = self.still_permits(session, &pull) {
            self.refuse(session, &pull, &error_reply, out);
            return;
        }
        if pull.filter.needs_records() {
            self.wake_selective(session, pull, out);
        } else {
            self.finish(session, pull, out);
        }
    }

    fn take_parked(&self, session: &mut Session, token: u64) -> Option<PendingPull> {
        let pull = session.parked.remove(&token)?;
        if let Some(deadline) = pull.deadline {
            self.deadlines.cancel(deadline);
        }
        Some(pull)
    }

    /// Executes a parked pull with a filter on records. If no new record matches and there is time left, parks it
    /// after those records.
    fn wake_selective(&self, session: &mut Session, mut pull: PendingPull, out: &mut Outbox) {
        let now = self.clock.elapsed();
        let left = pull.deadline.map_or(Duration::ZERO, |(due, _)| due.saturating_sub(now));
        if left.is_zero() {
            self.finish(session, pull, out);
            return;
        }
        // Another pull of this connection may have applied the same filter to these messages.
        pull.get.offset = session.scanned.until(&pull.filter, &pull.queue, pull.get.offset);
        if pull.get.offset == pull.queue.max() {
            self.park(session, pull, left, out);
            return;
        }
        match self.execute(session, &pull, Parking::WithoutMatches, out) {
            Executed::Answered => {}
            Executed::NothingYet => {
                let (from, until) = (pull.get.offset, session.found.next_begin);
                session.scanned.note(&pull.filter, &pull.queue, from, until);
                pull.get.offset = until;
                self.park(session, pull, left, out);
            }
            Executed::Cold => self.read_later(session, pull, out),
        }
    }

    /// Executes a pull for the last time.
    fn finish(&self, session: &mut Session, pull: PendingPull, out: &mut Outbox) {
        if self.execute(session, &pull, Parking::Never, out) != Executed::Answered {
            self.read_later(session, pull, out);
        }
    }

    /// Removes some pulls of a closed connection from the tables; false when none is left.
    pub(in crate::dataplane) fn forget_parked(&self, session: &mut Session) -> bool {
        let link = session.link.id();
        for (token, pull) in session.parked.extract_if(|_, _| true).take(FORGOTTEN_MAX) {
            if let Some(deadline) = pull.deadline {
                self.deadlines.cancel(deadline);
                self.polls.forget(&pull.queue, link, token);
            }
        }
        !session.parked.is_empty()
    }

    /// Reads on the store's read thread, so that a slow consumer does not block other connections of this thread.
    fn read_later(&self, session: &mut Session, pull: PendingPull, out: &mut Outbox) {
        let token = session.next_token;
        session.next_token += 1;
        let (queue, get, filter) = (Arc::clone(&pull.queue), pull.get, Arc::clone(&pull.filter));
        // Each message may need a slice; its bytes belong to the log.
        let bytes = get.messages_max as usize * size_of::<Bytes>() + filter.bytes();
        let is_taken = self.read_first(&session.link, bytes, move |store| {
            let mut found = GetResult::default();
            let mut spent = 0;
            let read = filter.read(&mut spent, |filter| store.get_filtered(&queue, &get, filter, &mut found));
            found.touch();
            Event::Read(token, Box::new(read.map(|()| found).map_err(ErrorReply::from)))
        });
        if is_taken {
            session.parked.insert(token, pull);
        } else {
            self.refuse(session, &pull, &overload(), out);
        }
    }

    /// Checks that the sender of a parked pull still has the permission.
    fn still_permits(&self, session: &Session, pull: &PendingPull) -> Result<(), ErrorReply> {
        let Some(waiter) = &pull.waiter else { return Ok(()) };
        self.guard.still_permits(waiter, pull.context.code, &pull.topic.name, session.link.peer())
    }

    /// Refuses a pull without moving its offset, so that the consumer retries it.
    fn refuse(&self, session: &mut Session, pull: &PendingPull, error_reply: &ErrorReply, out: &mut Outbox) {
        self.count(session, pull, error_reply.code);
        refuse_pull(out.bytes(), pull.context, error_reply);
    }

    /// Replies to a pull with the result of the read thread.
    pub(in crate::dataplane) fn answer_read(
        &self,
        session: &mut Session,
        token: u64,
        read: Result<GetResult, ErrorReply>,
        out: &mut Outbox,
    ) {
        let Some(pull) = session.parked.remove(&token) else { return };
        let read = self.still_permits(session, &pull).and(read);
        let code = match read {
            Ok(mut found) => {
                let said = self.pull_answer(&pull, &mut found);
                answer(out, &pull, &mut found, said);
                said.code
            }
            Err(error_reply) => {
                refuse_pull(out.bytes(), pull.context, &error_reply);
                error_reply.code
            }
        };
        self.count_late(session, &pull, code);
    }

    /// Records the latency of a reply: within the burst, or since the arrival of a pull that was parked.
    fn count(&self, session: &mut Session, pull: &PendingPull, code: i32) {
        if pull.deadline.is_some() {
            self.count_late(session, pull, code);
        } else {
            session.latency.note(pull.context, code);
        }
    }

    fn count_late(&self, session: &mut Session, pull: &PendingPull, code: i32) {
        if !pull.context.is_oneway {
            let took = self.clock.elapsed().saturating_sub(pull.context.came_at);
            let kind = RequestKind {
                is_long_polling: pull.deadline.is_some(),
                ..RequestKind::of(pull.context, code)
            };
            session.latency.waited(&self.latencies, kind, took);
        }
    }

    /// Answers `pull` with data in memory.
    fn execute(
        &self,
        session: &mut Session,
        pull: &PendingPull,
        parking: Parking,
        out: &mut Outbox,
    ) -> Executed {
        let found = &mut session.found;
        let read = |filter: &mut ReadFilter<'_>| self.store.get_hot(&pull.queue, &pull.get, filter, found);
        match pull.filter.read(&mut session.filter_cost, read) {
            Ok(true) => {}
            Ok(false) => return Executed::Cold,
            Err(error) => {
                self.refuse(session, pull, &error.into(), out);
                return Executed::Answered;
            }
        }
        let said = self.pull_answer(pull, found);
        let is_waiting = match parking {
            Parking::Never => false,
            Parking::WithoutMessages => said.code == response::PULL_NOT_FOUND,
            Parking::WithoutMatches => {
                found.status == GetStatus::NoMatchedMessage && found.next_begin == found.max
            }
        };
        if is_waiting && said.may_wait {
            return Executed::NothingYet;
        }
        answer(out, pull, found, said);
        self.count(session, pull, said.code);
        Executed::Answered
    }

    fn park(&self, session: &mut Session, mut pull: PendingPull, suspend: Duration, out: &mut Outbox) {
        if suspend.is_zero() {
            self.finish(session, pull, out);
            return;
        }
        let has_room = session.parked.len() < PARKED_PER_CONNECTION_MAX;
        let Some(owed) = has_room.then(|| session.link.owe(0)).flatten() else {
            self.refuse(session, &pull, &overload(), out);
            return;
        };
        let token = session.next_token;
        session.next_token += 1;
        let (offset, filter) = (pull.get.offset, Arc::clone(&pull.filter));
        if let Err(waiter) = self.polls.park(&pull.queue, Waiter { owed, token, offset, filter }) {
            waiter.owed.settle();
            self.refuse(session, &pull, &overload(), out);
            return;
        }
        let deadline = Deadline::Pull(Arc::clone(&pull.queue), session.link.id(), token);
        pull.deadline = Some(self.deadlines.add(suspend, deadline));
        // A message that became visible before the waiter was in the table has not woken it.
        let has_grown = pull.queue.max() > offset;
        let queue = has_grown.then(|| Arc::clone(&pull.queue));
        session.parked.insert(token, pull);
        if let Some(waiter) = queue.and_then(|queue| self.polls.forget(&queue, session.link.id(), token)) {
            waiter.owed.settle();
            if let Some(pull) = self.take_parked(session, token) {
                self.finish(session, pull, out);
            }
        }
    }
}

/// Returns the filter of a pull that carries its subscription; the session caches the last one parsed.
fn carried_filter(
    metadata: &Metadata,
    fields: &PullHeader<'_>,
    kept: &mut Option<(Box<str>, Arc<Filter>)>,
    cost: &mut usize,
) -> Result<Arc<Filter>, ErrorReply> {
    let (kind, expression) = (fields.expression_type, fields.expression.unwrap_or_default());
    if let Some((known, filter)) = kept
        && filter.is_of(kind)
        && **known == *expression
    {
        return Ok(Arc::clone(filter));
    }
    // Also where it is refused, however often.
    *cost += compile_cost(expression);
    let filter = metadata.filter(kind, expression);
    let filter = filter.map_err(|unserved| admission::unserved_filter(unserved, fields.topic))?;
    *kept = (expression.len() <= KEPT_EXPRESSION_BYTES_MAX).then(|| (expression.into(), Arc::clone(&filter)));
    Ok(filter)
}

fn answer(out: &mut Outbox, pull: &PendingPull, found: &mut GetResult, said: PullAnswer) {
    let PullAnswer { code, suggested, .. } = said;
    if pull.context.is_oneway {
        found.clear();
        return;
    }
    let mut reply = reply::begin(out.bytes(), pull.context, code, Some(found.status.name()));
    reply.ext_u64("suggestWhichBrokerId", suggested);
    match &pull.logical {
        None => {
            reply.ext_u64("nextBeginOffset", found.next_begin.0);
            reply.ext_u64("minOffset", found.min.0);
            reply.ext_u64("maxOffset", found.max.0);
        }
        Some(logical) => logical.write(said, found, &mut reply),
    }
    reply.ext_i64("topicSysFlag", i64::from(pull.topic.sys_flag));
    reply.ext_i64("groupSysFlag", i64::from(pull.group.sys_flag));
    reply::finish(reply, if code == response::SUCCESS { found.bytes } else { 0 });
    if code == response::SUCCESS {
        pull.delivery.count(u64::from(found.count), found.bytes as u64);
        found.slices.drain(..).for_each(|slice| out.push_shared(slice));
    }
    let stays = pull.logical.as_ref().is_none_or(|logical| logical.index() == said.segment);
    if stays && matches!(code, response::SUCCESS | response::PULL_RETRY_IMMEDIATELY) {
        pull.delivery.advance(found.next_begin);
    }
    found.clear();
}

/// Refuses a pull that was not admitted, with the kind of permission that failed.
pub(in crate::dataplane) fn refuse_pull(
    out: &mut Vec<u8>,
    context: RequestContext,
    error_reply: &ErrorReply,
) {
    let kind = error_reply.forbidden.map(|kind| kind.to_string());
    let ext = kind.as_deref().map(|kind| ("forbiddenType", kind));
    reply::write(out, context, error_reply.code, Some(&error_reply.remark), ext.as_slice());
}
