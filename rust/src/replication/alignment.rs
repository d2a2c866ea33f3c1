//! Alignment: decides what a slave does with its log before the stream begins.
//!
//! Apache's protocol does not compare logs, so two logs stay different once the master has lost its end.

use std::fmt;

use super::epochs::Epochs;
use crate::positions::PhysicalOffset;

/// The state of one log.
#[derive(Debug, Clone)]
pub struct LogState {
    /// The epochs of the log.
    pub epochs: Epochs,
    /// The beginning of its oldest file.
    pub first: PhysicalOffset,
    /// The end of the log.
    pub end: PhysicalOffset,
}

/// The decision for a slave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alignment {
    /// Follow: the slave's log is empty or a prefix of the master's.
    Follow,
    /// Truncate the log at this position, then follow.
    Truncate(PhysicalOffset),
}

/// The reason why the slave does not follow. Nothing is removed until an operator decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Divergence {
    /// The slave knows a newer epoch, so this master was replaced.
    OlderEpoch {
        /// The newest epoch of the master.
        master: u32,
        /// The newest epoch of the slave.
        slave: u32,
    },
    /// The master has lost the end of its log, which the slave still has.
    MasterShorter {
        /// The end of the master's log.
        master: PhysicalOffset,
        /// The end of the slave's log.
        slave: PhysicalOffset,
    },
    /// The logs have no epoch in common.
    NothingInCommon,
    /// The logs should be equal up to here, but their bytes differ.
    Bytes {
        /// The position up to which they should be equal.
        agreed: PhysicalOffset,
    },
    /// The logs differ below the confirmed position.
    Confirmed {
        /// The position up to which they agree.
        agreed: PhysicalOffset,
        /// The confirmed position.
        confirmed: PhysicalOffset,
    },
    /// The next bytes for the slave have expired at the master.
    Expired {
        /// The position up to which the logs agree.
        agreed: PhysicalOffset,
        /// The beginning of the master's log.
        first: PhysicalOffset,
    },
}

/// Decides what the slave does, given both logs and the position up to which records were promised. `confirmed` must
/// be the end of a record: a confirmed position may lie inside a record, which was then not promised.
///
/// # Errors
/// The logs differ in a way that no rule can resolve.
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
    // Logs of older releases and of Apache's broker have no epochs, so only their bytes can show whether they agree.
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
                "the master is in epoch {master}, this slave in epoch {slave}: the master was replaced"
            ),
            Self::MasterShorter { master, slave } => write!(
                out,
                "the master's log ends at {master}, this one at {slave}: the master has lost its end; promote \
                 this slave, or discard the records that only it has"
            ),
            Self::Bytes { agreed } => write!(
                out,
                "this log and the master's differ before {agreed}: one of them lost data; find the place with \
                 `rmqpy store compare`, and restart one of them with an empty folder"
            ),
            Self::NothingInCommon => {
                write!(out, "this log and the master's have no epoch in common: they are of different groups")
            }
            Self::Confirmed { agreed, confirmed } => write!(
                out,
                "this log and the master's agree only up to {agreed}, but messages up to {confirmed} were confirmed"
            ),
            Self::Expired { agreed, first } => write!(
                out,
                "this log and the master's agree up to {agreed}, and the next bytes have expired at the master, whose \
                 log begins at {first}; restart this slave with an empty folder"
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
    fn a_prefix_of_the_masters_log_follows() {
        let master = log(&[(1, 0), (2, 80)], 0, 300);
        for slave in
            [log(&[], 0, 0), log(&[], 90, 90), log(&[(1, 0)], 0, 70), log(&[(1, 0), (2, 80)], 0, 300)]
        {
            assert_eq!(aligned(&slave, &master), Ok(Alignment::Follow), "{slave:?}");
        }
    }

    #[test]
    fn a_newer_epoch_cuts_the_older_end() {
        let master = log(&[(1, 0), (2, 80)], 0, 300);
        assert_eq!(aligned(&log(&[(1, 0)], 0, 100), &master), Ok(Alignment::Truncate(PhysicalOffset(80))));
    }

    #[test]
    fn a_promised_record_is_not_cut() {
        let (agreed, confirmed) = (PhysicalOffset(50), PhysicalOffset(60));
        let master = log(&[(1, 0), (2, 50)], 0, 300);
        assert_eq!(
            aligned(&log(&[(1, 0)], 0, 100), &master),
            Err(Divergence::Confirmed { agreed, confirmed })
        );
    }

    #[test]
    fn a_master_that_became_shorter_cuts_nothing() {
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
    fn logs_of_different_groups_and_expired_ones_are_reported() {
        assert_eq!(
            aligned(&log(&[(1, 0)], 0, 100), &log(&[(2, 0)], 0, 90)),
            Err(Divergence::NothingInCommon)
        );
        let (agreed, first) = (PhysicalOffset(100), PhysicalOffset(200));
        let master = log(&[(1, 0)], 200, 300);
        assert_eq!(aligned(&log(&[(1, 0)], 0, 100), &master), Err(Divergence::Expired { agreed, first }));
    }
}
