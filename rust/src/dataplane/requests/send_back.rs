//! Returned messages: a copy for a later retry, or for the dead-letter queue.
//!
//! The client names a record of the log. Its copy goes to the group's retry topic through a delay level that grows
//! with every return, and beyond the group's limit to the dead-letter queue.
//!
//! Threads: the I/O thread of the connection. A record that may not be in memory is first read on the store's read
//! thread.

use std::sync::Arc;

use super::admission;
use super::attributes::MessageAttributes;
use super::broker::Broker;
use super::session::Session;
use crate::dataplane::delivery::delays;
use crate::dataplane::state::metadata::PERMISSION_WRITE;
use crate::dataplane::state::rejection::{
    ErrorReply, Rejection, put_refused, takes_no_messages, unavailable,
};
use crate::dataplane::state::reply;
use crate::dataplane::state::role::Role;
use crate::message::id::OffsetMessageId;
use crate::message::properties::{self, name};
use crate::message::record::{RecordFields, RecordView};
use crate::message::topic::{DEAD_LETTER_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC};
use crate::positions::PhysicalOffset;
use crate::remoting::Outbox;
use crate::remoting::codes::response;
use crate::remoting::frame::Frame;
use crate::requests::needs;
use crate::requests::send_back::SendBackHeader;
use crate::store::{ConsumeQueue, Put};

/// The level of the first retry: 10 s with the default levels.
const FIRST_RETRY_LEVEL: i32 = 3;

/// A checked copy with its destination.
struct Returned {
    queue: Arc<ConsumeQueue>,
    attributes: MessageAttributes,
}

impl Broker {
    /// Stores a copy of the message for a retry, or as a dead letter.
    ///
    /// `is_read` means that the record was brought into memory.
    pub(in crate::dataplane) fn send_back(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        is_read: bool,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let context = session.context(frame.encoding);
        let fields = SendBackHeader::decode(&session.header)?;
        if self.metadata.role() != Role::Master {
            return Err(takes_no_messages().into());
        }
        if self.metadata.permission() & PERMISSION_WRITE == 0 {
            let remark =
                format!("the broker[{}] sending message is forbidden", self.metadata.identity.store_host);
            return Err(ErrorReply::new(response::NO_PERMISSION, remark).into());
        }
        let Some(group) = self.metadata.group(fields.group) else {
            return Err(admission::missing_group(fields.group));
        };
        if group.retry_queues == 0 {
            session.latency.note(context, response::SUCCESS);
            reply::write(out.bytes(), context, response::SUCCESS, None, &[]);
            return Ok(());
        }
        let at = u64::try_from(fields.offset).map(PhysicalOffset).map_err(|_| not_found(fields.offset))?;
        if !is_read && !self.store.is_hot(at) {
            return Ok(self.look_up_first(session, frame, at)?);
        }
        let original = self.store.lookup(at).ok_or_else(|| not_found(fields.offset))?;
        let original = RecordView::parse(&original).map_err(|_| not_found(fields.offset))?;
        // A consumer that returns a message receives it again.
        let topic = std::str::from_utf8(original.topic()).map_err(|_| not_found(fields.offset))?;
        self.guard.permit(
            &mut session.principal,
            &session.link,
            session.header.code,
            needs::to_receive(topic),
        )?;
        let is_dead = fields.delay_level < 0
            || original.reconsume_times() >= fields.reconsume_max.unwrap_or(group.retry_max);
        let prefix = if is_dead { DEAD_LETTER_PREFIX } else { RETRY_PREFIX };
        let topic = admission::topic_of(&self.metadata, &format!("{prefix}{}", fields.group))?;
        if topic.permission & PERMISSION_WRITE == 0 {
            let remark = format!("the topic[{}] sending message is forbidden", topic.name);
            return Err(ErrorReply::new(response::NO_PERMISSION, remark).into());
        }
        let level = match fields.delay_level {
            _ if is_dead => 0,
            0 => FIRST_RETRY_LEVEL.saturating_add(original.reconsume_times().max(0)),
            level => level,
        };
        let queue_id = if is_dead { 0 } else { session.random.below(topic.write_queues) };
        let returned = if is_dead {
            let queue = topic.queue(&self.store, queue_id).map_err(unavailable)?;
            let attributes = copy(&mut session.arena, &original, &topic.name, &[(name::DELAY, b"0")])?;
            Returned { queue, attributes }
        } else {
            let slot = delays::slot(&self.store, level.unsigned_abs(), &topic.name, queue_id)?;
            let attributes = copy(&mut session.arena, &original, SCHEDULE_TOPIC, &slot.properties())?;
            Returned { queue: slot.queue, attributes }
        };
        self.store_returned(session, &original, returned, frame, out)?;
        let origin = properties::get(original.properties(), name::RETRY_TOPIC).unwrap_or(original.topic());
        if let (Some(group), Ok(origin)) = (session.header.get("group"), std::str::from_utf8(origin)) {
            self.deliveries.returned(group, origin, original.queue_id());
        }
        Ok(())
    }

    /// Appends the copy and replies. The reply waits for the disk like that of a send, because the consumer's offset
    /// is about to pass the message.
    fn store_returned(
        &self,
        session: &mut Session,
        original: &RecordView<'_>,
        returned: Returned,
        frame: &Frame<'_>,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let context = session.context(frame.encoding);
        let key = returned.queue.key();
        let record = RecordFields {
            queue_id: key.queue_id,
            store_host: self.metadata.identity.store_host,
            reconsume_times: original.reconsume_times().saturating_add(1),
            prepared_transaction_offset: 0,
            topic: key.topic.as_bytes(),
            properties: session.arena.get(returned.attributes.properties.clone()).unwrap_or_default(),
            ..original.fields()
        };
        let queue = Arc::clone(&returned.queue);
        let mut puts = [Put::new(queue, record, returned.attributes.tags_code, returned.attributes.keys)];
        if self.store.try_append(&mut puts) == 0 {
            return Err(Rejection::NoRoom);
        }
        let [put] = puts;
        let stored = put.outcome.map_err(|error| put_refused(&error))?;
        self.answer_stored(session, context, stored.end, out);
        Ok(())
    }
}

/// Returns the properties of the copy; the first return adds the origin of the message.
fn copy(
    arena: &mut Vec<u8>,
    original: &RecordView<'_>,
    topic: &str,
    schedule: &[(&[u8], &[u8])],
) -> Result<MessageAttributes, ErrorReply> {
    let id =
        OffsetMessageId { store_host: original.store_host(), physical: original.physical_offset() }.text();
    let first = [(name::RETRY_TOPIC, original.topic()), (name::ORIGIN_MESSAGE_ID, id.as_bytes())];
    let mut added: Vec<(&[u8], &[u8])> = vec![(name::WAIT, b"false")];
    added.extend(first.iter().filter(|(name, _)| properties::get(original.properties(), name).is_none()));
    added.extend(schedule);
    MessageAttributes::copied(arena, topic, original.properties(), &added)
}

fn not_found(offset: i64) -> ErrorReply {
    ErrorReply::new(response::SYSTEM_ERROR, format!("look message by offset failed, {offset}"))
}
