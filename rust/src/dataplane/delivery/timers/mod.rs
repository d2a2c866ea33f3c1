//! Timers: delivery of messages from `rmq_sys_wheel_timer` at the millisecond that they name.
//!
//! A send that names a time is stored in the queue of that topic, with its destination topic and queue in the
//! properties (`schedule`). One thread (`delivery`) reads the queue, notes each message in the timer log
//! (`enqueue`), and appends a copy to the destination when it is due (`dequeue`), unless another message of its slot
//! recalled it (`recalls`). A message whose time is beyond the window of rolls is stored again half-way, so that
//! wheel and log retention need not reach that far.
//!
//! *Invariant*: the saved progress passes a message only when it is durably noted, and a time only when the copies
//! of all messages due by then are durable. After a crash, later deliveries are repeated and none is lost.
//! Threads: `schedule` runs on I/O threads; delivery has its own thread, which may block on the disk; `save` runs on
//! any.

mod counting;
mod delivery;
mod dequeue;
mod enqueue;
mod files;
mod recalls;
mod repeats;
pub(in crate::dataplane) mod schedule;
mod seal;
pub(crate) mod statistics;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::delivery::Delivery;
use super::deadlines::Deadlines;
use super::escapes::Outlet;
use crate::clock::SharedClock;
use crate::dataplane::delivery::timers::files::{ProgressFile, Unsynced, WheelFile};
use crate::dataplane::state::settled::Settled;
use crate::positions::PhysicalOffset;
use crate::store::{Store, StoreError};

/// Maximum time that retention waits for the end of a step.
const WAITS_LOCK_MAX: Duration = Duration::from_millis(20);

/// Delivery of timed messages.
pub(crate) struct Timers {
    delivery: Arc<Mutex<Delivery>>,
    saving: Mutex<(ProgressFile, WheelFile)>,
    wheel: Deadlines<()>,
    store: Arc<Store>,
    clock: SharedClock,
}

impl Timers {
    /// Starts delivery at the progress of the last save.
    pub(in crate::dataplane) fn start(
        store: &Arc<Store>,
        clock: SharedClock,
        outlet: Outlet,
        settled: &Arc<Settled>,
    ) -> Result<Self, StoreError> {
        let is_own = matches!(outlet, Outlet::Log);
        let (shared_store, shared_clock) = (Arc::clone(store), Arc::clone(&clock));
        let (mut delivery, progress, slots) =
            Delivery::load(shared_store, shared_clock, outlet, Arc::clone(settled))?;
        if is_own {
            delivery.check_sizes()?;
        }
        let delivery = Arc::new(Mutex::new(delivery));
        let shared = Arc::clone(&delivery);
        let wheel =
            Deadlines::start("timers", Arc::clone(&clock), move |()| Some((shared.lock().step(), ())));
        let wheel = wheel.map_err(StoreError::io(store.root(), "start a thread"))?;
        wheel.add(Duration::ZERO, ());
        let (saving, store) = (Mutex::new((progress, slots)), Arc::clone(store));
        Ok(Self { delivery, saving, wheel, store, clock })
    }

    /// Saves the progress of delivery durably, if it changed.
    pub(crate) fn save(&self) -> Result<(), StoreError> {
        let mut saving = self.saving.lock();
        let (progress_file, slots_file) = &mut *saving;
        let Some(snapshot) = self.delivery.lock().snapshot() else { return Ok(()) };
        let saved = self.store.flush().and_then(|_| {
            // After an error the state on disk is unknown, so the next start rebuilds the log from the queue.
            let synced = snapshot.unsynced.iter().try_for_each(Unsynced::sync);
            synced.inspect_err(|_| self.delivery.lock().distrust_log())?;
            slots_file.write(&snapshot.slots)?;
            progress_file.save(&snapshot.progress, self.clock.wall_ms() as i64)
        });
        match saved {
            Ok(()) => self.delivery.lock().saved(&snapshot.progress),
            Err(error) => {
                self.delivery.lock().not_saved(&snapshot);
                Err(error)
            }
        }
    }

    /// Returns the position before which no timed message is pending. Returns `None` while a step holds the lock,
    /// because it may wait for log space that the caller has to free.
    pub(in crate::dataplane) fn waits_from(&self) -> Option<PhysicalOffset> {
        self.delivery.try_lock_for(WAITS_LOCK_MAX)?.waits_from()
    }

    /// Returns the time by which all due messages were delivered.
    pub(super) fn delivered_ms(&self) -> i64 {
        self.delivery.lock().delivered_by_ms()
    }

    #[cfg(test)]
    pub(in crate::dataplane) fn pending(&self) -> u64 {
        self.delivery.lock().pending()
    }

    /// Delivers the messages that are due by the clock now; see `Deadlines::settle`.
    pub(in crate::dataplane) fn settle(&self, limit: Duration) -> bool {
        self.wheel.settle(limit)
    }

    /// Stops the delivery and waits for a delivery in progress. With a save afterwards, the next start repeats no
    /// delivery.
    pub(in crate::dataplane) fn stop(&self) {
        self.wheel.stop();
        self.delivery.lock().seal();
    }
}

#[cfg(test)]
mod tests;
