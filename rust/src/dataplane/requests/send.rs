//! Sends: from a frame to a record in the log and a reply.
//!
//! A burst of frames is staged first: each send is checked, its destination resolved, its properties rewritten and
//! its record sized. Then the put lock is taken once for all of them. Under the lock each message costs only its
//! offsets and the copy.
//!
//! Threads: the I/O thread of the connection, from frame to reply. In sync mode the session holds replies until the
//! flush thread has passed them.

mod batch;
mod half;
mod lite;

use std::net::SocketAddr;
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::admission;
use super::attributes::MessageAttributes;
use super::broker::Broker;
use super::logical::{self, Logical};
use super::session::Session;
use crate::dataplane::delivery::delays;
use crate::dataplane::delivery::timers::schedule;
use crate::dataplane::state::latency::LatencyBuffer;
use crate::dataplane::state::metadata::Topic;
use crate::dataplane::state::rejection::{
    ErrorReply, Rejection, lights_refused, no_room, put_refused, unavailable,
};
use crate::dataplane::state::reply;
use crate::dataplane::state::request::RequestContext;
use crate::dataplane::waiting::held_replies::HeldReplies;
use crate::message::id::OffsetMessageId;
use crate::message::properties::{self, name};
use crate::message::record::RecordFields;
use crate::message::topic::{DEAD_LETTER_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, is_of_group};
use crate::message::{MessageType, sysflag};
use crate::positions::PhysicalOffset;
use crate::remoting::codes::{request, response};
use crate::remoting::frame::Frame;
use crate::remoting::{BURST_FRAMES_MAX, Outbox};
use crate::requests::send::SendHeader;
use crate::store::{ConsumeQueue, Put};

/// A checked record that is ready to be appended.
#[derive(Debug)]
pub(in crate::dataplane) struct StagedRecord<'f> {
    /// The queue that it is stored in: its own, or the queue of its delay, time or transaction.
    pub(in crate::dataplane) queue: Arc<ConsumeQueue>,
    /// The queue in the reply.
    pub(in crate::dataplane) queue_id: u32,
    pub(in crate::dataplane) header: &'f [u8],
    pub(in crate::dataplane) flag: i32,
    pub(in crate::dataplane) sys_flag: i32,
    pub(in crate::dataplane) born_timestamp_ms: i64,
    pub(in crate::dataplane) reconsume_times: i32,
    pub(in crate::dataplane) body: &'f [u8],
    pub(in crate::dataplane) body_crc: u32,
    pub(in crate::dataplane) attributes: MessageAttributes,
    pub(in crate::dataplane) message_type: MessageType,
    /// Whether it is the half of a transaction.
    pub(in crate::dataplane) is_half: bool,
    /// Handle for recalling the message before delivery.
    pub(super) recall_handle: Option<Box<str>>,
    /// The logical queue, of a static topic.
    pub(super) logical: Option<Logical>,
    pub(in crate::dataplane) context: RequestContext,
}

pub(in crate::dataplane) type Burst<'f> = ArrayVec<StagedRecord<'f>, BURST_FRAMES_MAX>;

/// The messages of one frame.
pub(in crate::dataplane) enum StagedSend<'f> {
    /// A message, stored with the rest of its burst.
    Message(StagedRecord<'f>),
    /// The messages of a batch, stored together, and the batch's own unique key.
    Batch(Vec<StagedRecord<'f>>, Option<Box<str>>),
}

impl Broker {
    /// Checks a send and sizes its records. Nothing is stored yet.
    pub(in crate::dataplane) fn stage<'f>(
        &self,
        session: &mut Session,
        frame: &Frame<'f>,
    ) -> Result<StagedSend<'f>, Rejection> {
        let context = session.context(frame.encoding);
        let Session { header, arena, random, link, .. } = session;
        let fields = SendHeader::decode(header)?;
        let (topic, mut queue_id) = admission::send(&self.metadata, &fields)?;
        let mut logical = None;
        if topic.mapping.is_some() {
            let broker = &self.metadata.identity.broker;
            (queue_id, logical) =
                logical::send(&topic, &fields, header, |count| random.below(count), broker)?;
        }
        self.check_copies()?;
        let queue_id = queue_id.unwrap_or_else(|| random.below(topic.write_queues));
        let queue = topic.queue(&self.store, queue_id).map_err(unavailable)?;
        let mut sys_flag = sysflag::from_client(fields.sys_flag);
        let transaction = sys_flag & sysflag::TRANSACTION_MASK;
        // The half of another broker is an ordinary message here.
        sys_flag &= !sysflag::TRANSACTION_MASK;
        if topic.is_multi_tag {
            sys_flag |= sysflag::MULTI_TAGS;
        }
        let staged = StagedRecord {
            queue,
            queue_id,
            header: frame.header,
            flag: fields.flag,
            sys_flag,
            born_timestamp_ms: fields.born_timestamp_ms,
            reconsume_times: fields.reconsume_times,
            body: frame.body,
            body_crc: 0,
            attributes: MessageAttributes::default(),
            message_type: MessageType::Normal,
            is_half: false,
            recall_handle: None,
            logical,
            context,
        };
        if fields.is_batch {
            Self::check_flag(transaction, false)?;
            return self.stage_batch(arena, &staged, &fields, &topic).map_err(Rejection::from);
        }
        // Without a body, a message deletes its key.
        if !(topic.is_compacted && frame.body.is_empty()) {
            admission::body(&self.metadata, frame.body)?;
        }
        let lites = lite::queue(&topic, fields.properties)?;
        let (added, lites) = (&self.added_properties, lites.as_deref());
        let attributes = MessageAttributes::rewrite(added, arena, &topic.name, fields.properties, lites)?;
        admission::key(&topic, fields.properties.as_bytes())?;
        // A copy that a consumer returned keeps the property without being a half.
        let is_half = attributes.is_prepared && !is_of_group(&topic.name);
        Self::check_flag(transaction, attributes.is_prepared)?;
        let message_type = attributes.message_type();
        self.check_type(&topic, message_type)?;
        if attributes.names_lights {
            let properties = arena.get(attributes.properties.clone()).unwrap_or_default();
            let is_for_later = attributes.is_prepared || attributes.is_timed || attributes.delay_level > 0;
            self.store.admit_lights(&topic.name, properties, is_for_later).map_err(lights_refused)?;
        }
        let body_crc = RecordFields::body_crc(frame.body);
        let mut staged = StagedRecord { body_crc, attributes, message_type, ..staged };
        if let Some(queue_id) = staged.attributes.queue_of_priority(topic.write_queues)
            && staged.logical.is_none()
        {
            staged.queue = topic.queue(&self.store, queue_id).map_err(unavailable)?;
            staged.queue_id = queue_id;
        }
        if is_half {
            return self.stage_half(arena, staged, &topic.name, link.peer().ip());
        }
        if topic.name.starts_with(DEAD_LETTER_PREFIX) && fields.topic.starts_with(RETRY_PREFIX) {
            // The consumer that returned it requested a delay before the next attempt.
            staged.attributes = staged.attributes.moved(arena, &topic.name, &[(name::DELAY, b"-1")])?;
        } else if staged.attributes.delay_level > 0 {
            let slot = delays::slot(&self.store, staged.attributes.delay_level, &topic.name, queue_id)?;
            staged.attributes = staged.attributes.moved(arena, SCHEDULE_TOPIC, &slot.properties())?;
            staged.queue = slot.queue;
        } else if staged.attributes.is_timed {
            let properties = arena.get(staged.attributes.properties.clone()).unwrap_or_default();
            let now = self.clock.wall_ms() as i64;
            if let Some(timing) = schedule::timing(&self.store, now, properties, &topic.name, queue_id)? {
                staged.recall_handle = self.recall_handle(context.code, &topic.name, &timing, &staged, arena);
                staged.attributes = staged.attributes.moved(arena, TIMER_TOPIC, &timing.properties())?;
                staged.queue = timing.queue;
            }
        }
        Ok(StagedSend::Message(staged))
    }

    /// Checks the message against the type of its topic, if the topic has one and the broker enforces it.
    fn check_type(&self, topic: &Topic, actual: MessageType) -> Result<(), ErrorReply> {
        match topic.message_type {
            Some(expected) if expected != actual && self.metadata.checks_message_types() => {
                Err(wrong_type(&topic.name, expected, actual))
            }
            _ => Ok(()),
        }
    }

    /// Stores all staged records in order, and answers or parks each send.
    pub(in crate::dataplane) fn append(
        &self,
        session: &mut Session,
        burst: &mut Burst<'_>,
        out: &mut Outbox,
    ) {
        let done = self.store_burst(session, burst, out);
        for staged in burst.drain(..).skip(done) {
            let StagedRecord { header, body, context, .. } = staged;
            let frame = Frame { encoding: context.encoding, header, body };
            if !self.park_send(session, &frame, context.came_at) {
                let error_reply = no_room();
                session.latency.note(context, error_reply.code);
                self.refuse_send(out.bytes(), context, &error_reply);
            }
        }
    }

    /// Stores staged records in order and answers them. Returns how many; the log has no space for the rest.
    pub(in crate::dataplane) fn store_burst(
        &self,
        session: &mut Session,
        burst: &Burst<'_>,
        out: &mut Outbox,
    ) -> usize {
        if burst.is_empty() {
            return 0;
        }
        let Session { link, arena, held, latency, .. } = session;
        let mut last_held = None;
        let done = {
            // Not moved: a move would copy its full capacity for a single message.
            let mut puts = ArrayVec::<Put<'_>, BURST_FRAMES_MAX>::new();
            puts.extend(burst.iter().map(|staged| self.put(staged, arena, link.peer(), false)));
            let done = self.store.try_append(&mut puts);
            for (staged, put) in burst.iter().zip(&puts).take(done) {
                if staged.is_half {
                    self.open_half(put, link);
                }
                let unique_key = arena.get(staged.attributes.unique_key.clone());
                let put = std::slice::from_ref(put);
                last_held = self.answer(staged, put, unique_key, held, latency, out).or(last_held);
            }
            done
        };
        if let Some(end) = last_held {
            self.wait_for_promises(session, end, out);
        }
        done
    }

    /// Replies with the result of the append. Returns the position that a held reply waits for.
    fn answer(
        &self,
        staged: &StagedRecord<'_>,
        puts: &[Put<'_>],
        unique_key: Option<&[u8]>,
        held: &mut HeldReplies,
        latency: &mut LatencyBuffer,
        out: &mut Outbox,
    ) -> Option<PhysicalOffset> {
        let context = staged.context;
        match &puts.last()?.outcome {
            Err(error) => {
                let error_reply = put_refused(error);
                latency.note(context, error_reply.code);
                self.refuse_send(out.bytes(), context, &error_reply);
            }
            Ok(_) if context.is_oneway => {}
            Ok(stored) if staged.attributes.is_waiting_for_store => {
                let wait = self.wait_of_reply();
                if wait.is_held {
                    held.hold(stored.end, context, wait, |reply| {
                        self.accept(reply, staged, puts, unique_key, wait.code);
                    });
                    return Some(stored.end);
                }
                latency.note(context, wait.code);
                self.accept(out.bytes(), staged, puts, unique_key, wait.code);
            }
            Ok(_) => {
                latency.note(context, response::SUCCESS);
                self.accept(out.bytes(), staged, puts, unique_key, response::SUCCESS);
            }
        }
        None
    }

    fn put<'a>(
        &self,
        staged: &'a StagedRecord<'_>,
        arena: &'a [u8],
        peer: SocketAddr,
        joined: bool,
    ) -> Put<'a> {
        let key = staged.queue.key();
        let record = RecordFields {
            queue_id: key.queue_id,
            flag: staged.flag,
            sys_flag: staged.sys_flag,
            born_timestamp_ms: staged.born_timestamp_ms,
            born_host: peer,
            store_host: self.metadata.identity.store_host,
            reconsume_times: staged.reconsume_times,
            prepared_transaction_offset: 0,
            body: staged.body,
            body_crc: staged.body_crc,
            topic: key.topic.as_bytes(),
            properties: arena.get(staged.attributes.properties.clone()).unwrap_or_default(),
        };
        let (tags_code, keys) = (staged.attributes.tags_code, staged.attributes.keys.clone());
        let put = Put::new(Arc::clone(&staged.queue), record, tags_code, keys);
        let lights = || self.store.light_put(record.topic, record.properties);
        let lights = staged.attributes.names_lights.then(lights).flatten();
        Put { message_type: staged.message_type, joined, lights, ..put }
    }

    /// Writes the reply for stored records: one message, or the members of a batch.
    fn accept(
        &self,
        out: &mut Vec<u8>,
        staged: &StagedRecord<'_>,
        puts: &[Put<'_>],
        unique_key: Option<&[u8]>,
        code: i32,
    ) {
        let context = staged.context;
        let mut reply = reply::begin(out, context, code, None);
        if context.code == request::RECALL_MESSAGE {
            let recalled =
                puts.first().and_then(|put| properties::get(put.record.properties, name::UNIQ_KEY));
            reply.ext("msgId", recalled.and_then(|id| std::str::from_utf8(id).ok()).unwrap_or_default());
            reply.ext_block(&self.send_answer_fields);
            return reply::finish(reply, 0);
        }
        let stored = puts.iter().filter_map(|put| put.outcome.as_ref().ok());
        let store_host = self.metadata.identity.store_host;
        let ids =
            stored.clone().map(|stored| OffsetMessageId { store_host, physical: stored.physical }.text());
        reply.ext_plain_list("msgId", ids);
        let first = stored.clone().next().map(|first| first.queue_offset).unwrap_or_default();
        match &staged.logical {
            None => {
                reply.ext_u64("queueId", u64::from(staged.queue_id));
                reply.ext_u64("queueOffset", first.0);
            }
            Some(logical) => {
                reply.ext_u64("queueId", u64::from(logical.queue_id));
                reply.ext_i64("queueOffset", logical.offset(first));
            }
        }
        if let Some(Ok(unique_key)) = unique_key.map(std::str::from_utf8) {
            reply.ext("transactionId", unique_key);
        }
        if let Some(handle) = &staged.recall_handle {
            reply.ext("recallHandle", handle);
        }
        reply.ext_block(&self.send_answer_fields);
        reply::finish(reply, 0);
    }

    /// Refuses a send. Clients expect region and trace switch here, too.
    pub(in crate::dataplane) fn refuse_send(
        &self,
        out: &mut Vec<u8>,
        context: RequestContext,
        error_reply: &ErrorReply,
    ) {
        if !context.is_oneway {
            let mut reply = reply::begin(out, context, error_reply.code, Some(&error_reply.remark));
            reply.ext_block(&self.send_answer_fields);
            reply::finish(reply, 0);
        }
    }
}

/// Returns the refusal of a message of the wrong type, with the text of Apache's proxy.
fn wrong_type(topic: &str, expected: MessageType, actual: MessageType) -> ErrorReply {
    let remark = format!(
        "the message is illegal: TopicMessageType validate failed, the expected type is {}, but actual type is {}; \
         a message of topic [{topic}] {}",
        expected.name(),
        actual.name(),
        expected.meaning()
    );
    ErrorReply::new(response::MESSAGE_ILLEGAL, remark)
}
