//! Put: a message to append, and its outcome.

use std::sync::Arc;

use crate::message::MessageType;
use crate::message::record::RecordFields;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::derived::{ConsumeQueue, KeyHashes};
use crate::store::error::PutError;

use super::light_put::LightPut;

/// A message to append, and the outcome.
pub struct Put<'a> {
    pub queue: Arc<ConsumeQueue>,
    pub record: RecordFields<'a>,
    /// The third field of the queue entry: the sign-extended hash of the tag, or the delivery time in queues of
    /// delay levels.
    pub tags_code: i64,
    /// Hashes of the message's keys. Moved out by the append.
    pub keys: KeyHashes,
    /// The type for statistics.
    pub message_type: MessageType,
    /// Whether it belongs to the same client batch as the put before it: stored in the same file, directly after it.
    pub joined: bool,
    /// Its light queues; `None` for most messages. Only one of joined puts may have some.
    pub lights: Option<Box<LightPut>>,
    /// `Err(PutError::Pending)` before the append.
    pub outcome: Result<Stored, PutError>,
}

impl<'a> Put<'a> {
    /// Returns a normal message outside any batch.
    #[must_use]
    pub fn new(queue: Arc<ConsumeQueue>, record: RecordFields<'a>, tags_code: i64, keys: KeyHashes) -> Self {
        let (message_type, outcome) = (MessageType::Normal, Err(PutError::Pending));
        Self { queue, record, tags_code, keys, message_type, joined: false, lights: None, outcome }
    }

    /// Assigns the offsets in light queues, and returns the size of the record; `u64::MAX` if no record can have these
    /// offsets. Under the put lock.
    pub(super) fn measure(&mut self) -> u64 {
        match &mut self.lights {
            None => self.record.encoded_len() as u64,
            Some(lights) => match lights.assign() {
                true => lights.record(&self.record).encoded_len() as u64,
                false => u64::MAX,
            },
        }
    }

    /// Returns whether one of its light queues was deleted.
    pub(super) fn lacks_light(&self) -> bool {
        self.lights.as_ref().is_some_and(|lights| lights.lacks_queue())
    }
}

/// The place of a stored message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    /// The position of the record in the log.
    pub physical: PhysicalOffset,
    /// The offset in the queue.
    pub queue_offset: QueueOffset,
    pub(crate) store_timestamp_ms: i64,
    /// The position after the record. The record is durable once `durable` reaches it.
    pub end: PhysicalOffset,
}

/// Maximum lead of store times over the clock, in milliseconds. After a small step back, as a time server makes it,
/// store times pause until the clock catches up, so that they stay in order for searches. After a larger step they
/// follow the clock back, so that a wrong clock does not determine the time of all later messages.
pub(crate) const STORE_TIME_AHEAD_MS_MAX: i64 = 10_000;

/// Returns the store time of a message that follows one stored at `last`.
pub(super) fn store_time(last: i64, now: i64) -> i64 {
    if last.saturating_sub(now) > STORE_TIME_AHEAD_MS_MAX { now } else { last.max(now) }
}

/// Returns the put at `from` and those joined to it; `None` at the end.
pub(super) fn next_group<'p, 'a>(puts: &'p mut [Put<'a>], from: usize) -> Option<&'p mut [Put<'a>]> {
    let rest = puts.get_mut(from..)?;
    if rest.is_empty() {
        return None;
    }
    let joined = rest.iter().skip(1).take_while(|put| put.joined).count();
    rest.get_mut(..=joined)
}

#[cfg(test)]
impl<'a> Put<'a> {
    /// Returns a put of `body` to `queue` for tests.
    pub(crate) fn sample(queue: &Arc<ConsumeQueue>, body: &'a [u8]) -> Self {
        let host = std::net::SocketAddr::from(([127, 0, 0, 1], 10911));
        let record = RecordFields {
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: 0,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            body_crc: RecordFields::body_crc(body),
            topic: b"t",
            properties: b"",
        };
        let (queue, keys) = (Arc::clone(queue), KeyHashes::default());
        Self::new(queue, record, 0, keys)
    }
}
