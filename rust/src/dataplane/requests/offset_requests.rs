//! Offset requests: queries and commits of consumer offsets.
//!
//! Threads: the I/O thread of the connection.

use super::broker::Broker;
use super::logical::{self, Progress};
use super::session::Session;
use crate::dataplane::state::rejection::{ErrorReply, Rejection, unknown_topic};
use crate::dataplane::state::reply;
use crate::positions::QueueOffset;
use crate::remoting::Outbox;
use crate::remoting::codes::response;
use crate::remoting::frame::Encoding;
use crate::remoting::header::Header;

/// The reply to a new group on a queue that still has its first message.
const QUEUE_START: QueueOffset = QueueOffset(0);
/// Stands for a missing queue or offset.
const NO_NUMBER: i64 = -1;

impl Broker {
    /// QUERY_CONSUMER_OFFSET. An unknown offset is answered with code 22, because a zero would send a new group to
    /// the beginning.
    pub(in crate::dataplane) fn query_offset(
        &self,
        session: &mut Session,
        encoding: Encoding,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let header = &session.header;
        let (group, topic, mut queue_id) = queue_of(header)?;
        let context = session.context(encoding);
        let mut committed = None;
        if let Some(queue) = queue_id
            && let Some(known) = self.metadata.topic(topic)
            && let Some(mapping) = logical::mapping_for(&known, header)
        {
            let own = |queue_id| self.offsets.query(group, topic, queue_id);
            let broker = &self.metadata.identity.broker;
            match logical::progress(&known, mapping, queue, broker, own)? {
                Progress::Local(local) => queue_id = Some(local),
                Progress::Committed(offset) => committed = Some(offset),
                Progress::Absent => queue_id = None,
            }
        }
        let committed =
            committed.or_else(|| queue_id.and_then(|queue_id| self.offsets.query(group, topic, queue_id)));
        let is_zero_allowed = header.get("setZeroIfNotFound").is_none_or(|flag| flag != "false");
        let queue = queue_id.filter(|_| committed.is_none() && is_zero_allowed);
        let queue = queue.and_then(|queue_id| self.store.queue(topic, queue_id));
        let is_young = match queue.filter(|queue| queue.min() == QUEUE_START) {
            Some(queue) => self.store.may_be_in_memory(&queue, QUEUE_START).map_err(ErrorReply::from)?,
            None => false,
        };
        let Some(offset) = committed.or(is_young.then_some(QUEUE_START.0)) else {
            let remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first";
            return Err(ErrorReply::new(response::QUERY_NOT_FOUND, remark).into());
        };
        if !context.is_oneway {
            session.latency.note(context, response::SUCCESS);
            let mut reply = reply::begin(out.bytes(), context, response::SUCCESS, None);
            reply.ext_u64("offset", offset);
            reply::finish(reply, 0);
        }
        Ok(())
    }

    /// UPDATE_CONSUMER_OFFSET. A commit during a pending reset is answered with success and ignored. A commit
    /// outside the queues of its topic is refused and counted.
    pub(in crate::dataplane) fn update_offset(
        &self,
        session: &mut Session,
        encoding: Encoding,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let header = &session.header;
        let (group, topic, queue_id) = queue_of(header)?;
        if self.metadata.group(group).is_none() {
            let remark = format!("subscription group [{group}] does not exist");
            return Err(ErrorReply::new(response::SUBSCRIPTION_GROUP_NOT_EXIST, remark).into());
        }
        let Some(topic) = self.metadata.topic(topic) else {
            return Err(unknown_topic(topic).into());
        };
        let offset = header.get("commitOffset").and_then(|text| text.parse().ok());
        // A missing number is refused like one out of range.
        let (mut queue_id, mut offset) = (queue_id, offset.unwrap_or(NO_NUMBER));
        if let Some(queue) = queue_id
            && let Some(mapping) = logical::mapping_for(&topic, header)
        {
            let broker = &self.metadata.identity.broker;
            let (local, at) = logical::commit(&topic, mapping, queue, offset, broker)?;
            (queue_id, offset) = (Some(local), at);
        }
        let queue_id = queue_id.map_or(NO_NUMBER, i64::from);
        self.offsets.commit(group, &topic, queue_id, offset)?;
        let context = session.context(encoding);
        session.latency.note(context, response::SUCCESS);
        reply::write(out.bytes(), context, response::SUCCESS, None, &[]);
        Ok(())
    }
}

fn queue_of(header: &Header) -> Result<(&str, &str, Option<u32>), ErrorReply> {
    let field = |name| {
        header.get(name).ok_or_else(|| {
            ErrorReply::new(response::INVALID_PARAMETER, format!("header field {name} is missing"))
        })
    };
    let queue_id = header.get("queueId").and_then(|text| text.parse().ok());
    Ok((field("consumerGroup")?, field("topic")?, queue_id))
}
