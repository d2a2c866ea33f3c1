//! Long polls: pulls that found nothing and wait for a message.
//!
//! A pull parks in its own session; here stands only which to wake when a queue grows. Waking posts the pull's
//! token to its connection, which executes it again on its own I/O thread. Queues without a waiter cost the
//! dispatch one relaxed load.
//!
//! Invariant: who takes a waiter out wakes it, once. A connection that parks looks at the queue once more afterwards, so
//! that a message which became visible in between is not slept over.
//! Threads: `park` and `forget` from I/O threads, `arrived` from the thread that dispatches, `wake` from that of the
//! deadlines.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::event::{Event, Owed};
use super::filter::Filter;
use crate::positions::{QueueKey, QueueOffset};
use crate::remoting::LinkId;
use crate::store::ConsumeQueue;

const SHARDS: usize = 16;

/// Pulls that may wait at once in the whole broker; one more is answered at once.
pub(super) const PARKED_PULLS_MAX: usize = 100_000;

/// Waiters of one queue that are compared with each new entry. More are woken as they are: each pays for one look at an
/// entry itself, instead of every send for looks at all of them.
const COMPARED_MAX: usize = 4_096;
/// Memory of filters that waiters have; with more, a pull that has many tags does not park.
const FILTER_BYTES_MAX: usize = 64 << 20;

/// One parked pull, seen from its queue.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) owed: Owed,
    /// What its session knows the pull by.
    pub(super) token: u64,
    /// Where it wants to go on.
    pub(super) offset: QueueOffset,
    /// What it would let through.
    pub(super) filter: Arc<Filter>,
}

impl Waiter {
    fn is(&self, link: LinkId, token: u64) -> bool {
        self.token == token && self.owed.link().id() == link
    }

    fn wake(self) {
        self.owed.post(Event::Wake(self.token));
    }
}

/// The waiters of one queue, oldest first: that is the order in which most of them leave.
type Waiters = VecDeque<Waiter>;

#[derive(Debug, Default)]
pub(crate) struct LongPolls {
    shards: [Mutex<HashMap<QueueKey, Waiters>>; SHARDS],
    count: AtomicUsize,
    filter_bytes: AtomicUsize,
}

impl LongPolls {
    fn shard(&self, key: &QueueKey) -> &Mutex<HashMap<QueueKey, Waiters>> {
        &self.shards[FixedState::default().hash_one(key) as usize % SHARDS]
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a waiter, or gives it back when there are too many.
    pub(super) fn park(&self, queue: &ConsumeQueue, waiter: Waiter) -> Result<(), Waiter> {
        let bytes = waiter.filter.bytes();
        let pulls = self.count.fetch_add(1, Ordering::Relaxed);
        let filters = self.filter_bytes.fetch_add(bytes, Ordering::Relaxed);
        if pulls >= PARKED_PULLS_MAX || (bytes > 0 && filters + bytes > FILTER_BYTES_MAX) {
            self.left(&waiter);
            return Err(waiter);
        }
        let mut shard = self.shard(queue.key()).lock();
        match shard.get_mut(queue.key()) {
            Some(waiters) => waiters.push_back(waiter),
            None => drop(shard.insert(queue.key().clone(), Waiters::from([waiter]))),
        }
        queue.set_awaited(true);
        Ok(())
    }

    /// Takes one waiter out, if it is still there.
    pub(super) fn forget(&self, queue: &ConsumeQueue, link: LinkId, token: u64) -> Option<Waiter> {
        let waiter = self.remove(queue, |waiters| {
            let at = waiters.iter().position(|waiter| waiter.is(link, token))?;
            waiters.remove(at)
        })?;
        self.left(&waiter);
        Some(waiter)
    }

    /// Takes all waiters of a connection out, in one pass: a crowd may wait behind each other.
    pub(super) fn forget_all(&self, queue: &ConsumeQueue, link: LinkId) {
        let forgotten: Waiters = self.remove(queue, |waiters| {
            let (gone, rest) = waiters.drain(..).partition(|waiter| waiter.owed.link().id() == link);
            *waiters = rest;
            gone
        });
        forgotten.iter().for_each(|waiter| self.left(waiter));
    }

    /// Wakes one waiter, if it is still there.
    pub(super) fn wake(&self, queue: &ConsumeQueue, link: LinkId, token: u64) {
        self.forget(queue, link, token).into_iter().for_each(Waiter::wake);
    }

    /// Wakes the waiters that `queue`, now ending at `max`, has something for.
    ///
    /// `tags_code` is that of the newest entry: a pull for other tags sleeps on. One whose filter needs the record is
    /// woken, and waits on where that is not wanted: here, under the lock of the dispatch, nothing is read.
    pub(super) fn arrived(&self, queue: &ConsumeQueue, max: QueueOffset, tags_code: i64) {
        let taken = self.remove(queue, |waiters| {
            let mut taken = Vec::new();
            let is_crowd = waiters.len() > COMPARED_MAX;
            let is_served =
                |waiter: &Waiter| waiter.offset < max && (is_crowd || waiter.filter.may_match(tags_code));
            if waiters.iter().any(is_served) {
                for _ in 0..waiters.len() {
                    let Some(waiter) = waiters.pop_front() else { break };
                    if is_served(&waiter) { taken.push(waiter) } else { waiters.push_back(waiter) }
                }
            }
            taken
        });
        for waiter in taken {
            self.left(&waiter);
            waiter.wake();
        }
    }

    /// Wakes every waiter: the broker's role is another, and so are the answers.
    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            // Their queues are taken for awaited until something arrives, which costs a look.
            let waiters: Vec<Waiters> = shard.lock().drain().map(|(_, waiters)| waiters).collect();
            for waiter in waiters.into_iter().flatten() {
                self.left(&waiter);
                waiter.wake();
            }
        }
    }

    /// A waiter that was counted stands in no table.
    fn left(&self, waiter: &Waiter) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.filter_bytes.fetch_sub(waiter.filter.bytes(), Ordering::Relaxed);
    }

    /// Has `take` take waiters of `queue` out.
    fn remove<T: Default>(&self, queue: &ConsumeQueue, take: impl FnOnce(&mut Waiters) -> T) -> T {
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
