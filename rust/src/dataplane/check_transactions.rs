//! Checks of transactions: half messages that nobody has decided about, for Python, which asks their producers, and
//! gives up those that were asked about often enough.
//!
//! A half that is given up is stored in `TRANS_CHECK_MAX_TIME_TOPIC`, with its mark right behind it: that ends its
//! transaction.
//!
//! Threads: any that may wait for the disk.

use super::broker::Broker;
use super::escapes::Escape;
use super::rejection::{ErrorReply, put_refused, unavailable};
use super::transactions::{DueHalf, End};
use crate::message::id::OffsetMessageId;
use crate::message::properties::{self, PROPERTIES_BYTES_MAX, name};
use crate::message::record::{RecordFields, RecordView};
use crate::message::topic::{HALF_TOPIC, OP_HALF_TOPIC, UNDECIDED_TOPIC};
use crate::message::{MessageType, tag};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::remoting::LinkId;
use crate::store::{FirstOf, KeyHashes, Left, Put, PutError, WaitingRoom};

/// Bytes of the records that are read at once, the last one not counted.
const READ_BYTES_MAX: usize = 4 << 20;

/// A half message that its producer is to be asked about.
pub(crate) struct UndecidedHalf {
    /// Of the half, in its queue and in the log.
    pub(crate) offset: QueueOffset,
    pub(crate) physical: PhysicalOffset,
    /// How often somebody was asked before.
    pub(crate) checks: u32,
    /// How many of these checks were answered.
    pub(crate) answers: u32,
    /// The connection that the half came on.
    pub(crate) sender: Option<LinkId>,
    pub(crate) stored_ms: i64,
    pub(crate) group: String,
    pub(crate) unique_key: String,
    pub(crate) message_id: String,
    /// The message as its producer sent it, in the place of the half.
    pub(crate) record: Vec<u8>,
}

impl UndecidedHalf {
    /// As another broker takes it, which asks its producer from then on; `None` where it cannot be read.
    pub(crate) fn escape(&self) -> Option<Escape> {
        let record = RecordView::parse(&self.record).ok()?;
        Some(Escape::of(self.physical, &record.fields()))
    }
}

impl Broker {
    /// At most `limit` of the halves whose time has come, or that are `expiry_ms` old, and 4 MiB; they are looked at again
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
                self.transactions.look_again(taken.get(index..).unwrap_or_default(), now_ms);
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

    /// A producer was asked about this half.
    pub(crate) fn count_check(&self, offset: QueueOffset, physical: PhysicalOffset) {
        self.transactions.count_check(offset, physical);
    }

    /// Gives a half up; false where somebody has decided, or is about to. May wait for the disk.
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

    /// Appends the half, where operators find it, and its mark.
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
        // Both are stored or none is.
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

/// The properties of a half with the number of this check, which checkers of the original read; without, where there
/// is no room.
pub(super) fn with_checks(half: &RecordView<'_>, checks: u32) -> Vec<u8> {
    let mut counted = Vec::new();
    properties::Writer::copy_if(&mut counted, half.properties(), |name| name != name::TRANSACTION_CHECKS)
        .append(name::TRANSACTION_CHECKS, checks.to_string().as_bytes());
    if counted.len() <= PROPERTIES_BYTES_MAX { counted } else { half.properties().to_vec() }
}
