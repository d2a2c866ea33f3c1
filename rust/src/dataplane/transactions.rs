//! Transactions: which half messages wait for the decision of their producer.
//!
//! A half message lies in the queue of `RMQ_SYS_TRANS_HALF_TOPIC`, where no consumer reads it. Its end is a mark in
//! `RMQ_SYS_TRANS_OP_HALF_TOPIC`, with the offset of the half as the original writes it, and for a commit the message
//! itself in front of it: both in one append, so that no crash leaves a commit that is open still. The original gathers
//! marks for three seconds in memory, and delivers twice what was committed then.
//!
//! The halves that are open are kept in memory, by offset: one that has ended is in no table, so that a second decision
//! finds nothing to end. After a start they are what lies behind the saved offset of the half queue and has no mark
//! behind the saved offset of the marks.
//!
//! Each is looked at when its time comes (`check_transactions`): first when its producer has had the time that it has,
//! then again and again. It has a time and a count of its own, so that one whose producer is gone holds back no other,
//! and a check stores nothing. The counts are lost with the process.
//!
//! *Invariant*: the saved offset of the half queue passes a half only when its mark is durable.
//! Threads: any; one lock, held for an operation on a map.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::metadata::Metadata;
use super::offsets::Offsets;
use crate::message::properties::{self, name};
use crate::message::record::{RecordView, records};
use crate::message::topic::{HALF_TOPIC, OP_HALF_TOPIC};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::{ConsumeQueue, Get, GetResult, Store, StoreError};

/// The group under which the original saves how far both queues are done.
const GROUP: &str = "CID_RMQ_SYS_TRANS";
/// Transactions that may be open at once.
const OPEN_MAX: usize = 1 << 20;
/// What one read takes of a queue.
const READ_MESSAGES_MAX: u32 = 1_024;
const READ_BYTES_MAX: usize = 4 << 20;
/// Marks that are passed with one saving of the offsets.
const PASSED_MARKS_MAX: u64 = 65_536;

/// A half message without a decision.
#[derive(Debug)]
struct OpenHalf {
    physical: PhysicalOffset,
    /// A decision is being stored.
    is_ending: bool,
    /// That it cannot be read has been told.
    is_reported: bool,
    /// How often its producers have been asked.
    checks: u32,
    /// When it is looked at: its entry in `State::due`.
    due_ms: i64,
}

impl OpenHalf {
    fn new(physical: PhysicalOffset, due_ms: i64, checks: u32) -> Self {
        Self { physical, is_ending: false, is_reported: false, checks, due_ms }
    }
}

/// An open half that is to be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DueHalf {
    pub(super) offset: QueueOffset,
    pub(super) physical: PhysicalOffset,
    pub(super) checks: u32,
}

/// What has become of half messages since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct TransactionCounts {
    /// Producers were asked.
    pub(crate) checks: u64,
    /// Given up: nobody has decided.
    pub(crate) discarded: u64,
    /// Their records cannot be read any more.
    pub(crate) lost: u64,
}

#[derive(Debug, Default)]
struct State {
    /// By offset in the half queue.
    open: BTreeMap<u64, OpenHalf>,
    /// When each of them is looked at, and its offset.
    due: BTreeSet<(i64, u64)>,
    counts: TransactionCounts,
    /// Every half before this offset has been opened.
    opened_until: u64,
    /// Halves beyond it that were: connections store side by side.
    opened_beyond: BTreeSet<u64>,
    /// Every mark before this offset is about halves before the oldest open one.
    marks_until: u64,
    /// Offsets of halves and marks that may be saved once the log is durable up to the position.
    unsaved: Option<(PhysicalOffset, u64, u64)>,
}

impl State {
    fn insert(&mut self, offset: u64, half: OpenHalf) {
        self.due.insert((half.due_ms, offset));
        self.open.insert(offset, half);
    }

    fn remove(&mut self, offset: u64) {
        if let Some(half) = self.open.remove(&offset) {
            self.due.remove(&(half.due_ms, offset));
        }
    }

    /// An open half, if it is that of this record.
    fn half(&mut self, offset: QueueOffset, physical: PhysicalOffset) -> Option<&mut OpenHalf> {
        self.open.get_mut(&offset.0).filter(|half| half.physical == physical)
    }
}

/// The open transactions of a broker.
pub(super) struct Transactions {
    store: Arc<Store>,
    state: Mutex<State>,
}

impl Transactions {
    pub(super) fn new(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store), state: Mutex::default() }
    }

    /// Transactions without a decision.
    pub(super) fn open_count(&self) -> usize {
        self.state.lock().open.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.open_count() < OPEN_MAX
    }

    pub(super) fn counts(&self) -> TransactionCounts {
        self.state.lock().counts
    }

    /// A half message was stored, which is looked at when it is `due_ms`.
    pub(super) fn open(&self, offset: QueueOffset, physical: PhysicalOffset, due_ms: i64) {
        let mut state = self.state.lock();
        state.insert(offset.0, OpenHalf::new(physical, due_ms, 0));
        state.opened_beyond.insert(offset.0);
        while state.opened_beyond.first() == Some(&state.opened_until) {
            state.opened_beyond.pop_first();
            state.opened_until += 1;
        }
    }

    /// Takes an open half for its end, so that there is no other; false where it has ended, or is about to.
    pub(super) fn begin_end(&self, offset: QueueOffset, physical: PhysicalOffset) -> bool {
        let mut state = self.state.lock();
        match state.half(offset, physical) {
            Some(half) if !half.is_ending => {
                half.is_ending = true;
                true
            }
            _ => false,
        }
    }

    /// The mark is stored, or is not and the half is open again.
    pub(super) fn finish_end(&self, offset: QueueOffset, has_ended: bool) {
        let mut state = self.state.lock();
        if has_ended {
            state.remove(offset.0);
        } else if let Some(half) = state.open.get_mut(&offset.0) {
            half.is_ending = false;
        }
    }

    /// At most `limit` of the halves whose time has come, in the order in which it came. They are looked at again when it
    /// is `again_ms`, which lies behind `now_ms`.
    pub(super) fn take_due(&self, now_ms: i64, again_ms: i64, limit: usize) -> Vec<DueHalf> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let mut taken = Vec::new();
        while taken.len() < limit {
            let Some(next) = state.due.first().copied().filter(|(due_ms, _)| *due_ms <= now_ms) else {
                break;
            };
            state.due.remove(&next);
            let offset = next.1;
            let Some(half) = state.open.get_mut(&offset) else { continue };
            half.due_ms = again_ms;
            state.due.insert((again_ms, offset));
            if !half.is_ending {
                let (physical, checks) = (half.physical, half.checks);
                taken.push(DueHalf { offset: QueueOffset(offset), physical, checks });
            }
        }
        taken
    }

    /// Looks at these when it is `due_ms`.
    pub(super) fn look_again(&self, halves: &[DueHalf], due_ms: i64) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for DueHalf { offset, .. } in halves {
            let Some(half) = state.open.get_mut(&offset.0) else { continue };
            state.due.remove(&(half.due_ms, offset.0));
            half.due_ms = due_ms;
            state.due.insert((due_ms, offset.0));
        }
    }

    /// A producer was asked about this half.
    pub(super) fn count_check(&self, offset: QueueOffset, physical: PhysicalOffset) {
        let mut state = self.state.lock();
        state.counts.checks += 1;
        if let Some(half) = state.half(offset, physical) {
            half.checks += 1;
        }
    }

    /// A half was given up, and its mark is stored.
    pub(super) fn count_discarded(&self) {
        self.state.lock().counts.discarded += 1;
    }

    /// The record of a half cannot be read. One that `is_gone` from the log ends with that; another may be restored.
    /// Whether this is news.
    pub(super) fn lose(&self, half: DueHalf, is_gone: bool) -> bool {
        let mut state = self.state.lock();
        let Some(open) = state.half(half.offset, half.physical) else { return false };
        let is_news = !std::mem::replace(&mut open.is_reported, true);
        if is_gone {
            state.remove(half.offset.0);
        }
        state.counts.lost += u64::from(is_news);
        is_news
    }

    /// Finds the halves that are open after a start; before the first request. Their producers have `timeout_ms` where
    /// they do not ask for another time. May wait for the disk.
    pub(super) fn recover(&self, offsets: &Offsets, timeout_ms: i64) -> Result<(), StoreError> {
        let Some(halves) = self.store.queue(HALF_TOPIC, 0) else { return Ok(()) };
        let saved = |topic| offsets.query(GROUP, topic, 0).unwrap_or_default();
        let (min, end) = (halves.min().0, halves.max().0);
        let from = saved(HALF_TOPIC).max(min).min(end);
        // A bit for each half: of those that a long transaction holds up there may be millions, nearly all of them ended.
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
        // Halves that an original broker stored again, by the offset of the first one, which its producer decides about.
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
                // The original counts in the message, and stores it again for that.
                let checks = number(half.properties(), name::TRANSACTION_CHECKS).unwrap_or_default();
                found.insert(offset, OpenHalf::new(half.physical_offset(), due_ms, checks));
                if let Some(first) = number(half.properties(), name::FIRST_HALF_OFFSET) {
                    renewed.entry(first).or_default().push(offset);
                }
            }
            true
        })?;
        if let Some(marks) = marks.filter(|_| !renewed.is_empty()) {
            self.walk(&marks, marks_from, |mark| {
                let ended = marked(mark.body()).filter_map(|first| renewed.remove(&first)).flatten();
                ended.for_each(|offset| found.remove(offset));
                true
            })?;
        }
        *self.state.lock() = found;
        Ok(())
    }

    /// Saves in the table of offsets how far both queues are done, as far as the log was durable when this was found out,
    /// and finds out anew. May wait for the disk.
    pub(super) fn save(&self, metadata: &Metadata, offsets: &Offsets) -> Result<(), StoreError> {
        let durable = self.store.durable();
        let ready = self.state.lock().unsaved.take_if(|(position, _, _)| *position <= durable);
        if let Some((_, halves, marks)) = ready {
            for (name, offset) in [(HALF_TOPIC, halves), (OP_HALF_TOPIC, marks)] {
                let known = offsets.query(GROUP, name, 0);
                if let Some(topic) = metadata.topics.get(name).filter(|_| known != Some(offset)) {
                    // Within the queue, which the topic has: it is the broker's own.
                    let _ = offsets.commit(GROUP, &topic, 0, offset as i64);
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
        // Behind the marks of all that has ended so far.
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

    /// Calls `visit` with the records of a queue from `from` on, until it returns false.
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

/// The offsets of halves that a mark names: each followed by a comma, or one alone, as old releases wrote it.
fn marked(body: &[u8]) -> impl Iterator<Item = u64> + '_ {
    body.split(|byte| *byte == b',').filter_map(|text| std::str::from_utf8(text).ok()?.parse().ok())
}

/// How long the producer of a half message has before it is asked: what the message says, or else `timeout_ms`.
pub(super) fn time_to_decide_ms(half_properties: &[u8], timeout_ms: i64) -> i64 {
    let asked_s: Option<i64> = number(half_properties, name::CHECK_IMMUNITY_S);
    asked_s.filter(|seconds| *seconds >= 0).map_or(timeout_ms, |seconds| seconds.saturating_mul(1_000))
}

fn number<T: std::str::FromStr>(half_properties: &[u8], name: &[u8]) -> Option<T> {
    std::str::from_utf8(properties::get(half_properties, name)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
