//! Slave: where the log goes on, and when to say how far it is.
//!
//! Invariant: bytes are appended where the log ends, or not at all.

use std::fmt;
use std::time::Duration;

use super::alignment::LogState;
use super::epochs::{EpochStart, Epochs};
use super::stream::TransferHeader;
use crate::positions::PhysicalOffset;

/// What a slave goes by.
#[derive(Debug, Clone, Copy)]
pub struct SlaveRules {
    /// A master that says nothing for this long is gone (`haHousekeepingInterval`).
    pub silence_max: Duration,
    /// A report, where there is nothing new (`haSendHeartbeatInterval`).
    pub heartbeat_interval: Duration,
}

/// Bytes that do not go on where the log ends: close the connection, and begin again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misplaced {
    /// Where they belong.
    pub at: PhysicalOffset,
    /// Where the log ends.
    pub end: PhysicalOffset,
}

/// What a slave does before it appends the bytes behind a header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Before {
    /// Its log is empty, and begins here.
    pub log_begins: Option<PhysicalOffset>,
    /// An epoch has begun by then, which has to be on disk first.
    pub epoch_begins: Option<EpochStart>,
}

/// A slave's side of one connection.
#[derive(Debug)]
pub struct Slave {
    rules: SlaveRules,
    /// The master's, when the connection began: none begins while it lasts.
    epochs: Epochs,
    /// The youngest that began.
    epoch: u32,
    end: PhysicalOffset,
    /// The log is empty: it begins wherever the master says.
    is_empty: bool,
    reported: Option<PhysicalOffset>,
    reported_at: Duration,
    heard_at: Duration,
}

impl Slave {
    /// Connected, with a log that was aligned with that of a master of these epochs; none where it is Apache's.
    #[must_use]
    pub fn connected(rules: SlaveRules, log: &LogState, epochs: Epochs, now: Duration) -> Self {
        let (end, is_empty) = (log.end, log.first == log.end);
        let epoch = log.epochs.number();
        Self { rules, epochs, epoch, end, is_empty, reported: None, reported_at: now, heard_at: now }
    }

    /// A header has come; what to do before bytes are appended.
    ///
    /// # Errors
    /// Its bytes belong elsewhere.
    pub fn header(&mut self, header: TransferHeader, now: Duration) -> Result<Before, Misplaced> {
        self.heard_at = now;
        let mut before = Before::default();
        if self.is_empty && header.bytes > 0 {
            (self.end, self.is_empty) = (header.at, false);
            before.log_begins = Some(header.at);
        } else if header.at != self.end && !self.is_empty {
            return Err(Misplaced { at: header.at, end: self.end });
        }
        before.epoch_begins = self.begun();
        Ok(before)
    }

    /// Bytes were appended. An epoch may begin behind them; it has to be on disk before anything is reported, which counts
    /// as having reached it, and before more is appended, which would count as the last one's.
    pub fn appended(&mut self, bytes: usize, now: Duration) -> Option<EpochStart> {
        self.heard_at = now;
        self.end = PhysicalOffset(self.end.0 + bytes as u64);
        self.begun()
    }

    /// The youngest epoch that the log has reached, if it did just now.
    fn begun(&mut self) -> Option<EpochStart> {
        let began = |entry: &&EpochStart| entry.start <= self.end && entry.epoch > self.epoch;
        let youngest = self.epochs.entries().iter().rfind(began).copied().filter(|_| !self.is_empty)?;
        self.epoch = youngest.epoch;
        Some(youngest)
    }

    /// Where the next bytes belong.
    #[must_use]
    pub fn end(&self) -> PhysicalOffset {
        self.end
    }

    /// What is to be said now of a log that keeps everything up to `kept`, whatever happens to this process; it counts as
    /// said.
    pub fn report(&mut self, kept: PhysicalOffset, now: Duration) -> Option<PhysicalOffset> {
        let end = if self.is_empty { PhysicalOffset(0) } else { kept.min(self.end) };
        let is_due = now.saturating_sub(self.reported_at) >= self.rules.heartbeat_interval;
        if self.reported == Some(end) && !is_due {
            return None;
        }
        (self.reported, self.reported_at) = (Some(end), now);
        Some(end)
    }

    /// Whether the master has been silent for too long.
    #[must_use]
    pub fn is_deserted(&self, now: Duration) -> bool {
        now.saturating_sub(self.heard_at) > self.rules.silence_max
    }
}

impl fmt::Display for Misplaced {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the master sent what belongs at {}, and this log ends at {}", self.at, self.end)
    }
}

impl std::error::Error for Misplaced {}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: SlaveRules =
        SlaveRules { silence_max: Duration::from_secs(20), heartbeat_interval: Duration::from_secs(5) };
    const NOW: Duration = Duration::from_secs(100);

    fn slave(end: u64) -> Slave {
        let (first, end) = (PhysicalOffset(0), PhysicalOffset(end));
        Slave::connected(
            RULES,
            &LogState { epochs: epochs(&[(1, 0)]), first, end },
            epochs(&[(1, 0), (2, 110)]),
            NOW,
        )
    }

    fn epochs(entries: &[(u32, u64)]) -> Epochs {
        let entries =
            entries.iter().map(|&(epoch, start)| EpochStart { epoch, start: PhysicalOffset(start) });
        Epochs::from_entries(entries).unwrap()
    }

    fn header(at: u64, bytes: u32) -> TransferHeader {
        TransferHeader { at: PhysicalOffset(at), bytes }
    }

    #[test]
    fn it_says_where_its_log_ends_at_once_and_then_after_each_append() {
        let mut slave = slave(100);
        let at = PhysicalOffset;
        assert_eq!(slave.report(at(100), NOW), Some(at(100)));
        assert_eq!(slave.report(at(100), NOW), None);
        assert_eq!(slave.header(header(100, 30), NOW), Ok(Before::default()));
        slave.appended(10, NOW);
        assert_eq!(slave.report(at(110), NOW), Some(at(110)));
        slave.appended(20, NOW);
        assert_eq!(slave.report(at(130), NOW + Duration::from_secs(4)), Some(at(130)));
        assert_eq!(slave.report(at(130), NOW + Duration::from_secs(8)), None);
        assert_eq!(slave.report(at(130), NOW + Duration::from_secs(9)), Some(at(130)));
    }

    #[test]
    fn it_says_no_more_than_it_keeps() {
        let mut slave = slave(100);
        assert_eq!(slave.report(PhysicalOffset(90), NOW), Some(PhysicalOffset(90)));
        slave.header(header(100, 30), NOW).unwrap();
        slave.appended(30, NOW);
        assert_eq!(slave.report(PhysicalOffset(90), NOW), None);
        assert_eq!(slave.report(PhysicalOffset(120), NOW), Some(PhysicalOffset(120)));
    }

    #[test]
    fn what_belongs_elsewhere_is_not_appended() {
        let mut slave = slave(100);
        for at in [99, 101] {
            let gap = Misplaced { at: PhysicalOffset(at), end: PhysicalOffset(100) };
            assert_eq!(slave.header(header(at, 1), NOW), Err(gap));
            assert_eq!(
                slave.header(header(at, 0), NOW),
                Err(gap),
                "a sign of life says where the master is, too"
            );
        }
    }

    #[test]
    fn an_empty_log_begins_where_the_master_does() {
        let mut slave = slave(0);
        assert_eq!(slave.report(PhysicalOffset(0), NOW), Some(PhysicalOffset(0)));
        assert_eq!(slave.header(header(4096, 0), NOW), Ok(Before::default()));
        assert_eq!(slave.header(header(4096, 8), NOW).unwrap().log_begins, Some(PhysicalOffset(4096)));
        slave.appended(8, NOW);
        assert_eq!(slave.report(PhysicalOffset(4104), NOW), Some(PhysicalOffset(4104)));
        assert_eq!(slave.header(header(4104, 8), NOW), Ok(Before::default()));
    }

    #[test]
    fn an_epoch_begins_when_the_log_has_reached_it() {
        let mut slave = slave(100);
        assert_eq!(slave.header(header(100, 10), NOW), Ok(Before::default()));
        assert_eq!(slave.appended(9, NOW), None);
        assert_eq!(slave.appended(1, NOW), Some(EpochStart { epoch: 2, start: PhysicalOffset(110) }));
        assert_eq!(slave.header(header(110, 5), NOW), Ok(Before::default()));
        assert_eq!(slave.appended(5, NOW), None);
    }

    #[test]
    fn a_log_that_begins_later_is_of_the_epoch_it_begins_in() {
        let mut slave = slave(0);
        let second = EpochStart { epoch: 2, start: PhysicalOffset(110) };
        let before = Before { log_begins: Some(PhysicalOffset(300)), epoch_begins: Some(second) };
        assert_eq!(slave.header(header(300, 5), NOW), Ok(before));
    }

    #[test]
    fn a_master_that_says_nothing_is_gone() {
        let mut slave = slave(0);
        slave.header(header(0, 0), NOW + Duration::from_secs(5)).unwrap();
        assert!(!slave.is_deserted(NOW + Duration::from_secs(25)));
        assert!(slave.is_deserted(NOW + Duration::from_secs(26)));
    }
}
