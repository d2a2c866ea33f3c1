//! Orders: the messages that groups popping in order hold of each queue, and until when the queue is blocked.
//!
//! A group gets the next messages of a queue when each message of the last batch is acknowledged, or visible again. The
//! table replaces the checkpoints of other pops. It is written to a file every few seconds: a crash forgets blocks, which
//! repeats messages in their order, or keeps old ones, which end by their time.
//!
//! Invariant: one entry for each group and queue, `ENTRIES_MAX` at most. Threads: any; one lock, held for one entry, or
//! for a copy of the table.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

/// Queues that groups may pop in order.
const ENTRIES_MAX: usize = 100_000;
/// An entry that no pop has used for this time is dropped, as in Apache's broker.
const IDLE_MS_MAX: i64 = 24 * 3_600_000;

/// A queue of a topic, as a group reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) group: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) queue_id: u32,
}

/// The last batch that a group was given of a queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) pop_ms: i64,
    /// `None` in a file that does not name it.
    pub(crate) invisible_ms: Option<i64>,
    /// Ascending, 64 at most.
    pub(crate) offsets: Vec<u64>,
    /// Times of the messages whose invisible time was changed.
    pub(crate) visible_ms: BTreeMap<u64, i64>,
    /// Earlier deliveries of the messages that had any.
    pub(crate) counts: BTreeMap<u64, i32>,
    pub(crate) used_ms: i64,
    /// Bit `i` stands for the message at `offsets[i]`.
    pub(crate) acked: u64,
    /// The client's name for the pop: repeating it returns the same messages.
    pub(crate) attempt: Option<Box<str>>,
}

/// The result of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OrderAck {
    /// The group continues at this offset.
    Next(u64),
    /// It is not in the batch.
    Unknown,
    /// It was given by an earlier pop.
    Stale,
}

impl Batch {
    fn is_acked(&self, index: usize) -> bool {
        u32::try_from(index).ok().and_then(|bit| self.acked.checked_shr(bit)).unwrap_or(0) & 1 == 1
    }

    fn left(&self) -> impl Iterator<Item = u64> + '_ {
        let offsets = self.offsets.iter().enumerate();
        offsets.filter(|(index, _)| !self.is_acked(*index)).map(|(_, offset)| *offset)
    }

    /// The time at which each message is acknowledged or visible; `None` where none is left.
    fn free_ms(&self, invisible_ms: i64) -> Option<i64> {
        let due_ms = self.pop_ms.saturating_add(self.invisible_ms.unwrap_or(invisible_ms));
        self.left().map(|offset| self.visible_ms.get(&offset).copied().unwrap_or(due_ms)).max()
    }

    /// The earlier deliveries of each message of `self`, which follows `before`.
    fn count(&mut self, before: &Self) {
        if self.attempt.is_some() && self.attempt == before.attempt {
            self.counts.clone_from(&before.counts);
            return;
        }
        let again = self.offsets.iter().filter(|offset| before.offsets.contains(offset));
        self.counts = again
            .map(|offset| (*offset, before.counts.get(offset).copied().unwrap_or(0).saturating_add(1)))
            .collect();
    }

    fn ack(&mut self, offset: u64, pop_ms: i64) -> OrderAck {
        if self.offsets.is_empty() {
            return OrderAck::Unknown;
        }
        if self.pop_ms != pop_ms {
            return OrderAck::Stale;
        }
        let Some(index) = self.offsets.iter().position(|known| *known == offset) else {
            return OrderAck::Unknown;
        };
        self.acked |= 1_u64.checked_shl(index as u32).unwrap_or(0);
        let end = self.offsets.last().map_or(0, |last| last + 1);
        OrderAck::Next(self.left().next().unwrap_or(end))
    }
}

/// Group → topic → queue → batch.
type Table = HashMap<String, HashMap<String, BTreeMap<u32, Batch>>>;

/// `topic@group` → queue → batch, as the file has it.
pub(crate) type OrderSnapshot = BTreeMap<String, BTreeMap<u32, Batch>>;

#[derive(Debug, Default)]
struct State {
    table: Table,
    count: usize,
}

impl State {
    fn batch(&mut self, at: Place<'_>) -> Option<&mut Batch> {
        self.table.get_mut(at.group)?.get_mut(at.topic)?.get_mut(&at.queue_id)
    }

    fn recount(&mut self) {
        for topics in self.table.values_mut() {
            topics.retain(|_, queues| !queues.is_empty());
        }
        self.table.retain(|_, topics| !topics.is_empty());
        self.count = self.table.values().flat_map(HashMap::values).map(BTreeMap::len).sum();
    }
}

/// The batches of all groups that pop in order.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    state: Mutex<State>,
    changes: AtomicU64,
}

impl Orders {
    /// Changes so far; an equal number means an equal table.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Batches that are not forgotten.
    pub(crate) fn size(&self) -> usize {
        self.state.lock().count
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the group gets nothing of a queue now. A pop that repeats the last one is not blocked by it.
    pub(crate) fn is_blocked(
        &self,
        at: Place<'_>,
        attempt: Option<&str>,
        invisible_ms: i64,
        now_ms: i64,
    ) -> bool {
        let mut state = self.state.lock();
        let Some(batch) = state.batch(at) else { return false };
        let is_repeated = attempt.is_some() && batch.attempt.as_deref() == attempt;
        !is_repeated && batch.free_ms(invisible_ms).is_some_and(|free_ms| now_ms < free_ms)
    }

    /// The time at which the queue is free again, while it is blocked.
    pub(crate) fn free_ms(&self, at: Place<'_>, now_ms: i64) -> Option<i64> {
        self.state.lock().batch(at)?.free_ms(0).filter(|free_ms| now_ms < *free_ms)
    }

    /// Notes what a pop gives; returns the earlier deliveries of each message that had any. `None` where the table is full.
    pub(crate) fn give(&self, at: Place<'_>, mut batch: Batch) -> Option<BTreeMap<u64, i32>> {
        let mut state = self.state.lock();
        let counts = if let Some(before) = state.batch(at) {
            batch.count(before);
            let counts = batch.counts.clone();
            *before = batch;
            counts
        } else {
            if state.count >= ENTRIES_MAX {
                return None;
            }
            let topics = state.table.entry_ref(at.group).or_default();
            topics.entry_ref(at.topic).or_default().insert(at.queue_id, batch);
            state.count += 1;
            BTreeMap::new()
        };
        drop(state);
        self.changed();
        Some(counts)
    }

    /// Acknowledges a message; without a batch the group continues behind it.
    pub(crate) fn ack(&self, at: Place<'_>, offset: u64, pop_ms: i64) -> OrderAck {
        let acked = match self.state.lock().batch(at) {
            Some(batch) => batch.ack(offset, pop_ms),
            None => return OrderAck::Next(offset.saturating_add(1)),
        };
        self.changed();
        acked
    }

    /// Hides a message of the last batch until `visible_ms`; an earlier batch is left alone.
    pub(crate) fn hide(&self, at: Place<'_>, offset: u64, pop_ms: i64, visible_ms: i64) {
        let mut state = self.state.lock();
        let batch = state.batch(at);
        let batch = batch.filter(|batch| batch.pop_ms == pop_ms && batch.offsets.contains(&offset));
        if let Some(batch) = batch {
            batch.visible_ms.insert(offset, visible_ms);
            drop(state);
            self.changed();
        }
    }

    /// Hides every message of the last batch that is not acknowledged until `visible_ms`; an earlier batch is left alone.
    pub(crate) fn hide_all(&self, at: Place<'_>, pop_ms: i64, visible_ms: i64) {
        let mut state = self.state.lock();
        if let Some(batch) = state.batch(at).filter(|batch| batch.pop_ms == pop_ms) {
            let left: Vec<u64> = batch.left().collect();
            batch.visible_ms.extend(left.into_iter().map(|offset| (offset, visible_ms)));
            drop(state);
            self.changed();
        }
    }

    /// Frees a queue if each message of its last batch is acknowledged. There may be too many queues to keep the batches
    /// of all.
    pub(crate) fn clear_acked(&self, at: Place<'_>) {
        let is_acked = self.state.lock().batch(at).is_some_and(|batch| batch.left().next().is_none());
        if is_acked {
            self.clear(at);
        }
    }

    /// Frees a queue.
    pub(crate) fn clear(&self, at: Place<'_>) {
        let mut state = self.state.lock();
        let queues = state.table.get_mut(at.group).and_then(|topics| topics.get_mut(at.topic));
        if queues.is_some_and(|queues| queues.remove(&at.queue_id).is_some()) {
            state.count -= 1;
            drop(state);
            self.changed();
        }
    }

    pub(crate) fn remove_topic(&self, topic: &str) {
        self.retain(|_, known, _, _| known != topic);
    }

    pub(crate) fn remove_topics(&self, gone: &HashSet<String>) {
        self.retain(|_, known, _, _| !gone.contains(known));
    }

    pub(crate) fn remove_group(&self, group: &str) {
        self.retain(|known, _, _, _| known != group);
    }

    fn retain(&self, mut is_kept: impl FnMut(&str, &str, u32, &Batch) -> bool) {
        let mut state = self.state.lock();
        let before = state.count;
        for (group, topics) in &mut state.table {
            for (topic, queues) in topics {
                queues.retain(|queue_id, batch| is_kept(group, topic, *queue_id, batch));
            }
        }
        state.recount();
        if state.count != before {
            drop(state);
            self.changed();
        }
    }

    /// The table, without entries that have no queue, by `has_queue` of group, topic and queue, or were not used for a day;
    /// and the changes that it has at least.
    pub(crate) fn snapshot(
        &self,
        now_ms: i64,
        has_queue: impl Fn(&str, &str, u32) -> bool,
    ) -> (u64, OrderSnapshot) {
        self.retain(|group, topic, queue_id, batch| {
            now_ms.saturating_sub(batch.used_ms) < IDLE_MS_MAX && has_queue(group, topic, queue_id)
        });
        let changes = self.changes();
        let mut snapshot = OrderSnapshot::new();
        for (group, topics) in &self.state.lock().table {
            for (topic, queues) in topics {
                snapshot.insert(format!("{topic}@{group}"), queues.clone());
            }
        }
        (changes, snapshot)
    }

    /// Replaces the table, `ENTRIES_MAX` at most.
    pub(crate) fn load(&self, snapshot: OrderSnapshot) {
        let mut state = State::default();
        for (key, queues) in snapshot {
            let Some((topic, group)) = key.split_once('@') else { continue };
            if state.count + queues.len() <= ENTRIES_MAX {
                state.count += queues.len();
                state.table.entry_ref(group).or_default().insert(topic.into(), queues);
            }
        }
        *self.state.lock() = state;
        self.changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Place<'_> = Place { group: "g", topic: "t", queue_id: 2 };

    fn batch(pop_ms: i64, offsets: &[u64]) -> Batch {
        Batch {
            pop_ms,
            invisible_ms: Some(100),
            offsets: offsets.into(),
            used_ms: pop_ms,
            ..Batch::default()
        }
    }

    #[test]
    fn a_queue_is_blocked_until_its_batch_is_acknowledged_in_any_order() {
        let orders = Orders::default();
        assert!(!orders.is_blocked(AT, None, 100, 0));
        assert_eq!(orders.give(AT, batch(1_000, &[5, 6, 9])), Some(BTreeMap::new()));
        assert!(orders.is_blocked(AT, None, 100, 1_099));
        assert_eq!(orders.ack(AT, 9, 1_000), OrderAck::Next(5));
        assert_eq!(orders.ack(AT, 5, 1_000), OrderAck::Next(6));
        assert_eq!((orders.ack(AT, 7, 1_000), orders.ack(AT, 6, 999)), (OrderAck::Unknown, OrderAck::Stale));
        assert_eq!(orders.ack(AT, 6, 1_000), OrderAck::Next(10));
        assert!(!orders.is_blocked(AT, None, 100, 1_001));
    }

    #[test]
    fn messages_that_come_again_are_counted_and_a_repeated_attempt_is_not() {
        let orders = Orders::default();
        let attempt = |pop_ms, offsets: &[u64], attempt: &str| {
            orders.give(AT, Batch { attempt: Some(attempt.into()), ..batch(pop_ms, offsets) })
        };
        attempt(1_000, &[5, 6], "a");
        assert!(
            orders.is_blocked(AT, Some("b"), 100, 1_001) && !orders.is_blocked(AT, Some("a"), 100, 1_001)
        );
        assert_eq!(attempt(1_010, &[5, 6], "a"), Some(BTreeMap::new()));
        assert_eq!(attempt(1_200, &[5, 6, 7], "b"), Some(BTreeMap::from([(5, 1), (6, 1)])));
        assert_eq!(attempt(1_400, &[6, 7], "c"), Some(BTreeMap::from([(6, 2), (7, 1)])));
    }

    #[test]
    fn a_change_moves_the_end_of_the_block() {
        let orders = Orders::default();
        orders.give(AT, batch(1_000, &[5, 6]));
        orders.hide(AT, 5, 1_000, 5_000);
        orders.hide(AT, 6, 1, 9_000);
        orders.hide(AT, 7, 1_000, 9_000);
        assert_eq!((orders.free_ms(AT, 1_000), orders.free_ms(AT, 5_000)), (Some(5_000), None));
        orders.clear(AT);
        assert!(!orders.is_blocked(AT, None, 100, 1_001));
    }

    #[test]
    fn a_whole_batch_is_hidden_and_forgotten_once_it_is_acknowledged() {
        let orders = Orders::default();
        orders.give(AT, batch(1_000, &[5, 6]));
        orders.ack(AT, 5, 1_000);
        orders.hide_all(AT, 999, 9_000);
        assert_eq!(orders.free_ms(AT, 1_000), Some(1_100));
        orders.hide_all(AT, 1_000, 5_000);
        assert_eq!(orders.free_ms(AT, 1_000), Some(5_000));
        orders.clear_acked(AT);
        assert!(orders.is_blocked(AT, None, 100, 1_001));
        orders.ack(AT, 6, 1_000);
        orders.clear_acked(AT);
        assert_eq!(orders.snapshot(1_000, |_, _, _| true).1, OrderSnapshot::new());
    }

    #[test]
    fn a_snapshot_drops_what_is_gone_and_loads_back_equal() {
        let orders = Orders::default();
        for (group, topic, used_ms) in [("g", "t", 0), ("g", "gone", 0), ("old", "t", -IDLE_MS_MAX)] {
            orders.give(Place { group, topic, queue_id: 0 }, batch(used_ms, &[1]));
        }
        let (_, table) = orders.snapshot(0, |_, topic, _| topic != "gone");
        assert_eq!(table.keys().collect::<Vec<_>>(), ["t@g"]);
        let again = Orders::default();
        again.load(table.clone());
        assert_eq!(again.snapshot(0, |_, _, _| true).1, table);
        again.remove_topic("t");
        assert_eq!(again.snapshot(0, |_, _, _| true).1, OrderSnapshot::new());
    }
}
