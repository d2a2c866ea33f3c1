//! Wheel: for each slot of time with units, where their chain begins and ends.
//!
//! A slot has the times after its first millisecond up to and with the next slot's, as the original rounds. Memory is
//! bounded by the slots between now and the window of rolls, however many messages wait in them.

use std::collections::{BTreeMap, BTreeSet};

/// The chain of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    /// Position of its oldest unit.
    pub(crate) first: u64,
    /// Position of its newest unit.
    pub(crate) last: u64,
    /// Messages that wait; one that takes another back counts against it, as in the original.
    pub(crate) count: i32,
}

/// The slots with units.
pub(crate) struct Wheel {
    precision_ms: i64,
    slots: BTreeMap<i64, Slot>,
    /// Slots that the file has otherwise.
    changed: BTreeSet<i64>,
}

impl Wheel {
    pub(crate) fn new(precision_ms: u64) -> Self {
        let precision_ms = i64::try_from(precision_ms).unwrap_or(i64::MAX).max(1);
        Self { precision_ms, slots: BTreeMap::new(), changed: BTreeSet::new() }
    }

    /// The number of the slot of a time.
    pub(crate) fn slot_of(&self, due_ms: i64) -> i64 {
        due_ms.saturating_sub(1).div_euclid(self.precision_ms)
    }

    /// Everything in the slot is due after this.
    pub(crate) fn begin_ms(&self, slot: i64) -> i64 {
        slot.saturating_mul(self.precision_ms)
    }

    /// The newest unit of a slot.
    pub(crate) fn last(&self, slot: i64) -> Option<u64> {
        self.slots.get(&slot).map(|found| found.last)
    }

    /// Adds the unit at `position` to the end of a slot's chain, which has `count` messages more for it.
    pub(crate) fn add(&mut self, slot: i64, position: u64, count: i32) {
        let found = self.slots.entry(slot).or_insert(Slot { first: position, last: position, count: 0 });
        found.last = position;
        found.count = found.count.saturating_add(count);
        self.changed.insert(slot);
    }

    /// The first slot from `slot` on.
    pub(crate) fn next(&self, slot: i64) -> Option<(i64, Slot)> {
        self.slots.range(slot..).next().map(|(slot, found)| (*slot, *found))
    }

    /// Forgets slots of which everything was due by `time_ms`.
    pub(crate) fn forget_until(&mut self, time_ms: i64) {
        let first = time_ms.div_euclid(self.precision_ms);
        while let Some(entry) = self.slots.first_entry().filter(|entry| *entry.key() < first) {
            entry.remove();
        }
    }

    /// The oldest unit of all.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.slots.values().map(|slot| slot.first).min()
    }

    /// Slots that have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<(i64, Slot)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().filter_map(|slot| Some((slot, *self.slots.get(&slot)?))).collect()
    }

    /// Has what could not be written be tried again.
    pub(crate) fn give_back(&mut self, changed: &[(i64, Slot)]) {
        self.changed.extend(changed.iter().map(|(slot, _)| *slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_ends_with_the_first_millisecond_of_the_next() {
        let wheel = Wheel::new(1_000);
        assert_eq!([1_001, 2_000, 2_001].map(|due| wheel.slot_of(due)), [1, 1, 2]);
        assert_eq!(wheel.begin_ms(1), 1_000);
    }

    #[test]
    fn a_slot_is_forgotten_when_all_of_it_was_due() {
        let mut wheel = Wheel::new(1_000);
        wheel.add(1, 0, 1);
        wheel.add(1, 52, 1);
        assert_eq!(wheel.next(0), Some((1, Slot { first: 0, last: 52, count: 2 })));
        wheel.forget_until(1_999);
        assert_eq!(wheel.last(1), Some(52));
        wheel.forget_until(2_000);
        assert_eq!(wheel.next(0), None);
    }
}
