//! Master: what its slaves have, what they get next, and what may be promised.
//!
//! Invariants: a slave has no more than was sent to it, and is sent no more than the log has; no transfer crosses the
//! beginning of an epoch; *confirmed* never goes back.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::alignment::LogState;
use super::epochs::Epochs;
use super::stream::TransferHeader;
use crate::positions::PhysicalOffset;

/// Names a slave's connection; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Where a slave begins that has nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyFrom {
    /// With the whole log.
    First,
    /// With the last file, as Apache's slaves do: it will never have what is older.
    LastFile,
}

/// What a master goes by.
#[derive(Debug, Clone, Copy)]
pub struct MasterRules {
    /// Copies that a confirmed message has, the master's own among them; 1 waits for nobody (`inSyncReplicas`).
    pub copies: usize,
    /// A slave that lacks less than this is in sync (`haMaxGapNotInSync`).
    pub gap_bytes_max: u64,
    /// A slave that says nothing for this long is gone (`haHousekeepingInterval`).
    pub silence_max: Duration,
    /// A sign of life, where there is nothing to send (`haSendHeartbeatInterval`).
    pub heartbeat_interval: Duration,
    /// The most bytes behind one header (`haTransferBatchSize`).
    pub transfer_bytes_max: u32,
    /// What a slave may be sent that it has not reported yet.
    pub unreported_bytes_max: u64,
    /// Size of a file of the log: no transfer crosses the end of one.
    pub file_bytes: u64,
}

/// Why a slave's connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distrust {
    /// It has more than the master: one of the two has lost something.
    AheadOfMaster {
        /// End of its log.
        slave: PhysicalOffset,
        /// End of the master's.
        master: PhysicalOffset,
    },
    /// It had more than the master, which has grown past it since: the bytes that both have there need not be the same.
    WasAhead {
        /// End of its log, as before.
        slave: PhysicalOffset,
    },
    /// It begins as slaves do whose group is led by a controller: another protocol.
    OfController,
    /// What it needs next has expired.
    Expired {
        /// End of its log.
        slave: PhysicalOffset,
        /// Begin of the master's.
        first: PhysicalOffset,
    },
    /// It reports what it was never sent.
    NeverSent {
        /// What it reported.
        reported: PhysicalOffset,
        /// What it was sent.
        sent: PhysicalOffset,
    },
    /// It reports less than before.
    WentBack {
        /// What it reported.
        reported: PhysicalOffset,
        /// What it had reported before.
        before: PhysicalOffset,
    },
}

/// What is known of a slave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlaveState {
    /// What it has reported; `None` before it has said where its log ends.
    pub has: Option<PhysicalOffset>,
    /// Bytes it lacks.
    pub lag_bytes: Option<u64>,
    /// Whether that is little enough.
    pub is_in_sync: bool,
    /// When it said something last.
    pub heard_at: Duration,
}

#[derive(Debug)]
struct Slave {
    copy_from: CopyFrom,
    /// What it was sent, and what it has; `None` until it has said where its log ends.
    progress: Option<Progress>,
    heard_at: Duration,
    sent_at: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Progress {
    sent: PhysicalOffset,
    has: PhysicalOffset,
}

/// The master of one log.
#[derive(Debug)]
pub struct Master {
    rules: MasterRules,
    epochs: Epochs,
    first: PhysicalOffset,
    end: PhysicalOffset,
    confirmed: PhysicalOffset,
    slaves: BTreeMap<ConnectionId, Slave>,
}

impl Master {
    /// The master of a log of which everything up to `confirmed` is known to be confirmed.
    #[must_use]
    pub fn new(rules: MasterRules, log: LogState, confirmed: PhysicalOffset) -> Self {
        let LogState { epochs, first, end } = log;
        let mut master = Self { rules, epochs, first, end, confirmed, slaves: BTreeMap::new() };
        master.confirm();
        master
    }

    /// A slave has connected.
    pub fn connected(&mut self, id: ConnectionId, copy_from: CopyFrom, now: Duration) {
        self.slaves.insert(id, Slave { copy_from, progress: None, heard_at: now, sent_at: now });
    }

    /// Its connection has ended.
    pub fn disconnected(&mut self, id: ConnectionId) {
        self.slaves.remove(&id);
    }

    /// The log reaches `end` now, and may be sent up to there.
    pub fn grown(&mut self, end: PhysicalOffset) {
        self.end = self.end.max(end);
        self.confirm();
    }

    /// The log begins at `first` now.
    pub fn expired(&mut self, first: PhysicalOffset) {
        self.first = self.first.max(first);
    }

    /// A slave says that its log ends at `end`.
    ///
    /// # Errors
    /// It cannot be; close the connection and say why.
    pub fn reported(&mut self, id: ConnectionId, end: PhysicalOffset, now: Duration) -> Result<(), Distrust> {
        let (first, own_end) = (self.first, self.end);
        let last_file = PhysicalOffset(own_end.0 - own_end.0 % self.rules.file_bytes).max(first);
        let Some(slave) = self.slaves.get_mut(&id) else { return Ok(()) };
        slave.heard_at = now;
        match &mut slave.progress {
            Some(progress) if end > progress.sent => {
                return Err(Distrust::NeverSent { reported: end, sent: progress.sent });
            }
            // One that began with nothing says so until it has something.
            Some(progress) if end < progress.has && end.0 > 0 => {
                return Err(Distrust::WentBack { reported: end, before: progress.has });
            }
            Some(progress) => progress.has = progress.has.max(end),
            None if end.0 == 0 => {
                let start = if slave.copy_from == CopyFrom::First { first } else { last_file };
                slave.progress = Some(Progress { sent: start, has: start });
            }
            None if end > own_end && is_controller_handshake(end) => return Err(Distrust::OfController),
            None if end > own_end => {
                return Err(Distrust::AheadOfMaster { slave: end, master: own_end });
            }
            None if end < first => return Err(Distrust::Expired { slave: end, first }),
            None => slave.progress = Some(Progress { sent: end, has: end }),
        }
        self.confirm();
        Ok(())
    }

    /// What to send to a slave whose connection takes bytes; it counts as sent. A header without bytes is a sign of life.
    /// Where there is nothing, ask again when the log has grown, or the slave has reported, or `heartbeat_interval` later.
    pub fn next(&mut self, id: ConnectionId, now: Duration) -> Option<TransferHeader> {
        let slave = self.slaves.get_mut(&id)?;
        let progress = slave.progress.as_mut()?;
        let at = progress.sent;
        let unreported = at.bytes_since(progress.has);
        let bytes = (self.end.bytes_since(at))
            .min(u64::from(self.rules.transfer_bytes_max))
            .min(self.rules.unreported_bytes_max.saturating_sub(unreported))
            .min(self.rules.file_bytes - at.0 % self.rules.file_bytes)
            .min(self.epochs.start_after(at).map_or(u64::MAX, |start| start.bytes_since(at)));
        let is_due = now.saturating_sub(slave.sent_at) >= self.rules.heartbeat_interval;
        if bytes == 0 && !is_due {
            return None;
        }
        slave.sent_at = now;
        progress.sent = PhysicalOffset(at.0 + bytes);
        Some(TransferHeader { at, bytes: bytes as u32 })
    }

    /// Slaves that have been silent for too long; close their connections.
    pub fn silent(&self, now: Duration) -> impl Iterator<Item = ConnectionId> + '_ {
        let silence_max = self.rules.silence_max;
        let is_silent = move |slave: &Slave| now.saturating_sub(slave.heard_at) > silence_max;
        self.slaves.iter().filter(move |(_, slave)| is_silent(slave)).map(|(id, _)| *id)
    }

    /// As many copies as asked for reach up to here.
    #[must_use]
    pub fn confirmed(&self) -> PhysicalOffset {
        self.confirmed
    }

    /// The end of the log.
    #[must_use]
    pub fn end(&self) -> PhysicalOffset {
        self.end
    }

    /// Replicas in sync, this one among them.
    #[must_use]
    pub fn in_sync(&self) -> usize {
        let lacks = |progress: Progress| self.end.bytes_since(progress.has);
        let is_in_sync = |slave: &&Slave| {
            slave.progress.is_some_and(|progress| lacks(progress) < self.rules.gap_bytes_max)
        };
        1 + self.slaves.values().filter(is_in_sync).count()
    }

    /// What is known of a slave; `None` of one that is not connected.
    #[must_use]
    pub fn state(&self, id: ConnectionId) -> Option<SlaveState> {
        let slave = self.slaves.get(&id)?;
        let lag_bytes = slave.progress.map(|progress| self.end.bytes_since(progress.has));
        Some(SlaveState {
            has: slave.progress.map(|progress| progress.has),
            lag_bytes,
            is_in_sync: lag_bytes.is_some_and(|bytes| bytes < self.rules.gap_bytes_max),
            heard_at: slave.heard_at,
        })
    }

    /// Bytes that each connected slave still lacks; `None` for one that has not said what it has.
    pub fn lags(&self) -> impl Iterator<Item = (ConnectionId, Option<u64>)> + '_ {
        self.slaves
            .iter()
            .map(|(id, slave)| (*id, slave.progress.map(|progress| self.end.bytes_since(progress.has))))
    }

    fn confirm(&mut self) {
        let others = self.rules.copies.saturating_sub(1);
        let mut ends: Vec<_> =
            self.slaves.values().filter_map(|slave| slave.progress).map(|progress| progress.has).collect();
        let reached = if others == 0 {
            self.end
        } else if ends.len() < others {
            return;
        } else {
            *ends.select_nth_unstable_by(others - 1, |one, other| other.cmp(one)).1
        };
        // What older epochs wrote may yet be decided against by those who have heard of none of it, unless as many as it
        // takes have reached this epoch: then they are the longest.
        if self.epochs.last().is_none_or(|current| reached >= current.start) {
            self.confirmed = self.confirmed.max(reached.min(self.end));
        }
    }
}

/// Whether a first report is how a slave begins beside a controller: a state of 32 bits, then two flags of 16.
fn is_controller_handshake(first: PhysicalOffset) -> bool {
    const HANDSHAKE: u64 = 1 << 32;
    const FLAGS: u64 = 1 << 16 | 1;
    first.0 & !FLAGS == HANDSHAKE
}

impl fmt::Display for Distrust {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AheadOfMaster { slave, master } => write!(
                out,
                "the slave's log ends at {slave}, this master's at {master}: one of them has lost something, or \
                 they are not of one group"
            ),
            Self::WasAhead { slave } => write!(
                out,
                "the slave's log ends at {slave}, as it did when this master's was shorter: its end is of another \
                 log; the slave has to begin anew"
            ),
            Self::OfController => write!(
                out,
                "the slave speaks the protocol of groups that a controller leads: set enableControllerMode=false there"
            ),
            Self::Expired { slave, first } => write!(
                out,
                "the slave's log ends at {slave}, and what follows has expired: this log begins at {first}; the \
                 slave has to begin anew"
            ),
            Self::NeverSent { reported, sent } => {
                write!(out, "the slave reports {reported}, and was sent no more than {sent}")
            }
            Self::WentBack { reported, before } => {
                write!(out, "the slave reports {reported}, and had {before} before")
            }
        }
    }
}

impl std::error::Error for Distrust {}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);
    const ONE: ConnectionId = ConnectionId(1);
    const OTHER: ConnectionId = ConnectionId(2);

    fn master(copies: usize, first: u64, end: u64) -> Master {
        let rules = MasterRules {
            copies,
            gap_bytes_max: 256,
            silence_max: Duration::from_secs(20),
            heartbeat_interval: Duration::from_secs(5),
            transfer_bytes_max: 32,
            unreported_bytes_max: 100,
            file_bytes: 1000,
        };
        let (first, end) = (PhysicalOffset(first), PhysicalOffset(end));
        Master::new(rules, LogState { epochs: Epochs::default(), first, end }, PhysicalOffset(0))
    }

    fn joined(master: &mut Master, id: ConnectionId, end: u64) -> Result<(), Distrust> {
        master.connected(id, CopyFrom::First, NOW);
        master.reported(id, PhysicalOffset(end), NOW)
    }

    fn sent(master: &mut Master, id: ConnectionId) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| master.next(id, NOW)).map(|header| (header.at.0, header.bytes)).collect()
    }

    #[test]
    fn a_slave_gets_what_it_lacks_in_transfers_that_end_with_files() {
        let mut master = master(2, 0, 1010);
        assert_eq!(master.next(ONE, NOW), None);
        joined(&mut master, ONE, 950).unwrap();
        assert_eq!(sent(&mut master, ONE), [(950, 32), (982, 18), (1000, 10)]);
        master.grown(PhysicalOffset(1020));
        assert_eq!(sent(&mut master, ONE), [(1010, 10)]);
    }

    #[test]
    fn no_transfer_crosses_the_beginning_of_an_epoch() {
        let mut master = master(2, 0, 40);
        for (epoch, start) in [(1, 0), (2, 10), (3, 15)] {
            master.epochs.begin(epoch, PhysicalOffset(start)).unwrap();
        }
        joined(&mut master, ONE, 4).unwrap();
        assert_eq!(sent(&mut master, ONE), [(4, 6), (10, 5), (15, 25)]);
    }

    #[test]
    fn a_slave_that_reports_nothing_is_sent_a_bounded_amount() {
        let mut master = master(2, 0, 900);
        joined(&mut master, ONE, 500).unwrap();
        assert_eq!(sent(&mut master, ONE).iter().map(|(_, bytes)| bytes).sum::<u32>(), 100);
        master.reported(ONE, PhysicalOffset(550), NOW).unwrap();
        assert_eq!(sent(&mut master, ONE).iter().map(|(_, bytes)| bytes).sum::<u32>(), 50);
    }

    #[test]
    fn an_empty_slave_begins_with_the_first_file_or_with_the_last() {
        for (copy_from, start) in [(CopyFrom::First, 1000), (CopyFrom::LastFile, 3000)] {
            let mut master = master(2, 1000, 3010);
            master.connected(ONE, copy_from, NOW);
            master.reported(ONE, PhysicalOffset(0), NOW).unwrap();
            master.reported(ONE, PhysicalOffset(0), NOW).unwrap();
            assert_eq!(master.next(ONE, NOW).unwrap().at, PhysicalOffset(start));
        }
    }

    #[test]
    fn what_a_slave_cannot_have_is_not_believed() {
        let mut master = master(2, 100, 500);
        let (at, master_end) = (PhysicalOffset, PhysicalOffset(500));
        let ahead = Distrust::AheadOfMaster { slave: at(501), master: master_end };
        assert_eq!(joined(&mut master, ONE, 501), Err(ahead));
        for flags in [0, 1, 1 << 16, 1 << 16 | 1] {
            assert_eq!(joined(&mut master, ONE, 1 << 32 | flags), Err(Distrust::OfController));
        }
        assert_eq!(joined(&mut master, ONE, 99), Err(Distrust::Expired { slave: at(99), first: at(100) }));
        joined(&mut master, ONE, 300).unwrap();
        let early = Distrust::NeverSent { reported: at(301), sent: at(300) };
        assert_eq!(master.reported(ONE, at(301), NOW), Err(early));
        let back = Distrust::WentBack { reported: at(299), before: at(300) };
        assert_eq!(master.reported(ONE, at(299), NOW), Err(back));
        assert_eq!(master.confirmed(), at(300));
    }

    #[test]
    fn a_position_is_confirmed_when_enough_copies_reach_it_and_stays_so() {
        let mut master = master(2, 0, 500);
        assert_eq!(master.confirmed(), PhysicalOffset(0));
        joined(&mut master, ONE, 400).unwrap();
        joined(&mut master, OTHER, 450).unwrap();
        assert_eq!(master.confirmed(), PhysicalOffset(450));
        master.disconnected(OTHER);
        assert_eq!(master.confirmed(), PhysicalOffset(450));
        sent(&mut master, ONE);
        master.reported(ONE, PhysicalOffset(480), NOW).unwrap();
        assert_eq!(master.confirmed(), PhysicalOffset(480));
    }

    #[test]
    fn what_older_epochs_wrote_is_confirmed_with_the_beginning_of_this_one() {
        let mut master = master(2, 0, 500);
        master.epochs.begin(1, PhysicalOffset(0)).unwrap();
        master.epochs.begin(2, PhysicalOffset(400)).unwrap();
        joined(&mut master, ONE, 350).unwrap();
        sent(&mut master, ONE);
        master.reported(ONE, PhysicalOffset(399), NOW).unwrap();
        assert_eq!(master.confirmed(), PhysicalOffset(0));
        master.reported(ONE, PhysicalOffset(400), NOW).unwrap();
        assert_eq!(master.confirmed(), PhysicalOffset(400));
    }

    #[test]
    fn of_three_copies_the_third_longest_counts_and_of_one_the_masters_own() {
        let mut three = master(3, 0, 500);
        joined(&mut three, ONE, 400).unwrap();
        assert_eq!(three.confirmed(), PhysicalOffset(0));
        joined(&mut three, OTHER, 450).unwrap();
        assert_eq!(three.confirmed(), PhysicalOffset(400));
        let mut one = master(1, 0, 500);
        one.grown(PhysicalOffset(600));
        assert_eq!(one.confirmed(), PhysicalOffset(600));
    }

    #[test]
    fn a_slave_is_in_sync_while_it_lacks_little() {
        let mut master = master(2, 0, 500);
        joined(&mut master, ONE, 300).unwrap();
        master.connected(OTHER, CopyFrom::First, NOW);
        assert_eq!(master.in_sync(), 2);
        let state = master.state(ONE).expect("it is connected");
        assert_eq!((state.has, state.is_in_sync), (Some(PhysicalOffset(300)), true));
        assert!(!master.state(OTHER).expect("it is connected").is_in_sync);
        assert_eq!(master.lags().collect::<Vec<_>>(), [(ONE, Some(200)), (OTHER, None)]);
        master.grown(PhysicalOffset(556));
        assert_eq!(master.in_sync(), 1);
    }

    #[test]
    fn signs_of_life_go_out_and_are_missed() {
        let mut master = master(2, 0, 0);
        joined(&mut master, ONE, 0).unwrap();
        let later = NOW + Duration::from_secs(5);
        assert_eq!(master.next(ONE, NOW), None);
        assert_eq!(master.next(ONE, later), Some(TransferHeader { at: PhysicalOffset(0), bytes: 0 }));
        assert_eq!(master.next(ONE, later), None);
        assert_eq!(master.silent(NOW + Duration::from_secs(20)).count(), 0);
        assert_eq!(master.silent(NOW + Duration::from_secs(21)).collect::<Vec<_>>(), [ONE]);
    }
}
