//! Logical queues: requests for the queues of static topics, translated to queues of this broker.
//!
//! Only the broker that leads a logical queue serves it. A request that needs a segment of another broker is forwarded
//! to Python, which queries that broker. A request with `lo=false` names a broker's own queue and is not translated:
//! other brokers and tools send those.
//!
//! Threads: the I/O thread of the connection. A topic without a mapping costs one branch.

use std::sync::Arc;

use crate::dataplane::state::mapping::{LogicalQueue, Mapping, Segment};
use crate::dataplane::state::metadata::Topic;
use crate::dataplane::state::rejection::{ErrorReply, Rejection};
use crate::positions::QueueOffset;
use crate::remoting::codes::response;
use crate::remoting::header::Header;
use crate::requests::pull::{COMMIT_OFFSET, PullHeader};
use crate::requests::send::SendHeader;

/// A segment of a logical queue that a request concerns.
#[derive(Debug, Clone)]
pub(in crate::dataplane) struct Logical {
    /// The number of the logical queue.
    pub(super) queue_id: u32,
    pub(super) queue: Arc<LogicalQueue>,
    /// The index of the segment, at most `SEGMENTS_MAX` of Python's declaration; small, because sends are moved.
    index: u32,
}

impl Logical {
    pub(super) fn new(queue_id: u32, queue: &Arc<LogicalQueue>, index: usize) -> Self {
        Self { queue_id, queue: Arc::clone(queue), index: u32::try_from(index).unwrap_or(u32::MAX) }
    }

    /// Returns the index of the segment.
    pub(super) fn index(&self) -> usize {
        self.index as usize
    }

    /// Returns whether the segment is the newest, which grows.
    pub(super) fn is_newest(&self) -> bool {
        self.index() + 1 == self.queue.segments().len()
    }

    /// Returns the segment of this request.
    fn segment(&self) -> Option<&Segment> {
        self.queue.segments().get(self.index())
    }

    /// Returns the logical offset of a stored message; -1 while its segment is not decided.
    pub(super) fn offset(&self, local: QueueOffset) -> i64 {
        self.segment().map_or(-1, |segment| segment.logical(local.0))
    }
}

/// Returns the mapping of a topic if this request names a logical queue.
pub(super) fn mapping_for<'t>(topic: &'t Topic, header: &Header) -> Option<&'t Mapping> {
    let mapping = topic.mapping.as_deref()?;
    let is_local = header.get("lo").is_some_and(|flag| flag.eq_ignore_ascii_case("false"));
    (!is_local).then_some(mapping)
}

/// Returns the queue of this broker for a send to a logical queue, or to any that this broker leads: `below` returns a
/// random number. A queue of this broker itself is checked.
pub(super) fn send(
    topic: &Topic,
    to: &SendHeader<'_>,
    header: &Header,
    below: impl FnOnce(u32) -> u32,
    broker: &str,
) -> Result<(Option<u32>, Option<Logical>), ErrorReply> {
    let Some(mapping) = mapping_for(topic, header) else {
        let queue_id = u32::try_from(to.queue_id).ok();
        return match queue_id.filter(|queue_id| *queue_id >= topic.queue_count()) {
            Some(queue_id) => Err(illegal_queue(topic, queue_id)),
            None => Ok((queue_id, None)),
        };
    };
    let led = mapping.led_ids();
    let any = || led.get(below(u32::try_from(led.len()).unwrap_or(u32::MAX)) as usize).copied();
    let named = u32::try_from(to.queue_id).ok().or_else(any);
    let queue = named.and_then(|queue_id| Some((queue_id, mapping.led(queue_id)?)));
    let Some((queue_id, queue)) = queue else { return Err(not_leader(topic, to.queue_id, broker)) };
    let logical = Logical::new(queue_id, queue, queue.segments().len() - 1);
    let local = logical.segment().map(|segment| segment.queue_id);
    match local.filter(|local| *local >= topic.queue_count()) {
        Some(local) => Err(illegal_queue(topic, local)),
        None => Ok((local, Some(logical))),
    }
}

/// Translates a pull from a logical queue. A queue of this broker itself is checked.
///
/// # Errors
/// 501 for a queue that this broker does not lead, and `Elsewhere` for an offset in a segment of another broker.
pub(super) fn pull(
    topic: &Topic,
    from: &mut PullHeader<'_>,
    header: &Header,
    broker: &str,
) -> Result<Option<Logical>, Rejection> {
    let mut logical = None;
    if let Some(mapping) = mapping_for(topic, header) {
        let found = u32::try_from(from.queue_id).ok().and_then(|queue_id| mapping.led(queue_id));
        let queue = found.ok_or_else(|| not_leader(topic, from.queue_id, broker))?;
        let index = queue.at(from.offset);
        let segment = index.and_then(|index| queue.segments().get(index));
        let (Some(index), Some(segment)) = (index, segment) else {
            return Err(no_segment(topic, from.queue_id, broker).into());
        };
        if !segment.is_own {
            return Err(Rejection::Elsewhere);
        }
        logical = Some(Logical::new(from.queue_id as u32, queue, index));
        if from.commit_offset >= 0 && queue.at(from.commit_offset) == Some(index) {
            from.commit_offset = segment.local(from.commit_offset);
        } else {
            // For another queue. Consumers repeat their commits in requests of that kind.
            from.sys_flag &= !COMMIT_OFFSET;
        }
        (from.queue_id, from.offset) = (segment.queue_id as i32, segment.local(from.offset));
    }
    match u32::try_from(from.queue_id) {
        Ok(queue_id) if topic.has_read_queue(queue_id) => Ok(logical),
        _ => Err(illegal_queue(topic, from.queue_id).into()),
    }
}

/// The place of a commit to a logical queue: the queue of this broker, and the offset in it.
pub(super) fn commit(
    topic: &Topic,
    mapping: &Mapping,
    queue_id: u32,
    offset: i64,
    broker: &str,
) -> Result<(u32, i64), Rejection> {
    let queue = mapping.led(queue_id).ok_or_else(|| not_leader(topic, queue_id, broker))?;
    let segment = queue.at(offset).and_then(|index| queue.segments().get(index));
    match segment {
        Some(segment) if segment.is_own => Ok((segment.queue_id, segment.local(offset))),
        Some(_) => Err(Rejection::Elsewhere),
        None => Err(no_segment(topic, queue_id, broker).into()),
    }
}

/// The result of looking for the progress of a group in a logical queue.
pub(super) enum Progress {
    /// The queue has one segment, which begins at 0: its numbers are those of this queue of the broker.
    Local(u32),
    Committed(u64),
    Absent,
}

/// Returns the newest progress in a logical queue; `committed` returns that in a queue of this broker.
pub(super) fn progress(
    topic: &Topic,
    mapping: &Mapping,
    queue_id: u32,
    broker: &str,
    committed: impl Fn(u32) -> Option<u64>,
) -> Result<Progress, Rejection> {
    let queue = mapping.led(queue_id).ok_or_else(|| not_leader(topic, queue_id, broker))?;
    if let [only] = queue.segments()
        && only.delta() == 0
        && only.is_decided()
    {
        return Ok(Progress::Local(only.queue_id));
    }
    for segment in queue.segments().iter().rev().filter(|segment| segment.is_decided()) {
        if !segment.is_own {
            return Err(Rejection::Elsewhere);
        }
        if let Some(local) = committed(segment.queue_id) {
            return Ok(Progress::Committed(segment.logical(local).max(0) as u64));
        }
    }
    Ok(Progress::Absent)
}

/// Returns the refusal of a request for a logical queue that this broker does not lead, with the text of Apache's
/// broker.
fn not_leader(topic: &Topic, queue_id: impl std::fmt::Display, broker: &str) -> ErrorReply {
    let remark =
        format!("{}-{queue_id} does not exit in request process of current broker {broker}", topic.name);
    ErrorReply::new(response::NOT_LEADER_FOR_QUEUE, remark)
}

/// Returns the refusal of a request for a logical queue whose segments are not decided.
fn no_segment(topic: &Topic, queue_id: impl std::fmt::Display, broker: &str) -> ErrorReply {
    let remark = format!(
        "{}-{queue_id} cannot find mapping item in request process of current broker {broker}",
        topic.name
    );
    ErrorReply::new(response::NOT_LEADER_FOR_QUEUE, remark)
}

fn illegal_queue(topic: &Topic, queue_id: impl std::fmt::Display) -> ErrorReply {
    let remark = format!(
        "queueId[{queue_id}] is illegal, topic [{}] has {} queues, {} of them readable",
        topic.name,
        topic.queue_count(),
        topic.read_queues
    );
    ErrorReply::new(response::INVALID_PARAMETER, remark)
}
