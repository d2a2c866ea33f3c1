//! Seal: the end of the timer log after an orderly stop, which prevents repeated deliveries.
//!
//! The progress is a time. Some messages of its slot may have been delivered and others not, even within one
//! millisecond. The undelivered units of that slot are therefore written again as a separate chain. Apache's broker
//! delivers whole slots and reads from the last unit of the log which message of the queue comes next. A unit
//! without a message that names the last message read closes the chain for it.

use std::collections::HashSet;

use super::delivery::Delivery;
use crate::dataplane::delivery::timers::files::{DEFAULT, DELETE, SEAL, TimerUnit, count, is_recall};
use crate::message::topic::TIMER_TOPIC;
use crate::positions::QueueOffset;

impl Delivery {
    /// Writes the end of the log. Delivery must have stopped; the next save makes the end durable.
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

    /// Returns the undelivered units of a partly delivered slot, oldest first, or none for a slot that was not
    /// begun, whose chain stays. `None` if the chain is unreadable.
    fn left_of(&mut self, slot: i64) -> Option<Vec<TimerUnit>> {
        let mut left = Vec::new();
        let Some(last) = self.wheel.last(slot).filter(|_| slot < self.next_slot) else { return Some(left) };
        let held = self.held.iter().map(|held| held.position);
        let waiting: HashSet<u64> =
            self.waiting.iter().map(|waiting| waiting.0.position).chain(held).collect();
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
