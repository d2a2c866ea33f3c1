//! Elected stream: the bytes between brokers of a set with a controller, in the protocol of Apache's broker.
//!
//! ```text
//! slave → master   i32 1, i16 begins with the last file, i16 is a learner, i64 broker id
//! master → slave   i32 1, i32 size, i64 end of its log, i32 last epoch, then i32 epoch, i64 start for each epoch
//! slave → master   i32 2, i64 end of the slave's log                the first one requests bytes from there on
//! master → slave   i32 2, i32 size, i64 offset, i32 epoch, i64 its start, i64 confirmed, then as many bytes
//! ```
//!
//! The slave truncates its log to the end that both have, before its first report. Between two rmqpy brokers the plain
//! stream with a ticket is used instead, because they compare their logs before they connect.

use arrayvec::ArrayVec;

use super::epochs::{EPOCHS_MAX, EpochStart, Epochs};
use super::stream::{
    HEADER_BYTES_MAX, MARK_BYTES, StreamError, TRANSFER, TransferHeader, expect_state, position,
};
use crate::positions::PhysicalOffset;

/// Bytes of a slave's handshake after its first ones.
pub const HELLO_REST_BYTES: usize = 8;
/// Bytes of a master's state before its epochs.
pub const STATE_BYTES: usize = 20;
/// Bytes of one epoch in it.
const EPOCH_BYTES: usize = 12;
/// The state of a connection during the handshake.
const HANDSHAKE: i32 = 1;

/// The handshake of a slave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Its id from the controller.
    pub broker_id: u64,
    /// Whether it never joins the replicas in sync.
    pub is_learner: bool,
}

impl Hello {
    /// Returns whether the first bytes of a connection begin a handshake.
    #[must_use]
    pub fn is_announced(first: [u8; MARK_BYTES]) -> bool {
        let [s0, s1, s2, s3, f0, f1, l0, l1] = first;
        let is_flag = |high, low| high == 0 && low <= 1;
        i32::from_be_bytes([s0, s1, s2, s3]) == HANDSHAKE && is_flag(f0, f1) && is_flag(l0, l1)
    }

    /// Decodes a handshake.
    #[must_use]
    pub fn read(first: [u8; MARK_BYTES], rest: [u8; HELLO_REST_BYTES]) -> Self {
        let [.., learner] = first;
        Self { broker_id: u64::from_be_bytes(rest), is_learner: learner != 0 }
    }

    /// Encodes the handshake of a slave that begins with the first file of the log.
    #[must_use]
    pub fn encode(self) -> [u8; MARK_BYTES + HELLO_REST_BYTES] {
        let mut bytes = [0; MARK_BYTES + HELLO_REST_BYTES];
        let (first, id) = bytes.split_at_mut(MARK_BYTES);
        let (state, flags) = first.split_at_mut(4);
        state.copy_from_slice(&HANDSHAKE.to_be_bytes());
        flags.copy_from_slice(&[0, 0, 0, u8::from(self.is_learner)]);
        id.copy_from_slice(&self.broker_id.to_be_bytes());
        bytes
    }
}

/// Encodes the state of a master, its answer to a handshake.
#[must_use]
pub fn state(end: PhysicalOffset, epochs: &Epochs) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(STATE_BYTES + epochs.entries().len() * EPOCH_BYTES);
    bytes.extend(HANDSHAKE.to_be_bytes());
    bytes.extend(((epochs.entries().len() * EPOCH_BYTES) as u32).to_be_bytes());
    bytes.extend(end.0.to_be_bytes());
    bytes.extend(epochs.number().to_be_bytes());
    for entry in epochs.entries() {
        bytes.extend(entry.epoch.to_be_bytes());
        bytes.extend(entry.start.0.to_be_bytes());
    }
    bytes
}

/// Returns the number of bytes after the beginning of a master's state.
///
/// # Errors
/// The bytes are not such a state.
pub fn size_of_epochs(bytes: [u8; STATE_BYTES]) -> Result<usize, StreamError> {
    let [s0, s1, s2, s3, b0, b1, b2, b3, ..] = bytes;
    expect_state(HANDSHAKE, [s0, s1, s2, s3])?;
    let size = i32::from_be_bytes([b0, b1, b2, b3]);
    let bytes = usize::try_from(size).ok();
    bytes
        .filter(|bytes| *bytes <= EPOCHS_MAX * EPOCH_BYTES && bytes.is_multiple_of(EPOCH_BYTES))
        .ok_or(StreamError::Size(size))
}

/// Decodes the epochs of a master's state; `None` if they do not increase.
///
/// # Errors
/// An epoch does not begin at a position of a log.
pub fn read_epochs(bytes: &[u8]) -> Result<Option<Epochs>, StreamError> {
    let entries: Result<Vec<_>, _> = bytes
        .chunks_exact(EPOCH_BYTES)
        .filter_map(|entry| Some((*entry.first_chunk()?, *entry.last_chunk()?)))
        .map(|(epoch, start)| Ok(EpochStart { epoch: u32::from_be_bytes(epoch), start: position(start)? }))
        .collect();
    Ok(Epochs::from_entries(entries?).ok())
}

/// Encodes the header of a transfer, whose bytes belong to one epoch.
#[must_use]
pub fn transfer(
    header: TransferHeader,
    epoch: EpochStart,
    confirmed: PhysicalOffset,
) -> ArrayVec<u8, HEADER_BYTES_MAX> {
    let mut bytes = ArrayVec::new();
    bytes.extend(TRANSFER.to_be_bytes());
    bytes.extend(header.bytes.to_be_bytes());
    bytes.extend(header.at.0.to_be_bytes());
    bytes.extend(epoch.epoch.to_be_bytes());
    bytes.extend(epoch.start.0.to_be_bytes());
    bytes.extend(confirmed.0.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::stream::{Piece, Protocol, ReportReader, TransferReader};
    use super::*;

    fn epochs() -> Epochs {
        let entries = [(1, 0), (2, 609)];
        let entries = entries.map(|(epoch, start)| EpochStart { epoch, start: PhysicalOffset(start) });
        Epochs::from_entries(entries).unwrap()
    }

    #[test]
    fn a_handshake_is_told_from_a_report_and_read() {
        let hello = Hello { broker_id: 9, is_learner: true };
        let bytes = hello.encode();
        assert_eq!(bytes, [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9]);
        let (first, rest) = (*bytes.first_chunk().unwrap(), *bytes.last_chunk().unwrap());
        assert!(Hello::is_announced(first));
        assert_eq!(Hello::read(first, rest), hello);
        assert!(!Hello::is_announced(609_u64.to_be_bytes()));
    }

    #[test]
    fn the_state_of_a_master_has_the_bytes_of_the_original() {
        let one = Epochs::from_entries([EpochStart { epoch: 1, start: PhysicalOffset(0) }]).unwrap();
        let bytes = state(PhysicalOffset(0x261), &one);
        let mut expected = vec![0, 0, 0, 1, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 2, 0x61, 0, 0, 0, 1];
        expected.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn the_epochs_of_a_master_are_read() {
        let bytes = state(PhysicalOffset(811), &epochs());
        let (head, rest) = bytes.split_first_chunk().unwrap();
        assert_eq!(size_of_epochs(*head).unwrap(), rest.len());
        assert_eq!(read_epochs(rest).unwrap(), Some(epochs()));
    }

    #[test]
    fn transfers_and_reports_are_read() {
        let header = TransferHeader { at: PhysicalOffset(609), bytes: 3 };
        let mut bytes = transfer(header, epochs().last().unwrap(), PhysicalOffset(600)).to_vec();
        assert_eq!(bytes.len(), 36);
        bytes.extend(b"abc");
        let mut reader = TransferReader::new(Protocol::Elected);
        let (piece, rest) = reader.next(&bytes).unwrap().unwrap();
        assert_eq!(piece, Piece::Header(header));
        assert_eq!(reader.next(rest).unwrap().unwrap().0, Piece::Bytes(b"abc"));

        let report = Protocol::Elected.report(PhysicalOffset(612));
        let mut reports = ReportReader::new(Protocol::Elected);
        assert_eq!(reports.next(&report[..5]).unwrap(), None);
        assert_eq!(reports.next(&report[5..]).unwrap().unwrap().0, PhysicalOffset(612));
        let other = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(reports.next(&other), Err(StreamError::State(1)));
    }
}
