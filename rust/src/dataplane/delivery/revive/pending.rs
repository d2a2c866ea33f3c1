//! Pending checkpoints of one revive queue: popped messages that are neither acknowledged nor copied yet.
//!
//! The table is derived from the queue's records. A checkpoint of a second before its time is in it, and any that is
//! overdue; the others wait in the timers, on the disk. Checkpoints that are due are decided by group in turn, so that a
//! group that never acknowledges delays its own messages alone.
//!
//! Invariant: each open checkpoint is found by its offset, by its key, and by its group and time.
//! Threads: that of the revival.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet, HashTable};

use super::records::{Checkpoint, CheckpointKey};

/// Names that are kept although no checkpoint may have them any more.
const NAMES_KEPT_MAX: usize = 1_024;

/// The names in a key, which many checkpoints share.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Names {
    topic: Box<str>,
    group: Arc<str>,
    broker: Box<str>,
}

/// A checkpoint whose time has not come, or whose messages are not all copied.
#[derive(Debug)]
struct Open {
    names: Arc<Names>,
    start: i64,
    pop_ms: i64,
    invisible_ms: i64,
    queue_id: u32,
    /// Bit `i` stands for message `i`, which has no acknowledgement and no copy.
    left: u32,
    /// The offset of each message, counted from `start`, unless they are consecutive.
    differences: Option<Box<[u32]>>,
    is_suspended: bool,
}

impl Open {
    fn due_ms(&self) -> i64 {
        self.pop_ms.saturating_add(self.invisible_ms)
    }

    fn is(&self, key: &CheckpointKey) -> bool {
        let Names { topic, group, broker } = &*self.names;
        (self.start, self.pop_ms, self.queue_id) == (key.start, key.pop_ms, key.queue_id)
            && (&**topic, &**group, &**broker) == (&*key.topic, &*key.group, &*key.broker)
    }

    fn hash(&self) -> u64 {
        let Names { topic, group, broker } = &*self.names;
        hash(topic, group, broker, (self.queue_id, self.start, self.pop_ms))
    }

    fn offset_of(&self, index: u32) -> u64 {
        let difference = match &self.differences {
            Some(differences) => differences.get(index as usize).copied().unwrap_or(0),
            None => index,
        };
        (self.start as u64).saturating_add(difference.into())
    }

    fn left(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (0..u32::BITS).filter(|index| self.left >> index & 1 == 1).map(|index| (index, self.offset_of(index)))
    }

    fn finish(&mut self, offsets: &[u64]) {
        let finished: Vec<u32> =
            self.left().filter(|(_, offset)| offsets.contains(offset)).map(|(index, _)| index).collect();
        finished.into_iter().for_each(|index| self.left &= !(1 << index));
    }
}

fn hash(topic: &str, group: &str, broker: &str, place: (u32, i64, i64)) -> u64 {
    FixedState::default().hash_one((topic, group, broker, place))
}

fn hash_of(key: &CheckpointKey) -> u64 {
    hash(&key.topic, &key.group, &key.broker, (key.queue_id, key.start, key.pop_ms))
}

/// The checkpoints of one queue, by the offsets of their records.
#[derive(Debug, Default)]
pub(super) struct Pending {
    open: BTreeMap<u64, Open>,
    by_key: HashTable<u64>,
    names: HashSet<Arc<Names>>,
    /// By group, the due time and offset of each.
    due: HashMap<Arc<str>, BTreeSet<(i64, u64)>>,
    /// The first due time of each group.
    first_due: BTreeSet<(i64, Arc<str>)>,
}

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// The offset of the first one.
    pub(super) fn first(&self) -> Option<u64> {
        self.open.first_key_value().map(|(offset, _)| *offset)
    }

    pub(super) fn first_due_ms(&self) -> Option<i64> {
        self.first_due.first().map(|(due_ms, _)| *due_ms)
    }

    /// Adds the checkpoint of the record at `offset`. The later record of an equal key replaces the earlier one. A
    /// checkpoint without messages, or with impossible offsets, is done.
    pub(super) fn insert(&mut self, offset: u64, checkpoint: &Checkpoint) {
        if let Some(before) = self.find(&checkpoint.key) {
            self.close(before);
        }
        let start = checkpoint.key.start;
        let differences = checkpoint.offsets.iter().map(|offset| {
            let start = u64::try_from(start).ok()?;
            u32::try_from(offset.checked_sub(start)?).ok()
        });
        let Some(differences) = differences.collect::<Option<Box<[u32]>>>() else { return };
        if differences.is_empty() || differences.len() > u32::BITS as usize {
            return;
        }
        let names = self.names_of(&checkpoint.key);
        let is_consecutive =
            differences.iter().enumerate().all(|(at, difference)| at == *difference as usize);
        let open = Open {
            start,
            pop_ms: checkpoint.key.pop_ms,
            invisible_ms: checkpoint.invisible_ms,
            queue_id: checkpoint.key.queue_id,
            left: u32::MAX >> (u32::BITS - differences.len() as u32),
            differences: (!is_consecutive).then_some(differences),
            is_suspended: checkpoint.is_suspended,
            names,
        };
        let (due_ms, group, hash) = (open.due_ms(), Arc::clone(&open.names.group), open.hash());
        self.open.insert(offset, open);
        let opens = &self.open;
        self.by_key.insert_unique(hash, offset, |at| opens.get(at).map_or(0, Open::hash));
        self.change_due(&group, |due| due.insert((due_ms, offset)));
    }

    fn names_of(&mut self, key: &CheckpointKey) -> Arc<Names> {
        let (topic, group, broker) = (&*key.topic, &*key.group, &*key.broker);
        let names = Names { topic: topic.into(), group: group.into(), broker: broker.into() };
        if let Some(known) = self.names.get(&names) {
            return Arc::clone(known);
        }
        if self.names.len() >= NAMES_KEPT_MAX.max(self.open.len()) {
            self.names.retain(|names| Arc::strong_count(names) > 1);
        }
        let names = Arc::new(names);
        self.names.insert(Arc::clone(&names));
        names
    }

    fn find(&self, key: &CheckpointKey) -> Option<u64> {
        let is_it = |at: &u64| self.open.get(at).is_some_and(|open| open.is(key));
        self.by_key.find(hash_of(key), is_it).copied()
    }

    /// Notes acknowledgements; those of an unknown checkpoint are late, or repeated.
    pub(super) fn ack(&mut self, key: &CheckpointKey, offsets: &[u64]) {
        if let Some(at) = self.find(key) {
            self.finish(at, offsets);
        }
    }

    /// Messages of a checkpoint are done.
    pub(super) fn finish(&mut self, at: u64, offsets: &[u64]) {
        let Some(open) = self.open.get_mut(&at) else { return };
        open.finish(offsets);
        if open.left == 0 {
            self.close(at);
        }
    }

    /// All of a checkpoint is done.
    pub(super) fn close(&mut self, at: u64) {
        let Some(open) = self.open.remove(&at) else { return };
        if let Ok(entry) = self.by_key.find_entry(open.hash(), |known| *known == at) {
            entry.remove();
        }
        let due_ms = open.due_ms();
        self.change_due(&open.names.group, |due| due.remove(&(due_ms, at)));
    }

    fn change_due(&mut self, group: &Arc<str>, change: impl FnOnce(&mut BTreeSet<(i64, u64)>) -> bool) {
        let due = self.due.entry(Arc::clone(group)).or_default();
        let before = due.first().map(|(due_ms, _)| *due_ms);
        change(due);
        let after = due.first().map(|(due_ms, _)| *due_ms);
        if due.is_empty() {
            self.due.remove(&**group);
        }
        if before != after {
            before.map(|due_ms| self.first_due.remove(&(due_ms, Arc::clone(group))));
            after.map(|due_ms| self.first_due.insert((due_ms, Arc::clone(group))));
        }
    }

    /// The groups with checkpoints that are due by a time.
    pub(super) fn due_groups(&self, by_ms: i64) -> Vec<Arc<str>> {
        let due = self.first_due.iter().take_while(|(due_ms, _)| *due_ms <= by_ms);
        due.map(|(_, group)| Arc::clone(group)).collect()
    }

    /// The first checkpoint of a group that is due by a time, with the offset of its record, and the messages that are left.
    pub(super) fn due(&self, group: &str, by_ms: i64) -> Option<(u64, Checkpoint)> {
        let (due_ms, at) = *self.due.get(group)?.first()?;
        let open = self.open.get(&at).filter(|_| due_ms <= by_ms)?;
        let Names { topic, group, broker } = &*open.names;
        let key = CheckpointKey {
            topic: topic.to_string(),
            group: group.to_string(),
            queue_id: open.queue_id,
            start: open.start,
            pop_ms: open.pop_ms,
            broker: broker.to_string(),
        };
        let offsets = open.left().map(|(_, offset)| offset).collect();
        let (invisible_ms, is_suspended) = (open.invisible_ms, open.is_suspended);
        Some((at, Checkpoint { key, invisible_ms, offsets, is_suspended }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checkpoint(group: u8, start: i64, pop_ms: i64, invisible_ms: i64, offsets: Vec<u64>) -> Checkpoint {
        let key = CheckpointKey {
            topic: "t".into(),
            group: format!("g{group}"),
            queue_id: 0,
            start,
            pop_ms,
            broker: "b".into(),
        };
        Checkpoint { key, invisible_ms, offsets, is_suspended: false }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert { group: u8, start: u8, pop_ms: u8, invisible_ms: u8, differences: BTreeSet<u8> },
        Ack { group: u8, start: u8, pop_ms: u8, differences: BTreeSet<u8> },
        Copy { by_ms: u16, count: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        let differences = || prop::collection::btree_set(0_u8..40, 0..8);
        prop_oneof![
            (0_u8..3, 0_u8..4, 0_u8..4, 0_u8..20, differences()).prop_map(
                |(group, start, pop_ms, invisible_ms, differences)| Step::Insert {
                    group,
                    start,
                    pop_ms,
                    invisible_ms,
                    differences
                }
            ),
            (0_u8..3, 0_u8..4, 0_u8..4, differences()).prop_map(|(group, start, pop_ms, differences)| {
                Step::Ack { group, start, pop_ms, differences }
            }),
            (0_u16..30, 1_usize..4).prop_map(|(by_ms, count)| Step::Copy { by_ms, count }),
        ]
    }

    fn offsets(start: u8, differences: &BTreeSet<u8>) -> Vec<u64> {
        differences.iter().map(|difference| u64::from(start) + u64::from(*difference)).collect()
    }

    /// Offset of the record, due time, and the messages that are left, by key.
    type Model = BTreeMap<(u8, u8, u8), (u64, i64, BTreeSet<u64>)>;

    proptest! {
        #[test]
        fn the_table_is_a_map_of_checkpoints(steps in prop::collection::vec(step(), 0..80)) {
            let (mut pending, mut model) = (Pending::default(), Model::new());
            for (at, step) in steps.into_iter().enumerate() {
                let at = at as u64;
                match step {
                    Step::Insert { group, start, pop_ms, invisible_ms, differences } => {
                        let offsets = offsets(start, &differences);
                        let (pop, invisible) = (i64::from(pop_ms), i64::from(invisible_ms));
                        pending.insert(at, &checkpoint(group, start.into(), pop, invisible, offsets.clone()));
                        model.remove(&(group, start, pop_ms));
                        if !offsets.is_empty() {
                            let left = offsets.into_iter().collect();
                            model.insert((group, start, pop_ms), (at, pop + invisible, left));
                        }
                    }
                    Step::Ack { group, start, pop_ms, differences } => {
                        let offsets = offsets(start, &differences);
                        pending.ack(&checkpoint(group, start.into(), pop_ms.into(), 0, vec![]).key, &offsets);
                        if let Some((_, _, left)) = model.get_mut(&(group, start, pop_ms)) {
                            left.retain(|offset| !offsets.contains(offset));
                        }
                        model.retain(|_, (_, _, left)| !left.is_empty());
                    }
                    Step::Copy { by_ms, count } => {
                        for group in pending.due_groups(by_ms.into()) {
                            let Some((at, found)) = pending.due(&group, by_ms.into()) else {
                                return Err(TestCaseError::fail("a group that is due has a checkpoint"));
                            };
                            let copied: Vec<u64> = found.offsets.iter().take(count).copied().collect();
                            pending.finish(at, &copied);
                            let known = model.values_mut().find(|(known, _, _)| *known == at);
                            let (_, due_ms, left) = known.expect("it is open");
                            prop_assert!(*due_ms <= by_ms.into());
                            prop_assert_eq!(&found.offsets, &left.iter().copied().collect::<Vec<_>>());
                            left.retain(|offset| !copied.contains(offset));
                        }
                        model.retain(|_, (_, _, left)| !left.is_empty());
                    }
                }
                prop_assert_eq!(pending.len(), model.len());
                prop_assert_eq!(pending.by_key.len(), model.len());
                prop_assert_eq!(pending.first(), model.values().map(|(at, _, _)| *at).min());
                prop_assert_eq!(pending.first_due_ms(), model.values().map(|(_, due_ms, _)| *due_ms).min());
                let due: usize = pending.due.values().map(BTreeSet::len).sum();
                prop_assert_eq!(due, model.len());
                prop_assert_eq!(pending.first_due.len(), pending.due.len());
            }
        }
    }

    #[test]
    fn groups_have_their_turn_whatever_one_of_them_has_left() {
        let mut pending = Pending::default();
        for at in 0..100 {
            pending.insert(at, &checkpoint(0, at as i64, 1, 1, vec![at]));
        }
        pending.insert(100, &checkpoint(1, 7, 5, 5, vec![7]));
        assert_eq!(pending.due_groups(10), ["g0".into(), "g1".into()]);
        assert_eq!(pending.due("g1", 10).expect("it is due").0, 100);
        assert_eq!(pending.due_groups(9), ["g0".into()]);
    }
}
