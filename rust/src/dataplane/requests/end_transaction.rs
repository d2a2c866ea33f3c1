//! End of a transaction: commit or rollback of a half message.
//!
//! A commit appends the message to its destination, to its delay level or to the queue of timed messages, followed
//! by the mark of the half. A rollback appends only the mark. A second decision about a half is refused.
//!
//! Threads: the I/O thread of the connection. A half that may not be in memory is first read on the store's read
//! thread.

use std::sync::Arc;

use super::attributes::MessageAttributes;
use super::broker::Broker;
use super::session::Session;
use crate::dataplane::delivery::delays;
use crate::dataplane::delivery::timers::schedule;
use crate::dataplane::delivery::transactions::End;
use crate::dataplane::state::principal::Principal;
use crate::dataplane::state::rejection::{ErrorReply, Rejection, ask_the_master, put_refused, unavailable};
use crate::dataplane::state::reply;
use crate::dataplane::state::role::Role;
use crate::dataplane::waiting::event::Link;
use crate::message::properties::{self, name};
use crate::message::record::{RecordFields, RecordView};
use crate::message::topic::{HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC};
use crate::message::{MessageType, sysflag, tag};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::remoting::Outbox;
use crate::remoting::codes::response;
use crate::remoting::frame::Frame;
use crate::requests::end_transaction::{COMMIT, EndTransactionHeader, ROLLBACK, UNKNOWN};
use crate::requests::needs;
use crate::store::{ConsumeQueue, KeyHashes, Put, PutError, StoreError};

/// The properties of a mark.
const MARK_PROPERTIES: &[u8] = b"WAIT\x01true\x02TAGS\x01d\x02";
/// A message with one of these names a time.
const TIMES: [&[u8]; 3] = [name::TIMER_DELIVER_MS, name::TIMER_DELAY_MS, name::TIMER_DELAY_SEC];

impl Broker {
    /// Commits or rolls back a half message. A decision of "unknown" changes nothing; it is answered with success,
    /// where Apache's broker does not answer.
    ///
    /// `is_read` means that the record was brought into memory.
    pub(in crate::dataplane) fn end_transaction(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        is_read: bool,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let fields = EndTransactionHeader::decode(&session.header)?;
        if self.metadata.role() != Role::Master {
            return Err(ask_the_master().into());
        }
        match fields.decision {
            UNKNOWN => {
                self.note_answer(&mut session.principal, &session.link, session.header.code, &fields)?;
                let context = session.context(frame.encoding);
                session.latency.note(context, response::SUCCESS);
                reply::write(out.bytes(), context, response::SUCCESS, None, &[]);
                return Ok(());
            }
            COMMIT | ROLLBACK => {}
            _ => return Err(refused("commitOrRollback field wrong").into()),
        }
        let at = u64::try_from(fields.offset).map(PhysicalOffset).map_err(|_| not_found())?;
        if !is_read && !self.store.is_hot(at) {
            return Ok(self.look_up_first(session, frame, at)?);
        }
        let half = self.store.lookup(at).ok_or_else(not_found)?;
        let half = RecordView::parse(&half).map_err(|_| not_found())?;
        self.check_decision(&half, &fields)?;
        let topic = properties::get(half.properties(), name::REAL_TOPIC).map(std::str::from_utf8);
        let topic = topic.and_then(Result::ok).ok_or_else(not_found)?;
        self.guard.permit(
            &mut session.principal,
            &session.link,
            session.header.code,
            needs::to_send(topic),
        )?;
        let decision = fields.decision;
        let offset = half.queue_offset();
        if !self.transactions.begin_end(offset, at) {
            return Err(refused("the transaction has ended already").into());
        }
        let ended = self.store_end(session, &half, decision, frame, out);
        let age_ms = (self.clock.wall_ms() as i64).saturating_sub(half.born_timestamp_ms());
        let end = if decision == COMMIT { End::Commit(age_ms.max(0) as u64 / 1_000) } else { End::Rollback };
        self.transactions.finish_end(offset, ended.is_ok().then_some(end));
        ended
    }

    /// Counts the answer of a producer that was queried and has no decision.
    fn note_answer(
        &self,
        principal: &mut Principal,
        link: &Link,
        code: i32,
        fields: &EndTransactionHeader<'_>,
    ) -> Result<(), Rejection> {
        let (Ok(offset), Ok(at)) = (u64::try_from(fields.queue_offset), u64::try_from(fields.offset)) else {
            return Ok(());
        };
        let (offset, at) = (QueueOffset(offset), PhysicalOffset(at));
        let Some(topic) = self.transactions.topic(offset, at).filter(|_| fields.is_checked) else {
            return Ok(());
        };
        self.guard.permit(principal, link, code, needs::to_send(&topic))?;
        self.transactions.count_answer(offset, at);
        Ok(())
    }

    /// Checks that the decision names this half and is in time.
    fn check_decision(
        &self,
        half: &RecordView<'_>,
        fields: &EndTransactionHeader<'_>,
    ) -> Result<(), ErrorReply> {
        if half.topic() != HALF_TOPIC.as_bytes() || !half.body_crc_matches() {
            return Err(not_found());
        }
        let value = |name| properties::get(half.properties(), name);
        if value(name::PRODUCER_GROUP) != Some(fields.group.as_bytes()) {
            return Err(refused("The producer group wrong"));
        }
        if u64::try_from(fields.queue_offset) != Ok(half.queue_offset().0) {
            return Err(refused("The transaction state table offset wrong"));
        }
        let immunity_s =
            value(name::CHECK_IMMUNITY_S).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        if let Some(immunity_s) = immunity_s.filter(|_| !fields.is_checked) {
            let allowed_ms =
                i64::saturating_mul(immunity_s, 1_000).max(self.metadata.transaction_timeout_ms());
            let age_ms = (self.clock.wall_ms() as i64).saturating_sub(half.born_timestamp_ms());
            if age_ms > allowed_ms {
                let remark = format!(
                    "the decision came {age_ms} ms after the message; at most {allowed_ms} ms are allowed"
                );
                return Err(ErrorReply::new(response::ILLEGAL_OPERATION, remark));
            }
        }
        Ok(())
    }

    /// Appends the message of a commit and the mark, and replies. The reply waits for the disk like that of a send.
    fn store_end(
        &self,
        session: &mut Session,
        half: &RecordView<'_>,
        decision: i32,
        frame: &Frame<'_>,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let context = session.context(frame.encoding);
        let marks = self.store.queue_or_create(OP_HALF_TOPIC, 0).map_err(unavailable)?;
        let mark = half.queue_offset().0.to_string();
        let arena = &mut session.arena;
        let committed = if decision == COMMIT { Some(self.committed(arena, half)?) } else { None };
        let mut puts = arrayvec::ArrayVec::<Put<'_>, 2>::new();
        if let Some((queue, attributes)) = &committed {
            let key = queue.key();
            let record = RecordFields {
                queue_id: key.queue_id,
                sys_flag: half.sys_flag() & !sysflag::TRANSACTION_MASK | COMMIT,
                prepared_transaction_offset: half.physical_offset().0 as i64,
                topic: key.topic.as_bytes(),
                properties: arena.get(attributes.properties.clone()).unwrap_or_default(),
                ..half.fields()
            };
            let put = Put::new(Arc::clone(queue), record, attributes.tags_code, attributes.keys.clone());
            let lights = self.store.light_put(record.topic, record.properties);
            puts.push(Put { message_type: MessageType::Transaction, lights, ..put });
        }
        puts.push(self.mark(marks, mark.as_bytes(), committed.is_some()));
        if self.store.try_append(&mut puts) == 0 {
            return Err(Rejection::NoRoom);
        }
        // The append is atomic.
        let stored = puts.last().map_or(Err(PutError::Pending), |put| put.outcome);
        let stored = stored.map_err(|error| put_refused(&error))?;
        drop(puts);
        if context.is_oneway && self.store.is_sync() {
            self.store.release_after(stored.end);
        }
        self.answer_stored(session, context, stored.end, out);
        Ok(())
    }

    /// Returns the queue and the properties of a committed message.
    fn committed(
        &self,
        arena: &mut Vec<u8>,
        half: &RecordView<'_>,
    ) -> Result<(Arc<ConsumeQueue>, MessageAttributes), ErrorReply> {
        let value = |name| {
            let value = properties::get(half.properties(), name);
            value.and_then(|value| std::str::from_utf8(value).ok())
        };
        let topic = value(name::REAL_TOPIC).ok_or_else(not_found)?;
        let queue_id = value(name::REAL_QUEUE_ID).and_then(|text| text.parse().ok()).ok_or_else(not_found)?;
        let queue =
            self.store.queue_of_waiting(topic, queue_id, half.physical_offset()).map_err(unavailable)?;
        let level: u32 = value(name::DELAY).and_then(|text| text.parse().ok()).unwrap_or_default();
        if level > 0 {
            let slot = delays::slot(&self.store, level, topic, queue_id)?;
            let attributes =
                MessageAttributes::copied(arena, SCHEDULE_TOPIC, half.properties(), &slot.properties())?;
            return Ok((slot.queue, attributes));
        }
        let now = self.clock.wall_ms() as i64;
        if TIMES.iter().any(|name| properties::get(half.properties(), name).is_some())
            && let Some(timing) = schedule::timing(&self.store, now, half.properties(), topic, queue_id)?
        {
            let attributes =
                MessageAttributes::copied(arena, TIMER_TOPIC, half.properties(), &timing.properties())?;
            return Ok((timing.queue, attributes));
        }
        Ok((queue, MessageAttributes::copied(arena, topic, half.properties(), &[])?))
    }

    /// Stores the mark that a crash separated from its commit, before any other record is stored.
    pub(in crate::dataplane) fn mark_torn_commit(&self, half: QueueOffset) -> Result<(), StoreError> {
        let (queue, body) = (self.store.queue_or_create(OP_HALF_TOPIC, 0)?, half.0.to_string());
        // If a slave or a full disk refuses it, the next start stores it: the commit is still the last record.
        self.store.append(&mut [self.mark(queue, body.as_bytes(), false)]);
        Ok(())
    }

    /// Returns the mark of an ended half, which follows the message of a commit.
    pub(in crate::dataplane) fn mark<'a>(
        &self,
        queue: Arc<ConsumeQueue>,
        body: &'a [u8],
        joined: bool,
    ) -> Put<'a> {
        let store_host = self.metadata.identity.store_host;
        let record = RecordFields {
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: self.clock.wall_ms() as i64,
            born_host: store_host,
            store_host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            body_crc: RecordFields::body_crc(body),
            topic: OP_HALF_TOPIC.as_bytes(),
            properties: MARK_PROPERTIES,
        };
        let keys = KeyHashes::of(OP_HALF_TOPIC.as_bytes(), MARK_PROPERTIES);
        Put { joined, ..Put::new(queue, record, tag::tags_code(MARK_PROPERTIES), keys) }
    }
}

fn refused(remark: &'static str) -> ErrorReply {
    ErrorReply::new(response::SYSTEM_ERROR, remark)
}

fn not_found() -> ErrorReply {
    refused("Find prepared transaction message failed")
}
