//! Enqueue: messages from the queue of timed messages into the timer log and the wheel.
//!
//! An overdue message is delivered immediately without a unit. If the log refuses it, reading stops before it.

use std::cmp::Reverse;

use super::delivery::{BATCH_MESSAGES_MAX, BATCHES_MAX, Delivery, Waiting};
use super::schedule::{Plan, plan};
use crate::dataplane::delivery::delays::sound_records;
use crate::dataplane::delivery::escapes::Stuck;
use crate::dataplane::delivery::timers::files::{ROLL, TimerUnit, count, is_recall};
use crate::message::properties::{self, name};
use crate::message::record::RecordView;
use crate::message::tag;
use crate::message::topic::TIMER_TOPIC;
use crate::store::{FirstOf, Get, GetResult, Left, WaitingRoom};

const BATCH_BYTES_MAX: usize = 4 << 20;

impl Delivery {
    /// Reads on in the queue, in a bounded number of batches. Returns whether it reached the end.
    pub(super) fn read_on(&mut self, now: i64) -> Result<bool, ()> {
        // Units that an earlier step failed to write.
        self.log.write().map_err(drop)?;
        let Some(queue) = self.store.queue(TIMER_TOPIC, 0) else { return Ok(true) };
        for _ in 0..BATCHES_MAX {
            if self.next >= queue.max() {
                return Ok(true);
            }
            let ask = Get { offset: self.next, messages_max: BATCH_MESSAGES_MAX, bytes_max: BATCH_BYTES_MAX };
            let mut found = std::mem::take(&mut self.found);
            let read = self.store.get(&queue, &ask, &mut |_| true, &mut found).map_err(drop);
            let noted = read.and_then(|()| self.note(&found, now));
            found.clear();
            self.found = found;
            noted?;
        }
        Ok(self.next >= queue.max())
    }

    /// Notes the pending messages of a read and delivers the due ones.
    fn note(&mut self, found: &GetResult, now: i64) -> Result<(), ()> {
        let records: Vec<RecordView<'_>> =
            found.slices.iter().flat_map(|slice| sound_records(slice)).collect();
        let (begin, kept) = (self.next, self.next.max(found.min));
        // During a rebuild, earlier messages were handled before.
        let gone = if self.next < self.known { 0 } else { kept.0.min(found.next_begin.0) - self.next.0 };
        let missing = found.next_begin.0.saturating_sub(kept.0).saturating_sub(records.len() as u64);
        let mut stopped = None;
        let mut due = Vec::new();
        let mut due_ms = Vec::new();
        let (mut later, mut lost) = (Vec::new(), Vec::new());
        for record in &records {
            let options = self.store.timer_options();
            let Some(plan) = plan(record.properties(), record.store_timestamp_ms(), options) else {
                continue;
            };
            let is_known = record.queue_offset() < self.known;
            let over_ms = self.wheel.over_ms(plan.at_ms, plan.kind);
            if is_known && over_ms <= self.recovered_ms {
                continue;
            }
            if is_known || over_ms > now.min(self.delivered_ms) {
                later.push((record, plan));
            } else if !is_recall(plan.kind)
                && !self.is_recalled(record, plan.at_ms)
                && (plan.kind & ROLL != 0 || !self.repeats.has(&self.store, record, plan.at_ms))
            {
                match self.copy(record, plan.kind, i64::MAX, now) {
                    Ok(copy) => {
                        self.settled.forget(record.physical_offset().0);
                        due.push((*record, copy));
                        due_ms.push(plan.at_ms);
                    }
                    Err(Stuck::Lost(reason)) => lost.push((*record, reason)),
                    Err(Stuck::Later) => {
                        stopped = Some(record.queue_offset());
                        break;
                    }
                }
            }
        }
        let refused = self.append(&due);
        for (index, ((record, _), at_ms)) in due.iter().zip(&due_ms).enumerate() {
            if !refused.contains(&index) {
                self.topics.noted(record, *at_ms, 0);
                self.topics.delivered(record);
            }
        }
        let first = refused.first().and_then(|index| due.get(*index));
        let again = first.map(|(record, _)| record.queue_offset()).or(stopped);
        let reached = again.unwrap_or(found.next_begin);
        for (record, reason) in lost.iter().filter(|(record, _)| record.queue_offset() < reached) {
            self.report(*reason, record);
        }
        for (record, plan) in later.into_iter().filter(|(record, _)| record.queue_offset() < reached) {
            self.wait(record, plan);
        }
        self.next = reached;
        if let Some(last) = records.last() {
            self.read_ms = last.store_timestamp_ms();
        }
        if again.is_none() {
            let report = |reason, first, count| {
                self.store.report_undelivered(WaitingRoom::Timed, reason, FirstOf::Queue(first), count);
            };
            report(Left::Gone, begin, gone);
            report(Left::Unreadable, kept, missing);
        }
        let written = self.log.write().map_err(drop);
        if again.is_none() { written } else { Err(()) }
    }

    fn wait(&mut self, record: &RecordView<'_>, plan: Plan) {
        let Plan { at_ms, kind } = plan;
        let slot = self.wheel.slot_of(at_ms);
        let topic = properties::get(record.properties(), name::REAL_TOPIC).unwrap_or_default();
        let physical = record.physical_offset().0;
        let previous = self.wheel.last(slot);
        let position = self.log.push(&TimerUnit {
            previous,
            kind,
            stored_ms: record.store_timestamp_ms(),
            due_ms: at_ms,
            physical,
            size: record.total_size() as u32,
            topic_hash: tag::java_hash(topic),
        });
        self.wheel.add(slot, position, previous, count(kind));
        self.pending += i64::from(count(kind));
        self.topics.noted(record, at_ms, count(kind));
        // The slot was read already, or counts as delivered before the start.
        if slot < self.next_slot || self.wheel.over_ms(at_ms, kind) <= self.recovered_ms {
            self.waiting.push(Reverse(Waiting::new(at_ms, position, physical, kind)));
        }
    }
}
