//! Committed consumer offsets: how far each group has confirmed each queue.
//!
//! The data plane owns them; Python takes a snapshot every few seconds and writes the file. A pending reset wins
//! over everything: until the next pull has been told of it, commits are ignored.
//!
//! Threads: any. One lock per shard, held for a map operation; commits come at human speed beside messages.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::admission::{Rejection, unknown_topic};
use super::reply::{self, ErrorReply};
use super::session::Session;
use super::table::Broker;
use crate::positions::QueueOffset;
use crate::remoting::Outbox;
use crate::remoting::codes::response;
use crate::remoting::frame::Encoding;
use crate::remoting::header::Header;

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
pub type Snapshot = BTreeMap<String, Positions>;

impl Offsets {
    fn shard(&self, group: &str) -> &Mutex<Shard> {
        &self.shards[FixedState::default().hash_one(group) as usize % SHARDS]
    }

    /// Commits so far; an equal figure means an equal table.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// Remembers that `group` has consumed `queue_id` of `topic` up to `offset`. Going back is allowed.
    ///
    /// Returns false, and changes nothing, while a reset of this queue is pending.
    pub fn commit(&self, group: &str, topic: &str, queue_id: u32, offset: u64) -> bool {
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
    #[must_use]
    pub fn query(&self, group: &str, topic: &str, queue_id: u32) -> Option<u64> {
        let shard = self.shard(group).lock();
        pending(&shard.resets, group, topic, queue_id)
            .or_else(|| pending(&shard.committed, group, topic, queue_id))
    }

    /// Sends the next pull of this queue to `offset`, and the committed offset with it.
    pub fn reset(&self, group: &str, topic: &str, queue_id: u32, offset: u64) {
        let mut shard = self.shard(group).lock();
        place(&mut shard.committed, group, topic, queue_id, offset);
        place(&mut shard.resets, group, topic, queue_id, offset);
        drop(shard);
        self.commits.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes the pending reset of this queue, if there is one: the pull that asks is told.
    pub fn take_reset(&self, group: &str, topic: &str, queue_id: u32) -> Option<u64> {
        let mut shard = self.shard(group).lock();
        if shard.resets.is_empty() {
            return None;
        }
        shard.resets.get_mut(group)?.get_mut(topic)?.remove(&queue_id)
    }

    /// The whole table with the number of commits it covers at least.
    #[must_use]
    pub fn snapshot(&self) -> (u64, Snapshot) {
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

    /// Replaces the whole table.
    pub fn load(&self, table: Snapshot) {
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

    /// Groups with a commit on `topic`, sorted.
    #[must_use]
    pub fn groups_of(&self, topic: &str) -> Vec<String> {
        let mut groups = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let of_topic = shard.committed.iter().filter(|(_, topics)| topics.contains_key(topic));
            groups.extend(of_topic.map(|(group, _)| group.to_string()));
        }
        groups.sort_unstable();
        groups
    }

    /// Topics with a commit of `group`, sorted.
    #[must_use]
    pub fn topics_of(&self, group: &str) -> Vec<String> {
        let shard = self.shard(group).lock();
        let topics = shard.committed.get(group).into_iter().flat_map(HashMap::keys);
        let mut topics: Vec<String> = topics.map(ToString::to_string).collect();
        topics.sort_unstable();
        topics
    }

    /// Forgets what every group had on `topic`.
    pub fn remove_topic(&self, topic: &str) {
        for shard in &self.shards {
            let shard = &mut *shard.lock();
            for topics in shard.committed.values_mut().chain(shard.resets.values_mut()) {
                topics.remove(topic);
            }
            shard.committed.retain(|_, topics| !topics.is_empty());
        }
        self.commits.fetch_add(1, Ordering::AcqRel);
    }

    /// Forgets everything of `group`.
    pub fn remove_group(&self, group: &str) {
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
    pub fn clamp(&self, topic: &str, queue_id: u32, maximum: u64) -> usize {
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

/// Offset 0 is the answer for a group that is new on a queue as young as this: its first message is still there.
const QUEUE_START: QueueOffset = QueueOffset(0);

impl Broker {
    /// QUERY_CONSUMER_OFFSET. "Not found" is code 22: a zero would send a new group to the beginning.
    pub(super) fn query_offset(
        &self,
        session: &mut Session,
        encoding: Encoding,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let header = &session.header;
        let (group, topic, queue_id) = queue_of(header)?;
        let context = session.context(encoding);
        let committed = queue_id.and_then(|queue_id| self.offsets.query(group, topic, queue_id));
        let is_zero_allowed = header.get("setZeroIfNotFound").is_none_or(|flag| flag != "false");
        let offset = committed.or_else(|| {
            let queue = self.store.queue(topic, queue_id?)?;
            let is_young = is_zero_allowed
                && queue.min() == QUEUE_START
                && self.store.may_be_in_memory(&queue, QUEUE_START);
            is_young.then_some(QUEUE_START.0)
        });
        let Some(offset) = offset else {
            let remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first";
            return Err(ErrorReply::new(response::QUERY_NOT_FOUND, remark).into());
        };
        if !context.is_oneway {
            session.latency.note(context, response::SUCCESS);
            let mut reply = reply::begin(out.bytes(), context, response::SUCCESS, None);
            reply.ext_u64("offset", offset);
            reply::finish(reply, 0);
        }
        Ok(())
    }

    /// UPDATE_CONSUMER_OFFSET. A commit during a pending reset is answered as done, and ignored.
    pub(super) fn update_offset(
        &self,
        session: &mut Session,
        encoding: Encoding,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let header = &session.header;
        let (group, topic, queue_id) = queue_of(header)?;
        if self.metadata.groups.get(group).is_none() {
            let remark = format!("subscription group [{group}] does not exist");
            return Err(ErrorReply::new(response::SUBSCRIPTION_GROUP_NOT_EXIST, remark).into());
        }
        if self.metadata.topics.get(topic).is_none() {
            return Err(unknown_topic(topic).into());
        }
        let offset = header.get("commitOffset").and_then(|text| text.parse().ok());
        let (Some(queue_id), Some(offset)) = (queue_id, offset) else {
            let remark = "queueId and commitOffset must be numbers from 0";
            return Err(ErrorReply::new(response::INVALID_PARAMETER, remark).into());
        };
        self.offsets.commit(group, topic, queue_id, offset);
        let context = session.context(encoding);
        session.latency.note(context, response::SUCCESS);
        reply::write(out.bytes(), context, response::SUCCESS, None, &[]);
        Ok(())
    }
}

fn queue_of(header: &Header) -> Result<(&str, &str, Option<u32>), ErrorReply> {
    let field = |name| {
        header.get(name).ok_or_else(|| {
            ErrorReply::new(response::INVALID_PARAMETER, format!("header field {name} is missing"))
        })
    };
    let queue_id = header.get("queueId").and_then(|text| text.parse().ok());
    Ok((field("consumerGroup")?, field("topic")?, queue_id))
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
