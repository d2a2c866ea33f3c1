//! Leadership: which replica may begin an epoch.

use std::fmt;

use crate::positions::PhysicalOffset;

/// What a replica answers who is asked to take part in a promotion. From then on it follows no older epoch than the one
/// that is about to begin, and confirms nothing to its master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Broker id.
    pub id: u64,
    /// The youngest epoch of its log.
    pub epoch: u32,
    /// End of its log, after its last whole record.
    pub end: PhysicalOffset,
    /// The machine lost power while bytes of the log were not on disk, and it has not caught up with anybody since.
    pub has_forgotten: bool,
}

/// Why none of them may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFew {
    /// Those who have forgotten nothing.
    pub answered: usize,
    /// How many of these it takes.
    pub needed: usize,
}

/// Which of those who answered has every confirmed message, where each is on `copies` of `replicas` nodes.
///
/// # Errors
/// A message may be on none of them.
pub fn leader(candidates: &[Candidate], replicas: usize, copies: usize) -> Result<Candidate, TooFew> {
    let needed = replicas.saturating_sub(copies) + 1;
    let sound = || candidates.iter().filter(|candidate| !candidate.has_forgotten);
    let answered = sound().count();
    let longest =
        sound().max_by_key(|candidate| (candidate.epoch, candidate.end, std::cmp::Reverse(candidate.id)));
    longest.filter(|_| answered >= needed).copied().ok_or(TooFew { answered, needed })
}

/// Replicas of one group that never begin epochs of one number.
const IDS: u32 = 16;

/// The number of the epoch that the replica `id` begins when it has heard of those up to `highest`. No other one takes the
/// same, whatever each has heard: two masters that do not know of each other are told apart when they meet.
#[must_use]
pub fn next_epoch(highest: u32, id: u64) -> u32 {
    let own = (id % u64::from(IDS)) as u32;
    (highest / IDS + 1) * IDS + own
}

impl fmt::Display for TooFew {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} replicas answered that have forgotten nothing; a confirmed message may be missing unless {} do",
            self.answered, self.needed
        )
    }
}

impl std::error::Error for TooFew {}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: u64, epoch: u32, end: u64, has_forgotten: bool) -> Candidate {
        Candidate { id, epoch, end: PhysicalOffset(end), has_forgotten }
    }

    #[test]
    fn the_longest_log_of_the_youngest_epoch_leads() {
        let found = [candidate(1, 1, 900, false), candidate(2, 2, 300, false), candidate(3, 2, 400, false)];
        assert_eq!(leader(&found, 3, 2).unwrap().id, 3);
        let alike = [candidate(2, 2, 300, false), candidate(1, 2, 300, false)];
        assert_eq!(leader(&alike, 2, 2).unwrap().id, 1);
    }

    #[test]
    fn no_two_replicas_begin_epochs_of_one_number() {
        for highest in 0..100 {
            let mut numbers: Vec<u32> = (0..16).map(|id| next_epoch(highest, id)).collect();
            assert!(numbers.iter().all(|number| *number > highest));
            numbers.dedup();
            assert_eq!(numbers.len(), 16);
        }
    }

    #[test]
    fn too_few_that_remember_lead_nothing() {
        let found = [candidate(1, 1, 900, true), candidate(2, 1, 300, false)];
        assert_eq!(leader(&found, 3, 2), Err(TooFew { answered: 1, needed: 2 }));
        assert_eq!(leader(&found, 2, 2).unwrap().id, 2);
        assert_eq!(leader(&[], 2, 2), Err(TooFew { answered: 0, needed: 1 }));
    }
}
