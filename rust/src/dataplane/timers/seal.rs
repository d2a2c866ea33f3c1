//! Seal: how the timer log of a broker ends that was stopped in order, so that nothing is delivered twice.
//!
//! The progress is a time, and of the slot it lies in some messages may have been delivered and others not; of a burst that
//! is due in one millisecond, too. So the units of that slot that are left are written once more, as a chain of their own. The
//! original delivers whole slots, and asks the last unit of the log which message of the queue comes next: a unit that
//! stands for no message, but names the last one that was read, closes the chain.

use std::collections::HashSet;

use super::delivery::Delivery;
use crate::message::topic::TIMER_TOPIC;
use crate::positions::QueueOffset;
use crate::store::timers::{DEFAULT, DELETE, SEAL, TimerUnit, count, is_recall};

impl Delivery {
    /// Ends the log in this way. Nothing may be delivered any more; the next save makes it durable.
    pub(super) fn seal(&mut self) {
        if self.next < self.known || self.log.write().is_err() {
            return;
        }
        let Some(last) = self.next.0.checked_sub(1) else { return };
        let queue = self.store.queue(TIMER_TOPIC, 0);
        let found = queue.map(|queue| self.store.units(&queue, QueueOffset(last), 1));
        let Some(message) = found.and_then(Result::ok).and_then(|units| units.first().copied()) else {
            return;
        };
        let slot = self.wheel.slot_of(self.safe_ms().saturating_add(1));
        let Some(left) = self.left_of(slot) else { return };
        let mut previous = self.wheel.last(slot).filter(|_| slot >= self.next_slot);
        let due_ms = self.wheel.begin_ms(slot).saturating_add(1);
        let seal = TimerUnit {
            previous: None,
            kind: DEFAULT | DELETE | SEAL,
            stored_ms: due_ms,
            due_ms,
            physical: message.physical,
            size: message.size,
            topic_hash: 0,
        };
        for unit in left.into_iter().chain([seal]) {
            let position = self.log.push(&TimerUnit { previous, ..unit });
            self.wheel.add(slot, position, previous, count(unit.kind));
            previous = Some(position);
        }
        self.is_moved = true;
    }

    /// Units of a slot, oldest first, whose messages were not delivered, if some of it may have been; none of one that was not
    /// begun, whose chain stays. `None` where the chain cannot be read.
    fn left_of(&mut self, slot: i64) -> Option<Vec<TimerUnit>> {
        let mut left = Vec::new();
        let Some(last) = self.wheel.last(slot).filter(|_| slot < self.next_slot) else { return Some(left) };
        let waiting: HashSet<u64> = self.waiting.iter().map(|waiting| waiting.0.position).collect();
        let is_whole = self.log.chain(last, |position, unit| {
            let is_left = waiting.contains(&position) || is_recall(unit.kind);
            if is_left && unit.kind & SEAL == 0 {
                left.push(*unit);
            }
        });
        left.reverse();
        is_whole.ok()?.then_some(left)
    }
}
