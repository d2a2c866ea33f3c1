//! Long polls: parked pulls that wait for a message.
//!
//! A pull is parked in its own session; this table has only the waiters to wake when a queue grows. A wake posts the
//! pull's token to its connection, which executes it again on its own I/O thread. A queue without waiters costs the
//! dispatch one relaxed load.
//!
//! The dispatch wakes a few thousand waiters itself. It leaves a larger crowd to the deadline thread, which wakes it in
//! slices, by a pass over the queue. A message that arrives during a pass starts no other one, but has it repeated.
//!
//! *Invariant*: the thread that removes a waiter wakes it, once. A connection that parks checks the queue
//! afterwards, so that it does not miss a message that became visible in between. A pass wakes every waiter below the
//! end of the queue, and is repeated if a message arrived since it began.
//! Threads: `park` and `forget` on I/O threads, `arrived` on the dispatch thread, `wake` and `wake_crowd` on the
//! deadline thread.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::event::{Event, Owed};
use super::pop_groups::{PopGroup, PopGroups};
use crate::dataplane::state::filter::Filter;
use crate::positions::{QueueKey, QueueOffset};
use crate::remoting::LinkId;
use crate::store::ConsumeQueue;

const SHARDS: usize = 16;

/// Maximum number of parked pulls in the broker; further ones are answered immediately.
pub(super) const PARKED_PULLS_MAX: usize = 100_000;

/// The number of waiters of a queue whose filters are compared with each new entry. If there are more, all are
/// woken, so that each consumer pays for its check and not every send for all of them.
const COMPARED_MAX: usize = 4_096;
/// The number of waiters of a crowd in one slice: some ten microseconds under the lock.
const SLICE: usize = 256;
/// The start of a pass over a crowd.
pub(in crate::dataplane) const CROWD_BEGIN: WaiterId = (LinkId(0), 0);
/// Memory for the filters of waiters. Above it, pulls with large filters are not parked.
const FILTER_BYTES_MAX: usize = 64 << 20;

/// A parked pull.
#[derive(Debug)]
pub(in crate::dataplane) struct Waiter {
    pub(in crate::dataplane) owed: Owed,
    pub(in crate::dataplane) token: u64,
    /// The offset of the next message it wants.
    pub(in crate::dataplane) offset: QueueOffset,
    pub(in crate::dataplane) filter: Arc<Filter>,
}

/// Names a waiter by its connection and token; those of one connection follow each other.
pub(in crate::dataplane) type WaiterId = (LinkId, u64);

impl Waiter {
    fn id(&self) -> WaiterId {
        (self.owed.link().id(), self.token)
    }

    fn wake(self) {
        self.owed.post(Event::Wake(self.token));
    }
}

#[derive(Debug, Default)]
struct QueueWaiters {
    pulls: BTreeMap<WaiterId, Waiter>,
    pass: Pass,
    /// Groups with parked pops, and whether their pops read this queue for the first delivery.
    pops: Vec<(Arc<PopGroup>, bool)>,
}

impl QueueWaiters {
    fn is_empty(&self) -> bool {
        self.pulls.is_empty() && self.pops.is_empty()
    }
}

/// The pass that wakes a crowd.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Pass {
    #[default]
    None,
    Running,
    /// It is repeated: messages have arrived since it began.
    Repeated,
}

#[derive(Debug)]
pub(crate) struct LongPolls {
    shards: [Mutex<HashMap<QueueKey, QueueWaiters>>; SHARDS],
    groups: Arc<PopGroups>,
    count: AtomicUsize,
    filter_bytes: AtomicUsize,
}

impl LongPolls {
    /// Creates the table, with the groups of pops to wake.
    pub(in crate::dataplane) fn new(groups: Arc<PopGroups>) -> Self {
        let (shards, count, filter_bytes) = Default::default();
        Self { shards, groups, count, filter_bytes }
    }

    fn shard(&self, key: &QueueKey) -> &Mutex<HashMap<QueueKey, QueueWaiters>> {
        &self.shards[FixedState::default().hash_one(key) as usize % SHARDS]
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a waiter, or returns it at the bounds.
    pub(in crate::dataplane) fn park(&self, queue: &ConsumeQueue, waiter: Waiter) -> Result<(), Waiter> {
        let bytes = waiter.filter.bytes();
        let pulls = self.count.fetch_add(1, Ordering::Relaxed);
        let filters = self.filter_bytes.fetch_add(bytes, Ordering::Relaxed);
        if pulls >= PARKED_PULLS_MAX || (bytes > 0 && filters + bytes > FILTER_BYTES_MAX) {
            self.left(&waiter);
            return Err(waiter);
        }
        let mut shard = self.shard(queue.key()).lock();
        shard.entry_ref(queue.key()).or_default().pulls.insert(waiter.id(), waiter);
        queue.set_awaited(true);
        Ok(())
    }

    /// Makes new messages of a queue wake pops of a group, `is_first` for the first delivery. The registration ends
    /// with the first message that finds no parked pop.
    pub(in crate::dataplane) fn register(&self, queue: &ConsumeQueue, group: &Arc<PopGroup>, is_first: bool) {
        let mut shard = self.shard(queue.key()).lock();
        let waiters = shard.entry_ref(queue.key()).or_default();
        if !waiters.pops.iter().any(|(known, _)| Arc::ptr_eq(known, group)) {
            waiters.pops.push((Arc::clone(group), is_first));
        }
        queue.set_awaited(true);
    }

    /// Removes a waiter, if it is still in the table.
    pub(in crate::dataplane) fn forget(
        &self,
        queue: &ConsumeQueue,
        link: LinkId,
        token: u64,
    ) -> Option<Waiter> {
        let waiter = self.remove(queue, |waiters| waiters.pulls.remove(&(link, token)))?;
        self.left(&waiter);
        Some(waiter)
    }

    /// Wakes a waiter, if it is still in the table.
    pub(in crate::dataplane) fn wake(&self, queue: &ConsumeQueue, link: LinkId, token: u64) {
        self.forget(queue, link, token).into_iter().for_each(Waiter::wake);
    }

    /// Wakes the waiters of `queue`, which now ends at `max`, that may want its messages.
    ///
    /// `tags_code` is that of the newest entry; pulls for other tags are not woken. A pull whose filter needs the
    /// record is woken and may be parked again: nothing is read here, under the lock of the dispatch.
    ///
    /// Returns whether a pass over a crowd begins. The caller must have another thread call `wake_crowd`, from
    /// `CROWD_BEGIN` on.
    pub(in crate::dataplane) fn arrived(
        &self,
        queue: &ConsumeQueue,
        max: QueueOffset,
        tags_code: i64,
    ) -> bool {
        let (woken, begins) = self.remove(queue, |QueueWaiters { pulls, pass, pops }| {
            pops.retain(|(group, is_first)| {
                self.groups.arrived(group, is_first.then_some(queue.key().queue_id), tags_code);
                !group.is_idle()
            });
            if pulls.len() > COMPARED_MAX {
                let begins = *pass == Pass::None;
                *pass = if begins { Pass::Running } else { Pass::Repeated };
                return (Vec::new(), begins);
            }
            let is_served = |waiter: &Waiter| waiter.offset < max && waiter.filter.may_match(tags_code);
            (pulls.extract_if(.., |_, waiter| is_served(waiter)).map(|(_, waiter)| waiter).collect(), false)
        });
        self.wake_taken(woken);
        begins
    }

    /// Wakes a slice of a crowd; returns where the next slice begins, unless this was the last one.
    pub(in crate::dataplane) fn wake_crowd(&self, queue: &ConsumeQueue, from: WaiterId) -> Option<WaiterId> {
        let (woken, next) = self.remove(queue, |QueueWaiters { pulls, pass, .. }| {
            let next = pulls.range(from..).nth(SLICE).map(|(id, _)| *id);
            let slice = (Bound::Included(from), next.map_or(Bound::Unbounded, Bound::Excluded));
            let max = queue.max();
            let woken = pulls.extract_if(slice, |_, waiter| waiter.offset < max);
            let woken: Vec<Waiter> = woken.map(|(_, waiter)| waiter).collect();
            if next.is_some() {
                return (woken, next);
            }
            let is_repeated = *pass == Pass::Repeated;
            *pass = if is_repeated { Pass::Running } else { Pass::None };
            (woken, is_repeated.then_some(CROWD_BEGIN))
        });
        self.wake_taken(woken);
        next
    }

    fn wake_taken(&self, waiters: Vec<Waiter>) {
        for waiter in waiters {
            self.left(&waiter);
            waiter.wake();
        }
    }

    /// Wakes all waiters, because a new role changes the answers.
    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            // The queues stay marked as awaited until the next message, which costs one lookup.
            let waiters: Vec<QueueWaiters> = shard.lock().drain().map(|(_, waiters)| waiters).collect();
            for waiter in waiters.into_iter().flat_map(|waiters| waiters.pulls.into_values()) {
                self.left(&waiter);
                waiter.wake();
            }
        }
        self.groups.wake_all();
    }

    /// Uncounts a waiter that is in no table.
    fn left(&self, waiter: &Waiter) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.filter_bytes.fetch_sub(waiter.filter.bytes(), Ordering::Relaxed);
    }

    /// Removes waiters of `queue` with `take`.
    fn remove<T: Default>(&self, queue: &ConsumeQueue, take: impl FnOnce(&mut QueueWaiters) -> T) -> T {
        let mut shard = self.shard(queue.key()).lock();
        let Some(waiters) = shard.get_mut(queue.key()) else { return T::default() };
        let taken = take(waiters);
        if waiters.is_empty() {
            shard.remove(queue.key());
            queue.set_awaited(false);
        }
        taken
    }
}

#[cfg(test)]
mod tests;
