//! Timers: timed messages wait in `rmq_sys_wheel_timer`, and move on at the millisecond they asked for.
//!
//! A send that names a time is stored in the queue of that topic, with the topic and queue it was meant for among its
//! properties (`schedule`). One thread (`delivery`) reads the queue and notes each message in the timer log (`enqueue`),
//! and appends a copy of it to its own queue when its time has come (`dequeue`), unless another message of its slot
//! took it back (`recalls`). A message whose time is beyond the window of rolls is stored
//! again half-way, so that neither the wheel nor the retention of the log has to reach as far as the time.
//!
//! *Invariant*: the progress that is saved passes a message only when it is noted durably, and a time only when the
//! copies of all messages due by then are durable. After a crash what moved on since is delivered again, and nothing is
//! lost.
//! Threads: `schedule` on I/O threads; delivery on a thread of its own, which may wait for the disk; `save` on any.

mod counting;
mod delivery;
mod dequeue;
mod enqueue;
mod recalls;
mod repeats;
pub(super) mod schedule;
mod seal;
pub(crate) mod statistics;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::delivery::Delivery;
use super::deadlines::Deadlines;
use super::escapes::Outlet;
use crate::clock::SharedClock;
use crate::positions::PhysicalOffset;
use crate::store::timers::{ProgressFile, Unsynced, WheelFile};
use crate::store::{Store, StoreError};

/// How long retention waits for the end of a step.
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
    /// Begins to deliver, where the last save says that delivery had got.
    pub(super) fn start(store: &Arc<Store>, clock: SharedClock, outlet: Outlet) -> Result<Self, StoreError> {
        let is_own = matches!(outlet, Outlet::Log);
        let (mut delivery, progress, slots) = Delivery::load(Arc::clone(store), Arc::clone(&clock), outlet)?;
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

    /// Makes durable how far delivery has got; nothing where it has not moved.
    pub(crate) fn save(&self) -> Result<(), StoreError> {
        let mut saving = self.saving.lock();
        let (progress_file, slots_file) = &mut *saving;
        let Some(snapshot) = self.delivery.lock().snapshot() else { return Ok(()) };
        let saved = self.store.flush().and_then(|_| {
            // Whether it is on the disk nobody knows after an error: the next start reads the queue again.
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

    /// The position before which no timed message waits; `None` where it is not known now: a step may wait for room in
    /// the log, which the caller makes.
    pub(super) fn waits_from(&self) -> Option<PhysicalOffset> {
        self.delivery.try_lock_for(WAITS_LOCK_MAX)?.waits_from()
    }

    /// Messages that wait for their time.
    #[cfg(test)]
    pub(super) fn pending(&self) -> u64 {
        self.delivery.lock().pending()
    }

    /// Delivers by the clock as it is now: see `Deadlines::settle`.
    pub(super) fn settle(&self, limit: Duration) -> bool {
        self.wheel.settle(limit)
    }

    /// Ends the delivery; when this returns no message is on its way. What the next save makes durable has none delivered
    /// again.
    pub(super) fn stop(&self) {
        self.wheel.stop();
        self.delivery.lock().seal();
    }
}

#[cfg(test)]
mod tests;
