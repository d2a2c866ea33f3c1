//! Committed consumer offsets: the progress of each group in each queue.
//!
//! The table is here; Python takes a snapshot every few seconds and writes the file. A pending reset takes
//! precedence: until a pull was answered with it, commits are ignored.
//!
//! *Invariant*: every offset passes `position`, so that the table is bounded by existing groups and queues, and its
//! file has only numbers that Java reads. Only `load` trusts its caller.
//!
//! The broker's own progress is in a separate table. The file has it under a group's name, as Apache's does,
//! but no commit, reset or removal of a group reaches it.
//!
//! Threads: any. One lock per shard, held for a map operation; commits are rare compared with messages.

use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::metadata::Topic;
use super::orders::Orders;
use super::rejection::ErrorReply;
use crate::message::topic::{REVIVE_GROUP, TRANSACTION_GROUP};
use crate::remoting::codes::response;

const SHARDS: usize = 16;

type Positions = BTreeMap<u32, u64>;
/// group → topic → queue → offset.
type Committed = HashMap<String, HashMap<String, Positions>>;

#[derive(Debug, Default)]
struct Shard {
    /// Next offsets to consume.
    committed: Committed,
    /// Offsets that the next pulls are redirected to.
    resets: Committed,
    /// The number of commits of each group that went back.
    steps_back: HashMap<String, u64>,
}

/// A group's first commit that went back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepBack {
    pub(crate) group: String,
    pub(crate) topic: String,
    pub(crate) queue_id: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// The table of committed offsets.
#[derive(Debug, Default)]
pub struct Offsets {
    shards: [Mutex<Shard>; SHARDS],
    /// The broker's progress in internal queues, under the groups of `is_own`.
    own: Mutex<Committed>,
    commits: AtomicU64,
    /// The number of commits and resets that `position` refused.
    refused: AtomicU64,
    /// Steps back to log, at most one for each group.
    first_steps_back: Mutex<Vec<StepBack>>,
    /// Of groups that pop in order.
    pub(crate) orders: Orders,
}

/// `topic@group` → queue id → offset, as in the file.
pub(crate) type Snapshot = BTreeMap<String, Positions>;

impl Offsets {
    fn shard(&self, group: &str) -> &Mutex<Shard> {
        &self.shards[FixedState::default().hash_one(group) as usize % SHARDS]
    }

    /// Returns the number of commits so far. An equal number means an equal table.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// Returns the number of commits and resets refused so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Checks that consumers of `topic` may read the queue and that the offset is valid, and converts both.
    fn position(&self, topic: &Topic, queue_id: i64, offset: i64) -> Result<(u32, u64), ErrorReply> {
        let known = u32::try_from(queue_id).ok().filter(|queue_id| *queue_id < topic.read_queues);
        if let (Some(queue_id), Ok(offset)) = (known, u64::try_from(offset)) {
            return Ok((queue_id, offset));
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        let remark = format!(
            "queueId[{queue_id}] or commitOffset[{offset}] is illegal, topic:[{}] topicConfig.readQueueNums:[{}]",
            topic.name, topic.read_queues
        );
        Err(ErrorReply::new(response::INVALID_PARAMETER, remark))
    }

    /// Sets the committed offset of `group` in a queue of `topic`. Going back is allowed and counted.
    ///
    /// Does nothing while a reset of this queue is pending.
    ///
    /// # Errors
    /// 29 for a queue that consumers cannot read or an invalid offset, 16 for the broker's own progress.
    pub(crate) fn commit(
        &self,
        group: &str,
        topic: &Topic,
        queue_id: i64,
        offset: i64,
    ) -> Result<(), ErrorReply> {
        let (queue_id, offset) = self.position(topic, queue_id, offset)?;
        self.check_is_a_clients(group)?;
        let mut shard = self.shard(group).lock();
        if pending(&shard.resets, group, &topic.name, queue_id).is_some() {
            return Ok(());
        }
        let before = place(&mut shard.committed, group, &topic.name, queue_id, offset);
        let went_back = before.filter(|before| offset < *before);
        let is_first = went_back.is_some() && {
            let steps = shard.steps_back.entry_ref(group).or_default();
            *steps += 1;
            *steps == 1
        };
        drop(shard);
        self.commits.fetch_add(1, Ordering::AcqRel);
        if let (true, Some(from)) = (is_first, went_back) {
            let (group, topic) = (group.to_owned(), topic.name.to_string());
            self.first_steps_back.lock().push(StepBack { group, topic, queue_id, from, to: offset });
        }
        Ok(())
    }

    fn check_is_a_clients(&self, group: &str) -> Result<(), ErrorReply> {
        if !is_own(group) {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        let remark = format!("the progress of group [{group}] is the broker's own and cannot be set");
        Err(ErrorReply::new(response::NO_PERMISSION, remark))
    }

    /// Sets the broker's own progress in an internal queue, under an internal group.
    ///
    /// # Errors
    /// 29 as `commit`.
    pub(crate) fn save_own(
        &self,
        group: &str,
        topic: &Topic,
        queue_id: i64,
        offset: i64,
    ) -> Result<(), ErrorReply> {
        let (queue_id, offset) = self.position(topic, queue_id, offset)?;
        place(&mut self.own.lock(), group, &topic.name, queue_id, offset);
        self.commits.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Sets the progress of `group` copied from another broker: that of clients, or the broker's own.
    ///
    /// # Errors
    /// 29 as `commit`.
    pub(crate) fn take_over(
        &self,
        group: &str,
        topic: &Topic,
        queue_id: i64,
        offset: i64,
    ) -> Result<(), ErrorReply> {
        if is_own(group) {
            return self.save_own(group, topic, queue_id, offset);
        }
        self.commit(group, topic, queue_id, offset)
    }

    /// Returns the number of steps back of each group that has any.
    pub(crate) fn steps_back(&self) -> BTreeMap<String, u64> {
        let mut steps = BTreeMap::new();
        for shard in &self.shards {
            steps.extend(shard.lock().steps_back.iter().map(|(group, steps)| (group.clone(), *steps)));
        }
        steps
    }

    /// Takes the first step back of each group that has had its first since the last call.
    pub(crate) fn take_first_steps_back(&self) -> Vec<StepBack> {
        std::mem::take(&mut *self.first_steps_back.lock())
    }

    /// Returns the committed offset, or the target of a pending reset.
    pub(crate) fn query(&self, group: &str, topic: &str, queue_id: u32) -> Option<u64> {
        if is_own(group) {
            return pending(&self.own.lock(), group, topic, queue_id);
        }
        let shard = self.shard(group).lock();
        pending(&shard.resets, group, topic, queue_id)
            .or_else(|| pending(&shard.committed, group, topic, queue_id))
    }

    /// Redirects the next pull of this queue to `offset`, and sets the committed offset.
    ///
    /// # Errors
    /// As `commit`.
    pub(crate) fn reset(
        &self,
        group: &str,
        topic: &Topic,
        queue_id: i64,
        offset: i64,
    ) -> Result<(), ErrorReply> {
        let (queue_id, offset) = self.position(topic, queue_id, offset)?;
        self.check_is_a_clients(group)?;
        let mut shard = self.shard(group).lock();
        place(&mut shard.committed, group, &topic.name, queue_id, offset);
        place(&mut shard.resets, group, &topic.name, queue_id, offset);
        drop(shard);
        self.commits.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Takes the pending reset of this queue for the pull that is answered with it.
    pub(in crate::dataplane) fn take_reset(&self, group: &str, topic: &str, queue_id: u32) -> Option<u64> {
        let mut shard = self.shard(group).lock();
        if shard.resets.is_empty() {
            return None;
        }
        let topics = shard.resets.get_mut(group)?;
        let target = topics.get_mut(topic)?.remove(&queue_id);
        topics.retain(|_, positions| !positions.is_empty());
        if topics.is_empty() {
            shard.resets.remove(group);
        }
        target
    }

    /// Returns the number of topics with progress, of all groups.
    pub(crate) fn size(&self) -> usize {
        let of_shard =
            |shard: &Mutex<Shard>| shard.lock().committed.values().map(HashMap::len).sum::<usize>();
        self.shards.iter().map(of_shard).sum()
    }

    /// Returns the whole table, and a number of commits that it includes at least.
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
        for (group, topics) in &*self.own.lock() {
            for (topic, positions) in topics {
                table.insert(format!("{topic}@{group}"), positions.clone());
            }
        }
        (commits, table)
    }

    pub(crate) fn load(&self, table: Snapshot) {
        for shard in &self.shards {
            *shard.lock() = Shard::default();
        }
        self.own.lock().clear();
        for (key, positions) in table {
            // Split at the first `@`: a topic cannot contain one, and `topic@group@broadcast` keeps its tail.
            let Some((topic, group)) = key.split_once('@') else { continue };
            if is_own(group) {
                self.own.lock().entry_ref(group).or_default().insert(topic.into(), positions);
                continue;
            }
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
        let own = self.own.lock();
        groups.extend(
            own.iter().filter(|(_, topics)| topics.contains_key(topic)).map(|(group, _)| group.clone()),
        );
        drop(own);
        groups.sort_unstable();
        groups
    }

    pub(crate) fn topics_of(&self, group: &str) -> Vec<String> {
        let mut topics: Vec<String> = if is_own(group) {
            self.own.lock().get(group).into_iter().flat_map(HashMap::keys).cloned().collect()
        } else {
            let shard = self.shard(group).lock();
            shard.committed.get(group).into_iter().flat_map(HashMap::keys).cloned().collect()
        };
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
            shard.resets.retain(|_, topics| !topics.is_empty());
        }
        self.own.lock().values_mut().for_each(|topics| drop(topics.remove(topic)));
        self.orders.remove_topic(topic);
        self.commits.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes all commits in many topics, in one pass.
    pub(crate) fn remove_topics(&self, gone: &HashSet<String>) {
        for shard in &self.shards {
            let shard = &mut *shard.lock();
            for topics in shard.committed.values_mut().chain(shard.resets.values_mut()) {
                topics.retain(|topic, _| !gone.contains(topic));
            }
            shard.committed.retain(|_, topics| !topics.is_empty());
            shard.resets.retain(|_, topics| !topics.is_empty());
        }
        self.orders.remove_topics(gone);
        self.commits.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove_group(&self, group: &str) {
        let mut shard = self.shard(group).lock();
        shard.committed.remove(group);
        shard.resets.remove(group);
        shard.steps_back.remove(group);
        drop(shard);
        self.orders.remove_group(group);
        self.commits.fetch_add(1, Ordering::AcqRel);
    }
}

/// Returns whether the broker saves its own progress under this group.
fn is_own(group: &str) -> bool {
    group == TRANSACTION_GROUP || group == REVIVE_GROUP
}

fn pending(table: &Committed, group: &str, topic: &str, queue_id: u32) -> Option<u64> {
    table.get(group)?.get(topic)?.get(&queue_id).copied()
}

/// Sets an offset and returns the previous one.
fn place(table: &mut Committed, group: &str, topic: &str, queue_id: u32, offset: u64) -> Option<u64> {
    table.entry_ref(group).or_default().entry_ref(topic).or_default().insert(queue_id, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> Topic {
        Topic::new(name, 8, 8, 6)
    }

    #[test]
    fn a_pending_reset_takes_precedence_over_commits_until_a_pull_returns_it() -> Result<(), ErrorReply> {
        let (offsets, orders) = (Offsets::default(), topic("orders"));
        offsets.commit("billing", &orders, 0, 10)?;
        offsets.reset("billing", &orders, 0, 3)?;
        offsets.commit("billing", &orders, 0, 11)?;
        assert_eq!(offsets.query("billing", "orders", 0), Some(3));
        assert_eq!(offsets.take_reset("billing", "orders", 0), Some(3));
        assert_eq!(offsets.take_reset("billing", "orders", 0), None);
        offsets.commit("billing", &orders, 0, 4)?;
        assert_eq!(offsets.query("billing", "orders", 0), Some(4));
        Ok(())
    }

    #[test]
    fn a_snapshot_loads_back_equal() -> Result<(), ErrorReply> {
        let (offsets, orders) = (Offsets::default(), topic("orders"));
        offsets.commit("billing", &orders, 0, 250)?;
        offsets.commit("billing", &orders, 1, 243)?;
        offsets.commit("audit@broadcast", &orders, 7, 1)?;
        let (_, table) = offsets.snapshot();
        assert_eq!(table.keys().collect::<Vec<_>>(), ["orders@audit@broadcast", "orders@billing"]);
        let again = Offsets::default();
        again.load(table.clone());
        assert_eq!(again.snapshot().1, table);
        Ok(())
    }

    #[test]
    fn only_readable_queues_and_valid_offsets_are_committed() {
        let (offsets, orders) = (Offsets::default(), Topic::new("orders", 4, 8, 6));
        for (queue_id, offset) in [(4, 0), (-1, 0), (1 << 32, 0), (0, -1)] {
            for refused in [
                offsets.commit("g", &orders, queue_id, offset),
                offsets.reset("g", &orders, queue_id, offset),
            ] {
                assert_eq!(refused.map_err(|reply| reply.code), Err(response::INVALID_PARAMETER));
            }
        }
        assert_eq!((offsets.refused(), offsets.snapshot()), (8, (0, Snapshot::new())));
        assert_eq!(offsets.commit("g", &orders, 3, i64::MAX), Ok(()));
        assert_eq!(offsets.query("g", "orders", 3), Some(i64::MAX as u64));
    }

    #[test]
    fn steps_back_are_counted_and_the_first_of_each_group_is_reported() -> Result<(), ErrorReply> {
        let (offsets, orders) = (Offsets::default(), topic("orders"));
        for offset in [7, 7, 9, 3, 1] {
            offsets.commit("billing", &orders, 2, offset)?;
        }
        let (group, topic) = ("billing".to_owned(), "orders".to_owned());
        assert_eq!(offsets.take_first_steps_back(), [StepBack { group, topic, queue_id: 2, from: 9, to: 3 }]);
        offsets.commit("billing", &orders, 2, 0)?;
        assert_eq!(offsets.take_first_steps_back(), []);
        assert_eq!(offsets.steps_back(), BTreeMap::from([("billing".to_owned(), 3)]));
        Ok(())
    }

    #[test]
    fn no_client_reaches_the_brokers_own_progress() -> Result<(), ErrorReply> {
        let (offsets, halves) = (Offsets::default(), topic("RMQ_SYS_TRANS_HALF_TOPIC"));
        offsets.save_own(TRANSACTION_GROUP, &halves, 0, 5)?;
        for refused in [
            offsets.commit(TRANSACTION_GROUP, &halves, 0, 9),
            offsets.reset(TRANSACTION_GROUP, &halves, 0, 9),
        ] {
            assert_eq!(refused.map_err(|reply| reply.code), Err(response::NO_PERMISSION));
        }
        offsets.remove_group(TRANSACTION_GROUP);
        assert_eq!(offsets.take_reset(TRANSACTION_GROUP, &halves.name, 0), None);
        assert_eq!(offsets.query(TRANSACTION_GROUP, &halves.name, 0), Some(5));
        // The file has it nevertheless and restores it.
        let (_, table) = offsets.snapshot();
        assert_eq!(table.keys().collect::<Vec<_>>(), ["RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS"]);
        let again = Offsets::default();
        again.load(table);
        assert_eq!(again.query(TRANSACTION_GROUP, &halves.name, 0), Some(5));
        Ok(())
    }

    #[test]
    fn removing_a_topic_leaves_other_topics_of_the_group() -> Result<(), ErrorReply> {
        let offsets = Offsets::default();
        offsets.commit("billing", &topic("orders"), 0, 1)?;
        offsets.commit("billing", &topic("invoices"), 0, 2)?;
        offsets.remove_topic("orders");
        assert_eq!(offsets.topics_of("billing"), ["invoices"]);
        assert!(offsets.groups_of("orders").is_empty());
        Ok(())
    }
}
