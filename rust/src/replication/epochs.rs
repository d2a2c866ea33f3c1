//! Epochs: the ranges of the log by the leadership that wrote them.

use std::fmt;

use crate::positions::PhysicalOffset;

/// Maximum number of entries, given by Apache's protocol.
pub const EPOCHS_MAX: usize = 1000;

/// The beginning of an epoch. An epoch ends where the next one begins, the last one at the end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochStart {
    /// The number, from 1, increasing.
    pub epoch: u32,
    /// The end of the log when it began.
    pub start: PhysicalOffset,
}

/// The epochs of a log. *Invariant*: numbers and starts increase strictly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Epochs(Vec<EpochStart>);

/// The reason why an epoch cannot follow the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochError {
    /// The number was used before.
    Number {
        /// The number of the new epoch.
        new: u32,
        /// The last number.
        last: u32,
    },
    /// The epoch would begin before the last one.
    Start {
        /// The beginning of the new epoch.
        new: PhysicalOffset,
        /// The beginning of the last one.
        last: PhysicalOffset,
    },
    /// The list is full.
    Full,
}

impl Epochs {
    /// Creates a list from entries that were stored, or that a peer sent.
    ///
    /// # Errors
    /// They do not increase, or are too many.
    pub fn from_entries(entries: impl IntoIterator<Item = EpochStart>) -> Result<Self, EpochError> {
        let mut epochs = Self::default();
        for entry in entries {
            if let Some(last) = epochs.last().filter(|last| last.start >= entry.start) {
                return Err(EpochError::Start { new: entry.start, last: last.start });
            }
            epochs.begin(entry.epoch, entry.start)?;
        }
        Ok(epochs)
    }

    /// Returns the entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[EpochStart] {
        &self.0
    }

    /// Returns the newest entry.
    #[must_use]
    pub fn last(&self) -> Option<EpochStart> {
        self.0.last().copied()
    }

    /// Returns the number of the newest epoch, or 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.last().map_or(0, |last| last.epoch)
    }

    /// Returns the epoch of a position; `None` before the first one.
    #[must_use]
    pub fn at(&self, at: PhysicalOffset) -> Option<EpochStart> {
        let after = self.0.partition_point(|entry| entry.start <= at);
        self.0.get(after.checked_sub(1)?).copied()
    }

    /// Returns the beginning of the first epoch that begins after `at`.
    #[must_use]
    pub fn start_after(&self, at: PhysicalOffset) -> Option<PhysicalOffset> {
        self.0.get(self.0.partition_point(|entry| entry.start <= at)).map(|entry| entry.start)
    }

    /// Takes the epochs of `longer` that began up to `end`. This log is a prefix of that of `longer`.
    pub fn take_over(&mut self, longer: &Self, end: PhysicalOffset) {
        self.0.clone_from(&longer.0);
        self.0.retain(|entry| entry.start <= end);
    }

    /// Begins an epoch at `start`. It replaces the last one if that is empty.
    ///
    /// # Errors
    /// It does not follow the last one, or the list is full.
    pub fn begin(&mut self, epoch: u32, start: PhysicalOffset) -> Result<(), EpochError> {
        if epoch <= self.number() {
            return Err(EpochError::Number { new: epoch, last: self.number() });
        }
        if let Some(last) = self.last() {
            if start < last.start {
                return Err(EpochError::Start { new: start, last: last.start });
            }
            self.0.pop_if(|last| last.start == start);
        }
        if self.0.len() == EPOCHS_MAX {
            return Err(EpochError::Full);
        }
        self.0.push(EpochStart { epoch, start });
        Ok(())
    }

    /// Removes epochs that began at `end` or later, where the log was truncated.
    pub fn cut(&mut self, end: PhysicalOffset) {
        self.0.retain(|entry| entry.start < end);
    }

    /// Removes epochs that ended at `first` or earlier, with expired files. The epoch of `first` then begins there.
    pub fn expire(&mut self, first: PhysicalOffset) {
        let gone = self.0.partition_point(|entry| entry.start <= first).saturating_sub(1);
        self.0.drain(..gone);
    }

    /// Returns the position up to which this log, which ends at `end`, and another have the same bytes; `None` if
    /// they have no epoch in common.
    #[must_use]
    pub fn agreed_end(
        &self,
        end: PhysicalOffset,
        other: &Self,
        other_end: PhysicalOffset,
    ) -> Option<PhysicalOffset> {
        let newest = self.0.iter().rev().find(|entry| other.0.contains(entry))?;
        Some(self.end_of(*newest, end).min(other.end_of(*newest, other_end)))
    }

    fn end_of(&self, epoch: EpochStart, end: PhysicalOffset) -> PhysicalOffset {
        let next = self.0.iter().find(|entry| entry.epoch > epoch.epoch);
        next.map_or(end, |next| next.start.min(end))
    }
}

impl fmt::Display for EpochError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { new, last } => write!(out, "epoch {new} cannot follow epoch {last}"),
            Self::Start { new, last } => {
                write!(out, "an epoch cannot begin at {new}, before the last one, which began at {last}")
            }
            Self::Full => write!(out, "the list of epochs is full ({EPOCHS_MAX})"),
        }
    }
}

impl std::error::Error for EpochError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(u32, u64)]) -> Epochs {
        let entries =
            entries.iter().map(|&(epoch, start)| EpochStart { epoch, start: PhysicalOffset(start) });
        Epochs::from_entries(entries).unwrap()
    }

    fn agreed(own: &[(u32, u64)], end: u64, other: &[(u32, u64)], other_end: u64) -> Option<u64> {
        let (own, other) = (epochs(own), epochs(other));
        let there = own.agreed_end(PhysicalOffset(end), &other, PhysicalOffset(other_end));
        let back = other.agreed_end(PhysicalOffset(other_end), &own, PhysicalOffset(end));
        assert_eq!(there, back, "both sides must come to the same end");
        there.map(|end| end.0)
    }

    #[test]
    fn logs_agree_up_to_the_end_of_the_newest_epoch_that_both_have() {
        assert_eq!(agreed(&[(1, 0)], 100, &[(1, 0)], 70), Some(70));
        assert_eq!(agreed(&[(1, 0)], 100, &[(1, 0), (2, 80)], 300), Some(80));
        assert_eq!(agreed(&[(1, 0), (2, 50)], 100, &[(1, 0), (3, 80)], 300), Some(50));
        assert_eq!(agreed(&[(1, 0), (2, 50), (4, 90)], 95, &[(1, 0), (2, 50), (3, 80)], 300), Some(80));
        assert_eq!(agreed(&[(1, 0)], 100, &[(2, 0)], 100), None);
        assert_eq!(agreed(&[], 100, &[(2, 0)], 100), None);
    }

    #[test]
    fn an_empty_epoch_is_replaced_by_the_next() {
        let mut found = epochs(&[(1, 0), (2, 50)]);
        found.begin(3, PhysicalOffset(50)).unwrap();
        assert_eq!(found, epochs(&[(1, 0), (3, 50)]));
        assert_eq!(agreed(&[(1, 0), (2, 50)], 50, &[(1, 0), (3, 50)], 60), Some(50));
    }

    #[test]
    fn an_epoch_that_does_not_follow_the_last_one_is_refused() {
        let mut found = epochs(&[(1, 0), (2, 50)]);
        assert_eq!(found.begin(2, PhysicalOffset(60)), Err(EpochError::Number { new: 2, last: 2 }));
        let too_early = EpochError::Start { new: PhysicalOffset(40), last: PhysicalOffset(50) };
        assert_eq!(found.begin(3, PhysicalOffset(40)), Err(too_early));
        for epoch in 3..=EPOCHS_MAX as u32 {
            found.begin(epoch, PhysicalOffset(u64::from(epoch) * 100)).unwrap();
        }
        assert_eq!(found.begin(2000, PhysicalOffset(u64::MAX)), Err(EpochError::Full));
    }

    #[test]
    fn epochs_go_with_the_ends_of_the_log() {
        let mut found = epochs(&[(1, 0), (2, 50), (3, 80)]);
        found.cut(PhysicalOffset(80));
        assert_eq!(found, epochs(&[(1, 0), (2, 50)]));
        found.expire(PhysicalOffset(49));
        assert_eq!(found, epochs(&[(1, 0), (2, 50)]));
        found.expire(PhysicalOffset(50));
        assert_eq!(found, epochs(&[(2, 50)]));
    }
}
