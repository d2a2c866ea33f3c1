//! Pops of a load: the request, and the acknowledgement of all messages of its answer.
//!
//! Handles are made of the answer's header: the messages themselves are not parsed.

use base64ct::{Base64, Encoding as _};
use rmqpy_load::{LoadError, Plan, Target};
use serde_json::{Value, json};

use super::options::RocketMqOptions;
use super::prepared::{OPAQUE_BASE, Prepared};
use crate::message::topic::pop_retry_topic;
use crate::remoting::codes::request;
use crate::remoting::header::Header;
use crate::requests::pop::HandleText;

/// Time for which messages are hidden, and for which a pop waits for one.
const INVISIBLE_MS: &str = "60000";
const POLL_MS: &str = "1000";

/// Makes the request of `plan` for messages of any queue.
pub(super) fn pop(
    plan: &Plan,
    options: &RocketMqOptions,
    messages_max: usize,
) -> Result<Prepared, LoadError> {
    Prepared::new(options, request::POP_MESSAGE, &[], |header| {
        header
            .ext("consumerGroup", &plan.group)
            .ext("topic", &plan.topic)
            .ext("queueId", "-1")
            .ext("maxMsgNums", &messages_max.to_string())
            .ext("invisibleTime", INVISIBLE_MS)
            .ext("pollTime", POLL_MS)
            // The time when the broker gets it.
            .ext("bornTime", "0")
            .ext("initMode", "0")
            .ext("expType", "TAG")
            .ext("exp", "*")
            .ext("order", "false");
    })
}

/// The names in acknowledgements.
#[derive(Debug)]
pub(super) struct Acknowledger {
    plan: Plan,
    options: RocketMqOptions,
    broker: String,
}

impl Acknowledger {
    pub(super) fn new(plan: &Plan, options: &RocketMqOptions, target: &Target) -> Self {
        Self { plan: plan.clone(), options: options.clone(), broker: target.broker.clone() }
    }

    /// Appends one request that acknowledges all messages of an answer to a pop; returns their number.
    pub(super) fn put(&self, answer: &Header, slot: usize, out: &mut Vec<u8>) -> Result<u64, String> {
        let popped = Popped::of(answer).ok_or("the answer to a pop lacks a field, or has an invalid one")?;
        let request = match popped.reads.as_slice() {
            [read] if read.offsets.len() == 1 => self.ack(&popped, read),
            _ => self.batch_ack(&popped),
        };
        request.map_err(|error| error.to_string())?.put(out, OPAQUE_BASE + slot as u32, |_| {});
        Ok(popped.reads.iter().map(|read| read.offsets.len() as u64).sum())
    }

    fn ack(&self, popped: &Popped<'_>, read: &Read<'_>) -> Result<Prepared, LoadError> {
        let Plan { group, topic, .. } = &self.plan;
        let retry_topic = (read.mark != "0").then(|| pop_retry_topic(group, topic, read.mark == "2"));
        let offset = read.offsets.first().copied().unwrap_or_default();
        let Popped { pop_ms, invisible_ms, revive_queue, .. } = popped;
        let Read { start, mark, queue, .. } = read;
        let broker = &self.broker;
        let handle =
            HandleText { start, pop_ms, invisible_ms, revive_queue, mark, broker, queue, offset: &offset };
        Prepared::new(&self.options, request::ACK_MESSAGE, &[], |header| {
            header
                .ext("consumerGroup", group)
                .ext("topic", retry_topic.as_deref().unwrap_or(topic))
                .ext("queueId", &queue.to_string())
                .ext("extraInfo", &handle.to_string())
                .ext("offset", &offset.to_string())
                .ext("bname", broker);
        })
    }

    fn batch_ack(&self, popped: &Popped<'_>) -> Result<Prepared, LoadError> {
        let acks: Vec<Value> = popped
            .reads
            .iter()
            .map(|read| {
                json!({
                    "b": Base64::encode_string(&read.bits()),
                    "c": self.plan.group,
                    "it": popped.invisible_ms,
                    "pt": popped.pop_ms,
                    "q": read.queue,
                    "r": read.mark,
                    "rq": popped.revive_queue,
                    "so": read.start,
                    "t": self.plan.topic,
                })
            })
            .collect();
        let body = json!({"acks": acks, "brokerName": self.broker}).to_string();
        Prepared::new(&self.options, request::BATCH_ACK_MESSAGE, body.as_bytes(), |header| {
            header.ext("bname", &self.broker);
        })
    }
}

/// What the header of an answer says of its messages.
struct Popped<'a> {
    pop_ms: i64,
    invisible_ms: i64,
    revive_queue: u32,
    reads: Vec<Read<'a>>,
}

/// The messages of one queue.
struct Read<'a> {
    /// 0 for the topic, 1 and 2 for its retry topics.
    mark: &'a str,
    queue: u32,
    start: u64,
    offsets: Vec<u64>,
}

impl<'a> Popped<'a> {
    fn of(answer: &'a Header) -> Option<Self> {
        let field = |wanted: &str| answer.ext().find(|(name, _)| *name == wanted).map(|(_, value)| value);
        let starts: Vec<(&str, &str, &str)> =
            field("startOffsetInfo")?.split(';').map(parts).collect::<Option<_>>()?;
        let reads = field("msgOffsetInfo")?
            .split(';')
            .map(|entry| {
                let (mark, queue, offsets) = parts(entry)?;
                let (_, _, start) = starts.iter().find(|(m, q, _)| (*m, *q) == (mark, queue))?;
                let offsets = offsets.split(',').map(|offset| offset.parse().ok());
                Some(Read {
                    mark,
                    queue: queue.parse().ok()?,
                    start: start.parse().ok()?,
                    offsets: offsets.collect::<Option<_>>()?,
                })
            })
            .collect::<Option<_>>()?;
        Some(Self {
            pop_ms: field("popTime")?.parse().ok()?,
            invisible_ms: field("invisibleTime")?.parse().ok()?,
            revive_queue: field("reviveQid")?.parse().ok()?,
            reads,
        })
    }
}

impl Read<'_> {
    /// A bit for each message, counted from the start of the read.
    fn bits(&self) -> Vec<u8> {
        let mut bits = Vec::new();
        for offset in &self.offsets {
            let bit = offset.saturating_sub(self.start) as usize;
            if bits.len() <= bit / 8 {
                bits.resize(bit / 8 + 1, 0_u8);
            }
            if let Some(byte) = bits.get_mut(bit / 8) {
                *byte |= 1 << (bit % 8);
            }
        }
        bits
    }
}

fn parts(entry: &str) -> Option<(&str, &str, &str)> {
    let mut parts = entry.split(' ');
    let found = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remoting::Encoding;
    use crate::remoting::frame::{FrameLimits, split};
    use crate::remoting::header::HeaderWriter;

    fn queues(offsets: &str) -> Option<Vec<u32>> {
        let mut bytes = Vec::new();
        let mut header = HeaderWriter::begin(&mut bytes, Encoding::Json, 0, 1, 0, None);
        header.ext("startOffsetInfo", "0 2 7;0 x 7").ext("msgOffsetInfo", offsets);
        header.ext("popTime", "1").ext("invisibleTime", "2").ext("reviveQid", "3");
        header.finish(0).unwrap();
        let (frame, _) = split(&bytes, &FrameLimits::default()).unwrap().unwrap();
        let mut answer = Header::new();
        answer.decode(&frame).unwrap();
        Popped::of(&answer).map(|popped| popped.reads.iter().map(|read| read.queue).collect())
    }

    #[test]
    fn an_answer_with_an_invalid_queue_id_is_refused() {
        assert_eq!(queues("0 2 7,8"), Some(vec![2]));
        assert_eq!(queues("0 x 7"), None);
    }
}
