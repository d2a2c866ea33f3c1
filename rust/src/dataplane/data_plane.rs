//! Data plane: the state behind a server, its counters, and what it does as the store grows.
//!
//! One without a broker sends every request up; that is the name server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::attributes::AddedProperties;
use super::broker::{Broker, Deadline, Waiting};
use super::deadlines::Deadlines;
use super::delays::{self, Delays};
use super::deliveries::Deliveries;
use super::escapes::{Escapes, Outlet};
use super::guard::Guard;
use super::latency::Latencies;
use super::long_poll::LongPolls;
use super::metadata::Metadata;
use super::offsets::Offsets;
use super::parked_frames::ParkedFrames;
use super::rejection::not_made;
use super::reply::send_answer_fields;
use super::role::Role;
use super::timers::Timers;
use super::transactions::{CheckedHalves, TopicTransactions, TransactionCounts, Transactions};
use super::upcall::Upcalls;
use crate::access::rules::{Checks, User};
use crate::clock::SharedClock;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::remoting::LinkId;
use crate::store::{Arrivals, ConsumeQueue, Store, StoreError, Waits};

/// Counts since the start, each added to once per burst.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) upcalls: AtomicU64,
    /// Sends, batches counted once.
    pub(crate) sends: AtomicU64,
    /// Pulls, without their second execution.
    pub(crate) pulls: AtomicU64,
    /// Requests refused because too many waited for Python, or they waited for too long, or made too many topics.
    pub(crate) overloads: AtomicU64,
    /// One-way requests among them, which were dropped.
    pub(crate) oneway_drops: AtomicU64,
    /// Answers of clients that were not taken, for their size.
    pub(crate) refused_answers: AtomicU64,
}

/// The service behind a server.
pub struct DataPlane {
    /// The way up.
    pub upcalls: Arc<Upcalls>,
    pub(crate) parked: Arc<ParkedFrames>,
    pub(crate) broker: Option<Broker>,
    pub(crate) counters: Counters,
    pub(crate) latencies: Arc<Latencies>,
    /// Who may do what.
    pub(crate) guard: Arc<Guard>,
    pub(super) clock: SharedClock,
    /// By request code: see `declare_requests`.
    bodies_bytes_max: OnceLock<HashMap<i32, usize>>,
    heartbeat_epoch: AtomicU64,
    pub(super) heartbeats: Mutex<HashMap<u64, Duration>>,
}

impl DataPlane {
    /// A server that sends everything up.
    ///
    /// # Errors
    /// When the system has no descriptor left.
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

    /// A broker over `store`, whose arrivals it listens to from now on.
    ///
    /// # Errors
    /// When the system has no descriptor or no thread left.
    pub fn with_broker(
        clock: SharedClock,
        store: Arc<Store>,
        metadata: Arc<Metadata>,
        offsets: Arc<Offsets>,
    ) -> std::io::Result<Arc<Self>> {
        let mut data_plane = Self::new(Arc::clone(&clock))?;
        let parked = Arc::clone(&data_plane.parked);
        let polls = Arc::<LongPolls>::default();
        let ended = Arc::clone(&polls);
        let deadlines = Deadlines::start("deadlines", clock, move |deadline| {
            match deadline {
                Deadline::Pull(queue, link, token) => ended.wake(&queue, link, token),
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
            deliveries: Deliveries::default(),
            latencies: Arc::clone(&data_plane.latencies),
            polls,
            flush_waiters: Mutex::default(),
            copy_waiters: Mutex::default(),
            deadlines,
            guard: Arc::clone(&data_plane.guard),
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
        store.set_arrivals(Arc::clone(&data_plane) as Arc<dyn Arrivals>);
        Ok(data_plane)
    }

    /// Says which requests go up, by code, and how large a body Python reads of each. A larger body is not copied: that
    /// would keep every connection of the thread waiting. A request of any other code is refused here. Only the first call
    /// counts; before it, everything goes up.
    pub fn declare_requests(&self, bodies_bytes_max: HashMap<i32, usize>) {
        let _ = self.bodies_bytes_max.set(bodies_bytes_max);
    }

    /// How large a body Python reads of such a request; `None` where the code means nothing to it: every code with a name
    /// does, also those that are served without it.
    pub(super) fn body_bytes_max(&self, code: i32) -> Option<usize> {
        self.bodies_bytes_max.get().map_or(Some(usize::MAX), |bytes_max| bytes_max.get(&code).copied())
    }

    /// Begins to deliver delayed messages, each level from its offset in `from`, and timed ones: into the log, or to
    /// other brokers where this one `acts` for its master. Only a broker's call counts, and only where it does not deliver
    /// already. One thread at a time.
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
        let timers = is_timed.then(|| Timers::start(&broker.store, Arc::clone(&self.clock), outlet));
        match timers.transpose() {
            Ok(timers) => broker.waiting.store(Some(Arc::new(Waiting { delays, timers }))),
            Err(error) => {
                delays.stop();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the delivery that `deliver` began, and saves how far timed messages have got; the offset of each delay level
    /// that has delivered something.
    pub(crate) fn end_delivery(&self) -> Result<BTreeMap<u32, u64>, StoreError> {
        let Some(broker) = &self.broker else { return Ok(BTreeMap::new()) };
        let Some(waiting) = broker.waiting.swap(None) else { return Ok(BTreeMap::new()) };
        waiting.stop();
        broker.escapes.clear();
        waiting.timers.as_ref().map_or(Ok(()), Timers::save)?;
        Ok(waiting.delays.offsets())
    }

    /// Forgets the transactions that `recover_transactions` found: another broker looks after them.
    pub(crate) fn forget_transactions(&self) {
        self.broker.iter().for_each(|broker| broker.transactions.forget());
    }

    /// Another broker has this half message now.
    pub(crate) fn leave_transaction(&self, offset: QueueOffset, physical: PhysicalOffset) {
        self.broker.iter().for_each(|broker| broker.transactions.leave(offset, physical));
    }

    /// Messages on their way to other brokers.
    pub(crate) fn escapes(&self) -> Option<&Escapes> {
        self.broker.as_ref().map(|broker| &*broker.escapes)
    }

    /// The offset of each delay level that has delivered something: see `Delays::offsets`.
    pub(crate) fn delay_offsets(&self) -> BTreeMap<u32, u64> {
        let waiting = self.waiting();
        waiting.map(|waiting| waiting.delays.offsets()).unwrap_or_default()
    }

    /// What `ask` says of the delivery of timed messages, while there is any.
    pub(crate) fn of_timers<T>(&self, ask: impl FnOnce(&Timers) -> T) -> Option<T> {
        self.waiting()?.timers.as_ref().map(ask)
    }

    fn waiting(&self) -> Option<Arc<Waiting>> {
        self.broker.as_ref()?.waiting.load_full()
    }

    /// Has what waits for a time look at the clock, and waits until all that was due is visible; false when `limit` is
    /// up before.
    pub(crate) fn catch_up(&self, limit: Duration) -> bool {
        let Some(broker) = &self.broker else { return true };
        let is_settled = broker.waiting.load_full().is_none_or(|waiting| {
            waiting.delays.settle(limit) && waiting.timers.as_ref().is_none_or(|timers| timers.settle(limit))
        });
        // A store that has failed says so elsewhere, and nothing more will be visible.
        is_settled && (!broker.store.is_sync() || broker.store.flush().is_ok() || broker.store.is_latched())
    }

    /// Finds the transactions that are open, of a broker's store, and counts on from these checks. Before it serves; may
    /// wait for the disk.
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

    /// How often producers were asked about open transactions.
    pub(crate) fn checked_transactions(&self) -> Vec<CheckedHalves> {
        self.broker.as_ref().map(|broker| broker.transactions.checked()).unwrap_or_default()
    }

    /// Notes in the table of offsets which transactions have ended for good: see `Transactions::save`.
    pub(crate) fn save_transactions(&self) -> Result<(), StoreError> {
        let broker = self.broker.as_ref();
        broker.map_or(Ok(()), |broker| broker.transactions.save(&broker.metadata, &broker.offsets))
    }

    /// Transactions without a decision.
    pub(crate) fn open_transactions(&self) -> usize {
        self.broker.as_ref().map_or(0, |broker| broker.transactions.open_count())
    }

    /// Transactions by the topic of their messages.
    pub(crate) fn transactions_by_topic(&self) -> Vec<(Box<str>, TopicTransactions)> {
        self.broker.as_ref().map(|broker| broker.transactions.by_topic()).unwrap_or_default()
    }

    /// What has become of transactions since the start.
    pub(crate) fn transaction_counts(&self) -> TransactionCounts {
        self.broker.as_ref().map(|broker| broker.transactions.counts()).unwrap_or_default()
    }

    /// Ends the data plane's own threads, after its server has stopped.
    pub fn stop(&self) {
        self.guard.stop();
        if let Some(broker) = &self.broker {
            broker.deadlines.stop();
            broker.waiting.load_full().iter().for_each(|waiting| waiting.stop());
        }
    }

    /// Puts these checks and users in the place of those before. What connections were allowed is forgotten.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn publish_access(
        &self,
        checks: Checks,
        users: impl IntoIterator<Item = User>,
    ) -> std::io::Result<()> {
        self.guard.publish(checks, users)?;
        // What is in them was checked by the rules before.
        self.forget_heartbeats();
        Ok(())
    }

    /// Makes the next heartbeat of every connection go up again.
    pub(crate) fn forget_heartbeats(&self) {
        self.heartbeat_epoch.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn heartbeat_epoch(&self) -> u64 {
        self.heartbeat_epoch.load(Ordering::Acquire)
    }

    /// Time since the connection's last accepted heartbeat.
    pub(crate) fn heartbeat_age(&self, link: LinkId) -> Option<Duration> {
        let last = *self.heartbeats.lock().get(&link.0)?;
        Some(self.clock.elapsed().saturating_sub(last))
    }
}

impl Arrivals for DataPlane {
    fn arrived(&self, queue: &ConsumeQueue, max: QueueOffset, tags_code: i64) {
        if let Some(broker) = &self.broker {
            broker.polls.arrived(queue, max, tags_code);
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
            // A slave's master looks after what waits.
            return if broker.metadata.role() == Role::Master { Waits::Unknown } else { Waits::Nothing };
        };
        let timed = waiting.timers.as_ref().map_or(Some(PhysicalOffset(u64::MAX)), Timers::waits_from);
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
