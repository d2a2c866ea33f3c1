//! NOTIFICATION: whether a pop would find messages; it waits for them as a pop does, and takes none.
//!
//! Threads: the I/O thread of the connection.

use super::parking::{Parked, Seen};
use super::reading::PopQueue;
use super::request::{Attempt, Pop};
use crate::dataplane::requests::broker::Broker;
use crate::dataplane::requests::session::Session;
use crate::dataplane::state::rejection::Rejection;
use crate::dataplane::state::reply;
use crate::dataplane::state::request::RequestContext;
use crate::dataplane::waiting::pop_groups::Purpose;
use crate::positions::QueueOffset;
use crate::remoting::Outbox;
use crate::remoting::codes::response;
use crate::remoting::frame::Frame;
use crate::remoting::header::Header;
use crate::requests::pop::PopHeader;
use crate::store::{Get, GetStatus};

/// With as many messages as this a queue has some, whatever the filter, as in Apache's broker.
const FILTERED_MAX: u64 = 64;

impl Broker {
    /// Says whether there are messages, now or when one comes.
    pub(in crate::dataplane) fn notify(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        session.with_header(|session, header| self.notify_with(session, header, frame, out))
    }

    fn notify_with(
        &self,
        session: &mut Session,
        header: &Header,
        frame: &Frame<'_>,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let context = RequestContext::of(header, session.latency.began, frame.encoding);
        let pop = self.admit_question(session, PopHeader::decode(header)?, context)?;
        let mut seen = Vec::new();
        let mut has_messages = false;
        for from in self.queues_of(session, &pop)? {
            let end = from.queue.max();
            has_messages = has_messages || self.has_messages(session, &pop, &from, end)?;
            seen.push(Seen { from, end });
        }
        let mut is_full = false;
        if !has_messages && pop.left_ms() > 0 {
            let group = self.pops.of(pop.fields.group, &pop.topic.name);
            match self.park_pop(session, frame, &pop, &group, Purpose::News, &seen)? {
                Parked::Waits => return Ok(()),
                Parked::Full => is_full = true,
            }
        }
        let text = |is_true| if is_true { "true" } else { "false" };
        let ext = [("hasMsg", text(has_messages)), ("pollingFull", text(is_full))];
        session.latency.note(context, response::SUCCESS);
        reply::write(out.bytes(), context, response::SUCCESS, None, &ext);
        Ok(())
    }

    /// Whether a pop would find messages in a queue. What may have to come from the disk counts as a message.
    fn has_messages(
        &self,
        session: &mut Session,
        pop: &Pop<'_>,
        from: &PopQueue,
        end: QueueOffset,
    ) -> Result<bool, Rejection> {
        if self.is_held_back(session, pop, from) {
            return Ok(false);
        }
        let start = self.peeked_offset(pop, from);
        let count = end.0.saturating_sub(start.0);
        if count == 0 || count >= FILTERED_MAX || pop.filter.needs_records() {
            return Ok(count > 0);
        }
        let mut get = Get { offset: start, messages_max: 1, bytes_max: 1 };
        if !self.read_corrected(session, pop, &from.queue, &mut get, Attempt::Fresh)? {
            return Ok(true);
        }
        let is_found = session.found.status == GetStatus::Found;
        session.found.clear();
        Ok(is_found)
    }

    /// Returns the next offset of the group in a queue, without a commit.
    pub(super) fn peeked_offset(&self, pop: &Pop<'_>, from: &PopQueue) -> QueueOffset {
        let committed = self.offsets.query(pop.fields.group, &from.topic.name, from.id());
        committed.map_or(from.queue.min(), |offset| QueueOffset(offset).max(from.queue.min()))
    }
}
