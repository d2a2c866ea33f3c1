//! Acknowledgements of messages that were popped in order: they free their queue instead of ending a checkpoint.
//!
//! Threads: the I/O thread of the connection, while it holds the lock of the group.

use super::ack::Acked;
use crate::dataplane::requests::broker::Broker;
use crate::dataplane::requests::session::Session;
use crate::dataplane::state::orders::{OrderAck, Place};
use crate::dataplane::state::rejection::{ErrorReply, Rejection};
use crate::remoting::codes::response;

impl Broker {
    /// Acknowledges a message; the group continues at the first one of the batch that is left. One that the group has passed,
    /// or that a later pop has given again, changes nothing.
    pub(super) fn ack_in_order(
        &self,
        session: &mut Session,
        group: &str,
        Acked { topic, queue }: &Acked,
        offset: u64,
        pop_ms: i64,
    ) -> Result<(), Rejection> {
        let queue_id = queue.key().queue_id;
        let at = Place { group, topic: &topic.name, queue_id };
        let pops = self.pops.of(group, &topic.name);
        let one = pops.lock();
        let committed = self.offsets.query(group, &topic.name, queue_id);
        if committed.is_some_and(|committed| offset < committed) {
            return Ok(());
        }
        match self.offsets.orders.ack(at, offset, pop_ms) {
            // While a reset is pending, this changes nothing.
            OrderAck::Next(next) => self.offsets.commit(group, topic, queue_id.into(), next as i64)?,
            OrderAck::Stale => return Ok(()),
            OrderAck::Unknown => {
                let committed = committed.map_or(-1, u64::cast_signed);
                let remark = format!(
                    "offset is illegal, key:{}@{group}@{queue_id}, old:{committed}, commit:{offset}, next:-1, {}",
                    topic.name,
                    session.link.peer()
                );
                return Err(ErrorReply::new(response::MESSAGE_ILLEGAL, remark).into());
            }
        }
        session.deliveries.of(&self.deliveries, group, queue).acked(1);
        let now_ms = self.clock.wall_ms() as i64;
        let is_blocked = self.offsets.orders.is_blocked(at, None, 0, now_ms);
        self.release_in_time(&pops, at);
        drop(one);
        if !is_blocked {
            self.pops.freed(&pops, queue_id);
        }
        Ok(())
    }

    /// Hides a message of the last batch for a time that begins now. Returns the end of that time; `None` where the group has
    /// passed the message.
    pub(super) fn hide_in_order(
        &self,
        group: &str,
        Acked { topic, queue }: &Acked,
        offset: u64,
        pop_ms: i64,
        invisible_ms: i64,
    ) -> Option<i64> {
        let queue_id = queue.key().queue_id;
        let at = Place { group, topic: &topic.name, queue_id };
        let pops = self.pops.of(group, &topic.name);
        let _one = pops.lock();
        if self.offsets.query(group, &topic.name, queue_id).is_some_and(|committed| offset < committed) {
            return None;
        }
        let visible_ms = (self.clock.wall_ms() as i64).saturating_add(invisible_ms);
        self.offsets.orders.hide(at, offset, pop_ms, visible_ms);
        self.release_in_time(&pops, at);
        Some(visible_ms)
    }
}
