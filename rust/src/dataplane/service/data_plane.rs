//! Data plane: the state of a server, its counters, and its reactions to new log data.
//!
//! Without a broker, as in a name server, every request is forwarded to Python.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::access::rules::{Checks, User};
use crate::clock::SharedClock;
use crate::dataplane::delivery::deadlines::Deadlines;
use crate::dataplane::delivery::delays::{self, Delays};
use crate::dataplane::delivery::escapes::{Escapes, Outlet};
use crate::dataplane::delivery::revive::{self, Revive};
use crate::dataplane::delivery::timers::Timers;
use crate::dataplane::delivery::transactions::{
    CheckedHalves, TopicTransactions, TransactionCounts, Transactions,
};
use crate::dataplane::requests::attributes::AddedProperties;
use crate::dataplane::requests::broker::{Broker, Deadline, Waiting};
use crate::dataplane::requests::guard::Guard;
use crate::dataplane::requests::lites::Lites;
use crate::dataplane::requests::pop::BATCH_BYTES_MAX;
use crate::dataplane::state::latency::Latencies;
use crate::dataplane::state::metadata::Metadata;
use crate::dataplane::state::offsets::Offsets;
use crate::dataplane::state::rejection::not_made;
use crate::dataplane::state::reply::send_answer_fields;
use crate::dataplane::state::role::Role;
use crate::dataplane::state::settled::Settled;
use crate::dataplane::waiting::long_poll::{CROWD_BEGIN, LongPolls};
use crate::dataplane::waiting::parked_frames::ParkedFrames;
use crate::dataplane::waiting::pop_groups::{PopGroup, PopGroups};
use crate::dataplane::waiting::upcall::Upcalls;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::remoting::LinkId;
use crate::requests::needs::{HotRequest, hot_request};
use crate::store::{Arrivals, ConsumeQueue, Store, StoreError, Waits};

/// Counts since the start, updated once per burst.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) upcalls: AtomicU64,
    /// Sends, batches counted once.
    pub(crate) sends: AtomicU64,
    /// Pulls, without the repetitions of parked ones.
    pub(crate) pulls: AtomicU64,
    /// Requests refused because too many were pending for Python, or waited too long, or created too many topics.
    pub(crate) overloads: AtomicU64,
    /// One-way requests among them, which were dropped.
    pub(crate) oneway_drops: AtomicU64,
    /// Answers of clients that were refused for their size.
    pub(crate) refused_answers: AtomicU64,
}

/// The service behind a server.
pub struct DataPlane {
    /// The ring of requests for Python.
    pub upcalls: Arc<Upcalls>,
    pub(crate) parked: Arc<ParkedFrames>,
    pub(crate) broker: Option<Broker>,
    pub(crate) counters: Counters,
    pub(crate) latencies: Arc<Latencies>,
    /// Access control.
    pub(crate) guard: Arc<Guard>,
    pub(crate) clock: SharedClock,
    /// The body limit of each request code: see `declare_requests`.
    bodies_bytes_max: OnceLock<HashMap<i32, usize>>,
    heartbeat_epoch: AtomicU64,
    pub(super) heartbeats: Mutex<HashMap<u64, Duration>>,
}

impl DataPlane {
    /// Creates a server that forwards every request to Python.
    ///
    /// # Errors
    /// If the system has no file descriptor left.
    pub fn new(clock: SharedClock) -> std::io::Result<Self> {
        Ok(Self {
            upcalls: Arc::new(Upcalls::new()?),
            parked: Arc::default(),
            broker: None,
            counters: Counters::default(),
            latencies: Arc::default(),
            guard: Arc::new(Guard::new(Arc::clone(&clock))),
            clock,
            bodies_bytes_max: OnceLock::new(),
            heartbeat_epoch: AtomicU64::new(0),
            heartbeats: Mutex::default(),
        })
    }

    /// Sets the end of a master's lease, in time of `clock`; `None` if it needs none.
    pub(crate) fn set_lease_end(&self, end: Option<Duration>) {
        if let Some(broker) = &self.broker {
            broker.metadata.set_lease_end(end);
        }
    }

    /// Creates a broker over `store` and subscribes it to new messages.
    ///
    /// # Errors
    /// If the system has no file descriptor or thread left.
    pub fn with_broker(
        clock: SharedClock,
        store: Arc<Store>,
        metadata: Arc<Metadata>,
        offsets: Arc<Offsets>,
    ) -> std::io::Result<Arc<Self>> {
        let mut data_plane = Self::new(Arc::clone(&clock))?;
        let parked = Arc::clone(&data_plane.parked);
        let pops = Arc::new(PopGroups::new(&metadata.identity.pop));
        let polls = Arc::new(LongPolls::new(Arc::clone(&pops)));
        let lites = Arc::new(Lites::new(metadata.identity.pop.lite_subscriptions_max));
        let (ended, pops_ended, lites_ended) = (Arc::clone(&polls), Arc::clone(&pops), Arc::clone(&lites));
        let wall = Arc::clone(&clock);
        let deadlines = Deadlines::start("deadlines", clock, move |deadline| {
            match deadline {
                Deadline::Pull(queue, link, token) => ended.wake(&queue, link, token),
                Deadline::Crowd(queue, from) => {
                    let next = ended.wake_crowd(&queue, from);
                    return next.map(|next| (Duration::ZERO, Deadline::Crowd(queue, next)));
                }
                Deadline::Pop(group, purpose, key) => pops_ended.wake(&group, purpose, key),
                Deadline::Free(group, queue_id) => {
                    group.releases.lock().remove(&queue_id);
                    pops_ended.freed(&group, queue_id);
                }
                Deadline::Lite(group, queue) => {
                    lites_ended.released(&group, &queue);
                    let parked = lites_ended.consumers.offer(&group, &queue, wall.wall_ms() as i64);
                    parked.iter().for_each(|parked| pops_ended.wake_next(parked, -1));
                }
                Deadline::Send(link) => link.signal(),
                Deadline::Missing(missing, name, wait) => {
                    let error_reply = not_made(missing, &name);
                    parked.release(missing, &name, Some(wait), Some(error_reply));
                }
            }
            None
        })?;
        data_plane.broker = Some(Broker {
            added_properties: AddedProperties::new(&metadata.identity, Arc::clone(&data_plane.clock)),
            send_answer_fields: send_answer_fields(&metadata.identity),
            clock: Arc::clone(&data_plane.clock),
            deliveries: Arc::default(),
            latencies: Arc::clone(&data_plane.latencies),
            polls,
            pops,
            lites,
            flush_waiters: Mutex::default(),
            copy_waiters: Mutex::default(),
            deadlines,
            guard: Arc::clone(&data_plane.guard),
            settled: Arc::new(Settled::new(&metadata.revive_topic)),
            metadata,
            offsets,
            store: Arc::clone(&store),
            parked: Arc::clone(&data_plane.parked),
            waiting: ArcSwapOption::empty(),
            escapes: Arc::<Escapes>::default(),
            transactions: Transactions::new(&store),
            resumed: Mutex::default(),
        });
        let data_plane = Arc::new(data_plane);
        store.set_arrivals(&data_plane);
        Ok(data_plane)
    }

    /// Returns the snapshots of the broker's metadata; `None` without a broker.
    pub(crate) fn metadata(&self) -> Option<&Arc<Metadata>> {
        self.broker.as_ref().map(|broker| &broker.metadata)
    }

    /// Returns the consumers of lite topics; `None` without a broker.
    pub(crate) fn lites(&self) -> Option<&Lites> {
        self.broker.as_ref().map(|broker| &*broker.lites)
    }

    /// Wakes one pop of each of these consumers of lite topics.
    pub(crate) fn wake_lites(&self, parked: &[Arc<PopGroup>]) {
        self.broker.iter().for_each(|broker| broker.wake_lites(parked));
    }

    /// Sets the request codes that Python serves, and the largest body that it reads for each. A larger body is not
    /// copied, because the copy would block all connections of the thread. Other codes are refused. Only the first
    /// call has an effect; before it, every request is forwarded.
    pub fn declare_requests(&self, bodies_bytes_max: HashMap<i32, usize>) {
        let _ = self.bodies_bytes_max.set(bodies_bytes_max);
    }

    /// Returns the largest body that Python reads for a code; `None` for a code without a name. Codes of hot
    /// requests have one, too.
    pub(super) fn body_bytes_max(&self, code: i32) -> Option<usize> {
        if self.broker.is_some() && hot_request(code) == Some(HotRequest::BatchAck) {
            return Some(BATCH_BYTES_MAX);
        }
        self.bodies_bytes_max.get().map_or(Some(usize::MAX), |bytes_max| bytes_max.get(&code).copied())
    }

    /// Starts delivery of delayed messages, each level at its offset in `from`, and of timed ones: into the log, or
    /// to other brokers if this one `acts` for its master. No-op without a broker, or if delivery is running. One
    /// thread at a time.
    pub(crate) fn deliver(&self, from: &BTreeMap<u32, u64>, acts: bool) -> Result<(), StoreError> {
        let Some(broker) = self.broker.as_ref().filter(|broker| broker.waiting.load().is_none()) else {
            return Ok(());
        };
        let outlet = if acts { Outlet::Escapes(Arc::clone(&broker.escapes)) } else { Outlet::Log };
        if !acts {
            delays::check_sizes(&broker.store, from)?;
        }
        broker.escapes.set_open(acts);
        let delays = Delays::start(&broker.store, Arc::clone(&self.clock), from, outlet.clone());
        let delays = delays.map_err(StoreError::io(broker.store.root(), "start a thread"))?;
        let is_timed = broker.store.timer_options().is_enabled;
        let timers =
            is_timed.then(|| Timers::start(&broker.store, Arc::clone(&self.clock), outlet, &broker.settled));
        let started = timers.transpose().and_then(|timers| {
            let timers = timers.map(Arc::new);
            let revive = timers.as_ref().filter(|_| !acts).map(|timers| {
                Revive::start(revive::Parts {
                    store: Arc::clone(&broker.store),
                    metadata: Arc::clone(&broker.metadata),
                    offsets: Arc::clone(&broker.offsets),
                    deliveries: Arc::clone(&broker.deliveries),
                    timers: Arc::clone(timers),
                    clock: Arc::clone(&self.clock),
                })
            });
            let revive =
                revive.transpose().inspect_err(|_| timers.iter().for_each(|timers| timers.stop()))?;
            Ok((timers, revive))
        });
        match started {
            Ok((timers, revive)) => broker.waiting.store(Some(Arc::new(Waiting { delays, timers, revive }))),
            Err(error) => {
                delays.stop();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Stops the delivery, saves the progress of timed messages, and returns the offset of each delay level that has
    /// delivered messages.
    pub(crate) fn end_delivery(&self) -> Result<BTreeMap<u32, u64>, StoreError> {
        let Some(broker) = &self.broker else { return Ok(BTreeMap::new()) };
        let Some(waiting) = broker.waiting.swap(None) else { return Ok(BTreeMap::new()) };
        waiting.stop();
        broker.escapes.clear();
        waiting.timers.as_ref().map_or(Ok(()), |timers| timers.save())?;
        Ok(waiting.delays.offsets())
    }

    /// Removes the transactions found by `recover_transactions`, because another broker is responsible for them.
    pub(crate) fn forget_transactions(&self) {
        self.broker.iter().for_each(|broker| broker.transactions.forget());
    }

    /// Removes a half message that another broker has taken over.
    pub(crate) fn leave_transaction(&self, offset: QueueOffset, physical: PhysicalOffset) {
        self.broker.iter().for_each(|broker| broker.transactions.leave(offset, physical));
    }

    pub(crate) fn escapes(&self) -> Option<&Escapes> {
        self.broker.as_ref().map(|broker| &*broker.escapes)
    }

    /// Returns the offset of each delay level that has delivered messages: see `Delays::offsets`.
    pub(crate) fn delay_offsets(&self) -> BTreeMap<u32, u64> {
        let waiting = self.waiting();
        waiting.map(|waiting| waiting.delays.offsets()).unwrap_or_default()
    }

    /// Calls `ask` with the timers; `None` if delivery is not running.
    pub(crate) fn of_timers<T>(&self, ask: impl FnOnce(&Timers) -> T) -> Option<T> {
        self.waiting()?.timers.as_deref().map(ask)
    }

    fn waiting(&self) -> Option<Arc<Waiting>> {
        self.broker.as_ref()?.waiting.load_full()
    }

    /// Takes the topics that messages wait for to be delivered again.
    pub(crate) fn take_missing_retry_topics(&self) -> BTreeSet<String> {
        let waiting = self.waiting();
        let revive = waiting.as_ref().and_then(|waiting| waiting.revive.as_ref());
        revive.map(Revive::take_missing).unwrap_or_default()
    }

    /// Delivers the messages that are due by the clock now and waits until they are visible, for at most `limit`;
    /// false on a timeout.
    pub(crate) fn catch_up(&self, limit: Duration) -> bool {
        let Some(broker) = &self.broker else { return true };
        let is_settled = broker.waiting.load_full().is_none_or(|waiting| {
            waiting.delays.settle(limit)
                && waiting.timers.as_ref().is_none_or(|timers| timers.settle(limit))
                && waiting.revive.as_ref().is_none_or(|revive| revive.settle(limit))
        });
        // A failed store is reported elsewhere, and no more messages become visible.
        is_settled && (!broker.store.is_sync() || broker.store.flush().is_ok() || broker.store.is_latched())
    }

    /// Finds the open transactions of the store and continues their checks from `checked`. Called before the first
    /// request; may wait for the disk.
    pub(crate) fn recover_transactions(&self, checked: &[CheckedHalves]) -> Result<(), StoreError> {
        self.broker.as_ref().map_or(Ok(()), |broker| {
            let timeout_ms = broker.metadata.transaction_timeout_ms();
            if let Some(half) = broker.transactions.recover(&broker.offsets, timeout_ms)? {
                broker.mark_torn_commit(half)?;
            }
            broker.transactions.restore_checks(checked);
            Ok(())
        })
    }

    pub(crate) fn checked_transactions(&self) -> Vec<CheckedHalves> {
        self.broker.as_ref().map(|broker| broker.transactions.checked()).unwrap_or_default()
    }

    /// Saves the progress of transactions in the table of offsets: see `Transactions::save`.
    pub(crate) fn save_transactions(&self) -> Result<(), StoreError> {
        let broker = self.broker.as_ref();
        broker.map_or(Ok(()), |broker| broker.transactions.save(&broker.metadata, &broker.offsets))
    }

    pub(crate) fn open_transactions(&self) -> usize {
        self.broker.as_ref().map_or(0, |broker| broker.transactions.open_count())
    }

    pub(crate) fn transactions_by_topic(&self) -> Vec<(Box<str>, TopicTransactions)> {
        self.broker.as_ref().map(|broker| broker.transactions.by_topic()).unwrap_or_default()
    }

    pub(crate) fn transaction_counts(&self) -> TransactionCounts {
        self.broker.as_ref().map(|broker| broker.transactions.counts()).unwrap_or_default()
    }

    /// Stops the data plane's threads, after its server has stopped.
    pub fn stop(&self) {
        self.guard.stop();
        if let Some(broker) = &self.broker {
            broker.deadlines.stop();
            broker.waiting.load_full().iter().for_each(|waiting| waiting.stop());
        }
    }

    /// Replaces the access rules and users, and clears the cached permits of connections.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn publish_access(
        &self,
        checks: Checks,
        users: impl IntoIterator<Item = User>,
    ) -> std::io::Result<()> {
        self.guard.publish(checks, users)?;
        // Their content was checked against the old rules.
        self.forget_heartbeats();
        Ok(())
    }

    /// Makes every connection forward its next heartbeat to Python.
    pub(crate) fn forget_heartbeats(&self) {
        self.heartbeat_epoch.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn heartbeat_epoch(&self) -> u64 {
        self.heartbeat_epoch.load(Ordering::Acquire)
    }

    /// Returns the time since the connection's last accepted heartbeat.
    pub(crate) fn heartbeat_age(&self, link: LinkId) -> Option<Duration> {
        let last = *self.heartbeats.lock().get(&link.0)?;
        Some(self.clock.elapsed().saturating_sub(last))
    }
}

impl Arrivals for DataPlane {
    fn arrived(&self, queue: &Arc<ConsumeQueue>, max: QueueOffset, tags_code: i64) {
        let Some(broker) = &self.broker else { return };
        if queue.is_lite() {
            let now_ms = self.clock.wall_ms() as i64;
            broker.wake_lites(&broker.lites.consumers.arrived(&queue.key().topic, now_ms));
        }
        if broker.polls.arrived(queue, max, tags_code) {
            broker.deadlines.add(Duration::ZERO, Deadline::Crowd(Arc::clone(queue), CROWD_BEGIN));
        }
    }

    fn durable(&self, position: PhysicalOffset) {
        let Some(broker) = &self.broker else { return };
        let mut waiters = broker.flush_waiters.lock();
        let is_latched = broker.store.is_latched();
        for (_, link) in waiters.extract_if(.., |(end, _)| is_latched || *end <= position) {
            link.signal();
        }
    }

    fn confirmed(&self, position: PhysicalOffset) {
        if let Some(broker) = &self.broker {
            broker.confirmed(position);
        }
    }

    fn room_was_made(&self) {
        self.parked.room_was_made();
    }

    fn waits(&self) -> Waits {
        let Some(broker) = &self.broker else { return Waits::Nothing };
        let waiting = broker.waiting.load_full();
        let Some(waiting) = waiting else {
            // A slave's master delivers them.
            return if broker.metadata.role() == Role::Master { Waits::Unknown } else { Waits::Nothing };
        };
        let timed =
            waiting.timers.as_ref().map_or(Some(PhysicalOffset(u64::MAX)), |timers| timers.waits_from());
        let (Some(delayed), Some(timed)) = (waiting.delays.waits_from(&broker.store), timed) else {
            return Waits::Unknown;
        };
        let half = broker.transactions.first().unwrap_or(timed);
        Waits::From(delayed.min(timed).min(half))
    }

    fn latched(&self) {
        self.durable(PhysicalOffset(u64::MAX));
        self.parked.room_was_made();
    }
}
