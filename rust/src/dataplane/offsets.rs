//! Committed consumer offsets: how far each group has confirmed each queue.
//!
//! The data plane owns them; Python takes a snapshot every few seconds and writes the file. A pending reset wins
//! over everything: until the next pull has been answered with it, commits are ignored.
//!
//! Threads: any. One lock per shard, held for a map operation; commits come at human speed beside messages.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;

const SHARDS: usize = 16;

type Positions = BTreeMap<u32, u64>;
/// group → topic → queue → offset.
type Committed = HashMap<String, HashMap<String, Positions>>;

#[derive(Debug, Default)]
struct Shard {
    /// The next offset to consume.
    committed: Committed,
    /// What the next pull shall be sent to.
    resets: Committed,
}

/// The table of committed offsets.
#[derive(Debug, Default)]
pub struct Offsets {
    shards: [Mutex<Shard>; SHARDS],
    commits: AtomicU64,
}

/// `topic@group` → queue id → offset, as the file has it.
pub(crate) type Snapshot = BTreeMap<String, Positions>;

impl Offsets {
    fn shard(&self, group: &str) -> &Mutex<Shard> {
        &self.shards[FixedState::default().hash_one(group) as usize % SHARDS]
    }

    /// Commits so far; an equal number means an equal table.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// Remembers that `group` has consumed `queue_id` of `topic` up to `offset`. Going back is allowed.
    ///
    /// Returns false, and changes nothing, while a reset of this queue is pending.
    pub(crate) fn commit(&self, group: &str, topic: &str, queue_id: u32, offset: u64) -> bool {
        let mut shard = self.shard(group).lock();
        if pending(&shard.resets, group, topic, queue_id).is_some() {
            return false;
        }
        place(&mut shard.committed, group, topic, queue_id, offset);
        drop(shard);
        self.commits.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// The committed offset, or the target of a pending reset.
    pub(crate) fn query(&self, group: &str, topic: &str, queue_id: u32) -> Option<u64> {
        let shard = self.shard(group).lock();
        pending(&shard.resets, group, topic, queue_id)
            .or_else(|| pending(&shard.committed, group, topic, queue_id))
    }

    /// Sends the next pull of this queue to `offset`, and the committed offset with it.
    pub(crate) fn reset(&self, group: &str, topic: &str, queue_id: u32, offset: u64) {
        let mut shard = self.shard(group).lock();
        place(&mut shard.committed, group, topic, queue_id, offset);
        place(&mut shard.resets, group, topic, queue_id, offset);
        drop(shard);
        self.commits.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes the pending reset of this queue, if there is one, for the pull that is answered with it.
    pub(super) fn take_reset(&self, group: &str, topic: &str, queue_id: u32) -> Option<u64> {
        let mut shard = self.shard(group).lock();
        if shard.resets.is_empty() {
            return None;
        }
        shard.resets.get_mut(group)?.get_mut(topic)?.remove(&queue_id)
    }

    /// The whole table with the number of commits it covers at least.
    pub(crate) fn snapshot(&self) -> (u64, Snapshot) {
        let commits = self.commits();
        let mut table = Snapshot::new();
        for shard in &self.shards {
            for (group, topics) in &shard.lock().committed {
                for (topic, positions) in topics {
                    table.insert(format!("{topic}@{group}"), positions.clone());
                }
            }
        }
        (commits, table)
    }

    pub(crate) fn load(&self, table: Snapshot) {
        for shard in &self.shards {
            *shard.lock() = Shard::default();
        }
        for (key, positions) in table {
            // The first `@` parts them: a topic cannot contain one, and `topic@group@broadcast` keeps its tail.
            let Some((topic, group)) = key.split_once('@') else { continue };
            let mut shard = self.shard(group).lock();
            shard.committed.entry_ref(group).or_default().insert(topic.into(), positions);
        }
    }

    pub(crate) fn groups_of(&self, topic: &str) -> Vec<String> {
        let mut groups = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let of_topic = shard.committed.iter().filter(|(_, topics)| topics.contains_key(topic));
            groups.extend(of_topic.map(|(group, _)| group.to_string()));
        }
        groups.sort_unstable();
        groups
    }

    pub(crate) fn topics_of(&self, group: &str) -> Vec<String> {
        let shard = self.shard(group).lock();
        let topics = shard.committed.get(group).into_iter().flat_map(HashMap::keys);
        let mut topics: Vec<String> = topics.map(ToString::to_string).collect();
        topics.sort_unstable();
        topics
    }

    pub(crate) fn remove_topic(&self, topic: &str) {
        for shard in &self.shards {
            let shard = &mut *shard.lock();
            for topics in shard.committed.values_mut().chain(shard.resets.values_mut()) {
                topics.remove(topic);
            }
            shard.committed.retain(|_, topics| !topics.is_empty());
        }
        self.commits.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove_group(&self, group: &str) {
        let mut shard = self.shard(group).lock();
        shard.committed.remove(group);
        shard.resets.remove(group);
        drop(shard);
        self.commits.fetch_add(1, Ordering::AcqRel);
    }

    /// Lowers each commit on this queue that is beyond `maximum`; how many there were.
    ///
    /// After a loss of the log's tail the queue ends earlier than its consumers remember; new messages would be
    /// skipped by them for ever.
    pub(crate) fn clamp(&self, topic: &str, queue_id: u32, maximum: u64) -> usize {
        let mut lowered = 0;
        for shard in &self.shards {
            for topics in shard.lock().committed.values_mut() {
                let Some(offset) = topics.get_mut(topic).and_then(|queues| queues.get_mut(&queue_id)) else {
                    continue;
                };
                if *offset > maximum {
                    *offset = maximum;
                    lowered += 1;
                }
            }
        }
        self.commits.fetch_add(lowered as u64, Ordering::AcqRel);
        lowered
    }
}

fn pending(table: &Committed, group: &str, topic: &str, queue_id: u32) -> Option<u64> {
    table.get(group)?.get(topic)?.get(&queue_id).copied()
}

fn place(table: &mut Committed, group: &str, topic: &str, queue_id: u32, offset: u64) {
    table.entry_ref(group).or_default().entry_ref(topic).or_default().insert(queue_id, offset);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_reset_wins_over_commits_until_a_pull_was_told() {
        let offsets = Offsets::default();
        assert!(offsets.commit("billing", "orders", 0, 10));
        offsets.reset("billing", "orders", 0, 3);
        assert!(!offsets.commit("billing", "orders", 0, 11));
        assert_eq!(offsets.query("billing", "orders", 0), Some(3));
        assert_eq!(offsets.take_reset("billing", "orders", 0), Some(3));
        assert_eq!(offsets.take_reset("billing", "orders", 0), None);
        assert!(offsets.commit("billing", "orders", 0, 4));
        assert_eq!(offsets.query("billing", "orders", 0), Some(4));
    }

    #[test]
    fn a_snapshot_loads_back_equal() {
        let offsets = Offsets::default();
        offsets.commit("billing", "orders", 0, 250);
        offsets.commit("billing", "orders", 1, 243);
        offsets.commit("audit@broadcast", "orders", 7, 1);
        let (_, table) = offsets.snapshot();
        assert_eq!(table.keys().collect::<Vec<_>>(), ["orders@audit@broadcast", "orders@billing"]);
        let again = Offsets::default();
        again.load(table.clone());
        assert_eq!(again.snapshot().1, table);
    }

    #[test]
    fn commits_beyond_the_end_of_a_queue_are_lowered() {
        let offsets = Offsets::default();
        offsets.commit("a", "orders", 0, 250);
        offsets.commit("b", "orders", 0, 100);
        assert_eq!(offsets.clamp("orders", 0, 120), 1);
        assert_eq!(offsets.query("a", "orders", 0), Some(120));
        assert_eq!(offsets.query("b", "orders", 0), Some(100));
    }

    #[test]
    fn removing_a_topic_leaves_other_topics_of_the_group() {
        let offsets = Offsets::default();
        offsets.commit("billing", "orders", 0, 1);
        offsets.commit("billing", "invoices", 0, 2);
        offsets.remove_topic("orders");
        assert_eq!(offsets.topics_of("billing"), ["invoices"]);
        assert!(offsets.groups_of("orders").is_empty());
    }
}
