//! Metadata: snapshots of topics, groups, subscriptions and settings, published by the control plane.
//!
//! Python publishes, connections read. Each map is divided into shards that are swapped whole, so that a change
//! copies one shard and a reader never blocks. A value stays valid for the request that holds it; the next request
//! sees the new one.
//!
//! Threads: readers on any I/O thread without a lock; writers on Python's, one at a time per map.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::filter::{Filter, SharedFilters, SqlSupport, UnservedFilter};
use super::mapping::Mapping;
use super::pop_options::PopOptions;
use super::role::{CopyRules, Role, SlaveReads};
use crate::message::MessageType;
use crate::message::topic::{REVIVE_TOPIC_PREFIX, is_light};
use crate::store::{ConsumeQueue, Store, StoreError};

pub(crate) const PERMISSION_READ: u8 = 4;
pub(crate) const PERMISSION_WRITE: u8 = 2;

/// The share of pops by priority in a group that sets none.
pub(crate) const PRIORITY_PERCENT_USUAL: u32 = 100;

/// The lite topics of one client of a group that sets no quota, as in Apache's broker.
pub(crate) const LITE_QUOTA_USUAL: i32 = 2_000;

/// With 10,000 topics a change copies some 160 entries.
const SHARDS: usize = 64;

type Shard<V> = HashMap<Arc<str>, Arc<V>, FixedState>;

/// A map from names to immutable values.
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

    /// Sets the value of `name`, or removes the name.
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

/// The settings and queues of a topic.
#[derive(Debug)]
pub struct Topic {
    pub(crate) name: Arc<str>,
    /// The number of queues that consumers may read.
    pub(crate) read_queues: u32,
    /// The number of queues for sends that name none.
    pub(crate) write_queues: u32,
    pub(crate) permission: u8,
    /// Unit flags, echoed to consumers.
    pub(crate) sys_flag: i32,
    /// Whether producers follow a configured order of queues.
    pub(crate) is_ordered: bool,
    /// Whether records are marked as having several tags.
    pub(crate) is_multi_tag: bool,
    /// Whether only the newest message of each key is kept, so that every message needs one.
    pub(crate) is_compacted: bool,
    /// The type of its messages, if the topic declares one.
    pub(crate) message_type: Option<MessageType>,
    /// The logical queues, if it is a static topic.
    pub(in crate::dataplane) mapping: Option<Arc<Mapping>>,
    queues: Box<[OnceLock<Arc<ConsumeQueue>>]>,
    /// Whether the topic was deleted while a request holds it; shared with its newer snapshots.
    is_deleted: Arc<AtomicBool>,
}

impl Topic {
    /// Creates a topic with the given settings and no cached queue.
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
            is_compacted: false,
            message_type: None,
            mapping: None,
            queues: (0..count).map(|_| OnceLock::new()).collect(),
            is_deleted: Arc::default(),
        }
    }

    /// Returns the same topic with another mapping, and with its cached queues.
    fn with_mapping(&self, mapping: Option<Arc<Mapping>>) -> Self {
        let is_deleted = Arc::clone(&self.is_deleted);
        Self { name: Arc::clone(&self.name), queues: self.queues.clone(), mapping, is_deleted, ..*self }
    }

    /// Whether consumers may read this queue.
    pub(crate) fn has_read_queue(&self, queue_id: u32) -> bool {
        queue_id < self.read_queues
    }

    /// Returns the number of queues, readable or writable.
    pub(in crate::dataplane) fn queue_count(&self) -> u32 {
        self.read_queues.max(self.write_queues)
    }

    /// Returns the queue `queue_id`, created on first use and cached, so that later uses cost one load. Admission
    /// has checked the id against this topic. Fails if the topic is deleted.
    pub(in crate::dataplane) fn queue(
        &self,
        store: &Store,
        queue_id: u32,
    ) -> Result<Arc<ConsumeQueue>, StoreError> {
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

/// The settings of a subscription group.
#[derive(Debug, Clone)]
pub struct Group {
    pub(crate) is_consume_enabled: bool,
    pub(crate) is_broadcast_enabled: bool,
    /// The number of deliveries after which a message goes to the dead-letter queue.
    pub(crate) retry_max: i32,
    /// The number of queues of its retry topic. Without queues, returned messages are dropped.
    pub(crate) retry_queues: u32,
    /// Flags that are echoed to consumers.
    pub(crate) sys_flag: i32,
    /// The id of the broker that members should pull from.
    pub(crate) broker_id: u64,
    /// The id of the broker for members that are far behind.
    pub(crate) slow_broker_id: u64,
    /// Whether 5.x clients and pops consume it in order.
    pub(crate) is_ordered: bool,
    /// Pops, of 100, that read topics of the type PRIORITY by priority.
    pub(crate) priority_percent: u32,
    /// The topic whose lite topics it consumes, if it consumes lite topics.
    pub(crate) lite_parent: Option<Box<str>>,
    /// The lite topics of one of its clients; below 0 for any number.
    pub(crate) lite_quota: i32,
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
            is_ordered: false,
            priority_percent: PRIORITY_PERCENT_USUAL,
            lite_parent: None,
            lite_quota: LITE_QUOTA_USUAL,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Subscription {
    /// Grows when a member changes the subscription. A pull with a newer version must wait for the heartbeat.
    pub(crate) version: i64,
    /// The filter, if its type is supported.
    pub(crate) filter: Result<Arc<Filter>, UnservedFilter>,
}

/// The subscriptions of a group's registered members.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    pub(crate) is_broadcast: bool,
    pub(crate) by_topic: HashMap<Box<str>, Subscription>,
}

/// The broker's own settings, fixed for the life of the process.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The cluster name, stored with each message.
    pub cluster: String,
    /// The name of the broker, which recall handles contain.
    pub broker: String,
    /// The address in records and message ids.
    pub store_host: SocketAddr,
    /// The region id, stored with each message and sent with each reply.
    pub region: String,
    /// Whether clients should trace, stored and sent likewise.
    pub is_trace_on: bool,
    /// The largest accepted body, in bytes.
    pub message_bytes_max: usize,
    /// The maximum number of messages in a pull reply.
    pub pull_messages_max: u32,
    /// The maximum number of bytes in a pull reply.
    pub pull_bytes_max: usize,
    /// Whether a pull without messages may wait as long as the client requests.
    pub is_long_polling: bool,
    /// The wait of a pull without long polling.
    pub short_polling_ms: u64,
    /// Whether messages that left the log can be read from the tiered storage.
    pub is_tiered: bool,
    /// Whether a send to an unknown topic may create it.
    pub is_auto_create_topics: bool,
    /// Whether every light queue is a topic, and every group of that prefix exists.
    pub has_lights: bool,
    /// Topics and groups that the requests of a connection may create in a minute.
    pub creations_per_minute: u32,
    /// Whether SQL92 subscriptions are served.
    pub sql: SqlSupport,
    /// The rules for recalling timed messages.
    pub recall: RecallOptions,
    /// The rules for reading from slaves.
    pub slave_reads: SlaveReads,
    /// The copies that replies wait for.
    pub copies: CopyRules,
    /// The settings of POP.
    pub pop: PopOptions,
}

/// Recalls of timed messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecallOptions {
    /// Whether recalls are served.
    pub is_served: bool,
    /// Whether a broker that is not writable serves them, too.
    pub is_served_unwritable: bool,
    /// Whether a recall names topic and key of the message, as brokers up to 5.3 expect, and not only the key.
    pub is_topic_in_key: bool,
}

/// All snapshots that the control plane publishes.
#[derive(Debug)]
pub struct Metadata {
    pub(crate) identity: Identity,
    /// The topic for this cluster's checkpoints and acknowledgements of popped messages.
    pub(in crate::dataplane) revive_topic: Box<str>,
    pub(crate) topics: Table<Topic>,
    /// The subscription groups by name.
    pub groups: Table<Group>,
    /// Subscriptions of groups with live members, by group.
    pub(crate) subscriptions: Table<Subscriptions>,
    /// Topics that a group must not consume, by group.
    pub(in crate::dataplane) forbidden: Table<HashSet<Box<str>>>,
    /// Groups with ordered consumption: a member holds a queue lock. Their sends to the retry topic have exhausted
    /// their retries and go to the dead-letter queue.
    pub(crate) in_order: Table<()>,
    permission: AtomicU8,
    rejects_transactions: AtomicBool,
    transaction_timeout_ms: AtomicI64,
    checks_message_types: AtomicBool,
    role: AtomicU8,
    /// The number of replicas in sync below which messages are refused.
    copies_min: AtomicUsize,
    /// The end of the lease from the controller, in milliseconds of the broker's clock; `NO_LEASE` if none is needed.
    lease_end_ms: AtomicU64,
    filters: SharedFilters,
}

/// No lease is needed, as under Apache's controllers.
const NO_LEASE: u64 = u64::MAX;

impl Metadata {
    /// Creates empty tables.
    #[must_use]
    pub fn new(identity: Identity, permission: u8) -> Self {
        Self {
            revive_topic: format!("{REVIVE_TOPIC_PREFIX}{}", identity.cluster).into(),
            copies_min: AtomicUsize::new(identity.copies.copies_min),
            lease_end_ms: AtomicU64::new(NO_LEASE),
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

    /// Returns a topic. Any name of a light queue is one, if the broker has light queues.
    pub(crate) fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        let light = || Arc::new(Topic::new(name, 1, 1, PERMISSION_READ | PERMISSION_WRITE));
        self.topics.get(name).or_else(|| self.has_light(name).then(light))
    }

    /// Returns a group. Any group that reads light queues exists, if the broker has light queues.
    pub(crate) fn group(&self, name: &str) -> Option<Arc<Group>> {
        static USUAL: LazyLock<Arc<Group>> = LazyLock::new(Arc::default);
        self.groups.get(name).or_else(|| self.has_light(name).then(|| Arc::clone(&USUAL)))
    }

    fn has_light(&self, name: &str) -> bool {
        self.identity.has_lights && is_light(name)
    }

    /// Sets or removes a topic. Remove it before its queues are removed from the store.
    pub fn set_topic(&self, name: &str, topic: Option<Topic>) {
        let known = self.topics.get(name);
        match (topic, known) {
            (Some(topic), Some(known)) => {
                let (mapping, is_deleted) = (known.mapping.clone(), Arc::clone(&known.is_deleted));
                self.topics.set(name, Some(Topic { mapping, is_deleted, ..topic }));
            }
            (None, Some(known)) => {
                self.topics.set(name, None);
                known.is_deleted.store(true, Ordering::Release);
            }
            (topic, None) => self.topics.set(name, topic),
        }
    }

    /// Sets or removes the mapping of a topic; without the topic, does nothing.
    pub fn set_mapping(&self, topic: &str, mapping: Option<Mapping>) {
        if let Some(known) = self.topics.get(topic) {
            self.topics.set(topic, Some(known.with_mapping(mapping.map(Arc::new))));
        }
    }

    /// Returns the filter of a subscription.
    pub(crate) fn filter(
        &self,
        expression_type: &str,
        expression: &str,
    ) -> Result<Arc<Filter>, UnservedFilter> {
        self.filters.parse(self.identity.sql, expression_type, expression)
    }

    pub(crate) fn permission(&self) -> u8 {
        self.permission.load(Ordering::Acquire)
    }

    pub(crate) fn set_permission(&self, permission: u8) {
        self.permission.store(permission, Ordering::Release);
    }

    pub(in crate::dataplane) fn copies_min(&self) -> usize {
        self.copies_min.load(Ordering::Relaxed)
    }

    /// Sets the number of replicas in sync below which messages are refused.
    pub(crate) fn set_copies_min(&self, count: usize) {
        self.copies_min.store(count, Ordering::Relaxed);
    }

    /// Sets the end of the lease, in time of the broker's clock; `None` if none is needed.
    pub(crate) fn set_lease_end(&self, end: Option<Duration>) {
        // A fraction of a millisecond is dropped, so the lease ends early rather than late.
        self.lease_end_ms.store(end.map_or(NO_LEASE, |end| end.as_millis() as u64), Ordering::Release);
    }

    /// Returns whether this broker may acknowledge messages. `now` reads the clock, if a lease is needed at all.
    pub(in crate::dataplane) fn has_lease(&self, now: impl FnOnce() -> Duration) -> bool {
        let end = self.lease_end_ms.load(Ordering::Acquire);
        end == NO_LEASE || now() < Duration::from_millis(end)
    }

    pub(in crate::dataplane) fn rejects_transactions(&self) -> bool {
        self.rejects_transactions.load(Ordering::Relaxed)
    }

    /// Returns the producer's time to decide before the first check.
    pub(in crate::dataplane) fn transaction_timeout_ms(&self) -> i64 {
        self.transaction_timeout_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn set_transactions(&self, rejects: bool, timeout_ms: i64) {
        self.rejects_transactions.store(rejects, Ordering::Relaxed);
        self.transaction_timeout_ms.store(timeout_ms, Ordering::Relaxed);
    }

    /// Returns whether a topic admits only messages of its declared type.
    pub(in crate::dataplane) fn checks_message_types(&self) -> bool {
        self.checks_message_types.load(Ordering::Relaxed)
    }

    pub(crate) fn set_message_type_check(&self, is_on: bool) {
        self.checks_message_types.store(is_on, Ordering::Relaxed);
    }

    pub(in crate::dataplane) fn role(&self) -> Role {
        Role::of(self.role.load(Ordering::Acquire))
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.role.store(role as u8, Ordering::Release);
    }

    pub(in crate::dataplane) fn is_forbidden(&self, group: &str, topic: &str) -> bool {
        self.forbidden.get(group).is_some_and(|topics| topics.contains(topic))
    }

    /// Forbids `group` to consume `topic`, or permits it again.
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
    fn a_request_in_flight_does_not_create_a_queue_of_a_deleted_topic() {
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
            is_tiered: false,
            is_auto_create_topics: true,
            has_lights: false,
            creations_per_minute: 1_000,
            sql: SqlSupport::Off,
            recall: RecallOptions::default(),
            slave_reads: SlaveReads::default(),
            copies: CopyRules::default(),
            pop: PopOptions::default(),
        };
        let metadata = Metadata::new(identity, 6);
        metadata.set_topic("orders", Some(Topic::new("orders", 2, 2, 6)));
        let held = metadata.topic("orders").expect("a topic");
        assert!(held.queue(&store, 0).is_ok());
        // Changed once before it is deleted.
        metadata.set_topic("orders", Some(Topic::new("orders", 4, 4, 6)));
        metadata.set_topic("orders", None);
        store.delete_topic("orders").expect("a working disk");
        assert!(matches!(held.queue(&store, 1), Err(StoreError::TopicDeleted { .. })));
        assert!(held.queue(&store, 0).expect("the one it knows").is_deleted());
        assert_eq!(store.topics(), []);
        metadata.set_topic("orders", Some(Topic::new("orders", 1, 1, 6)));
        let again = metadata.topic("orders").expect("made again");
        assert!(!again.queue(&store, 0).expect("a queue").is_deleted());
    }

    #[test]
    fn a_reader_keeps_its_value_while_the_table_changes() {
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
