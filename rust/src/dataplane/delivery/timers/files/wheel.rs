//! Wheel: the ends of each time slot's chain of units.
//!
//! A slot covers the times after its first millisecond up to and including the first of the next slot, as Apache's
//! broker rounds. The memory is bounded by the number of slots in the window of rolls, regardless of the
//! number of messages.
//!
//! The wheel maintains a digest of all slots, for comparing a wheel file with the saved state.

use std::collections::{BTreeMap, BTreeSet};

use super::unit::is_recall;

/// The chain of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    /// Position of the oldest unit.
    pub(crate) first: u64,
    /// Position of the newest unit.
    pub(crate) last: u64,
    /// Pending messages; a recall counts as -1, as in Apache's broker.
    pub(crate) count: i32,
}

impl Slot {
    /// A slot without units, as stored in the file.
    pub(crate) const EMPTY: Self = Self { first: u64::MAX, last: u64::MAX, count: 0 };

    /// Returns what the slot adds to the digest of the wheel.
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
    /// Slots that differ in the file.
    changed: BTreeSet<i64>,
}

impl Wheel {
    pub(crate) fn new(precision_ms: u64) -> Self {
        let precision_ms = i64::try_from(precision_ms).unwrap_or(i64::MAX).max(1);
        Self { precision_ms, slots: BTreeMap::new(), digest: 0, changed: BTreeSet::new() }
    }

    /// Returns the digest of these slots.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the number of the slot of a time.
    pub(crate) fn slot_of(&self, due_ms: i64) -> i64 {
        due_ms.saturating_sub(1).div_euclid(self.precision_ms)
    }

    /// Returns the time after which everything in the slot is due.
    pub(crate) fn begin_ms(&self, slot: i64) -> i64 {
        slot.saturating_mul(self.precision_ms)
    }

    /// Returns the time when a unit is done. A recall is done when its slot is over.
    pub(crate) fn over_ms(&self, due_ms: i64, kind: u32) -> i64 {
        if is_recall(kind) { self.begin_ms(self.slot_of(due_ms) + 1) } else { due_ms }
    }

    pub(crate) fn get(&self, slot: i64) -> Option<Slot> {
        self.slots.get(&slot).copied()
    }

    /// Returns the newest unit of a slot.
    pub(crate) fn last(&self, slot: i64) -> Option<u64> {
        self.slots.get(&slot).map(|found| found.last)
    }

    /// Adds the unit at `position` to the end of a slot's chain, with `count` more messages. A unit without a
    /// previous one starts a new chain.
    pub(crate) fn add(&mut self, slot: i64, position: u64, previous: Option<u64>, count: i32) {
        let before = self.get(slot).filter(|_| previous.is_some());
        let (first, counted) = before.map_or((position, 0), |before| (before.first, before.count));
        self.put(slot, Slot { first, last: position, count: counted.saturating_add(count) });
        self.changed.insert(slot);
    }

    /// Sets a slot read from the file.
    pub(crate) fn put(&mut self, slot: i64, ends: Slot) {
        let before = self.slots.insert(slot, ends).map_or(0, |before| before.weight(slot));
        self.digest = self.digest.wrapping_add(ends.weight(slot)).wrapping_sub(before);
    }

    /// Returns the number of pending messages in all slots.
    pub(crate) fn count(&self) -> i64 {
        self.slots.values().map(|slot| i64::from(slot.count)).sum()
    }

    /// Returns the first slot that was not completely due by `time_ms`.
    pub(crate) fn first_after(&self, time_ms: i64) -> i64 {
        time_ms.div_euclid(self.precision_ms)
    }

    /// Returns the first slot from `slot` on.
    pub(crate) fn next(&self, slot: i64) -> Option<(i64, Slot)> {
        self.slots.range(slot..).next().map(|(slot, found)| (*slot, *found))
    }

    /// Returns the slots from `slot` on.
    pub(crate) fn from(&self, slot: i64) -> impl Iterator<Item = (i64, Slot)> + '_ {
        self.slots.range(slot..).map(|(slot, found)| (*slot, *found))
    }

    /// Removes slots that were completely due by `time_ms`.
    pub(crate) fn forget_until(&mut self, time_ms: i64) {
        let first = self.first_after(time_ms);
        while let Some(entry) = self.slots.first_entry().filter(|entry| *entry.key() < first) {
            let (number, slot) = entry.remove_entry();
            self.digest = self.digest.wrapping_sub(slot.weight(number));
        }
    }

    /// Returns the position of the oldest unit of all.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.slots.values().map(|slot| slot.first).min()
    }

    /// Takes the slots that have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<(i64, Slot)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().filter_map(|slot| Some((slot, *self.slots.get(&slot)?))).collect()
    }

    /// Marks slots as changed again after a failed write.
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
    fn a_slot_is_removed_when_all_of_it_was_due() {
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
    fn wheels_with_the_same_slots_have_the_same_digest() {
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
