//! Lites: shared state of the requests for lite topics, except offsets and batches.
//!
//! Invariant: one pop or acknowledgement of a queue by a group at a time.
//! Threads: any. The lock of a queue and group comes before those of the store, consumers and releases.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};

use crate::dataplane::delivery::deadlines::DeadlineKey;
use crate::dataplane::waiting::lite_consumers::LiteConsumers;

/// Locks for all queues and groups; those with the same one take turns.
const LOCKS: usize = 64;

/// When a group may have more of a queue, and the deadline for that, by group and queue.
type Releases = HashMap<(Arc<str>, Arc<str>), (i64, DeadlineKey)>;

pub(crate) struct Lites {
    pub(crate) consumers: LiteConsumers,
    locks: [Mutex<()>; LOCKS],
    pub(super) releases: Mutex<Releases>,
}

impl Lites {
    pub(in crate::dataplane) fn new(subscriptions_max: usize) -> Self {
        let locks = std::array::from_fn(|_| Mutex::default());
        Self { consumers: LiteConsumers::new(subscriptions_max), locks, releases: Mutex::default() }
    }

    /// Locks a queue for a group.
    pub(super) fn lock(&self, group: &str, queue: &str) -> MutexGuard<'_, ()> {
        self.locks[FixedState::default().hash_one((group, queue)) as usize % LOCKS].lock()
    }

    /// Forgets the deadline of a queue and group, which is over.
    pub(in crate::dataplane) fn released(&self, group: &Arc<str>, queue: &Arc<str>) {
        self.releases.lock().remove(&(Arc::clone(group), Arc::clone(queue)));
    }
}
