//! Wheel: for each slot of time with units, where their chain begins and ends.
//!
//! A slot has the times after its first millisecond up to and with the next slot's, as the original rounds. Memory is
//! bounded by the slots between now and the window of rolls, however many messages wait in them.
//!
//! The digest of all slots is kept beside them, so that a file of them can be compared with what was saved.

use std::collections::{BTreeMap, BTreeSet};

use super::unit::is_recall;

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

impl Slot {
    /// What the file has for a slot without units.
    pub(crate) const EMPTY: Self = Self { first: u64::MAX, last: u64::MAX, count: 0 };

    /// What it adds to the digest of a wheel, as the slot of that number.
    fn weight(&self, number: i64) -> u64 {
        let words = [number.cast_unsigned(), self.first, self.last, u64::from(self.count.cast_unsigned())];
        words.into_iter().fold(0, |mixed, word| {
            let mixed =
                (mixed ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed ^ (mixed >> 29)
        })
    }
}

/// The slots with units.
#[derive(Clone)]
pub(crate) struct Wheel {
    precision_ms: i64,
    slots: BTreeMap<i64, Slot>,
    digest: u64,
    /// Slots that the file has otherwise.
    changed: BTreeSet<i64>,
}

impl Wheel {
    pub(crate) fn new(precision_ms: u64) -> Self {
        let precision_ms = i64::try_from(precision_ms).unwrap_or(i64::MAX).max(1);
        Self { precision_ms, slots: BTreeMap::new(), digest: 0, changed: BTreeSet::new() }
    }

    /// The number that stands for exactly these slots.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// The number of the slot of a time.
    pub(crate) fn slot_of(&self, due_ms: i64) -> i64 {
        due_ms.saturating_sub(1).div_euclid(self.precision_ms)
    }

    /// Everything in the slot is due after this.
    pub(crate) fn begin_ms(&self, slot: i64) -> i64 {
        slot.saturating_mul(self.precision_ms)
    }

    /// The time by which a unit is done with: what takes others of its slot back is not before the slot is over.
    pub(crate) fn over_ms(&self, due_ms: i64, kind: u32) -> i64 {
        if is_recall(kind) { self.begin_ms(self.slot_of(due_ms) + 1) } else { due_ms }
    }

    pub(crate) fn get(&self, slot: i64) -> Option<Slot> {
        self.slots.get(&slot).copied()
    }

    /// The newest unit of a slot.
    pub(crate) fn last(&self, slot: i64) -> Option<u64> {
        self.slots.get(&slot).map(|found| found.last)
    }

    /// Adds the unit at `position` to the end of a slot's chain, which has `count` messages more for it. Where it has none
    /// before it, the chain begins with it, whatever was there.
    pub(crate) fn add(&mut self, slot: i64, position: u64, previous: Option<u64>, count: i32) {
        let before = self.get(slot).filter(|_| previous.is_some());
        let (first, counted) = before.map_or((position, 0), |before| (before.first, before.count));
        self.put(slot, Slot { first, last: position, count: counted.saturating_add(count) });
        self.changed.insert(slot);
    }

    /// Takes a slot as the file has it.
    pub(crate) fn put(&mut self, slot: i64, ends: Slot) {
        let before = self.slots.insert(slot, ends).map_or(0, |before| before.weight(slot));
        self.digest = self.digest.wrapping_add(ends.weight(slot)).wrapping_sub(before);
    }

    /// Messages that wait in all slots.
    pub(crate) fn count(&self) -> i64 {
        self.slots.values().map(|slot| i64::from(slot.count)).sum()
    }

    /// The first slot of which not everything was due by `time_ms`.
    pub(crate) fn first_after(&self, time_ms: i64) -> i64 {
        time_ms.div_euclid(self.precision_ms)
    }

    /// The first slot from `slot` on.
    pub(crate) fn next(&self, slot: i64) -> Option<(i64, Slot)> {
        self.slots.range(slot..).next().map(|(slot, found)| (*slot, *found))
    }

    /// The slots from `slot` on.
    pub(crate) fn from(&self, slot: i64) -> impl Iterator<Item = (i64, Slot)> + '_ {
        self.slots.range(slot..).map(|(slot, found)| (*slot, *found))
    }

    /// Forgets slots of which everything was due by `time_ms`.
    pub(crate) fn forget_until(&mut self, time_ms: i64) {
        let first = self.first_after(time_ms);
        while let Some(entry) = self.slots.first_entry().filter(|entry| *entry.key() < first) {
            let (number, slot) = entry.remove_entry();
            self.digest = self.digest.wrapping_sub(slot.weight(number));
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
        wheel.add(1, 0, None, 1);
        wheel.add(1, 52, Some(0), 1);
        assert_eq!(wheel.next(0), Some((1, Slot { first: 0, last: 52, count: 2 })));
        wheel.forget_until(1_999);
        assert_eq!(wheel.last(1), Some(52));
        wheel.forget_until(2_000);
        assert_eq!(wheel.next(0), None);
        assert_eq!(wheel.digest(), 0);
    }

    #[test]
    fn wheels_with_the_same_slots_have_the_same_digest_however_they_came_by_them() {
        let (mut grown, mut read) = (Wheel::new(1_000), Wheel::new(1_000));
        grown.add(7, 0, None, 1);
        grown.add(7, 52, None, 1);
        grown.add(7, 104, Some(52), -1);
        read.put(7, Slot { first: 52, last: 104, count: 0 });
        assert_eq!(grown.digest(), read.digest());
        read.put(7, Slot { first: 52, last: 104, count: 1 });
        assert_ne!(grown.digest(), read.digest());
    }
}
