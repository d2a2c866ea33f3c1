//! PEEK_MESSAGE and POLLING_INFO: the messages that a pop would give, left where they are; the number of pops that wait.
//!
//! Threads: the I/O thread of the connection.

use super::answer::{PopAnswer, PopRead};
use super::request::Attempt;
use crate::dataplane::delivery::revive::records::MESSAGES_MAX;
use crate::dataplane::requests::broker::Broker;
use crate::dataplane::requests::session::Session;
use crate::dataplane::state::rejection::Rejection;
use crate::dataplane::state::reply;
use crate::dataplane::state::request::RequestContext;
use crate::remoting::Outbox;
use crate::remoting::codes::response;
use crate::remoting::frame::Frame;
use crate::remoting::header::Header;
use crate::requests::pop::PopHeader;
use crate::store::{Get, GetStatus};

impl Broker {
    /// Shows the next messages. Those of a retry topic keep its name.
    pub(in crate::dataplane) fn peek(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        attempt: Attempt,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        session.with_header(|session, header| self.peek_with(session, header, frame, attempt, out))
    }

    fn peek_with(
        &self,
        session: &mut Session,
        header: &Header,
        frame: &Frame<'_>,
        attempt: Attempt,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let context = RequestContext::of(header, session.latency.began, frame.encoding);
        let fields = PopHeader { expression: "", ..PopHeader::decode(header)? };
        let pop = self.admit_question(session, fields, context)?;
        let wanted = usize::try_from(pop.fields.messages_max).unwrap_or(0).min(MESSAGES_MAX);
        let mut answer = PopAnswer::default();
        for from in self.queues_of(session, &pop)? {
            let offset = self.peeked_offset(&pop, &from);
            // As at Apache's broker: the messages that are shown count, too.
            answer.rest += from.queue.max().0.saturating_sub(offset.0);
            let room = wanted.saturating_sub(answer.count());
            let bytes_max = self.metadata.identity.pull_bytes_max.saturating_sub(answer.bytes());
            let mut get = Get { offset, messages_max: room as u32, bytes_max };
            if room == 0 || !self.read_corrected(session, &pop, &from.queue, &mut get, attempt)? {
                if room > 0 && answer.reads.is_empty() {
                    return Ok(self.read_then_serve(session, frame, &pop, &from.queue, get)?);
                }
                continue;
            }
            let found = &mut session.found;
            if found.status == GetStatus::Found {
                answer.reads.push(PopRead {
                    mark: from.mark,
                    topic: from.topic,
                    queue: from.queue,
                    start: get.offset.0,
                    offsets: vec![0; found.count as usize],
                    slices: std::mem::take(&mut found.slices),
                    next: found.next_begin,
                    counts: Default::default(),
                });
            }
            found.clear();
        }
        let (code, remark) = match answer.count() {
            0 => (response::PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE"),
            _ => (response::SUCCESS, "FOUND"),
        };
        session.latency.note(context, code);
        if !context.is_oneway {
            answer.write_peeked(out.bytes(), context, code, remark);
            answer.push_messages(out);
        }
        Ok(())
    }

    /// Says how many pops wait for exactly this queue, or for any.
    pub(in crate::dataplane) fn polling_info(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let (context, parked) = session.with_header(|session, header| {
            let context = RequestContext::of(header, session.latency.began, frame.encoding);
            let pop = self.admit_question(session, PopHeader::decode(header)?, context)?;
            let group = self.pops.of(pop.fields.group, &pop.topic.name);
            Ok::<_, Rejection>((context, group.parked_pops(pop.fields.queue_id).to_string()))
        })?;
        session.latency.note(context, response::SUCCESS);
        reply::write(out.bytes(), context, response::SUCCESS, None, &[("pollingNum", &parked)]);
        Ok(())
    }
}
