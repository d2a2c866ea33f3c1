//! Dequeue: due messages from the wheel to their destinations, unless recalled, by time and then in queue order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::delivery::{BATCH_MESSAGES_MAX, BATCHES_MAX, Delivery, Waiting};
use super::statistics::topic_of;
use crate::dataplane::delivery::delays::{destination, sound_records};
use crate::dataplane::delivery::escapes::{Outlet, Stuck};
use crate::dataplane::delivery::timers::files::{ROLL, SEAL};
use crate::message::properties::{self, PROPERTIES_BYTES_MAX, name};
use crate::message::record::{RecordFields, RecordView};
use crate::message::topic::{REVIVE_TOPIC_PREFIX, TIMER_TOPIC};
use crate::message::{MessageType, tag};
use crate::positions::PhysicalOffset;
use crate::store::{ConsumeQueue, FirstOf, KeyHashes, Left, Put, Store, WaitingRoom};

/// The capacity that the heap keeps when it has fewer messages.
const WAITING_KEPT_MAX: usize = 4096;
/// Space for the properties added to a delivered message.
const ADDED_BYTES: usize = 96;

/// The destination and properties of a copy.
pub(super) struct Moved {
    queue: Arc<ConsumeQueue>,
    properties: Vec<u8>,
    is_roll: bool,
}

impl Moved {
    fn put<'a>(&'a self, store: &Store, record: &RecordView<'a>) -> Put<'a> {
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
        let lights = store.light_put(topic, &self.properties);
        Put { message_type: MessageType::Delay, lights, ..put }
    }
}

impl Delivery {
    /// Delivers messages due by `until`, in a bounded number of batches. Returns whether those were all.
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
            self.move_on(batch, now)?;
        }
        self.pass(until);
        Ok(false)
    }

    /// Advances `delivered_ms` to `until`, or to just before the first undelivered message.
    fn pass(&mut self, until: i64) {
        self.delivered_ms = self.delivered_ms.max(until.min(self.first_ms().saturating_sub(1)));
        let safe_ms = self.safe_ms();
        self.wheel.forget_until(safe_ms);
        self.recalls.forget_before(self.wheel.slot_of(safe_ms.saturating_add(1)));
    }

    /// Reads the chains of slots that have begun.
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
                // The log was damaged or deleted while in use.
                self.begin_again(self.wheel.begin_ms(slot));
                return Err(());
            }
            if self.waiting.is_empty() {
                // In place, because a slot may have a million messages.
                self.waiting = BinaryHeap::from(chain);
            } else {
                self.waiting.extend(chain);
            }
            self.next_slot = slot + 1;
        }
        // A message for an earlier time, read after the clock was set back, waits in memory.
        self.next_slot = self.next_slot.max(self.wheel.slot_of(until) + 1);
        Ok(())
    }

    /// Appends copies of these messages to their destinations. Refused messages stay pending.
    fn move_on(&mut self, mut batch: Vec<Waiting>, now: i64) -> Result<(), ()> {
        self.leave_out(&mut batch);
        let found: Vec<_> =
            batch.iter().map(|waiting| self.store.lookup_queued(PhysicalOffset(waiting.physical))).collect();
        let mut copies = Vec::with_capacity(batch.len());
        let (mut of_copies, mut again) = (Vec::with_capacity(batch.len()), Vec::new());
        let mut held = 0;
        for (waiting, bytes) in batch.iter().zip(&found) {
            let record = bytes.as_ref().and_then(|bytes| sound_records(bytes).next());
            let Some(record) = record.filter(|record| record.topic() == TIMER_TOPIC.as_bytes()) else {
                self.report_unread(*waiting);
                continue;
            };
            if waiting.is_delivery && !waiting.is_roll() && self.is_held(&record) {
                self.held.push(*waiting);
                held += i64::from(waiting.count());
                continue;
            }
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
        self.pending -= counts(&batch) - counts(&again) - held;
        if again.is_empty() {
            return Ok(());
        }
        self.waiting.extend(again.into_iter().map(Reverse));
        Err(())
    }

    /// Removes records of pops that need no delivery, which count as delivered.
    fn leave_out(&mut self, batch: &mut Vec<Waiting>) {
        let count = batch.len();
        self.settled.leave_out(batch, |waiting| waiting.physical);
        let left_out = (count - batch.len()) as u32;
        if left_out > 0 {
            self.topics.change(self.settled.topic.as_bytes(), |topic| {
                topic.waiting -= i64::from(left_out);
                topic.delivered += u64::from(left_out);
            });
            self.pending -= i64::from(left_out);
            self.is_moved = true;
        }
    }

    /// Whether a message can go nowhere but into this log, which takes none.
    fn is_held(&self, record: &RecordView<'_>) -> bool {
        let topic = || properties::get(record.properties(), name::REAL_TOPIC).unwrap_or_default();
        matches!(self.outlet, Outlet::Escapes(_)) && topic().starts_with(REVIVE_TOPIC_PREFIX.as_bytes())
    }

    /// Reports a message without a destination.
    pub(super) fn report(&self, reason: Left, record: &RecordView<'_>) {
        let first = FirstOf::Log(record.physical_offset());
        self.store.report_undelivered(WaitingRoom::Timed, reason, first, 1);
    }

    /// Reports a message whose record is unreadable or gone.
    fn report_unread(&self, waiting: Waiting) {
        let at = PhysicalOffset(waiting.physical);
        let reason = if at < self.store.range().0 { Left::Gone } else { Left::Unreadable };
        self.store.report_undelivered(WaitingRoom::Timed, reason, FirstOf::Log(at), 1);
    }

    /// Records the key of a recalled message.
    fn take_back(&mut self, recall: &RecordView<'_>, at_ms: i64) {
        if let Some(key) = properties::get(recall.properties(), name::TIMER_DELETE_KEY) {
            self.recalls.add(self.wheel.slot_of(at_ms), topic_of(recall), key);
        }
    }

    /// Returns whether the message was recalled.
    pub(super) fn is_recalled(&self, record: &RecordView<'_>, at_ms: i64) -> bool {
        self.recalls.has(self.wheel.slot_of(at_ms), record.properties())
    }

    /// Builds the copy of a message that is stored again or delivered.
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
        // A message to be stored again is dropped, too, if its topic was deleted.
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
            // The times are informative; the message must not be lost for them.
            properties = original.to_vec();
        }
        Ok(Moved { queue, properties, is_roll })
    }

    /// Appends copies and returns the indices to retry.
    pub(super) fn append(&self, moved: &[(RecordView<'_>, Moved)]) -> Vec<usize> {
        if moved.is_empty() {
            return Vec::new();
        }
        let mut puts: Vec<Put<'_>> =
            moved.iter().map(|(record, moved)| moved.put(&self.store, record)).collect();
        let positions = moved.iter().map(|(record, _)| record.physical_offset());
        self.outlet.pass_on(&self.store, WaitingRoom::Timed, positions, &mut puts)
    }
}
