//! Progress of transactions: recovery at the start, and offsets saved under the group that Apache's broker uses.
//!
//! *Invariant*: the saved offset of the half queue passes a half only when its mark is durable.

use std::collections::BTreeMap;

use super::{NewHalf, State, Transactions, number, time_to_decide_ms};
use crate::dataplane::state::metadata::Metadata;
use crate::dataplane::state::offsets::Offsets;
use crate::message::properties::name;
use crate::message::record::{RecordView, records};
use crate::message::sysflag;
use crate::message::topic::{HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::requests::end_transaction::COMMIT;
use crate::store::{ConsumeQueue, Get, GetResult, StoreError};

/// The limits of one read of a queue.
const READ_MESSAGES_MAX: u32 = 1_024;
const READ_BYTES_MAX: usize = 4 << 20;
/// Marks passed between two saves of the offsets.
const PASSED_MARKS_MAX: u64 = 65_536;

impl Transactions {
    /// Finds the open halves after a start, before the first request. Producers have `timeout_ms` to decide unless
    /// the message names another time. Returns the half of a commit whose mark a crash lost; its mark must be
    /// stored. May wait for the disk.
    pub(in crate::dataplane) fn recover(
        &self,
        offsets: &Offsets,
        timeout_ms: i64,
    ) -> Result<Option<QueueOffset>, StoreError> {
        let Some(halves) = self.store.queue(HALF_TOPIC, 0) else { return Ok(None) };
        let saved = |topic| offsets.query(TRANSACTION_GROUP, topic, 0).unwrap_or_default();
        let (min, end) = (halves.min().0, halves.max().0);
        let from = saved(HALF_TOPIC).max(min).min(end);
        // One bit for each half: an old open half may keep millions of ended ones in the range.
        let mut ended = vec![0_u64; ((end - from) / 64 + 1) as usize];
        let place = |offset: u64| {
            let index = offset.checked_sub(from).filter(|_| offset < end)?;
            Some(((index / 64) as usize, 1_u64 << (index % 64)))
        };
        let marks = self.store.queue(OP_HALF_TOPIC, 0);
        let marks_from =
            marks.as_ref().map_or(0, |marks| saved(OP_HALF_TOPIC).max(marks.min().0).min(marks.max().0));
        if let Some(marks) = &marks {
            self.walk(marks, marks_from, |mark| {
                for (word, bit) in marked(mark.body()).filter_map(place) {
                    ended.get_mut(word).into_iter().for_each(|word| *word |= bit);
                }
                true
            })?;
        }
        // Halves that an original broker stored again, by the offset of the first, which the producer names in its
        // decision.
        let mut renewed = BTreeMap::<u64, Vec<u64>>::new();
        let mut found = State { opened_until: end, marks_until: marks_from, ..State::default() };
        self.walk(&halves, from, |half| {
            let offset = half.queue_offset().0;
            let is_open = place(offset)
                .is_some_and(|(word, bit)| ended.get(word).is_some_and(|ended| ended & bit == 0));
            if is_open {
                let due_ms = half
                    .store_timestamp_ms()
                    .saturating_add(time_to_decide_ms(half.properties(), timeout_ms));
                found.insert(&NewHalf {
                    offset: half.queue_offset(),
                    physical: half.physical_offset(),
                    topic: super::topic_of(half.properties()),
                    group: super::group_of(half.properties()),
                    client: half.born_host().ip(),
                    sender: None,
                    stored_ms: half.store_timestamp_ms(),
                    due_ms,
                    // Apache's broker keeps the count in the message and stores the message again to change it.
                    checks: number(half.properties(), name::TRANSACTION_CHECKS).unwrap_or_default(),
                });
                if let Some(first) = number(half.properties(), name::FIRST_HALF_OFFSET) {
                    renewed.entry(first).or_default().push(offset);
                }
            }
            true
        })?;
        if let Some(marks) = marks.filter(|_| !renewed.is_empty()) {
            self.walk(&marks, marks_from, |mark| {
                let ended = marked(mark.body()).filter_map(|first| renewed.remove(&first)).flatten();
                for offset in ended {
                    found.remove(offset);
                }
                true
            })?;
        }
        let torn = self.torn_commit().filter(|half| found.remove(half.0).is_some());
        *self.state.lock() = found;
        Ok(torn)
    }

    /// Returns the half that the newest record commits. Commit and mark are one append, so only the newest record
    /// can lack its mark.
    fn torn_commit(&self) -> Option<QueueOffset> {
        let newest = self.store.lookup(self.store.newest_record()?)?;
        let newest = RecordView::parse(&newest).ok()?;
        if newest.sys_flag() & sysflag::TRANSACTION_MASK != COMMIT {
            return None;
        }
        let at = u64::try_from(newest.prepared_transaction_offset()).ok()?;
        let half = self.store.lookup(PhysicalOffset(at))?;
        let half = RecordView::parse(&half).ok()?;
        (half.topic() == HALF_TOPIC.as_bytes()).then(|| half.queue_offset())
    }

    /// Saves the offsets of both queues that were found before the log became durable up to their position, and
    /// determines new ones. May wait for the disk.
    pub(in crate::dataplane) fn save(
        &self,
        metadata: &Metadata,
        offsets: &Offsets,
    ) -> Result<(), StoreError> {
        let durable = self.store.durable();
        let ready = self.state.lock().unsaved.take_if(|(position, _, _)| *position <= durable);
        if let Some((_, halves, marks)) = ready {
            for (name, offset) in [(HALF_TOPIC, halves), (OP_HALF_TOPIC, marks)] {
                let known = offsets.query(TRANSACTION_GROUP, name, 0);
                if let Some(topic) = metadata.topic(name).filter(|_| known != Some(offset)) {
                    // Cannot fail: the offset is within the queue and the topic is internal.
                    let _ = offsets.save_own(TRANSACTION_GROUP, &topic, 0, offset as i64);
                }
            }
        }
        let (done, marks_from) = {
            let state = self.state.lock();
            if state.unsaved.is_some() {
                return Ok(());
            }
            let oldest = state.open.keys().next().copied().unwrap_or(u64::MAX);
            (oldest.min(state.opened_until), state.marks_until)
        };
        // After the marks of all ended halves.
        let position = self.store.range().1;
        let mut marks_until = marks_from;
        if let Some(marks) = self.store.queue(OP_HALF_TOPIC, 0) {
            self.walk(&marks, marks_from, |mark| {
                let at = mark.queue_offset().0;
                let is_passed = marked(mark.body()).all(|half| half < done);
                if is_passed {
                    marks_until = at + 1;
                }
                is_passed && at - marks_from < PASSED_MARKS_MAX
            })?;
        }
        let mut state = self.state.lock();
        state.marks_until = marks_until;
        state.unsaved = Some((position, done, marks_until));
        Ok(())
    }

    /// Calls `visit` with each record of a queue from `from` on, until it returns false.
    fn walk(
        &self,
        queue: &ConsumeQueue,
        from: u64,
        mut visit: impl FnMut(&RecordView<'_>) -> bool,
    ) -> Result<(), StoreError> {
        let mut found = GetResult::default();
        let mut offset = QueueOffset(from.max(queue.min().0));
        while offset < queue.max() {
            let ask = Get { offset, messages_max: READ_MESSAGES_MAX, bytes_max: READ_BYTES_MAX };
            self.store.get(queue, &ask, &mut |_| true, &mut found)?;
            for record in found.slices.iter().flat_map(|slice| records(slice).flatten()) {
                if !visit(&record) {
                    return Ok(());
                }
            }
            found.clear();
            if found.next_begin <= offset {
                break;
            }
            offset = found.next_begin;
        }
        Ok(())
    }
}

/// Returns the offsets of halves that a mark names: each followed by a comma, or a single one, as old releases write
/// it.
fn marked(body: &[u8]) -> impl Iterator<Item = u64> + '_ {
    body.split(|byte| *byte == b',').filter_map(|text| std::str::from_utf8(text).ok()?.parse().ok())
}
