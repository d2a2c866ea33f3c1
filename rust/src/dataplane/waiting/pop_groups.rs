//! Pop groups: a consumer group that pops a topic, with its requests that wait for messages.
//!
//! A request that finds nothing parks here. A message wakes one pop and one notification, which are served again on
//! their own connections; a pop wakes the next one where it leaves something.
//!
//! Invariant: a request is in its group before the group is registered with the queues, and looks at them once more
//! afterwards. The thread that removes a request wakes it, once.
//! Threads: I/O threads park and pop, one of a group at a time; the thread that dispatches wakes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};

use crate::dataplane::state::filter::Filter;
use crate::dataplane::state::pop_options::PopOptions;
use crate::dataplane::waiting::event::{Event, Owed};

/// Bytes of the frames and filters of all requests that wait.
const PARKED_BYTES_MAX: usize = 128 << 20;
/// Groups that are remembered while no request waits; beyond that they are looked up again.
const GROUPS_KEPT_MAX: usize = 10_000;

/// The place of a parked request: the end of its wait, in milliseconds since the epoch, and a number that makes it unique.
pub(in crate::dataplane) type ParkedKey = (i64, u64);

/// What a parked request waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::dataplane) enum Purpose {
    /// A pop, which takes messages.
    Messages,
    /// A notification, after which the client pops.
    News,
}

/// A request that waits for a message.
#[derive(Debug)]
pub(in crate::dataplane) struct Consumer {
    pub(in crate::dataplane) owed: Owed,
    /// The session's name for the request.
    pub(in crate::dataplane) token: u64,
    /// The queue it asks for; below 0 for any.
    pub(in crate::dataplane) queue_id: i32,
    pub(in crate::dataplane) filter: Arc<Filter>,
    /// Bytes of its frame and filter.
    pub(in crate::dataplane) bytes: usize,
}

impl Consumer {
    fn wake(self) {
        self.owed.post(Event::Wake(self.token));
    }

    fn asks_for(&self, queue_id: u32) -> bool {
        self.queue_id < 0 || self.queue_id as u32 == queue_id
    }
}

type Consumers = BTreeMap<ParkedKey, Consumer>;

#[derive(Debug, Default)]
struct Parked {
    pops: Consumers,
    notifications: Consumers,
}

impl Parked {
    fn of(&mut self, purpose: Purpose) -> &mut Consumers {
        match purpose {
            Purpose::Messages => &mut self.pops,
            Purpose::News => &mut self.notifications,
        }
    }

    fn count(&self) -> usize {
        self.pops.len() + self.notifications.len()
    }
}

/// A queue that a group has in order, and when it is free again: the time, and the name of its deadline.
pub(in crate::dataplane) type Releases = HashMap<u32, (i64, (Duration, u64))>;

/// A group that pops a topic.
#[derive(Debug, Default)]
pub(crate) struct PopGroup {
    /// Held while messages are handed out: two consumers never get the same one.
    popping: Mutex<()>,
    parked: Mutex<Parked>,
    /// Deadlines of queues that are popped in order.
    pub(in crate::dataplane) releases: Mutex<Releases>,
}

impl PopGroup {
    pub(in crate::dataplane) fn lock(&self) -> MutexGuard<'_, ()> {
        self.popping.lock()
    }

    /// Whether no request waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.parked.lock().count() == 0
    }

    /// Pops that wait for exactly this queue; below 0 for those of any.
    pub(in crate::dataplane) fn parked_pops(&self, queue_id: i32) -> usize {
        self.parked.lock().pops.values().filter(|consumer| consumer.queue_id == queue_id).count()
    }
}

type GroupOfTopic = (Box<str>, Arc<str>);

/// All groups that pop, by group and topic.
#[derive(Debug)]
pub(crate) struct PopGroups {
    table: Mutex<HashMap<GroupOfTopic, Arc<PopGroup>>>,
    parked: AtomicUsize,
    parked_bytes: AtomicUsize,
    parked_max: usize,
    parked_per_group_max: usize,
    sequence: AtomicU64,
}

impl PopGroups {
    pub(in crate::dataplane) fn new(options: &PopOptions) -> Self {
        Self {
            table: Mutex::default(),
            parked: AtomicUsize::new(0),
            parked_bytes: AtomicUsize::new(0),
            parked_max: options.parked_max,
            parked_per_group_max: options.parked_per_group_max,
            sequence: AtomicU64::new(0),
        }
    }

    pub(in crate::dataplane) fn of(&self, group: &str, topic: &Arc<str>) -> Arc<PopGroup> {
        let mut table = self.table.lock();
        if table.len() >= GROUPS_KEPT_MAX {
            table.retain(|_, group| Arc::strong_count(group) > 1 || !group.is_idle());
        }
        Arc::clone(table.entry((group.into(), Arc::clone(topic))).or_default())
    }

    /// Requests that wait.
    pub(crate) fn parked(&self) -> usize {
        self.parked.load(Ordering::Relaxed)
    }

    /// Adds a request that waits until `end_ms`, or gives it back where too many wait.
    pub(in crate::dataplane) fn park(
        &self,
        group: &PopGroup,
        purpose: Purpose,
        end_ms: i64,
        consumer: Consumer,
    ) -> Result<ParkedKey, Consumer> {
        let mut parked = group.parked.lock();
        let count = self.parked.fetch_add(1, Ordering::Relaxed);
        let bytes = self.parked_bytes.fetch_add(consumer.bytes, Ordering::Relaxed) + consumer.bytes;
        if parked.of(purpose).len() >= self.parked_per_group_max
            || count >= self.parked_max
            || bytes > PARKED_BYTES_MAX
        {
            self.left(&consumer);
            return Err(consumer);
        }
        let key = (end_ms, self.sequence.fetch_add(1, Ordering::Relaxed));
        parked.of(purpose).insert(key, consumer);
        Ok(key)
    }

    /// Takes one request out, if it is still there.
    pub(in crate::dataplane) fn forget(
        &self,
        group: &PopGroup,
        purpose: Purpose,
        key: ParkedKey,
    ) -> Option<Consumer> {
        let consumer = group.parked.lock().of(purpose).remove(&key)?;
        self.left(&consumer);
        Some(consumer)
    }

    /// A request that was counted stands in no table.
    fn left(&self, consumer: &Consumer) {
        self.parked.fetch_sub(1, Ordering::Relaxed);
        self.parked_bytes.fetch_sub(consumer.bytes, Ordering::Relaxed);
    }

    /// Wakes one request, if it is still there.
    pub(in crate::dataplane) fn wake(&self, group: &PopGroup, purpose: Purpose, key: ParkedKey) {
        self.forget(group, purpose, key).into_iter().for_each(Consumer::wake);
    }

    /// Wakes the pop that ends first, of those that ask for this queue, or for any where it is below 0.
    pub(in crate::dataplane) fn wake_next(&self, group: &PopGroup, queue_id: i32) {
        self.wake_first(group, Purpose::Messages, |consumer| {
            consumer.queue_id < 0 || consumer.queue_id == queue_id
        });
    }

    /// Wakes the requests for a queue that is free again.
    pub(in crate::dataplane) fn freed(&self, group: &PopGroup, queue_id: u32) {
        for purpose in [Purpose::Messages, Purpose::News] {
            self.wake_first(group, purpose, |consumer| consumer.asks_for(queue_id));
        }
    }

    /// Wakes the first requests that a message is for: of `queue_id`, or of any queue where it is `None`.
    pub(crate) fn arrived(&self, group: &PopGroup, queue_id: Option<u32>, tags_code: i64) {
        for purpose in [Purpose::Messages, Purpose::News] {
            self.wake_first(group, purpose, |consumer| {
                queue_id.is_none_or(|id| consumer.asks_for(id) && consumer.filter.may_match(tags_code))
            });
        }
    }

    /// As in Apache's broker: of pops the one whose wait ends first, of notifications the one whose wait ends last.
    fn wake_first(&self, group: &PopGroup, purpose: Purpose, is_served: impl Fn(&Consumer) -> bool) {
        let mut parked = group.parked.lock();
        let consumers = parked.of(purpose);
        let served = |(key, consumer): (&ParkedKey, &Consumer)| is_served(consumer).then_some(*key);
        let key = match purpose {
            Purpose::Messages => consumers.iter().find_map(served),
            Purpose::News => consumers.iter().rev().find_map(served),
        };
        let consumer = key.and_then(|key| consumers.remove(&key));
        drop(parked);
        if let Some(consumer) = consumer {
            self.left(&consumer);
            consumer.wake();
        }
    }

    /// Wakes every request: the broker's role has changed, and so have the answers.
    pub(crate) fn wake_all(&self) {
        let groups: Vec<_> = self.table.lock().values().map(Arc::clone).collect();
        for group in groups {
            let Parked { pops, notifications } = std::mem::take(&mut *group.parked.lock());
            for consumer in pops.into_values().chain(notifications.into_values()) {
                self.left(&consumer);
                consumer.wake();
            }
        }
    }
}
