//! Revive: one thread copies messages that were popped and not acknowledged in time to the group's retry topic.
//!
//! It follows the revive topic, whose records the timers deliver when they are due, and keeps the checkpoints that are
//! pending (`queue`). A checkpoint is decided once the timers have delivered everything that is due by its time: an
//! acknowledgement that came in time has been read by then.
//!
//! Invariant: the progress that it saves passes a checkpoint only when each of its messages is acknowledged, copied, or
//! gone. After a crash it reads from there, and copies at most the messages of the last few checkpoints again.
//! Threads: its own, which may wait for the disk.

mod copies;
mod pending;
mod progress;
mod queue;
pub(crate) mod records;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::SharedClock;
use crate::dataplane::delivery::deadlines::Deadlines;
use crate::dataplane::delivery::timers::Timers;
use crate::dataplane::state::deliveries::Deliveries;
use crate::dataplane::state::metadata::{Metadata, Topic};
use crate::dataplane::state::offsets::Offsets;
use crate::message::topic::REVIVE_GROUP;
use crate::store::{GetResult, Store, StoreError};
use copies::{Copied, Copier};
use queue::ReviveQueue;

/// Maximum number of pending checkpoints; further ones wait in the revive topic.
const PENDING_MAX: usize = 400_000;
/// Checkpoints of one group that are decided in turn with those of others, and checkpoints that one step decides.
const TURN_MAX: usize = 16;
const DECIDED_PER_STEP_MAX: usize = 1_024;
/// Pause while a checkpoint is about to be due, and while none is pending.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
const IDLE_PAUSE: Duration = Duration::from_millis(200);
/// Pause after the store refused a copy.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// Topics to be made that are remembered.
const MISSING_MAX: usize = 256;

/// The thread, while this broker delivers what waits.
pub(in crate::dataplane) struct Revive {
    worker: Arc<Mutex<Worker>>,
    missing: Missing,
    deadlines: Deadlines<()>,
}

/// The names of topics that copies wait for.
type Missing = Arc<Mutex<BTreeSet<String>>>;

/// The parts of the broker that the thread works on.
pub(in crate::dataplane) struct Parts {
    pub(in crate::dataplane) store: Arc<Store>,
    pub(in crate::dataplane) metadata: Arc<Metadata>,
    pub(in crate::dataplane) offsets: Arc<Offsets>,
    pub(in crate::dataplane) deliveries: Arc<Deliveries>,
    pub(in crate::dataplane) timers: Arc<Timers>,
    pub(in crate::dataplane) clock: SharedClock,
}

impl Revive {
    /// Begins where the last one has saved.
    pub(in crate::dataplane) fn start(parts: Parts) -> Result<Self, StoreError> {
        let Parts { store, metadata, offsets, deliveries, timers, clock } = parts;
        progress::recover(&store, &metadata, &offsets)?;
        let missing = Missing::default();
        let worker = Worker {
            copier: Copier {
                store: Arc::clone(&store),
                metadata: Arc::clone(&metadata),
                recovered_ms: store.last_store_time().unwrap_or(i64::MIN),
            },
            store: Arc::clone(&store),
            metadata,
            offsets,
            deliveries,
            timers,
            clock: Arc::clone(&clock),
            missing: Arc::clone(&missing),
            queues: Vec::new(),
            found: GetResult::default(),
        };
        let worker = Arc::new(Mutex::new(worker));
        let shared = Arc::clone(&worker);
        let deadlines = Deadlines::start("revive", clock, move |()| Some((shared.lock().step(), ())));
        let deadlines = deadlines.map_err(StoreError::io(store.root(), "start a thread"))?;
        deadlines.add(Duration::ZERO, ());
        Ok(Self { worker, missing, deadlines })
    }

    /// Takes the topics that copies wait for.
    pub(in crate::dataplane) fn take_missing(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.missing.lock())
    }

    /// Decides by the clock as it is now: see `Deadlines::settle`.
    pub(in crate::dataplane) fn settle(&self, limit: Duration) -> bool {
        self.deadlines.settle(limit)
    }

    /// Ends it; when this returns no copy is in progress.
    pub(in crate::dataplane) fn stop(&self) {
        self.deadlines.stop();
        drop(self.worker.lock());
    }
}

struct Worker {
    store: Arc<Store>,
    metadata: Arc<Metadata>,
    offsets: Arc<Offsets>,
    deliveries: Arc<Deliveries>,
    timers: Arc<Timers>,
    clock: SharedClock,
    missing: Missing,
    copier: Copier,
    queues: Vec<ReviveQueue>,
    found: GetResult,
}

/// The result of deciding the due checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decided {
    All,
    /// The step has done enough.
    Some,
    /// The store, or a topic that does not exist, refused a copy.
    Refused,
}

impl Worker {
    /// Reads on, copies what is due, and returns when to look again.
    fn step(&mut self) -> Duration {
        let Some(topic) = self.metadata.topic(&self.metadata.revive_topic) else { return IDLE_PAUSE };
        // What the timers have delivered by now is read below.
        let delivered_ms = self.timers.delivered_ms();
        let Ok(mut is_whole) = self.read_on(&topic) else { return REFUSED_PAUSE };
        let is_due = self.first_due_ms().is_some_and(|due_ms| due_ms <= delivered_ms);
        if is_due && self.store.is_sync() {
            // What the timers have delivered is shown once it is on the disk.
            let read = self.store.flush().and_then(|_| self.read_on(&topic));
            let Ok(is_rest) = read else { return REFUSED_PAUSE };
            is_whole = is_rest;
        }
        let decided = self.decide(delivered_ms);
        self.save(&topic);
        match decided {
            Decided::Refused => REFUSED_PAUSE,
            Decided::All if is_whole => self.pause(),
            Decided::All | Decided::Some => Duration::ZERO,
        }
    }

    fn first_due_ms(&self) -> Option<i64> {
        self.queues.iter().filter_map(|queue| queue.pending.first_due_ms()).min()
    }

    fn pause(&self) -> Duration {
        let Some(due_ms) = self.first_due_ms() else { return IDLE_PAUSE };
        let left_ms = due_ms.saturating_sub(self.clock.wall_ms() as i64).max(0);
        Duration::from_millis(left_ms.unsigned_abs()).clamp(BUSY_PAUSE, IDLE_PAUSE)
    }

    /// Reads new records; whether that was all of them.
    fn read_on(&mut self, topic: &Topic) -> Result<bool, StoreError> {
        for queue_id in self.queues.len() as u32..topic.queue_count() {
            let queue = topic.queue(&self.store, queue_id)?;
            let saved = self.offsets.query(REVIVE_GROUP, &topic.name, queue_id);
            self.queues.push(ReviveQueue::new(queue, saved));
        }
        let pending_max = PENDING_MAX / self.queues.len().max(1);
        let mut is_whole = true;
        for queue in &mut self.queues {
            queue.read_on(&self.store, &self.metadata.identity.broker, pending_max, &mut self.found)?;
            is_whole &= queue.is_whole;
        }
        Ok(is_whole)
    }

    /// Copies the messages that are due by `delivered_ms`, of each group in turn.
    fn decide(&mut self, delivered_ms: i64) -> Decided {
        let mut queues = std::mem::take(&mut self.queues);
        let mut left = DECIDED_PER_STEP_MAX;
        let mut decided = Decided::All;
        // Otherwise an acknowledgement that came in time may not have been read yet.
        for queue in queues.iter_mut().filter(|queue| queue.is_whole) {
            let mut groups = queue.pending.due_groups(delivered_ms);
            while !groups.is_empty() && left > 0 {
                groups.retain(|group| {
                    for _ in 0..TURN_MAX.min(left) {
                        let Some((at, checkpoint)) = queue.pending.due(group, delivered_ms) else {
                            return false;
                        };
                        left -= 1;
                        match self.copier.copy(&checkpoint) {
                            Ok(Copied::All) => {
                                self.ended(&checkpoint, checkpoint.offsets.len());
                                queue.pending.close(at);
                                continue;
                            }
                            Ok(Copied::Some(copied)) => {
                                self.ended(&checkpoint, copied.len());
                                queue.pending.finish(at, &copied);
                            }
                            Ok(Copied::Missing(name)) => self.ask_for(name),
                            Err(_) => {}
                        }
                        decided = Decided::Refused;
                        return false;
                    }
                    true
                });
            }
        }
        self.queues = queues;
        if left == 0 && decided == Decided::All { Decided::Some } else { decided }
    }

    /// Counts messages of a checkpoint as finished.
    fn ended(&self, checkpoint: &records::Checkpoint, count: usize) {
        let key = &checkpoint.key;
        self.deliveries.ended(&key.group, &key.topic, key.queue_id, count);
    }

    fn ask_for(&self, name: String) {
        let mut missing = self.missing.lock();
        if missing.len() < MISSING_MAX {
            missing.insert(name);
        }
    }

    /// Notes how far each queue is done.
    fn save(&mut self, topic: &Topic) {
        for queue in &mut self.queues {
            if let Some(offset) = queue.progress() {
                // Refused only if the topic no longer has the queue; no consumer reads it then.
                let _ = self.offsets.save_own(REVIVE_GROUP, topic, queue.id().into(), offset as i64);
            }
        }
    }
}
