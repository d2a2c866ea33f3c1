//! Checks of transactions: undecided half messages, for Python to query their producers, and to discard after the
//! maximum number of checks.
//!
//! A discarded half is copied to `TRANS_CHECK_MAX_TIME_TOPIC`, followed by its mark, which ends the transaction.
//!
//! Threads: any that may wait for the disk.

use super::broker::Broker;
use crate::dataplane::delivery::escapes::Escape;
use crate::dataplane::delivery::transactions::{DueHalf, End};
use crate::dataplane::state::rejection::{ErrorReply, put_refused, unavailable};
use crate::message::id::OffsetMessageId;
use crate::message::properties::{self, PROPERTIES_BYTES_MAX, name};
use crate::message::record::{RecordFields, RecordView};
use crate::message::topic::{HALF_TOPIC, OP_HALF_TOPIC, UNDECIDED_TOPIC};
use crate::message::{MessageType, tag};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::remoting::LinkId;
use crate::store::{FirstOf, KeyHashes, Left, Put, PutError, WaitingRoom};

/// Bytes of the records of one read, not counting the last.
const READ_BYTES_MAX: usize = 4 << 20;

/// A half message whose producer is to be queried.
pub(crate) struct UndecidedHalf {
    /// The offset of the half in its queue and its position in the log.
    pub(crate) offset: QueueOffset,
    pub(crate) physical: PhysicalOffset,
    /// The number of earlier checks.
    pub(crate) checks: u32,
    /// The number of checks that were answered.
    pub(crate) answers: u32,
    /// The connection that sent the half.
    pub(crate) sender: Option<LinkId>,
    pub(crate) stored_ms: i64,
    pub(crate) group: String,
    pub(crate) unique_key: String,
    pub(crate) message_id: String,
    /// The record of the half with the topic and queue of the message.
    pub(crate) record: Vec<u8>,
}

impl UndecidedHalf {
    /// Returns the half for another broker, which checks it from then on; `None` if it is unreadable.
    pub(crate) fn escape(&self) -> Option<Escape> {
        let record = RecordView::parse(&self.record).ok()?;
        Some(Escape::of(self.physical, &record.fields()))
    }
}

impl Broker {
    /// Returns at most `limit` halves and 4 MiB of those that are due or `expiry_ms` old, and makes them due again
    /// after `interval_ms`. May wait for the disk.
    pub(crate) fn due_transactions(
        &self,
        limit: usize,
        interval_ms: u64,
        expiry_ms: u64,
    ) -> Vec<UndecidedHalf> {
        let now_ms = self.clock.wall_ms() as i64;
        let again_ms = now_ms.saturating_add_unsigned(interval_ms.max(1));
        if let Some((first, count)) = self.transactions.lose_before(self.store.range().0) {
            self.store.report_undelivered(WaitingRoom::Half, Left::Gone, FirstOf::Log(first), count);
        }
        self.transactions.hasten(now_ms.saturating_sub_unsigned(expiry_ms), now_ms, again_ms);
        let taken = self.transactions.take_due(now_ms, again_ms, limit);
        let mut found = Vec::with_capacity(taken.len());
        let mut bytes = 0;
        for (index, due) in taken.iter().enumerate() {
            if bytes >= READ_BYTES_MAX {
                self.transactions.set_due(taken.get(index..).unwrap_or_default(), now_ms);
                break;
            }
            if let Some(half) = self.undecided(*due) {
                bytes += half.record.len();
                found.push(half);
            } else if due.physical < self.store.visible() {
                let is_gone = due.physical < self.store.range().0;
                if self.transactions.lose(*due, is_gone) {
                    let reason = if is_gone { Left::Gone } else { Left::Unreadable };
                    self.store.report_undelivered(WaitingRoom::Half, reason, FirstOf::Log(due.physical), 1);
                }
            }
        }
        found
    }

    /// Counts a query sent to the producer of this half.
    pub(crate) fn count_check(&self, offset: QueueOffset, physical: PhysicalOffset) {
        self.transactions.count_check(offset, physical);
    }

    /// Discards a half. Returns false if it has a decision or one is in progress. May wait for the disk.
    pub(crate) fn discard_transaction(
        &self,
        offset: QueueOffset,
        physical: PhysicalOffset,
    ) -> Result<bool, ErrorReply> {
        let Some(bytes) = self.store.lookup(physical) else { return Ok(false) };
        let Some(half) = sound_half(&bytes) else { return Ok(false) };
        if !self.transactions.begin_end(offset, physical) {
            return Ok(false);
        }
        let stored = self.store_discarded(&half);
        self.transactions.finish_end(offset, stored.is_ok().then_some(End::Discard));
        stored.map(|()| true)
    }

    fn undecided(&self, due: DueHalf) -> Option<UndecidedHalf> {
        let bytes = self.store.lookup(due.physical)?;
        let half = sound_half(&bytes)?;
        let value = |name| properties::get(half.properties(), name);
        let text = |name| value(name).map(|value| String::from_utf8_lossy(value).into_owned());
        let properties = with_checks(&half, due.checks.saturating_add(1));
        let fields = RecordFields {
            queue_id: std::str::from_utf8(value(name::REAL_QUEUE_ID)?).ok()?.parse().ok()?,
            topic: value(name::REAL_TOPIC)?,
            properties: &properties,
            ..half.fields()
        };
        let mut record = vec![0; fields.encoded_len()];
        fields.encode(&mut record, half.stamp());
        let message_id = OffsetMessageId { store_host: half.store_host(), physical: due.physical };
        Some(UndecidedHalf {
            offset: due.offset,
            physical: due.physical,
            checks: due.checks,
            answers: due.answers,
            sender: due.sender,
            stored_ms: half.store_timestamp_ms(),
            group: text(name::PRODUCER_GROUP).unwrap_or_default(),
            unique_key: text(name::UNIQ_KEY).unwrap_or_default(),
            message_id: message_id.to_string(),
            record,
        })
    }

    /// Appends a copy of the half for operators, and its mark.
    fn store_discarded(&self, half: &RecordView<'_>) -> Result<(), ErrorReply> {
        let queue = self.store.queue_or_create(UNDECIDED_TOPIC, 0).map_err(unavailable)?;
        let marks = self.store.queue_or_create(OP_HALF_TOPIC, 0).map_err(unavailable)?;
        let topic = UNDECIDED_TOPIC.as_bytes();
        let record = RecordFields { queue_id: 0, topic, ..half.fields() };
        let mark = half.queue_offset().0.to_string();
        let (tags_code, keys) = (tag::tags_code(record.properties), KeyHashes::of(topic, record.properties));
        let message_type = MessageType::Transaction;
        let discarded = Put { message_type, ..Put::new(queue, record, tags_code, keys) };
        let mut puts = [discarded, self.mark(marks, mark.as_bytes(), true)];
        self.store.append(&mut puts);
        // The append is atomic.
        let stored = puts.last().map_or(Err(PutError::Pending), |put| put.outcome);
        let stored = stored.map_err(|error| put_refused(&error))?;
        if self.store.is_sync() {
            self.store.release_after(stored.end);
        }
        Ok(())
    }
}

fn sound_half(bytes: &[u8]) -> Option<RecordView<'_>> {
    let half = RecordView::parse(bytes).ok()?;
    (half.topic() == HALF_TOPIC.as_bytes() && half.body_crc_matches()).then_some(half)
}

/// Returns the properties of a half with the number of this check, as Apache's broker writes it, or without it for lack
/// of space.
pub(super) fn with_checks(half: &RecordView<'_>, checks: u32) -> Vec<u8> {
    let mut counted = Vec::new();
    properties::Writer::copy_if(&mut counted, half.properties(), |name| name != name::TRANSACTION_CHECKS)
        .append(name::TRANSACTION_CHECKS, checks.to_string().as_bytes());
    if counted.len() <= PROPERTIES_BYTES_MAX { counted } else { half.properties().to_vec() }
}
