//! Alignment: what a slave does with its log before the stream begins.
//!
//! The original's protocol compares nothing, and lets two logs differ for ever whose master once lost its end.

use std::fmt;

use super::epochs::Epochs;
use crate::positions::PhysicalOffset;

/// What one side says of its log.
#[derive(Debug, Clone)]
pub struct LogState {
    /// Its epochs.
    pub epochs: Epochs,
    /// Where its oldest file begins.
    pub first: PhysicalOffset,
    /// Where it ends.
    pub end: PhysicalOffset,
}

/// What the slave does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alignment {
    /// It has nothing, or nothing the master does not have.
    Follow,
    /// It gives up what comes after this, and follows.
    Truncate(PhysicalOffset),
}

/// Why it does not follow. An operator has to decide: nothing is lost until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Divergence {
    /// The slave knows a younger epoch: this master has been replaced.
    OlderEpoch {
        /// The youngest epoch of the master.
        master: u32,
        /// The youngest epoch of the slave.
        slave: u32,
    },
    /// The master has lost the end of its log, and the slave has it.
    MasterShorter {
        /// End of the master's log.
        master: PhysicalOffset,
        /// End of the slave's.
        slave: PhysicalOffset,
    },
    /// The two have no epoch in common.
    NothingInCommon,
    /// They should agree up to there, and have other bytes before.
    Bytes {
        /// Up to where they should agree.
        agreed: PhysicalOffset,
    },
    /// The logs differ below what was confirmed.
    Confirmed {
        /// Up to where they agree.
        agreed: PhysicalOffset,
        /// What was confirmed.
        confirmed: PhysicalOffset,
    },
    /// What the slave needs next has expired at the master.
    Expired {
        /// Up to where the logs agree.
        agreed: PhysicalOffset,
        /// Begin of the master's log.
        first: PhysicalOffset,
    },
}

/// What the slave does that has heard of its master's log, and knows that the records up to `confirmed` were promised: the
/// end of a record, for a confirmed position may be in the middle of one, and that record was promised to nobody.
///
/// # Errors
/// The logs differ in a way that no rule decides.
pub fn align(
    slave: &LogState,
    master: &LogState,
    confirmed: PhysicalOffset,
) -> Result<Alignment, Divergence> {
    if slave.epochs.number() > master.epochs.number() {
        let (master, slave) = (master.epochs.number(), slave.epochs.number());
        return Err(Divergence::OlderEpoch { master, slave });
    }
    if slave.first == slave.end {
        return Ok(Alignment::Follow);
    }
    // A log of an older release, or of Apache's, has none: its bytes alone can say whether it is the same.
    let are_known = [slave, master].iter().all(|log| !log.epochs.entries().is_empty());
    let agreed = match slave.epochs.agreed_end(slave.end, &master.epochs, master.end) {
        Some(agreed) => agreed,
        None if are_known => return Err(Divergence::NothingInCommon),
        None if slave.end > master.end => {
            return Err(Divergence::MasterShorter { master: master.end, slave: slave.end });
        }
        None => slave.end,
    };
    if agreed < master.first {
        return Err(Divergence::Expired { agreed, first: master.first });
    }
    if agreed == slave.end {
        return Ok(Alignment::Follow);
    }
    if slave.epochs.number() == master.epochs.number() {
        return Err(Divergence::MasterShorter { master: master.end, slave: slave.end });
    }
    if agreed < confirmed {
        return Err(Divergence::Confirmed { agreed, confirmed });
    }
    Ok(Alignment::Truncate(agreed))
}

impl fmt::Display for Divergence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OlderEpoch { master, slave } => write!(
                out,
                "the master is of epoch {master}, this slave of epoch {slave}: that master has been replaced"
            ),
            Self::MasterShorter { master, slave } => write!(
                out,
                "the master's log ends at {master}, this one at {slave}: the master has lost its end; promote \
                 this slave, or give up what only it has"
            ),
            Self::Bytes { agreed } => write!(
                out,
                "this log and the master's have other bytes before {agreed}: one of the two has lost something; rmqpy store \
                 compare says where, and one of them has to begin with an empty folder"
            ),
            Self::NothingInCommon => {
                write!(out, "this log and the master's have no epoch in common: they are not of one group")
            }
            Self::Confirmed { agreed, confirmed } => write!(
                out,
                "this log and the master's agree up to {agreed} only, and everything up to {confirmed} was promised"
            ),
            Self::Expired { agreed, first } => write!(
                out,
                "this log and the master's agree up to {agreed}, and what follows has expired at the master, whose \
                 log begins at {first}; begin with an empty folder"
            ),
        }
    }
}

impl std::error::Error for Divergence {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::epochs::EpochStart;

    fn log(epochs: &[(u32, u64)], first: u64, end: u64) -> LogState {
        let entries = epochs.iter().map(|&(epoch, start)| EpochStart { epoch, start: PhysicalOffset(start) });
        let epochs = Epochs::from_entries(entries).unwrap();
        LogState { epochs, first: PhysicalOffset(first), end: PhysicalOffset(end) }
    }

    fn aligned(slave: &LogState, master: &LogState) -> Result<Alignment, Divergence> {
        align(slave, master, PhysicalOffset(60))
    }

    #[test]
    fn what_the_master_has_is_followed() {
        let master = log(&[(1, 0), (2, 80)], 0, 300);
        for slave in
            [log(&[], 0, 0), log(&[], 90, 90), log(&[(1, 0)], 0, 70), log(&[(1, 0), (2, 80)], 0, 300)]
        {
            assert_eq!(aligned(&slave, &master), Ok(Alignment::Follow), "{slave:?}");
        }
    }

    #[test]
    fn what_a_younger_epoch_decided_against_is_given_up() {
        let master = log(&[(1, 0), (2, 80)], 0, 300);
        assert_eq!(aligned(&log(&[(1, 0)], 0, 100), &master), Ok(Alignment::Truncate(PhysicalOffset(80))));
    }

    #[test]
    fn what_was_promised_is_not_given_up() {
        let (agreed, confirmed) = (PhysicalOffset(50), PhysicalOffset(60));
        let master = log(&[(1, 0), (2, 50)], 0, 300);
        assert_eq!(
            aligned(&log(&[(1, 0)], 0, 100), &master),
            Err(Divergence::Confirmed { agreed, confirmed })
        );
    }

    #[test]
    fn a_master_that_became_shorter_decides_nothing() {
        let (master, slave) = (PhysicalOffset(90), PhysicalOffset(100));
        assert_eq!(
            aligned(&log(&[(1, 0)], 0, 100), &log(&[(1, 0)], 0, 90)),
            Err(Divergence::MasterShorter { master, slave })
        );
    }

    #[test]
    fn a_master_that_has_been_replaced_is_not_followed() {
        let found = aligned(&log(&[(1, 0), (3, 80)], 0, 100), &log(&[(1, 0)], 0, 300));
        assert_eq!(found, Err(Divergence::OlderEpoch { master: 1, slave: 3 }));
    }

    #[test]
    fn a_log_of_unknown_epochs_is_followed_unless_it_is_the_longer_one() {
        let (known, unknown) = (log(&[(1, 0)], 0, 100), log(&[], 0, 100));
        assert_eq!(aligned(&unknown, &known), Ok(Alignment::Follow));
        assert_eq!(aligned(&known, &log(&[], 0, 100)), Err(Divergence::OlderEpoch { master: 0, slave: 1 }));
        let (master, slave) = (PhysicalOffset(90), PhysicalOffset(100));
        assert_eq!(
            aligned(&unknown, &log(&[(1, 0)], 0, 90)),
            Err(Divergence::MasterShorter { master, slave })
        );
    }

    #[test]
    fn logs_of_different_groups_and_expired_ones_are_told() {
        assert_eq!(
            aligned(&log(&[(1, 0)], 0, 100), &log(&[(2, 0)], 0, 90)),
            Err(Divergence::NothingInCommon)
        );
        let (agreed, first) = (PhysicalOffset(100), PhysicalOffset(200));
        let master = log(&[(1, 0)], 200, 300);
        assert_eq!(aligned(&log(&[(1, 0)], 0, 100), &master), Err(Divergence::Expired { agreed, first }));
    }
}
