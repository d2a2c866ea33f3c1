//! ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME: a consumer has finished messages, or needs more time.
//!
//! Each is stored as a record that names its checkpoint. Whether the checkpoint is still open is not checked: a late
//! acknowledgement changes nothing, as in Apache's broker.
//!
//! Threads: the I/O thread of the connection.

use std::net::SocketAddr;
use std::sync::Arc;

use base64ct::{Base64, Encoding as _};
use serde_json::Value;

use super::ORDER_REVIVE_QUEUE;
use super::handle::{Handle, TopicMark};
use crate::dataplane::delivery::revive::records::{
    Acks, Checkpoint, CheckpointKey, MESSAGES_MAX, Stage, StagedRecord,
};
use crate::dataplane::requests::broker::Broker;
use crate::dataplane::requests::session::Session;
use crate::dataplane::state::metadata::Topic;
use crate::dataplane::state::rejection::{
    ErrorReply, Rejection, put_refused, takes_no_messages, unknown_topic,
};
use crate::dataplane::state::reply;
use crate::dataplane::state::role::Role;
use crate::dataplane::state::settled::PopName;
use crate::message::topic::pop_retry_topic;
use crate::positions::PhysicalOffset;
use crate::remoting::Outbox;
use crate::remoting::codes::response;
use crate::remoting::frame::Frame;
use crate::requests::needs;
use crate::requests::pop::AckHeader;
use crate::store::{ConsumeQueue, Put};

/// Entries of one batch.
const BATCH_MAX: usize = 1_024;
/// How far repeated changes of one millisecond may run ahead of the clock. Handles of a later time are not ours.
const CHANGES_AHEAD_MS: i64 = 1_000;
/// Bytes of the body of a batch.
pub(crate) const BATCH_BYTES_MAX: usize = 1 << 20;

impl Broker {
    /// Acknowledges one message.
    pub(in crate::dataplane) fn ack(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let context = session.context(frame.encoding);
        let fields = AckHeader::decode(&session.header)?;
        if !fields.lite_topic.is_empty() {
            self.check_takes_acks()?;
            let handle = Handle::parse(fields.handle)?;
            let (group, acked) = (fields.group.to_owned(), self.acked_lite(&fields, &handle)?);
            let pop_ms = handle.pop_ms;
            self.ack_lite(session, &group, &acked, pop_ms)?;
            session.latency.note(context, response::SUCCESS);
            reply::write(out.bytes(), context, response::SUCCESS, None, &[]);
            return Ok(());
        }
        let acked = self.acked(&fields, |offset, max| offset <= max)?;
        let handle = Handle::parse(fields.handle)?;
        if handle.revive_queue == ORDER_REVIVE_QUEUE {
            let group = fields.group.to_owned();
            self.ack_in_order(session, &group, &acked, fields.offset as u64, handle.pop_ms)?;
            session.latency.note(context, response::SUCCESS);
            reply::write(out.bytes(), context, response::SUCCESS, None, &[]);
            return Ok(());
        }
        self.check_revive_queue(handle.revive_queue)?;
        let acks = Acks {
            key: self.key_of(&handle, &acked, fields.group),
            due_ms: handle.due_ms(),
            offsets: vec![fields.offset as u64],
        };
        let end = self.store_acks(&[(acks, handle.revive_queue, acked.queue.serial())])?;
        session.deliveries.of(&self.deliveries, fields.group, &acked.queue).acked(1);
        self.answer_stored(session, context, end, out);
        Ok(())
    }

    /// Acknowledges the messages that the body names. Entries that name none are skipped, as in Apache's broker.
    pub(in crate::dataplane) fn batch_ack(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let context = session.context(frame.encoding);
        self.check_takes_acks()?;
        let bytes = session.body_bytes(frame);
        if bytes > BATCH_BYTES_MAX {
            let remark = format!("a batch of {bytes} bytes; the limit is {BATCH_BYTES_MAX}");
            return Err(ErrorReply::new(response::INVALID_PARAMETER, remark).into());
        }
        let body: Value = serde_json::from_slice(frame.body).unwrap_or_default();
        let entries = body.get("acks").and_then(Value::as_array).filter(|entries| !entries.is_empty());
        let entries = entries
            .ok_or_else(|| ErrorReply::new(response::NO_MESSAGE, "BATCH_ACK_MESSAGE without messages"))?;
        if entries.len() > BATCH_MAX {
            let remark = format!("a batch of {} acknowledgements; the limit is {BATCH_MAX}", entries.len());
            return Err(ErrorReply::new(response::INVALID_PARAMETER, remark).into());
        }
        let mut acks = Vec::with_capacity(entries.len());
        let mut refused = None;
        for entry in entries {
            let Some(entry) = BatchEntry::read(entry) else { continue };
            let code = session.header.code;
            let (principal, link) = (&mut session.principal, &session.link);
            self.guard.permit(principal, link, code, needs::to_receive(&entry.topic))?;
            self.guard.permit(principal, link, code, needs::to_join(&entry.group))?;
            let Some((acked, offsets)) = self.acked_by(&entry)? else { continue };
            if entry.revive_queue == ORDER_REVIVE_QUEUE {
                for offset in offsets {
                    let acked = self.ack_in_order(session, &entry.group, &acked, offset, entry.pop_ms);
                    refused = acked.err().or(refused);
                }
                continue;
            }
            self.check_revive_queue(entry.revive_queue)?;
            session.deliveries.of(&self.deliveries, &entry.group, &acked.queue).acked(offsets.len());
            let serial = acked.queue.serial();
            acks.push((self.acks_of(&entry, &acked, offsets), entry.revive_queue, serial));
        }
        if acks.is_empty() {
            // As in Apache's broker, the last refusal of an acknowledgement in order is the answer.
            refused.map_or(Ok(()), Err)?;
            session.latency.note(context, response::SUCCESS);
            reply::write(out.bytes(), context, response::SUCCESS, None, &[]);
            return Ok(());
        }
        let end = self.store_acks(&acks)?;
        refused.map_or(Ok(()), Err)?;
        self.answer_stored(session, context, end, out);
        Ok(())
    }

    /// Hides a message for a time that begins now: a new checkpoint takes the place of the one it was popped with.
    pub(in crate::dataplane) fn change_invisible_time(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let context = session.context(frame.encoding);
        let fields = AckHeader::decode(&session.header)?;
        let handle = Handle::parse(fields.handle)?;
        if !fields.lite_topic.is_empty() {
            self.check_takes_acks()?;
            self.check_invisible_time(fields.invisible_ms)?;
            let (acked, pop_ms) = (self.acked_lite(&fields, &handle)?, handle.pop_ms);
            let (invisible_ms, is_whole) = (fields.invisible_ms, fields.is_suspended);
            let hidden = self.hide_lite(fields.group, &acked, pop_ms, invisible_ms, is_whole);
            let invisible_ms = hidden.map_or(handle.invisible_ms, |until_ms| until_ms.saturating_sub(pop_ms));
            let ext = handle_fields(pop_ms, invisible_ms, handle.revive_queue);
            let ext = ext.each_ref().map(|(name, value)| (*name, value.as_str()));
            session.latency.note(context, response::SUCCESS);
            reply::write(out.bytes(), context, response::SUCCESS, None, &ext);
            return Ok(());
        }
        let acked = self.acked(&fields, |offset, max| offset < max)?;
        self.check_invisible_time(fields.invisible_ms)?;
        let offset = fields.offset as u64;
        if handle.revive_queue == ORDER_REVIVE_QUEUE {
            let (pop_ms, invisible_ms) = (handle.pop_ms, fields.invisible_ms);
            let hidden = self.hide_in_order(fields.group, &acked, offset, pop_ms, invisible_ms);
            let invisible_ms = hidden.map_or(handle.invisible_ms, |until_ms| until_ms.saturating_sub(pop_ms));
            let ext = handle_fields(pop_ms, invisible_ms, handle.revive_queue);
            let ext = ext.each_ref().map(|(name, value)| (*name, value.as_str()));
            session.latency.note(context, response::SUCCESS);
            reply::write(out.bytes(), context, response::SUCCESS, None, &ext);
            return Ok(());
        }
        self.check_revive_queue(handle.revive_queue)?;
        let now_ms = self.clock.wall_ms() as i64;
        let pop_ms = later_than(handle.pop_ms, now_ms);
        let key = self.key_of(&handle, &acked, fields.group);
        let checkpoint = Checkpoint {
            key: CheckpointKey { start: fields.offset, pop_ms, ..key.clone() },
            invisible_ms: fields.invisible_ms,
            offsets: vec![offset],
            is_suspended: fields.is_suspended,
        };
        let acks = Acks { key, due_ms: handle.due_ms(), offsets: vec![offset] };
        let stage = self.revive_stage(now_ms, session.link.peer());
        let staged =
            [stage.checkpoint(&checkpoint, handle.revive_queue)?, stage.acks(&acks, handle.revive_queue)?];
        let mut puts = [stage.put(&staged[0]), stage.put(&staged[1])];
        let end = self.append_records(&mut puts)?;
        let serial = acked.queue.serial();
        if let Some(stored) = puts[0].outcome.as_ref().ok().filter(|_| staged[0].is_timed) {
            let pop = PopName {
                queue: serial,
                group: fields.group,
                start: fields.offset,
                pop_ms: now_ms,
                due_ms: checkpoint.due_ms(),
            };
            self.settled.popped(&pop, &checkpoint.offsets, stored.physical.0, now_ms);
        }
        self.settle(&acks, serial, &staged[1], &puts[1], now_ms);
        let delivery = session.deliveries.of(&self.deliveries, fields.group, &acked.queue);
        delivery.popped(1);
        delivery.acked(1);
        let ext = handle_fields(pop_ms, fields.invisible_ms, handle.revive_queue);
        let ext = ext.each_ref().map(|(name, value)| (*name, value.as_str()));
        self.answer_stored_with(session, context, end, &ext, out);
        Ok(())
    }

    fn check_invisible_time(&self, ms: i64) -> Result<(), ErrorReply> {
        let ms_max = self.store.timer_options().delay_sec_max.saturating_mul(1_000);
        if u64::try_from(ms).is_ok_and(|ms| ms <= ms_max) {
            return Ok(());
        }
        let remark = format!("invisibleTime[{ms}] is not in 0..={ms_max} ms");
        Err(ErrorReply::new(response::INVALID_PARAMETER, remark))
    }

    fn check_takes_acks(&self) -> Result<(), ErrorReply> {
        if self.metadata.role() == Role::Master { Ok(()) } else { Err(takes_no_messages()) }
    }

    /// The queue that an acknowledgement names, where it has the offset.
    fn acked(
        &self,
        fields: &AckHeader<'_>,
        is_inside: impl Fn(u64, u64) -> bool,
    ) -> Result<Acked, Rejection> {
        self.check_takes_acks()?;
        let Some(topic) = self.metadata.topic(fields.topic) else {
            return Err(unknown_topic(fields.topic).into());
        };
        let queue_id = u32::try_from(fields.queue_id).ok().filter(|id| *id < topic.read_queues);
        let Some(queue_id) = queue_id else {
            let remark = format!(
                "queueId[{}] is illegal, topic:[{}] topicConfig.readQueueNums:[{}]",
                fields.queue_id, fields.topic, topic.read_queues
            );
            return Err(ErrorReply::new(response::MESSAGE_ILLEGAL, remark).into());
        };
        let queue = topic.queue(&self.store, queue_id).map_err(ErrorReply::from)?;
        let (min, max) = (queue.min().0, queue.max().0);
        let is_there =
            u64::try_from(fields.offset).is_ok_and(|offset| offset >= min && is_inside(offset, max));
        if is_there {
            return Ok(Acked { topic, queue });
        }
        let remark = format!(
            "offset is illegal, key:{}@{queue_id}, commit:{}, store:{min}~{max}",
            fields.topic, fields.offset
        );
        Err(ErrorReply::new(response::NO_MESSAGE, remark).into())
    }

    fn check_revive_queue(&self, revive_queue: u32) -> Result<(), ErrorReply> {
        let topic = self.metadata.topic(&self.metadata.revive_topic);
        if topic.is_some_and(|topic| revive_queue < topic.queue_count()) {
            return Ok(());
        }
        let remark = format!("extraInfo names revive queue {revive_queue}, which does not exist");
        Err(ErrorReply::new(response::SYSTEM_ERROR, remark))
    }

    fn key_of(&self, handle: &Handle<'_>, acked: &Acked, group: &str) -> CheckpointKey {
        CheckpointKey {
            topic: acked.topic.name.to_string(),
            group: group.to_owned(),
            queue_id: acked.queue.key().queue_id,
            start: handle.start,
            pop_ms: handle.pop_ms,
            broker: handle.broker.to_owned(),
        }
    }

    /// The messages that one entry of a batch names, of those that the queue has.
    fn acked_by(&self, entry: &BatchEntry) -> Result<Option<(Acked, Vec<u64>)>, Rejection> {
        let name = match entry.mark {
            TopicMark::Normal => entry.topic.clone(),
            mark => pop_retry_topic(&entry.group, &entry.topic, mark == TopicMark::RetryV2),
        };
        let Some(topic) = self.metadata.topic(&name).filter(|topic| entry.queue_id < topic.read_queues)
        else {
            return Ok(None);
        };
        let queue = topic.queue(&self.store, entry.queue_id).map_err(ErrorReply::from)?;
        let known = queue.min().0..=queue.max().0;
        let offsets: Vec<u64> = entry.offsets().filter(|offset| known.contains(offset)).collect();
        Ok((!offsets.is_empty()).then_some((Acked { topic, queue }, offsets)))
    }

    fn acks_of(&self, entry: &BatchEntry, acked: &Acked, offsets: Vec<u64>) -> Acks {
        let key = CheckpointKey {
            topic: acked.topic.name.to_string(),
            group: entry.group.clone(),
            queue_id: entry.queue_id,
            start: entry.start,
            pop_ms: entry.pop_ms,
            broker: self.metadata.identity.broker.clone(),
        };
        Acks { key, due_ms: entry.pop_ms.saturating_add(entry.invisible_ms), offsets }
    }

    /// Where records of the revive topic are laid out now.
    pub(super) fn revive_stage(&self, now_ms: i64, client: SocketAddr) -> Stage<'_> {
        Stage {
            store: &self.store,
            revive_topic: &self.metadata.revive_topic,
            store_host: self.metadata.identity.store_host,
            client,
            now_ms,
        }
    }

    /// Stores acknowledgements, each with its revive queue and the serial of the queue of its messages.
    fn store_acks(&self, acks: &[(Acks, u32, u64)]) -> Result<PhysicalOffset, Rejection> {
        let now_ms = self.clock.wall_ms() as i64;
        let stage = self.revive_stage(now_ms, self.metadata.identity.store_host);
        let staged = acks
            .iter()
            .map(|(acks, revive_queue, _)| stage.acks(acks, *revive_queue))
            .collect::<Result<Vec<_>, _>>()?;
        let mut puts: Vec<Put<'_>> = staged.iter().map(|record| stage.put(record)).collect();
        let end = self.append_records(&mut puts)?;
        for ((acks, _, serial), (record, put)) in acks.iter().zip(staged.iter().zip(&puts)) {
            self.settle(acks, *serial, record, put, now_ms);
        }
        Ok(end)
    }

    /// Notes stored acknowledgements of pops of this broker.
    fn settle(&self, acks: &Acks, serial: u64, record: &StagedRecord, put: &Put<'_>, now_ms: i64) {
        let Acks { key, due_ms, offsets } = acks;
        if let Some(stored) = put.outcome.as_ref().ok().filter(|_| record.is_timed)
            && key.broker == self.metadata.identity.broker
        {
            let (group, start, pop_ms, due_ms) = (&*key.group, key.start, key.pop_ms, *due_ms);
            let pop = PopName { queue: serial, group, start, pop_ms, due_ms };
            self.settled.acked(&pop, offsets, stored.physical.0, now_ms);
        }
    }

    /// Stores records; where the last one ends.
    fn append_records(&self, puts: &mut [Put<'_>]) -> Result<PhysicalOffset, Rejection> {
        if self.store.try_append(puts) < puts.len() {
            return Err(Rejection::NoRoom);
        }
        let mut end = PhysicalOffset(0);
        for put in puts {
            end = end.max(put.outcome.as_ref().map_err(put_refused)?.end);
        }
        Ok(end)
    }
}

/// The queue that an acknowledgement names.
pub(super) struct Acked {
    pub(super) topic: Arc<Topic>,
    pub(super) queue: Arc<ConsumeQueue>,
}

/// The pop time of a change: an acknowledgement of the checkpoint before it must not name the new one, too, when both
/// are of one millisecond.
const fn later_than(before_ms: i64, now_ms: i64) -> i64 {
    let is_near = before_ms >= now_ms && before_ms < now_ms.saturating_add(CHANGES_AHEAD_MS);
    if is_near { before_ms + 1 } else { now_ms }
}

/// The fields from which a client builds the new handle of a message whose time was changed.
fn handle_fields(pop_ms: i64, invisible_ms: i64, revive_queue: u32) -> [(&'static str, String); 3] {
    [
        ("popTime", pop_ms.to_string()),
        ("invisibleTime", invisible_ms.to_string()),
        ("reviveQid", revive_queue.to_string()),
    ]
}

/// One entry of a batch of acknowledgements.
struct BatchEntry {
    group: String,
    /// The topic that was asked for.
    topic: String,
    mark: TopicMark,
    start: i64,
    queue_id: u32,
    revive_queue: u32,
    pop_ms: i64,
    invisible_ms: i64,
    /// Bit `i` acknowledges the message at `start + i`; the lowest bits first.
    bits: Vec<u8>,
}

impl BatchEntry {
    fn read(entry: &Value) -> Option<Self> {
        let value = |names: [&str; 2]| names.iter().find_map(|name| entry.get(name));
        let text = |names| value(names)?.as_str().map(str::to_owned);
        let number = |names| value(names)?.as_i64();
        let bits = Base64::decode_vec(value(["b", "bitSet"])?.as_str()?).ok()?;
        Some(Self {
            group: text(["c", "consumerGroup"])?,
            topic: text(["t", "topic"])?,
            mark: TopicMark::named(value(["r", "retry"])?.as_str()?)?,
            start: number(["so", "startOffset"])?,
            queue_id: u32::try_from(number(["q", "queueId"])?).ok()?,
            revive_queue: u32::try_from(number(["rq", "reviveQueueId"])?).ok()?,
            pop_ms: number(["pt", "popTime"])?,
            invisible_ms: number(["it", "invisibleTime"])?,
            bits,
        })
    }

    /// The offsets whose bits are set, as many as one answer to a pop has.
    fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        let bits = self.bits.iter().enumerate();
        let set = bits.flat_map(|(index, byte)| {
            (0..8_u64).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| index as u64 * 8 + bit)
        });
        set.take(MESSAGES_MAX).filter_map(|bit| u64::try_from(self.start).ok()?.checked_add(bit))
    }
}

/// Reads the entries of a batch; those that are well-formed have a bounded number of offsets.
#[cfg(feature = "fuzzing")]
pub(crate) fn batch_entries(body: &[u8]) -> usize {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let entries = body.get("acks").and_then(Value::as_array).into_iter().flatten();
    let read: Vec<BatchEntry> = entries.filter_map(BatchEntry::read).collect();
    assert!(read.iter().all(|entry| entry.offsets().count() <= MESSAGES_MAX));
    read.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_a_batch_is_read_with_short_and_long_names() {
        let short = r#"{"b":"AQI=","c":"g","it":60000,"pt":5,"q":1,"r":"0","rq":2,"so":10,"t":"T"}"#;
        let long = r#"{"bitSet":"AQI=","consumerGroup":"g","invisibleTime":60000,"popTime":5,"queueId":1,
            "retry":"1","reviveQueueId":2,"startOffset":10,"topic":"T"}"#;
        for (text, mark) in [(short, TopicMark::Normal), (long, TopicMark::Retry)] {
            let entry = BatchEntry::read(&serde_json::from_str(text).expect("JSON")).expect("an entry");
            assert_eq!(entry.offsets().collect::<Vec<_>>(), [10, 19]);
            assert_eq!((entry.mark, entry.revive_queue, entry.queue_id), (mark, 2, 1));
        }
    }

    #[test]
    fn changes_of_one_millisecond_differ() {
        assert_eq!(later_than(4, 5), 5);
        assert_eq!(later_than(5, 5), 6);
        assert_eq!(later_than(6, 5), 7);
        assert_eq!(later_than(i64::MAX, 5), 5);
    }

    #[test]
    fn an_entry_that_is_not_well_formed_is_skipped() {
        for text in ["1", "{}", r#"{"b":"%","c":"g","it":1,"pt":5,"q":1,"r":"0","rq":2,"so":10,"t":"T"}"#] {
            assert!(BatchEntry::read(&serde_json::from_str(text).expect("JSON")).is_none(), "{text}");
        }
    }
}
