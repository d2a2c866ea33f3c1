//! Master: the slaves' positions, their next transfers, and the confirmed position.
//!
//! *Invariant*: a slave has no more than it was sent, and is sent no more than the log has; no transfer crosses the
//! beginning of an epoch; *confirmed* never decreases.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::alignment::LogState;
use super::epochs::Epochs;
use super::stream::TransferHeader;
use crate::positions::PhysicalOffset;

/// The id of a slave's connection, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// The position at which an empty slave begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyFrom {
    /// The beginning of the log.
    First,
    /// The last file, as with Apache's slaves; the slave will never have older messages.
    LastFile,
}

/// The rules of a master.
#[derive(Debug, Clone, Copy)]
pub struct MasterRules {
    /// Copies that make a message confirmed, the master's included; 1 waits for no slave (`inSyncReplicas`).
    pub copies: usize,
    /// The lag below which a slave is in sync (`haMaxGapNotInSync`).
    pub gap_bytes_max: u64,
    /// The silence after which a slave counts as gone (`haHousekeepingInterval`).
    pub silence_max: Duration,
    /// The interval of heartbeats without new data (`haSendHeartbeatInterval`).
    pub heartbeat_interval: Duration,
    /// Maximum bytes after one header (`haTransferBatchSize`).
    pub transfer_bytes_max: u32,
    /// Maximum bytes sent to a slave and not reported yet.
    pub unreported_bytes_max: u64,
    /// The size of a log file; no transfer crosses the end of one.
    pub file_bytes: u64,
}

/// Whether a connection's copy of the log counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A slave: its copy confirms messages, and it may be in sync.
    Slave,
    /// A backup: it reads the log, and nothing depends on it.
    Observer,
}

/// The reason why a slave's connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distrust {
    /// The slave has more than the master, so one of them has lost data.
    AheadOfMaster {
        /// The end of the slave's log.
        slave: PhysicalOffset,
        /// The end of the master's log.
        master: PhysicalOffset,
    },
    /// The slave had more than the master, which has grown past it since, so their bytes may differ.
    WasAhead {
        /// The end of the slave's log, unchanged.
        slave: PhysicalOffset,
    },
    /// The slave uses the protocol of a group with a controller.
    OfController,
    /// The next bytes for the slave have expired.
    Expired {
        /// The end of the slave's log.
        slave: PhysicalOffset,
        /// The beginning of the master's log.
        first: PhysicalOffset,
    },
    /// The slave reports bytes that it was never sent.
    NeverSent {
        /// The reported position.
        reported: PhysicalOffset,
        /// The end of the sent bytes.
        sent: PhysicalOffset,
    },
    /// The slave reports less than before.
    WentBack {
        /// The reported position.
        reported: PhysicalOffset,
        /// The position reported before.
        before: PhysicalOffset,
    },
}

/// The replicas in sync of this master, as a controller records them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InSyncSet {
    /// Broker ids of the slaves that must have a message before it is confirmed. While the set is being altered, these
    /// are the slaves of the set before and after. `None`: the number of copies decides, whichever slaves have them.
    pub slaves: Option<BTreeSet<u64>>,
    /// The number of replicas, this master included, that decides whether messages are accepted.
    pub count: usize,
}

/// The state of a slave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlaveState {
    /// The position reported last; `None` before the first report.
    pub has: Option<PhysicalOffset>,
    /// The bytes that it lacks.
    pub lag_bytes: Option<u64>,
    /// Whether it lacks less than the limit.
    pub is_in_sync: bool,
    /// Time of its last report.
    pub heard_at: Duration,
    /// Its broker id, if it is known.
    pub broker_id: Option<u64>,
}

#[derive(Debug)]
struct Slave {
    broker_id: Option<u64>,
    standing: Standing,
    copy_from: CopyFrom,
    /// Sent and reported positions; `None` before its first report.
    progress: Option<Progress>,
    heard_at: Duration,
    sent_at: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Progress {
    sent: PhysicalOffset,
    has: PhysicalOffset,
}

/// The master of a log.
#[derive(Debug)]
pub struct Master {
    rules: MasterRules,
    epochs: Epochs,
    first: PhysicalOffset,
    end: PhysicalOffset,
    confirmed: PhysicalOffset,
    slaves: BTreeMap<ConnectionId, Slave>,
    /// Decides about confirmation, instead of the number of copies.
    in_sync_set: Option<InSyncSet>,
}

impl Master {
    /// Creates the master of a log that is confirmed up to `confirmed`.
    #[must_use]
    pub fn new(rules: MasterRules, log: LogState, confirmed: PhysicalOffset) -> Self {
        let LogState { epochs, first, end } = log;
        let mut master =
            Self { rules, epochs, first, end, confirmed, slaves: BTreeMap::new(), in_sync_set: None };
        master.confirm();
        master
    }

    /// Adds a slave that has connected.
    pub fn connected(&mut self, id: ConnectionId, copy_from: CopyFrom, now: Duration) {
        let (broker_id, standing) = (None, Standing::Slave);
        let slave = Slave { broker_id, standing, copy_from, progress: None, heard_at: now, sent_at: now };
        self.slaves.insert(id, slave);
    }

    /// Makes a connection an observer, before its first report.
    pub fn observes(&mut self, id: ConnectionId) {
        if let Some(slave) = self.slaves.get_mut(&id) {
            slave.standing = Standing::Observer;
        }
    }

    /// Sets the broker id of a connected slave.
    pub fn identified(&mut self, id: ConnectionId, broker_id: u64) {
        if let Some(slave) = self.slaves.get_mut(&id) {
            slave.broker_id = Some(broker_id);
        }
        self.confirm();
    }

    /// Returns the connections whose copies count.
    fn copies(&self) -> impl DoubleEndedIterator<Item = &Slave> {
        self.slaves.values().filter(|slave| slave.standing == Standing::Slave)
    }

    /// Sets the replicas in sync. From now on a message is confirmed once all of them have it; a slave of the set
    /// that is not connected holds that up.
    pub fn require(&mut self, set: InSyncSet) {
        self.in_sync_set = Some(set);
        self.confirm();
    }

    /// Removes a slave whose connection has ended.
    pub fn disconnected(&mut self, id: ConnectionId) {
        self.slaves.remove(&id);
    }

    /// Extends the log to `end`, up to which it may be sent.
    pub fn grown(&mut self, end: PhysicalOffset) {
        self.end = self.end.max(end);
        self.confirm();
    }

    /// Moves the beginning of the log to `first`.
    pub fn expired(&mut self, first: PhysicalOffset) {
        self.first = self.first.max(first);
    }

    /// Takes a slave's report that its log ends at `end`.
    ///
    /// # Errors
    /// The report is not possible; close the connection and log the reason.
    pub fn reported(&mut self, id: ConnectionId, end: PhysicalOffset, now: Duration) -> Result<(), Distrust> {
        let (first, own_end) = (self.first, self.end);
        let last_file = PhysicalOffset(own_end.0 - own_end.0 % self.rules.file_bytes).max(first);
        let Some(slave) = self.slaves.get_mut(&id) else { return Ok(()) };
        slave.heard_at = now;
        match &mut slave.progress {
            Some(progress) if end > progress.sent => {
                return Err(Distrust::NeverSent { reported: end, sent: progress.sent });
            }
            // An empty slave reports 0 until it has data.
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

    /// Returns the next transfer to a slave whose connection is writable, and counts it as sent. A header without
    /// bytes is a heartbeat. After `None`, call again when the log has grown, the slave has reported, or
    /// `heartbeat_interval` has passed.
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

    /// Returns slaves that have been silent for too long, whose connections must be closed.
    pub fn silent(&self, now: Duration) -> impl Iterator<Item = ConnectionId> + '_ {
        let silence_max = self.rules.silence_max;
        let is_silent = move |slave: &Slave| now.saturating_sub(slave.heard_at) > silence_max;
        self.slaves.iter().filter(move |(_, slave)| is_silent(slave)).map(|(id, _)| *id)
    }

    /// Returns the position that the required number of copies has reached.
    #[must_use]
    pub fn confirmed(&self) -> PhysicalOffset {
        self.confirmed
    }

    /// Returns the end of the log.
    #[must_use]
    pub fn end(&self) -> PhysicalOffset {
        self.end
    }

    /// Returns the epochs of the log.
    #[must_use]
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Returns the number of replicas in sync, including this one.
    #[must_use]
    pub fn in_sync(&self) -> usize {
        if let Some(set) = &self.in_sync_set {
            return set.count;
        }
        let lacks = |progress: Progress| self.end.bytes_since(progress.has);
        let is_in_sync = |slave: &&Slave| {
            slave.progress.is_some_and(|progress| lacks(progress) < self.rules.gap_bytes_max)
        };
        1 + self.copies().filter(is_in_sync).count()
    }

    /// Returns the state of a slave; `None` if it is not connected.
    #[must_use]
    pub fn state(&self, id: ConnectionId) -> Option<SlaveState> {
        let slave = self.slaves.get(&id)?;
        let lag_bytes = slave.progress.map(|progress| self.end.bytes_since(progress.has));
        Some(SlaveState {
            has: slave.progress.map(|progress| progress.has),
            lag_bytes,
            is_in_sync: lag_bytes.is_some_and(|bytes| bytes < self.rules.gap_bytes_max)
                && slave.standing == Standing::Slave,
            heard_at: slave.heard_at,
            broker_id: slave.broker_id,
        })
    }

    /// Returns the bytes that each connected slave lacks; `None` before its first report.
    pub fn lags(&self) -> impl Iterator<Item = (ConnectionId, Option<u64>)> + '_ {
        self.slaves
            .iter()
            .map(|(id, slave)| (*id, slave.progress.map(|progress| self.end.bytes_since(progress.has))))
    }

    /// Returns the position that all slaves of the set have reached; `None` while one is not connected.
    fn reached_by_all(&self, slaves: &BTreeSet<u64>) -> Option<PhysicalOffset> {
        slaves.iter().try_fold(self.end, |reached, member| {
            // The newest connection counts: an older one may not have noticed yet that its slave is gone.
            let newest = self.copies().rfind(|slave| slave.broker_id == Some(*member))?;
            Some(reached.min(newest.progress?.has))
        })
    }

    fn confirm(&mut self) {
        if let Some(slaves) = self.in_sync_set.as_ref().and_then(|set| set.slaves.as_ref()) {
            let Some(reached) = self.reached_by_all(slaves) else { return };
            if self.epochs.last().is_none_or(|current| reached >= current.start) {
                self.confirmed = self.confirmed.max(reached);
            }
            return;
        }
        let others = self.rules.copies.saturating_sub(1);
        let mut ends: Vec<_> =
            self.copies().filter_map(|slave| slave.progress).map(|progress| progress.has).collect();
        let reached = if others == 0 {
            self.end
        } else if ends.len() < others {
            return;
        } else {
            *ends.select_nth_unstable_by(others - 1, |one, other| other.cmp(one)).1
        };
        // Replicas without records of older epochs may still truncate them, unless enough replicas have reached this
        // epoch, because then these have the longest logs.
        if self.epochs.last().is_none_or(|current| reached >= current.start) {
            self.confirmed = self.confirmed.max(reached.min(self.end));
        }
    }
}

/// Returns whether a first report is the handshake of a slave with a controller: a state of 32 bits, then two flags
/// of 16.
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
                "the slave's log ends at {slave}, this master's at {master}: one of them has lost data, or they \
                 belong to different groups"
            ),
            Self::WasAhead { slave } => write!(
                out,
                "the slave's log ends at {slave}, unchanged since this master's was shorter: it is of another \
                 log; restart the slave with an empty folder"
            ),
            Self::OfController => write!(
                out,
                "the slave uses the protocol of groups with a controller: set enableControllerMode=false there"
            ),
            Self::Expired { slave, first } => write!(
                out,
                "the slave's log ends at {slave}, and the next bytes have expired: this log begins at {first}; restart \
                 the slave with an empty folder"
            ),
            Self::NeverSent { reported, sent } => {
                write!(out, "the slave reports {reported}, but was sent only {sent}")
            }
            Self::WentBack { reported, before } => {
                write!(out, "the slave reports {reported}, but had reported {before} before")
            }
        }
    }
}

impl std::error::Error for Distrust {}

#[cfg(test)]
mod tests;
