//! From the wheel to where timed messages were meant to go: in the order of time and, within a millisecond, of the
//! queue, unless they were taken back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::delivery::{BATCH_MESSAGES_MAX, BATCHES_MAX, Delivery, Waiting};
use super::statistics::topic_of;
use crate::dataplane::delays::{destination, sound_records};
use crate::dataplane::escapes::Stuck;
use crate::message::properties::{self, PROPERTIES_BYTES_MAX, name};
use crate::message::record::{RecordFields, RecordView};
use crate::message::topic::TIMER_TOPIC;
use crate::message::{MessageType, tag};
use crate::positions::PhysicalOffset;
use crate::store::timers::{ROLL, SEAL};
use crate::store::{ConsumeQueue, FirstOf, KeyHashes, Left, Put, WaitingRoom};

/// Room for messages of slots that have begun that is kept while they are fewer.
const WAITING_KEPT_MAX: usize = 4096;
/// Room for what is added to the properties of a message that moves on.
const ADDED_BYTES: usize = 96;

/// What a message that moves on is given.
pub(super) struct Moved {
    queue: Arc<ConsumeQueue>,
    properties: Vec<u8>,
    is_roll: bool,
}

impl Moved {
    fn put<'a>(&'a self, record: &RecordView<'a>) -> Put<'a> {
        let key = self.queue.key();
        let topic = if self.is_roll {
            TIMER_TOPIC.as_bytes()
        } else {
            properties::get(record.properties(), name::REAL_TOPIC).unwrap_or_default()
        };
        let fields = RecordFields {
            queue_id: key.queue_id,
            topic,
            properties: &self.properties,
            prepared_transaction_offset: 0,
            ..record.fields()
        };
        let (tags_code, keys) = (tag::tags_code(&self.properties), KeyHashes::of(topic, &self.properties));
        let put = Put::new(Arc::clone(&self.queue), fields, tags_code, keys);
        Put { message_type: MessageType::Delay, ..put }
    }
}

impl Delivery {
    /// Delivers what is due by `until`, some batches at most; whether that was all.
    pub(super) fn deliver(&mut self, until: i64, now: i64) -> Result<bool, ()> {
        self.read_slots(until)?;
        for _ in 0..BATCHES_MAX {
            let mut batch = Vec::new();
            while batch.len() < BATCH_MESSAGES_MAX as usize
                && let Some(Reverse(first)) =
                    self.waiting.peek().filter(|Reverse(first)| first.at_ms <= until)
            {
                batch.push(*first);
                self.waiting.pop();
            }
            if batch.is_empty() {
                self.waiting.shrink_to(WAITING_KEPT_MAX.max(self.waiting.len() * 2));
                self.pass(until);
                return Ok(true);
            }
            self.move_on(&batch, now)?;
        }
        self.pass(until);
        Ok(false)
    }

    /// Notes how much of what is due by `until` has been delivered: all before the first that waits.
    fn pass(&mut self, until: i64) {
        let first = self.waiting.peek().map_or(i64::MAX, |Reverse(first)| first.at_ms);
        self.delivered_ms = self.delivered_ms.max(until.min(first.saturating_sub(1)));
        let safe_ms = self.safe_ms();
        self.wheel.forget_until(safe_ms);
        self.recalls.forget_before(self.wheel.slot_of(safe_ms.saturating_add(1)));
    }

    /// Takes the chains of slots that have begun from the log.
    fn read_slots(&mut self, until: i64) -> Result<(), ()> {
        while let Some((slot, ends)) = self.wheel.next(self.next_slot)
            && self.wheel.begin_ms(slot) < until
        {
            let mut chain = Vec::with_capacity(usize::try_from(ends.count).unwrap_or(0));
            let (wheel, recovered_ms) = (&self.wheel, self.recovered_ms);
            let is_whole = self.log.chain(ends.last, |position, unit| {
                if unit.kind & SEAL == 0 && wheel.over_ms(unit.due_ms, unit.kind) > recovered_ms {
                    chain.push(Reverse(Waiting::new(unit.due_ms, position, unit.physical, unit.kind)));
                }
            });
            if !is_whole.map_err(drop)? {
                // Lost behind our back.
                self.begin_again(self.wheel.begin_ms(slot));
                return Err(());
            }
            if self.waiting.is_empty() {
                // In place: a slot may have a million.
                self.waiting = BinaryHeap::from(chain);
            } else {
                self.waiting.extend(chain);
            }
            self.next_slot = slot + 1;
        }
        // What comes for a time that has been shown, after the clock was set back, waits in memory.
        self.next_slot = self.next_slot.max(self.wheel.slot_of(until) + 1);
        Ok(())
    }

    /// Has copies of these messages go to where they were meant to go; what is refused waits on.
    fn move_on(&mut self, batch: &[Waiting], now: i64) -> Result<(), ()> {
        let found: Vec<_> =
            batch.iter().map(|waiting| self.store.lookup_queued(PhysicalOffset(waiting.physical))).collect();
        let mut copies = Vec::with_capacity(batch.len());
        let (mut of_copies, mut again) = (Vec::with_capacity(batch.len()), Vec::new());
        for (waiting, bytes) in batch.iter().zip(&found) {
            let record = bytes.as_ref().and_then(|bytes| sound_records(bytes).next());
            let Some(record) = record.filter(|record| record.topic() == TIMER_TOPIC.as_bytes()) else {
                self.report_unread(*waiting);
                continue;
            };
            let is_left = if waiting.is_delivery {
                waiting.is_roll()
                    || !(self.is_recalled(&record, waiting.at_ms)
                        || self.repeats.has(&self.store, &record, waiting.at_ms))
            } else {
                self.take_back(&record, waiting.at_ms);
                false
            };
            let kind = if waiting.is_roll() { ROLL } else { 0 };
            match is_left.then(|| self.copy(&record, kind, record.store_timestamp_ms(), now)) {
                Some(Ok(copy)) => {
                    copies.push((record, copy));
                    of_copies.push(*waiting);
                    continue;
                }
                Some(Err(Stuck::Later)) => {
                    again.push(*waiting);
                    continue;
                }
                Some(Err(Stuck::Lost(reason))) => self.report(reason, &record),
                None => {}
            }
            self.topics.left(&record, waiting.count());
        }
        let refused = self.append(&copies);
        for (index, ((record, _), waiting)) in copies.iter().zip(&of_copies).enumerate() {
            if refused.contains(&index) {
                continue;
            }
            self.topics.left(record, waiting.count());
            if !waiting.is_roll() {
                self.topics.delivered(record);
            }
        }
        again.extend(refused.iter().filter_map(|index| of_copies.get(*index).copied()));
        self.is_moved = true;
        let counts =
            |waiting: &[Waiting]| waiting.iter().map(|waiting| i64::from(waiting.count())).sum::<i64>();
        self.pending -= counts(batch) - counts(&again);
        if again.is_empty() {
            return Ok(());
        }
        self.waiting.extend(again.into_iter().map(Reverse));
        Err(())
    }

    /// Reports a message that waited and has nowhere to go.
    pub(super) fn report(&self, reason: Left, record: &RecordView<'_>) {
        let first = FirstOf::Log(record.physical_offset());
        self.store.report_undelivered(WaitingRoom::Timed, reason, first, 1);
    }

    /// Reports a message whose record is not where it was stored.
    fn report_unread(&self, waiting: Waiting) {
        let at = PhysicalOffset(waiting.physical);
        let reason = if at < self.store.range().0 { Left::Gone } else { Left::Unreadable };
        self.store.report_undelivered(WaitingRoom::Timed, reason, FirstOf::Log(at), 1);
    }

    /// Has the message that this one names not be delivered.
    fn take_back(&mut self, recall: &RecordView<'_>, at_ms: i64) {
        if let Some(key) = properties::get(recall.properties(), name::TIMER_DELETE_KEY) {
            self.recalls.add(self.wheel.slot_of(at_ms), topic_of(recall), key);
        }
    }

    /// Whether a message that is due then has been taken back.
    pub(super) fn is_recalled(&self, record: &RecordView<'_>, at_ms: i64) -> bool {
        self.recalls.has(self.wheel.slot_of(at_ms), record.properties())
    }

    /// What a message becomes, stored again or delivered, by the kind of its unit.
    pub(super) fn copy(
        &self,
        record: &RecordView<'_>,
        kind: u32,
        enqueued_ms: i64,
        now: i64,
    ) -> Result<Moved, Stuck> {
        let is_roll = kind & ROLL != 0;
        let original = record.properties();
        let (_, topic, queue_id) = destination(original).ok_or(Stuck::Lost(Left::Nowhere))?;
        // Also of what waits on: a topic that was deleted has taken it along.
        let mut queue = self.store.queue_of_waiting(topic, queue_id, record.physical_offset())?;
        if is_roll {
            queue = self.store.queue_or_create(TIMER_TOPIC, 0)?;
        }
        let rolls = properties::get(original, name::TIMER_ROLL_TIMES);
        let rolls: u32 = rolls.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0);
        let is_ours = |found: &[u8]| {
            found == name::TIMER_ENQUEUE_MS
                || found == name::TIMER_DEQUEUE_MS
                || (is_roll && found == name::TIMER_ROLL_TIMES)
        };
        let mut properties = Vec::with_capacity(original.len() + ADDED_BYTES);
        let mut writer = properties::Writer::copy_if(&mut properties, original, |found| !is_ours(found));
        writer
            .append(name::TIMER_ENQUEUE_MS, enqueued_ms.to_string().as_bytes())
            .append(name::TIMER_DEQUEUE_MS, now.to_string().as_bytes());
        if is_roll {
            writer.append(name::TIMER_ROLL_TIMES, rolls.saturating_add(1).to_string().as_bytes());
        }
        if properties.len() > PROPERTIES_BYTES_MAX {
            // What says how long it waited is not worth the message.
            properties = original.to_vec();
        }
        Ok(Moved { queue, properties, is_roll })
    }

    /// Has these go on; the indices of those that have to be tried again.
    pub(super) fn append(&self, moved: &[(RecordView<'_>, Moved)]) -> Vec<usize> {
        if moved.is_empty() {
            return Vec::new();
        }
        let mut puts: Vec<Put<'_>> = moved.iter().map(|(record, moved)| moved.put(record)).collect();
        let positions = moved.iter().map(|(record, _)| record.physical_offset());
        self.outlet.pass_on(&self.store, WaitingRoom::Timed, positions, &mut puts)
    }
}
