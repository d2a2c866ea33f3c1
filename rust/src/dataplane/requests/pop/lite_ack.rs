//! Acknowledgements of messages of lite topics, and changes of their time.
//!
//! As for messages that were popped in order, except that a batch is forgotten with its last acknowledgement: a million
//! lite topics are more than the table of batches holds.
//!
//! Threads: the I/O thread of the connection.

use std::sync::Arc;

use super::ORDER_REVIVE_QUEUE;
use super::handle::Handle;
use super::request::check_lite_parent;
use crate::dataplane::requests::broker::Broker;
use crate::dataplane::requests::session::Session;
use crate::dataplane::state::metadata::Topic;
use crate::dataplane::state::orders::{OrderAck, Place};
use crate::dataplane::state::rejection::{ErrorReply, Missing, Rejection, missing_reply, unknown_topic};
use crate::message::lite;
use crate::remoting::codes::response;
use crate::requests::pop::{AckHeader, PopHeader};
use crate::store::ConsumeQueue;

/// The message of a lite topic that a request names.
pub(super) struct AckedLite {
    topic: Arc<Topic>,
    queue: Arc<ConsumeQueue>,
    offset: u64,
}

impl Broker {
    /// Returns the message that a request names, in the order of Apache's checks.
    pub(super) fn acked_lite(
        &self,
        fields: &AckHeader<'_>,
        handle: &Handle<'_>,
    ) -> Result<AckedLite, Rejection> {
        if self.metadata.topic(fields.topic).is_none() {
            return Err(unknown_topic(fields.topic).into());
        }
        let group = self.metadata.group(fields.group);
        let group = group.ok_or_else(|| missing_reply(Missing::Group, fields.group))?;
        let named = PopHeader { group: fields.group, topic: fields.topic, ..PopHeader::default() };
        check_lite_parent(&group, &named)?;
        let gone = || ErrorReply::new(response::NO_MESSAGE, "ack offset illegal.");
        let name = lite::queue_of(fields.topic, fields.lite_topic).ok_or_else(gone)?;
        let queue = self.store.queue(&name, 0).ok_or_else(gone)?;
        let offset = u64::try_from(fields.offset).ok().filter(|offset| *offset <= queue.max().0);
        let offset = offset.ok_or_else(gone)?;
        if fields.queue_id != 0 || handle.revive_queue != ORDER_REVIVE_QUEUE {
            return Err(ErrorReply::new(response::INVALID_PARAMETER, "ack queue illegal.").into());
        }
        let topic = self.metadata.topic(&name).ok_or_else(|| unknown_topic(&name))?;
        Ok(AckedLite { topic, queue, offset })
    }

    /// Acknowledges a message. It changes nothing if the group has passed the message, or got it again.
    pub(super) fn ack_lite(
        &self,
        session: &mut Session,
        group: &str,
        AckedLite { topic, queue, offset }: &AckedLite,
        pop_ms: i64,
    ) -> Result<(), Rejection> {
        let at = Place { group, topic: &topic.name, queue_id: 0 };
        let one = self.lites.lock(group, &topic.name);
        let committed = self.offsets.query(group, &topic.name, 0);
        if committed.is_some_and(|committed| *offset < committed) {
            return Ok(());
        }
        match self.offsets.orders.ack(at, *offset, pop_ms) {
            // While a reset is pending, this changes nothing.
            OrderAck::Next(next) => self.offsets.commit(group, topic, 0, next as i64)?,
            OrderAck::Stale | OrderAck::Unknown => return Ok(()),
        }
        session.deliveries.of(&self.deliveries, group, queue).acked(1);
        let now_ms = self.clock.wall_ms() as i64;
        let is_blocked = self.offsets.orders.is_blocked(at, None, 0, now_ms);
        self.release_lite_in_time(at);
        self.offsets.orders.clear_acked(at);
        let has_more = self.offsets.query(group, &topic.name, 0).is_none_or(|next| next < queue.max().0);
        drop(one);
        if !is_blocked && has_more {
            self.offer_lite(group, &topic.name);
        }
        Ok(())
    }

    /// Hides a message of the last batch for a time that begins now, or with `is_whole` all that are not acknowledged.
    /// Returns the end of that time; `None` if the group has passed the message.
    pub(super) fn hide_lite(
        &self,
        group: &str,
        AckedLite { topic, offset, .. }: &AckedLite,
        pop_ms: i64,
        invisible_ms: i64,
        is_whole: bool,
    ) -> Option<i64> {
        let at = Place { group, topic: &topic.name, queue_id: 0 };
        let _one = self.lites.lock(group, &topic.name);
        if self.offsets.query(group, &topic.name, 0).is_some_and(|committed| *offset < committed) {
            return None;
        }
        let visible_ms = (self.clock.wall_ms() as i64).saturating_add(invisible_ms);
        match is_whole {
            true => self.offsets.orders.hide_all(at, pop_ms, visible_ms),
            false => self.offsets.orders.hide(at, *offset, pop_ms, visible_ms),
        }
        self.release_lite_in_time(at);
        Some(visible_ms)
    }
}
