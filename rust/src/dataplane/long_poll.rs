//! Long polls: pulls that found nothing and wait for a message.
//!
//! A pull parks in its own session; here stands only which to wake when a queue grows. Waking posts the pull's
//! token to its connection, which executes it again on its own I/O thread. Queues without a waiter cost the
//! dispatch one relaxed load.
//!
//! Invariant: a connection that parks looks at the queue once more afterwards, so that a message which became visible in
//! between is not slept over.
//! Threads: `park` and `forget` from I/O threads, `arrived` from the thread that dispatches.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::event::{Event, Link};
use crate::message::tag::TagFilter;
use crate::positions::{QueueKey, QueueOffset};
use crate::store::ConsumeQueue;

const SHARDS: usize = 16;

/// Pulls that may wait at once in the whole broker; one more is answered at once.
pub(super) const PARKED_PULLS_MAX: usize = 100_000;

/// One parked pull, seen from its queue.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) link: Arc<Link>,
    /// What its session knows the pull by.
    pub(super) token: u64,
    /// Where it wants to go on.
    pub(super) offset: QueueOffset,
    /// What it would let through.
    pub(super) filter: Arc<TagFilter>,
}

#[derive(Debug, Default)]
pub(crate) struct LongPolls {
    shards: [Mutex<HashMap<QueueKey, Vec<Waiter>>>; SHARDS],
    count: AtomicUsize,
}

impl LongPolls {
    fn shard(&self, key: &QueueKey) -> &Mutex<HashMap<QueueKey, Vec<Waiter>>> {
        &self.shards[FixedState::default().hash_one(key) as usize % SHARDS]
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a waiter; false when there are too many.
    pub(super) fn park(&self, queue: &ConsumeQueue, waiter: Waiter) -> bool {
        if self.count.fetch_add(1, Ordering::Relaxed) >= PARKED_PULLS_MAX {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let mut shard = self.shard(queue.key()).lock();
        match shard.get_mut(queue.key()) {
            Some(waiters) => waiters.push(waiter),
            None => drop(shard.insert(queue.key().clone(), vec![waiter])),
        }
        queue.set_awaited(true);
        true
    }

    /// Takes one waiter out, if it is still there.
    pub(super) fn forget(&self, queue: &ConsumeQueue, link: &Arc<Link>, token: u64) {
        self.remove(queue, |waiter| waiter.token == token && Arc::ptr_eq(&waiter.link, link), |_| ());
    }

    /// Wakes the waiters that `queue`, now ending at `max`, has something for.
    ///
    /// `tags_code` is that of the newest entry: a pull for other tags sleeps on.
    pub(super) fn arrived(&self, queue: &ConsumeQueue, max: QueueOffset, tags_code: i64) {
        let is_served = |waiter: &Waiter| waiter.offset < max && waiter.filter.matches_code(tags_code);
        self.remove(queue, is_served, |waiter| {
            waiter.link.post(Event::Wake(waiter.token));
        });
    }

    fn remove(&self, queue: &ConsumeQueue, select: impl Fn(&Waiter) -> bool, mut then: impl FnMut(Waiter)) {
        let mut shard = self.shard(queue.key()).lock();
        let Some(waiters) = shard.get_mut(queue.key()) else { return };
        let taken: Vec<Waiter> = waiters.extract_if(.., |waiter| select(waiter)).collect();
        if waiters.is_empty() {
            shard.remove(queue.key());
            queue.set_awaited(false);
        }
        drop(shard);
        self.count.fetch_sub(taken.len(), Ordering::Relaxed);
        taken.into_iter().for_each(&mut then);
    }
}
