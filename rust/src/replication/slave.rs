//! Slave: the position of received bytes, and the time of reports.
//!
//! *Invariant*: bytes are appended at the end of the log, or not at all.

use std::fmt;
use std::time::Duration;

use super::alignment::LogState;
use super::epochs::{EpochStart, Epochs};
use super::stream::TransferHeader;
use crate::positions::PhysicalOffset;

/// The rules of a slave.
#[derive(Debug, Clone, Copy)]
pub struct SlaveRules {
    /// The silence after which a master counts as gone (`haHousekeepingInterval`).
    pub silence_max: Duration,
    /// The interval of reports without new data (`haSendHeartbeatInterval`).
    pub heartbeat_interval: Duration,
}

/// Bytes that do not continue the log: close the connection and reconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misplaced {
    /// The position of the bytes.
    pub at: PhysicalOffset,
    /// The end of the log.
    pub end: PhysicalOffset,
}

/// Actions before the bytes after a header are appended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Before {
    /// The position at which to begin the empty log.
    pub log_begins: Option<PhysicalOffset>,
    /// An epoch that has begun, to be saved first.
    pub epoch_begins: Option<EpochStart>,
}

/// The slave's side of one connection.
#[derive(Debug)]
pub struct Slave {
    rules: SlaveRules,
    /// The master's epochs when the connection began; none begins during a connection.
    epochs: Epochs,
    /// The newest epoch that has begun.
    epoch: u32,
    end: PhysicalOffset,
    /// Whether the log is empty, so that the master determines where it begins.
    is_empty: bool,
    reported: Option<PhysicalOffset>,
    reported_at: Duration,
    heard_at: Duration,
}

impl Slave {
    /// Starts a connection with an aligned log to a master with these epochs, none for Apache's.
    #[must_use]
    pub fn connected(rules: SlaveRules, log: &LogState, epochs: Epochs, now: Duration) -> Self {
        let (end, is_empty) = (log.end, log.first == log.end);
        let epoch = log.epochs.number();
        Self { rules, epochs, epoch, end, is_empty, reported: None, reported_at: now, heard_at: now }
    }

    /// Takes a header; returns the actions before its bytes are appended.
    ///
    /// # Errors
    /// The bytes do not continue the log.
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

    /// Counts appended bytes. Returns an epoch that begins after them, which must be saved durably before a report,
    /// which would claim it, and before the next append, which belongs to it.
    pub fn appended(&mut self, bytes: usize, now: Duration) -> Option<EpochStart> {
        self.heard_at = now;
        self.end = PhysicalOffset(self.end.0 + bytes as u64);
        self.begun()
    }

    /// Returns the newest epoch that the log has reached, if it is new.
    fn begun(&mut self) -> Option<EpochStart> {
        let began = |entry: &&EpochStart| entry.start <= self.end && entry.epoch > self.epoch;
        let newest = self.epochs.entries().iter().rfind(began).copied().filter(|_| !self.is_empty)?;
        self.epoch = newest.epoch;
        Some(newest)
    }

    /// Returns the position of the next bytes.
    #[must_use]
    pub fn end(&self) -> PhysicalOffset {
        self.end
    }

    /// Returns the report to send now, for a log that is durable up to `kept`, and counts it as sent.
    pub fn report(&mut self, kept: PhysicalOffset, now: Duration) -> Option<PhysicalOffset> {
        let end = if self.is_empty { PhysicalOffset(0) } else { kept.min(self.end) };
        let is_due = now.saturating_sub(self.reported_at) >= self.rules.heartbeat_interval;
        if self.reported == Some(end) && !is_due {
            return None;
        }
        (self.reported, self.reported_at) = (Some(end), now);
        Some(end)
    }

    /// Returns whether the master has been silent for too long.
    #[must_use]
    pub fn is_deserted(&self, now: Duration) -> bool {
        now.saturating_sub(self.heard_at) > self.rules.silence_max
    }
}

impl fmt::Display for Misplaced {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the master sent bytes at {}, but this log ends at {}", self.at, self.end)
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
    fn a_slave_reports_the_end_of_its_log_first_and_after_each_append() {
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
    fn a_slave_reports_only_durable_bytes() {
        let mut slave = slave(100);
        assert_eq!(slave.report(PhysicalOffset(90), NOW), Some(PhysicalOffset(90)));
        slave.header(header(100, 30), NOW).unwrap();
        slave.appended(30, NOW);
        assert_eq!(slave.report(PhysicalOffset(90), NOW), None);
        assert_eq!(slave.report(PhysicalOffset(120), NOW), Some(PhysicalOffset(120)));
    }

    #[test]
    fn misplaced_bytes_are_not_appended() {
        let mut slave = slave(100);
        for at in [99, 101] {
            let gap = Misplaced { at: PhysicalOffset(at), end: PhysicalOffset(100) };
            assert_eq!(slave.header(header(at, 1), NOW), Err(gap));
            assert_eq!(
                slave.header(header(at, 0), NOW),
                Err(gap),
                "a heartbeat has the master's position, too"
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
    fn a_silent_master_is_gone() {
        let mut slave = slave(0);
        slave.header(header(0, 0), NOW + Duration::from_secs(5)).unwrap();
        assert!(!slave.is_deserted(NOW + Duration::from_secs(25)));
        assert!(slave.is_deserted(NOW + Duration::from_secs(26)));
    }
}
