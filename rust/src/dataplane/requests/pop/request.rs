//! A request to receive messages that passed admission, decided in the order of Apache's checks.
//!
//! Threads: the I/O thread of the connection.

use std::sync::Arc;

use arrayvec::ArrayVec;

use super::handle::TopicMark;
use crate::dataplane::delivery::revive::records::MESSAGES_MAX;
use crate::dataplane::requests::admission;
use crate::dataplane::requests::broker::Broker;
use crate::dataplane::requests::session::Session;
use crate::dataplane::state::filter::Filter;
use crate::dataplane::state::metadata::{Group, PERMISSION_READ, Topic};
use crate::dataplane::state::orders::Place;
use crate::dataplane::state::rejection::{ErrorReply, Missing, Rejection, takes_no_messages, unknown_topic};
use crate::dataplane::state::reply;
use crate::dataplane::state::request::RequestContext;
use crate::dataplane::state::role::Role;
use crate::message::MessageType;
use crate::message::topic::{RETRY_PREFIX, pop_retry_topic};
use crate::remoting::codes::response;
use crate::requests::pop::PopHeader;

/// Maximum age of a request when it comes; the client of an older one has timed out. The time that the broker takes to
/// create the group is not its client's.
const LATE_MS_MAX: i64 = 500;
/// Longest wait, whatever the client says.
const POLL_MS_MAX: i64 = 110_000;
/// A wait that ends within this time is over: its answer has to reach the client in time.
const ALMOST_OVER_MS: i64 = 50;
/// Longest name of a pop in order.
const ATTEMPT_BYTES_MAX: usize = 255;

/// The state in which a request is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::dataplane) enum Attempt {
    /// It has come, or a message or the end of its time has woken it.
    Fresh,
    /// Its data has been loaded into memory.
    Read,
}

/// Wall-clock times of a request.
struct Times {
    now_ms: i64,
    came_ms: i64,
    /// When the client sent it; when it came, if it does not say.
    born_ms: i64,
}

/// A group's retry topics of a topic.
pub(super) type Retries = ArrayVec<(Arc<Topic>, TopicMark), 2>;

/// A request that passed admission.
pub(super) struct Pop<'h> {
    pub(super) fields: PopHeader<'h>,
    pub(super) context: RequestContext,
    pub(super) group: Arc<Group>,
    pub(super) topic: Arc<Topic>,
    /// Empty where the topic is a retry topic itself, and for pops in order.
    pub(super) retries: Retries,
    pub(super) filter: Arc<Filter>,
    pub(super) now_ms: i64,
    born_ms: i64,
}

impl<'h> Pop<'h> {
    /// Returns the same request for the queue of a lite topic.
    pub(super) fn of_lite(&self, queue: &'h str, topic: Arc<Topic>) -> Self {
        Self {
            fields: PopHeader { topic: queue, ..self.fields },
            group: Arc::clone(&self.group),
            topic,
            retries: Retries::new(),
            filter: Arc::clone(&self.filter),
            ..*self
        }
    }

    /// Time left to wait for a message.
    pub(super) fn left_ms(&self) -> i64 {
        let left_ms = self.end_ms().saturating_sub(self.now_ms);
        if left_ms <= ALMOST_OVER_MS { 0 } else { left_ms.min(POLL_MS_MAX) }
    }

    /// The end of the wait.
    pub(super) fn end_ms(&self) -> i64 {
        self.born_ms.saturating_add(self.fields.poll_ms.min(POLL_MS_MAX))
    }

    /// A queue of the topic, as the group reads it.
    pub(super) fn place(&self, queue_id: u32) -> Place<'_> {
        Place { group: self.fields.group, topic: &self.topic.name, queue_id }
    }
}

impl Broker {
    /// Decides whether a request may pop, in the order of Apache's checks.
    pub(super) fn admit_pop<'h>(
        &self,
        session: &Session,
        fields: PopHeader<'h>,
        context: RequestContext,
    ) -> Result<Pop<'h>, Rejection> {
        let identity = &self.metadata.identity;
        let Times { now_ms, came_ms, born_ms } = self.times(&fields, context);
        if came_ms.saturating_sub(born_ms).saturating_sub(fields.poll_ms.max(0)) > LATE_MS_MAX {
            let remark = format!("the broker[{}] pop message is timeout too much", identity.store_host);
            return Err(ErrorReply::new(response::POLLING_TIMEOUT, remark).into());
        }
        self.check_readable("pop")?;
        if fields.messages_max > MESSAGES_MAX as i32 {
            let host = identity.store_host;
            return Err(invalid(format!(
                "the broker[{host}] pop message's num is greater than {MESSAGES_MAX}"
            )));
        }
        let timers = self.store.timer_options();
        if !timers.is_enabled {
            let remark = format!(
                "the broker[{}] pop message is forbidden because timerWheelEnable is false",
                identity.store_host
            );
            return Err(ErrorReply::new(response::SYSTEM_ERROR, remark).into());
        }
        let invisible_ms_max = i64::try_from(timers.delay_sec_max).unwrap_or(i64::MAX).saturating_mul(1_000);
        if fields.invisible_ms <= 0 || fields.invisible_ms > invisible_ms_max {
            let remark =
                format!("invisibleTime[{}] is not in 1..={invisible_ms_max} ms", fields.invisible_ms);
            return Err(invalid(remark));
        }
        let (topic, group) = self.receiver(session, &fields)?;
        let filter = self.receiving_filter(&fields)?;
        let retries = if fields.is_ordered { Retries::new() } else { self.retries(&fields, &topic, true)? };
        Ok(Pop { fields, context, group, topic, retries, filter, now_ms, born_ms })
    }

    /// Decides whether a request may pop lite topics, in the order of Apache's checks.
    pub(super) fn admit_lite_pop<'h>(
        &self,
        session: &Session,
        fields: PopHeader<'h>,
        context: RequestContext,
    ) -> Result<Pop<'h>, Rejection> {
        let pop = self.admit_pop(session, fields, context)?;
        if pop.topic.message_type != Some(MessageType::Lite) {
            return Err(invalid(format!("the topic[{}] message type not match", fields.topic)));
        }
        check_lite_parent(&pop.group, &fields)?;
        Ok(pop)
    }

    /// Decides whether a request may ask for what a pop would give. Nothing is made for it.
    pub(super) fn admit_question<'h>(
        &self,
        session: &Session,
        fields: PopHeader<'h>,
        context: RequestContext,
    ) -> Result<Pop<'h>, Rejection> {
        let Times { now_ms, born_ms, .. } = self.times(&fields, context);
        self.check_readable("peek")?;
        let (topic, group) = self.receiver(session, &fields)?;
        let filter = self.receiving_filter(&fields)?;
        let retries = if fields.is_ordered { Retries::new() } else { self.retries(&fields, &topic, false)? };
        Ok(Pop { fields, context, group, topic, retries, filter, now_ms, born_ms })
    }

    fn times(&self, fields: &PopHeader<'_>, context: RequestContext) -> Times {
        let now_ms = self.clock.wall_ms() as i64;
        let waited = self.clock.elapsed().saturating_sub(context.came_at);
        let came_ms = now_ms.saturating_sub(i64::try_from(waited.as_millis()).unwrap_or(i64::MAX));
        Times { now_ms, came_ms, born_ms: if fields.born_ms <= 0 { came_ms } else { fields.born_ms } }
    }

    fn check_readable(&self, verb: &str) -> Result<(), Rejection> {
        if self.metadata.role() != Role::Master {
            return Err(takes_no_messages().into());
        }
        if self.metadata.permission() & PERMISSION_READ == 0 {
            let host = self.metadata.identity.store_host;
            return Err(forbidden(format!("the broker[{host}] {verb} message is forbidden")));
        }
        Ok(())
    }

    /// The topic and group, where the group may receive from this queue of it.
    fn receiver(
        &self,
        session: &Session,
        fields: &PopHeader<'_>,
    ) -> Result<(Arc<Topic>, Arc<Group>), Rejection> {
        if fields.attempt.is_some_and(|attempt| attempt.len() > ATTEMPT_BYTES_MAX) {
            return Err(invalid(format!("attemptId has more than {ATTEMPT_BYTES_MAX} bytes")));
        }
        let Some(topic) = self.metadata.topic(fields.topic) else {
            return Err(unknown_topic(fields.topic).into());
        };
        if topic.permission & PERMISSION_READ == 0 {
            return Err(forbidden(format!("the topic[{}] peeking message is forbidden", fields.topic)));
        }
        if fields.queue_id >= 0 && fields.queue_id as u32 >= topic.read_queues {
            return Err(invalid(format!(
                "queueId[{}] is illegal, topic:[{}] topicConfig.readQueueNums:[{}] consumer:[{}]",
                fields.queue_id,
                fields.topic,
                topic.read_queues,
                session.link.peer()
            )));
        }
        let Some(group) = self.metadata.group(fields.group) else {
            return Err(admission::missing_group(fields.group));
        };
        if !group.is_consume_enabled {
            return Err(forbidden(format!("subscription group no permission, {}", fields.group)));
        }
        Ok((topic, group))
    }

    fn receiving_filter(&self, fields: &PopHeader<'_>) -> Result<Arc<Filter>, Rejection> {
        let (kind, expression) = if fields.expression.is_empty() {
            ("TAG", "*")
        } else {
            (fields.expression_type, fields.expression)
        };
        let filter = self.metadata.filter(kind, expression);
        filter.map_err(|_| {
            let remark = "parse the consumer's subscription failed";
            ErrorReply::new(response::SUBSCRIPTION_PARSE_FAILED, remark).into()
        })
    }

    /// The group's retry topics. With `is_made` the current one is created if it does not exist or lacks queues, the older
    /// one never.
    fn retries(&self, fields: &PopHeader<'_>, of: &Topic, is_made: bool) -> Result<Retries, Rejection> {
        let mut retries = Retries::new();
        if fields.topic.starts_with(RETRY_PREFIX) {
            return Ok(retries);
        }
        let options = &self.metadata.identity.pop;
        let name = pop_retry_topic(fields.group, fields.topic, options.is_retry_v2);
        let mark = if options.is_retry_v2 { TopicMark::RetryV2 } else { TopicMark::Retry };
        let topic = match self.metadata.topic(&name) {
            None if is_made => Some(admission::topic_of(&self.metadata, &name)?),
            Some(known)
                if is_made && options.keeps_retry_queues && known.queue_count() < of.queue_count() =>
            {
                return Err(Rejection::Missing(Missing::Topic, name));
            }
            known => known,
        };
        retries.extend(topic.map(|topic| (topic, mark)));
        if options.is_retry_v2 && options.reads_retry_v1 {
            let older = self.metadata.topic(&pop_retry_topic(fields.group, fields.topic, false));
            retries.extend(older.map(|topic| (topic, TopicMark::Retry)));
        }
        Ok(retries)
    }
}

/// Refuses a request of a group that does not consume the lite topics of this topic.
pub(super) fn check_lite_parent(group: &Group, named: &PopHeader<'_>) -> Result<(), Rejection> {
    if group.lite_parent.as_deref() == Some(named.topic) {
        return Ok(());
    }
    Err(invalid(format!("subscription bind topic not match, {}", named.group)))
}

fn forbidden(remark: String) -> Rejection {
    ErrorReply::new(response::NO_PERMISSION, remark).into()
}

fn invalid(remark: String) -> Rejection {
    ErrorReply::new(response::INVALID_PARAMETER, remark).into()
}

/// Writes the refusal of a pop: clients read its numbers, whatever its code.
pub(in crate::dataplane) fn refuse_pop(out: &mut Vec<u8>, context: RequestContext, error_reply: &ErrorReply) {
    let ext = [("popTime", "0"), ("invisibleTime", "0"), ("reviveQid", "0"), ("restNum", "0")];
    reply::write(out, context, error_reply.code, Some(&error_reply.remark), &ext);
}
