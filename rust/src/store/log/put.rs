//! Put: a message to append, where it was stored, and when.

use std::sync::Arc;

use crate::message::MessageType;
use crate::message::record::RecordFields;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::derived::{ConsumeQueue, KeyHashes};
use crate::store::error::PutError;

/// A message to append, and what came of it.
pub struct Put<'a> {
    pub queue: Arc<ConsumeQueue>,
    pub record: RecordFields<'a>,
    /// Third field of the queue entry: the hash of the tag, sign-extended. Queues of delay levels have a time there.
    pub tags_code: i64,
    /// Hashes of the keys it can be looked up by. Moved out by the append.
    pub keys: KeyHashes,
    /// What it is counted as.
    pub message_type: MessageType,
    /// Whether it belongs to one client batch with the put before it: in the same file, right behind it.
    pub joined: bool,
    /// `Err(PutError::Pending)` before the append.
    pub outcome: Result<Stored, PutError>,
}

impl<'a> Put<'a> {
    /// A normal message, by itself.
    #[must_use]
    pub fn new(queue: Arc<ConsumeQueue>, record: RecordFields<'a>, tags_code: i64, keys: KeyHashes) -> Self {
        let (message_type, outcome) = (MessageType::Normal, Err(PutError::Pending));
        Self { queue, record, tags_code, keys, message_type, joined: false, outcome }
    }
}

/// Where a message was stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Position of the record in the log.
    pub physical: PhysicalOffset,
    /// Its offset in the queue.
    pub queue_offset: QueueOffset,
    pub(crate) store_timestamp_ms: i64,
    /// Position after the record: durable when `durable` has reached it.
    pub end: PhysicalOffset,
}

/// How far store times may run ahead of the clock, in milliseconds. They stand still while the clock makes up for a step
/// back, as time servers take it, so that searches find them in order. After a larger one they go back with the clock: a
/// message that a clock far ahead has stamped must not give its time to all that follow it.
pub(crate) const STORE_TIME_AHEAD_MS_MAX: i64 = 10_000;

/// The store time of a message that follows one stored at `last`.
pub(super) fn store_time(last: i64, now: i64) -> i64 {
    if last.saturating_sub(now) > STORE_TIME_AHEAD_MS_MAX { now } else { last.max(now) }
}

/// The put at `from` and those joined to it; `None` at the end.
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
    /// A put of `body` to `queue`, of topic `t`.
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
