//! Metadata: the control plane as the data plane sees it, with topics, groups, subscriptions, the broker's own settings.
//!
//! Python publishes, connections read. Each map is cut into shards that are swapped whole, so that a change
//! copies one shard and a reader never waits. A value handed out stays valid for the request that holds it; the
//! next request sees the new one.
//!
//! Threads: readers on any I/O thread without a lock; writers from Python, one at a time per map.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};

use arc_swap::ArcSwap;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::filter::{Filter, SharedFilters, SqlSupport, UnservedFilter};
use super::role::{CopyRules, Role, SlaveReads};
use crate::message::MessageType;
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

    pub(crate) fn get(&self, name: &str) -> Option<Arc<V>> {
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
    /// What its messages are, where it was said and is one type.
    pub(crate) message_type: Option<MessageType>,
    queues: Box<[OnceLock<Arc<ConsumeQueue>>]>,
    /// Whether it was deleted while a request still holds it; one with its replacements.
    is_deleted: Arc<AtomicBool>,
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
            message_type: None,
            queues: (0..count).map(|_| OnceLock::new()).collect(),
            is_deleted: Arc::default(),
        }
    }

    /// Ids below this exist, whether for reading or for writing.
    pub(super) fn queue_count(&self) -> u32 {
        self.read_queues.max(self.write_queues)
    }

    /// The queue `queue_id`, made on first use and remembered: later uses cost one load. Admission has checked the
    /// id against the queues of this very topic. None is made once the topic is deleted.
    pub(super) fn queue(&self, store: &Store, queue_id: u32) -> Result<Arc<ConsumeQueue>, StoreError> {
        let cell = self.queues.get(queue_id as usize);
        if let Some(queue) = cell.and_then(OnceLock::get) {
            return Ok(Arc::clone(queue));
        }
        let is_gone = || self.is_deleted.load(Ordering::Acquire);
        let queue = store.queue_unless(&self.name, queue_id, is_gone)?;
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
    /// The same of those that are far behind.
    pub(crate) slow_broker_id: u64,
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
            slow_broker_id: 1,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Subscription {
    /// Grows when a member changes its mind; a pull that knows a newer one must wait for the heartbeat.
    pub(crate) version: i64,
    /// What to let through, if that is served.
    pub(crate) filter: Result<Arc<Filter>, UnservedFilter>,
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
    /// Name of the broker, which recall handles carry.
    pub broker: String,
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
    /// Topics and groups that the requests of one connection may make in a minute.
    pub creations_per_minute: u32,
    /// Whether SQL92 subscriptions are served.
    pub sql: SqlSupport,
    /// Which timed messages may be taken back.
    pub recall: RecallOptions,
    /// What consumers get from slaves.
    pub slave_reads: SlaveReads,
    /// What replies wait for.
    pub copies: CopyRules,
}

/// Taking timed messages back.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecallOptions {
    /// Whether it is served at all.
    pub is_served: bool,
    /// Whether also by a broker that takes no messages.
    pub is_served_unwritable: bool,
    /// Whether a recall names topic and key of the message, as brokers up to 5.3 look for it, and not the key
    /// alone.
    pub is_topic_in_key: bool,
}

/// Everything that comes down from the control plane.
#[derive(Debug)]
pub struct Metadata {
    pub(super) identity: Identity,
    /// Topics by name.
    pub(crate) topics: Table<Topic>,
    /// Subscription groups by name.
    pub groups: Table<Group>,
    /// Subscriptions of groups with live members, by group.
    pub(crate) subscriptions: Table<Subscriptions>,
    /// Topics that a group may not consume, by group.
    pub(super) forbidden: Table<HashSet<Box<str>>>,
    /// Groups that consume in order now: a member holds the lock of some queue. What they send to their retry topic
    /// has been tried often enough already, and goes to the dead letters.
    pub(crate) in_order: Table<()>,
    permission: AtomicU8,
    rejects_transactions: AtomicBool,
    transaction_timeout_ms: AtomicI64,
    checks_message_types: AtomicBool,
    role: AtomicU8,
    filters: SharedFilters,
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
            rejects_transactions: AtomicBool::new(false),
            transaction_timeout_ms: AtomicI64::new(0),
            checks_message_types: AtomicBool::new(false),
            role: AtomicU8::new(Role::Master as u8),
            filters: SharedFilters::default(),
        }
    }

    /// Puts a topic into the table, or takes its name away. Take it away before its queues are removed from the store.
    pub fn set_topic(&self, name: &str, topic: Option<Topic>) {
        let known = self.topics.get(name);
        match (topic, known) {
            (Some(topic), Some(known)) => {
                let is_deleted = Arc::clone(&known.is_deleted);
                self.topics.set(name, Some(Topic { is_deleted, ..topic }));
            }
            (None, Some(known)) => {
                self.topics.set(name, None);
                known.is_deleted.store(true, Ordering::Release);
            }
            (topic, None) => self.topics.set(name, topic),
        }
    }

    /// The filter of a subscription.
    pub(crate) fn filter(
        &self,
        expression_type: &str,
        expression: &str,
    ) -> Result<Arc<Filter>, UnservedFilter> {
        self.filters.parse(self.identity.sql, expression_type, expression)
    }

    pub(super) fn permission(&self) -> u8 {
        self.permission.load(Ordering::Acquire)
    }

    pub(crate) fn set_permission(&self, permission: u8) {
        self.permission.store(permission, Ordering::Release);
    }

    pub(super) fn rejects_transactions(&self) -> bool {
        self.rejects_transactions.load(Ordering::Relaxed)
    }

    /// How long a producer has to decide before it may be asked.
    pub(super) fn transaction_timeout_ms(&self) -> i64 {
        self.transaction_timeout_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn set_transactions(&self, rejects: bool, timeout_ms: i64) {
        self.rejects_transactions.store(rejects, Ordering::Relaxed);
        self.transaction_timeout_ms.store(timeout_ms, Ordering::Relaxed);
    }

    /// Whether topics take messages of their own type alone.
    pub(super) fn checks_message_types(&self) -> bool {
        self.checks_message_types.load(Ordering::Relaxed)
    }

    pub(crate) fn set_message_type_check(&self, is_on: bool) {
        self.checks_message_types.store(is_on, Ordering::Relaxed);
    }

    /// What the broker is to the others of its name.
    pub(super) fn role(&self) -> Role {
        Role::of(self.role.load(Ordering::Acquire))
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.role.store(role as u8, Ordering::Release);
    }

    pub(super) fn is_forbidden(&self, group: &str, topic: &str) -> bool {
        self.forbidden.get(group).is_some_and(|topics| topics.contains(topic))
    }

    /// Forbids `group` to consume `topic`, or lets it again.
    pub(crate) fn forbid(&self, group: &str, topic: &str, is_forbidden: bool) {
        let mut topics = self.forbidden.get(group).as_deref().cloned().unwrap_or_default();
        if is_forbidden {
            topics.insert(topic.into());
        } else {
            topics.remove(topic);
        }
        self.forbidden.set(group, (!topics.is_empty()).then_some(topics));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::store::disk::simulated::SimDisk;
    use crate::store::{Options, RecoveryProgress};

    #[test]
    fn a_request_on_its_way_does_not_make_a_queue_of_a_deleted_topic() {
        let options = Options {
            segment_bytes: 1 << 20,
            threads: false,
            index_enabled: false,
            ..Options::new("/store")
        };
        let clock = ManualClock::at(1_700_000_000_000);
        let store = Store::open(options, SimDisk::new().shared(), clock, &RecoveryProgress::default());
        let store = store.expect("the store opens");
        let host = "127.0.0.1:10911".parse().expect("an address");
        let identity = Identity {
            cluster: "c1".to_owned(),
            broker: "b1".to_owned(),
            store_host: host,
            region: "r1".to_owned(),
            is_trace_on: false,
            message_bytes_max: 1 << 20,
            pull_messages_max: 32,
            pull_bytes_max: 1 << 20,
            is_long_polling: true,
            short_polling_ms: 1_000,
            is_auto_create_topics: true,
            creations_per_minute: 1_000,
            sql: SqlSupport::Off,
            recall: RecallOptions::default(),
            slave_reads: SlaveReads::default(),
            copies: CopyRules::default(),
        };
        let metadata = Metadata::new(identity, 6);
        metadata.set_topic("orders", Some(Topic::new("orders", 2, 2, 6)));
        let held = metadata.topics.get("orders").expect("a topic");
        assert!(held.queue(&store, 0).is_ok());
        // Changed once, and then deleted.
        metadata.set_topic("orders", Some(Topic::new("orders", 4, 4, 6)));
        metadata.set_topic("orders", None);
        store.delete_topic("orders").expect("a working disk");
        assert!(matches!(held.queue(&store, 1), Err(StoreError::TopicDeleted { .. })));
        assert!(held.queue(&store, 0).expect("the one it knows").is_deleted());
        assert_eq!(store.topics(), []);
        metadata.set_topic("orders", Some(Topic::new("orders", 1, 1, 6)));
        let again = metadata.topics.get("orders").expect("made again");
        assert!(!again.queue(&store, 0).expect("a queue").is_deleted());
    }

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
