//! Metadata: the control plane as the data plane sees it, with topics, groups, subscriptions, the broker's own settings.
//!
//! Python publishes, connections read. Each map is cut into shards that are swapped whole, so that a change
//! copies one shard and a reader never waits. A value handed out stays valid for the request that holds it; the
//! next request sees the new one.
//!
//! Threads: readers on any I/O thread without a lock; writers from Python, one at a time per map.

use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use arc_swap::ArcSwap;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::message::tag::TagFilter;
use crate::store::{ConsumeQueue, Store, StoreError};

pub(crate) const PERMISSION_READ: u8 = 4;
pub(crate) const PERMISSION_WRITE: u8 = 2;

/// 64 shards: with 10,000 topics a change copies some 160 entries.
const SHARDS: usize = 64;

type Shard<V> = HashMap<Arc<str>, Arc<V>, FixedState>;

/// A map from names to values that are replaced, never changed in place.
#[derive(Debug)]
pub struct Table<V> {
    shards: Box<[ArcSwap<Shard<V>>]>,
    writer: Mutex<()>,
}

impl<V> Table<V> {
    fn new() -> Self {
        let shards = (0..SHARDS).map(|_| ArcSwap::from_pointee(Shard::default())).collect();
        Self { shards, writer: Mutex::new(()) }
    }

    fn shard(&self, name: &str) -> &ArcSwap<Shard<V>> {
        &self.shards[FixedState::default().hash_one(name) as usize % SHARDS]
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<V>> {
        self.shard(name).load().get(name).cloned()
    }

    /// Puts `value` under `name`, or takes the name away.
    pub fn set(&self, name: &str, value: Option<V>) {
        let _writer = self.writer.lock();
        let shard = self.shard(name);
        let mut next = Shard::clone(&shard.load());
        match value {
            Some(value) => drop(next.insert(name.into(), Arc::new(value))),
            None => drop(next.remove(name)),
        }
        shard.store(Arc::new(next));
    }
}

/// A topic as the data plane sees it.
#[derive(Debug)]
pub struct Topic {
    pub(super) name: Arc<str>,
    /// Queues that consumers may read: ids below this count.
    pub(super) read_queues: u32,
    /// Queues that producers without a wish are spread over.
    pub(super) write_queues: u32,
    pub(super) permission: u8,
    /// Unit flags, echoed to consumers.
    pub(crate) sys_flag: i32,
    /// Whether producers keep to a configured order of queues.
    pub(crate) is_ordered: bool,
    /// Whether records are marked as having several tags.
    pub(crate) is_multi_tag: bool,
    queues: Box<[OnceLock<Arc<ConsumeQueue>>]>,
}

impl Topic {
    /// A topic with the given settings and no queue touched yet.
    #[must_use]
    pub fn new(name: &str, read_queues: u32, write_queues: u32, permission: u8) -> Self {
        let count = read_queues.max(write_queues) as usize;
        Self {
            name: name.into(),
            read_queues,
            write_queues,
            permission,
            sys_flag: 0,
            is_ordered: false,
            is_multi_tag: false,
            queues: (0..count).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Ids below this exist, whether for reading or for writing.
    pub(super) fn queue_count(&self) -> u32 {
        self.read_queues.max(self.write_queues)
    }

    /// The queue `queue_id`, made on first use and remembered: later uses cost one load. Admission has checked the
    /// id against the queues of this very topic.
    pub(super) fn queue(&self, store: &Store, queue_id: u32) -> Result<Arc<ConsumeQueue>, StoreError> {
        let cell = self.queues.get(queue_id as usize);
        if let Some(queue) = cell.and_then(OnceLock::get) {
            return Ok(Arc::clone(queue));
        }
        let queue = store.queue_or_create(&self.name, queue_id)?;
        Ok(match cell {
            Some(cell) => Arc::clone(cell.get_or_init(|| queue)),
            None => queue,
        })
    }
}

/// A subscription group as the data plane sees it.
#[derive(Debug, Clone)]
pub struct Group {
    pub(crate) is_consume_enabled: bool,
    pub(crate) is_broadcast_enabled: bool,
    /// Deliveries after which a message goes to the dead-letter queue.
    pub(crate) retry_max: i32,
    /// Queues of its retry topic; with none, messages that were returned are dropped.
    pub(crate) retry_queues: u32,
    /// Echoed to consumers.
    pub(crate) sys_flag: i32,
    /// Broker id that members should pull from.
    pub(crate) broker_id: u64,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            is_consume_enabled: true,
            is_broadcast_enabled: true,
            retry_max: 16,
            retry_queues: 1,
            sys_flag: 0,
            broker_id: 0,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Subscription {
    /// Grows when a member changes its mind; a pull that knows a newer one must wait for the heartbeat.
    pub(crate) version: i64,
    /// What to let through; `None` when the expression is of a kind that is not served.
    pub(crate) filter: Option<Arc<TagFilter>>,
}

/// What the registered members of one group consume.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    pub(crate) is_broadcast: bool,
    pub(crate) by_topic: HashMap<Box<str>, Subscription>,
}

/// The broker's own settings, fixed for the life of the process.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Cluster name, stored with each message.
    pub cluster: String,
    /// Address written into records and message ids.
    pub store_host: SocketAddr,
    /// Region id, stored with each message and sent with each reply.
    pub region: String,
    /// Whether clients should trace, likewise.
    pub is_trace_on: bool,
    /// Largest body accepted, in bytes.
    pub message_bytes_max: usize,
    /// Most messages in one pull answer, whatever the client asks.
    pub pull_messages_max: u32,
    /// Most bytes in one pull answer, whatever the client asks.
    pub pull_bytes_max: usize,
    /// Whether a pull that finds nothing may wait as long as the client says.
    pub is_long_polling: bool,
    /// How long it waits otherwise.
    pub short_polling_ms: u64,
    /// Whether a send to an unknown topic may make it.
    pub is_auto_create_topics: bool,
}

/// Everything that comes down from the control plane.
#[derive(Debug)]
pub struct Metadata {
    pub(super) identity: Identity,
    /// Topics by name.
    pub topics: Table<Topic>,
    /// Subscription groups by name.
    pub groups: Table<Group>,
    /// Subscriptions of groups with live members, by group.
    pub(crate) subscriptions: Table<Subscriptions>,
    /// `group\u{0}topic` pairs that may not consume.
    pub(super) forbidden: Table<()>,
    /// Groups that consume in order now: a member holds the lock of some queue. What they send to their retry topic
    /// has been tried often enough already, and goes to the dead letters.
    pub(crate) in_order: Table<()>,
    permission: AtomicU8,
}

impl Metadata {
    /// Nothing but the broker itself.
    #[must_use]
    pub fn new(identity: Identity, permission: u8) -> Self {
        Self {
            identity,
            topics: Table::new(),
            groups: Table::new(),
            subscriptions: Table::new(),
            forbidden: Table::new(),
            in_order: Table::new(),
            permission: AtomicU8::new(permission),
        }
    }

    pub(super) fn permission(&self) -> u8 {
        self.permission.load(Ordering::Acquire)
    }

    pub(crate) fn set_permission(&self, permission: u8) {
        self.permission.store(permission, Ordering::Release);
    }

    pub(super) fn is_forbidden(&self, group: &str, topic: &str) -> bool {
        self.forbidden.get(&forbidden_key(group, topic)).is_some()
    }

    /// Forbids `group` to consume `topic`, or lets it again.
    pub(crate) fn forbid(&self, group: &str, topic: &str, is_forbidden: bool) {
        self.forbidden.set(&forbidden_key(group, topic), is_forbidden.then_some(()));
    }
}

/// NUL is in no valid name, so two pairs never share a key.
fn forbidden_key(group: &str, topic: &str) -> String {
    format!("{group}\u{0}{topic}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_keeps_the_value_it_holds_while_the_table_moves_on() {
        let table = Table::new();
        table.set("orders", Some(1));
        let held = table.get("orders");
        table.set("orders", Some(2));
        assert_eq!(held.as_deref(), Some(&1));
        assert_eq!(table.get("orders").as_deref(), Some(&2));
        table.set("orders", None);
        assert_eq!(table.get("orders"), None);
    }
}
