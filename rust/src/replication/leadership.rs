//! Leadership: the decision which replica may begin an epoch.

use std::fmt;

use crate::positions::PhysicalOffset;

/// A replica's answer in a promotion. From then on it follows no epoch older than the one about to begin, and
/// confirms nothing to its master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Broker id.
    pub id: u64,
    /// The newest epoch of its log.
    pub epoch: u32,
    /// The end of its log, after its last whole record.
    pub end: PhysicalOffset,
    /// Whether a power loss may have removed bytes that it had confirmed, and it has not caught up with another
    /// replica since.
    pub has_forgotten: bool,
}

/// The reason why none may lead: too few complete replicas answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFew {
    /// The number of replicas that answered and have lost nothing.
    pub answered: usize,
    /// The required number.
    pub needed: usize,
}

/// Returns the candidate that has every confirmed message, if each is on `copies` of `replicas` nodes.
///
/// # Errors
/// A message may be missing on all of them.
pub fn leader(candidates: &[Candidate], replicas: usize, copies: usize) -> Result<Candidate, TooFew> {
    let needed = replicas.saturating_sub(copies) + 1;
    let sound = || candidates.iter().filter(|candidate| !candidate.has_forgotten);
    let answered = sound().count();
    let longest =
        sound().max_by_key(|candidate| (candidate.epoch, candidate.end, std::cmp::Reverse(candidate.id)));
    longest.filter(|_| answered >= needed).copied().ok_or(TooFew { answered, needed })
}

/// The maximum number of replicas in a group, which keeps their epoch numbers apart.
const IDS: u32 = 16;

/// Returns the number of the epoch that replica `id` begins after `highest`. Numbers of different replicas never
/// collide, so two masters that are unaware of each other differ when they meet.
#[must_use]
pub fn next_epoch(highest: u32, id: u64) -> u32 {
    let own = (id % u64::from(IDS)) as u32;
    (highest / IDS + 1) * IDS + own
}

impl fmt::Display for TooFew {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} replicas with complete logs answered; {} are needed to have every confirmed message",
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
    fn the_longest_log_of_the_newest_epoch_leads() {
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
    fn too_few_complete_logs_elect_no_leader() {
        let found = [candidate(1, 1, 900, true), candidate(2, 1, 300, false)];
        assert_eq!(leader(&found, 3, 2), Err(TooFew { answered: 1, needed: 2 }));
        assert_eq!(leader(&found, 2, 2).unwrap().id, 2);
        assert_eq!(leader(&[], 2, 2), Err(TooFew { answered: 0, needed: 1 }));
    }
}
