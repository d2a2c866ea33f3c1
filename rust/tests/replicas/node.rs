//! Node: a replica's disk, memory, and role.

use rmqpy::positions::PhysicalOffset;
use rmqpy::replication::alignment::LogState;
use rmqpy::replication::epochs::{EpochStart, Epochs};
use rmqpy::replication::master::{ConnectionId, Master};
use rmqpy::replication::slave::Slave;
use rmqpy::replication::stream::TransferReader;

use super::Violation;

/// Encodes a record: its size, its message, its queue offset, and padding for different sizes.
pub(super) fn record(message: u64, queue_offset: u64, padding: usize) -> Vec<u8> {
    let mut bytes = vec![(17 + padding) as u8];
    bytes.extend(message.to_be_bytes());
    bytes.extend(queue_offset.to_be_bytes());
    bytes.resize(17 + padding, message as u8);
    bytes
}

/// Returns ends and queue offsets of the whole records of a log, from a boundary on.
pub(super) fn records(log: &[u8], from: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
    let mut at = from;
    std::iter::from_fn(move || {
        let size = usize::from(*log.get(at)?);
        let record = log.get(at..at + size)?;
        at += size;
        Some((at, u64::from_be_bytes(record.get(9..17)?.try_into().ok()?)))
    })
}

pub(super) fn begin(epochs: &mut Epochs, epoch: Option<EpochStart>) -> Result<(), Violation> {
    let begun = epoch.map_or(Ok(()), |epoch| epochs.begin(epoch.epoch, epoch.start));
    begun.map_err(|error| Violation::Refused(error.to_string()))
}

pub(super) enum Role {
    Alone,
    Master(Master),
    Slave { core: Slave, connection: ConnectionId, reader: TransferReader },
}

pub(super) struct Node {
    pub(super) is_up: bool,
    /// Disconnected from the others and from the operator.
    pub(super) is_cut_off: bool,
    pub(super) role: Role,
    pub(super) log: Vec<u8>,
    pub(super) durable: usize,
    pub(super) epochs: Epochs,
    /// It follows no epoch older than this.
    pub(super) pledged: u32,
    pub(super) has_forgotten: bool,
    /// The position it has to reach to count again.
    pub(super) remembers_at: usize,
    /// The confirmed position it knows of.
    pub(super) confirmed: usize,
    pub(super) next_queue_offset: u64,
}

impl Node {
    pub(super) fn state(&self) -> LogState {
        let end = PhysicalOffset(self.log.len() as u64);
        LogState { epochs: self.epochs.clone(), first: PhysicalOffset(0), end }
    }

    pub(super) fn cut(&mut self, end: usize) {
        self.log.truncate(end);
        self.durable = self.durable.min(end);
        self.confirmed = self.confirmed.min(end);
        self.epochs.cut(PhysicalOffset(end as u64));
    }

    /// Returns the end of the last whole record up to `end`.
    pub(super) fn boundary(&self, end: usize) -> usize {
        records(&self.log, 0).map(|(ends, _)| ends).take_while(|ends| *ends <= end).last().unwrap_or(0)
    }
}
