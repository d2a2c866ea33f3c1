//! Stream: the bytes between master and slave, in the protocol of Apache's broker.
//!
//! ```text
//! slave → master   i64 end of the slave's log                          the first one requests bytes from there on
//! master → slave   i64 offset, i32 size, then as many bytes of the log; size 0 is a heartbeat
//! ```
//!
//! Between two rmqpy brokers the slave first shows a ticket, and the master answers before anything else:
//!
//! ```text
//! slave → master   a mark that is not a position, 16 bytes of a ticket
//! master → slave   8 bytes: the ticket was accepted
//! ```
//!
//! The ticket comes from the ordinary port of the same master. It ensures that a slave follows the process that it
//! compared its log with, and that this port need not trust its input. A master that issues no tickets never
//! receives the mark.
//!
//! The bytes of the log are split anywhere. A reader buffers only the bytes of an incomplete number.

use std::fmt;

use arrayvec::ArrayVec;

use crate::positions::PhysicalOffset;

/// The form of reports and transfers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The form of this module.
    #[default]
    Plain,
    /// The form of Apache's brokers of a set with a controller.
    Elected,
}

impl Protocol {
    /// Encodes a report.
    #[must_use]
    pub fn report(self, end: PhysicalOffset) -> ArrayVec<u8, REPORT_BYTES_MAX> {
        match self {
            Self::Plain => report(end).into_iter().collect(),
            Self::Elected => {
                let mut bytes: ArrayVec<_, _> = TRANSFER.to_be_bytes().into_iter().collect();
                bytes.extend(report(end));
                bytes
            }
        }
    }

    fn report_bytes(self) -> usize {
        match self {
            Self::Plain => REPORT_BYTES,
            Self::Elected => REPORT_BYTES_MAX,
        }
    }

    fn header_bytes(self) -> usize {
        match self {
            Self::Plain => TRANSFER_HEADER_BYTES,
            Self::Elected => HEADER_BYTES_MAX,
        }
    }
}

/// Bytes of a report of a slave of Apache's in a set with a controller.
pub const REPORT_BYTES_MAX: usize = 12;
/// The size of the header of a transfer to it.
pub const HEADER_BYTES_MAX: usize = 36;
/// The state of a connection that transfers the log, in that form.
pub(super) const TRANSFER: i32 = 2;
/// Bytes of a slave's report.
pub const REPORT_BYTES: usize = 8;
/// The size of the header of a transfer.
pub const TRANSFER_HEADER_BYTES: usize = 12;
/// Maximum bytes of the log after one header; Apache's slaves have buffers of 4 MiB.
pub const TRANSFER_BYTES_MAX: u32 = 4 << 20;

/// An exclusive bound for positions. The first bytes of a text or of another protocol, read as a number, exceed it.
const POSITION_MAX: u64 = 1 << 56;

/// Bytes of a ticket.
pub const TICKET_BYTES: usize = 16;
/// Bytes of a mark and of a number.
pub const MARK_BYTES: usize = 8;
/// Precedes a ticket. As a position it is negative, so that it is never a first report.
const TICKET_MARK: [u8; MARK_BYTES] = *b"\xffticket\0";
/// The answer of a master that accepts the ticket.
pub const TICKET_TAKEN: [u8; MARK_BYTES] = *b"\xfftaken\0\0";

/// Admits one connection of a slave, once.
pub type Ticket = [u8; TICKET_BYTES];

/// The reason why bytes are not a replication stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamError {
    /// An offset that is negative or beyond any log.
    Offset(i64),
    /// A size that is negative or above the limit.
    Size(i32),
    /// Another state of the connection than that of the protocol.
    State(i32),
}

/// The header before bytes of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferHeader {
    /// The position of the bytes in the log.
    pub at: PhysicalOffset,
    /// The number of bytes; 0 for a heartbeat.
    pub bytes: u32,
}

impl TransferHeader {
    /// Encodes the header.
    #[must_use]
    pub fn encode(self) -> [u8; TRANSFER_HEADER_BYTES] {
        let mut bytes = [0; TRANSFER_HEADER_BYTES];
        let (offset, size) = bytes.split_at_mut(8);
        offset.copy_from_slice(&self.at.0.to_be_bytes());
        size.copy_from_slice(&self.bytes.to_be_bytes());
        bytes
    }

    fn decode_plain(bytes: [u8; TRANSFER_HEADER_BYTES]) -> Result<Self, StreamError> {
        let [offset @ .., s0, s1, s2, s3] = bytes;
        Self::checked(offset, [s0, s1, s2, s3])
    }

    /// Decodes a header without its epoch, which a slave knows from the handshake, and without the confirmed position.
    fn decode_elected(bytes: [u8; HEADER_BYTES_MAX]) -> Result<Self, StreamError> {
        let [t0, t1, t2, t3, s0, s1, s2, s3, o0, o1, o2, o3, o4, o5, o6, o7, ..] = bytes;
        expect_state(TRANSFER, [t0, t1, t2, t3])?;
        Self::checked([o0, o1, o2, o3, o4, o5, o6, o7], [s0, s1, s2, s3])
    }

    fn checked(offset: [u8; 8], size: [u8; 4]) -> Result<Self, StreamError> {
        let size = i32::from_be_bytes(size);
        let bytes = u32::try_from(size).ok().filter(|size| *size <= TRANSFER_BYTES_MAX);
        Ok(Self { at: position(offset)?, bytes: bytes.ok_or(StreamError::Size(size))? })
    }
}

/// Encodes a report.
#[must_use]
pub fn report(end: PhysicalOffset) -> [u8; REPORT_BYTES] {
    end.0.to_be_bytes()
}

/// Encodes the first bytes of a slave with a ticket.
#[must_use]
pub fn introduction(ticket: &Ticket) -> [u8; MARK_BYTES + TICKET_BYTES] {
    let mut bytes = [0; MARK_BYTES + TICKET_BYTES];
    let (mark, rest) = bytes.split_at_mut(MARK_BYTES);
    mark.copy_from_slice(&TICKET_MARK);
    rest.copy_from_slice(ticket);
    bytes
}

/// Returns whether a ticket follows the first bytes of a slave; otherwise they are its first report.
#[must_use]
pub fn announces_ticket(first: [u8; MARK_BYTES]) -> bool {
    first == TICKET_MARK
}

/// Decodes a complete report.
///
/// # Errors
/// The bytes are not a position of a log.
pub fn read_report(bytes: [u8; REPORT_BYTES]) -> Result<PhysicalOffset, StreamError> {
    position(bytes)
}

/// Checks the state at the beginning of a message.
pub(super) fn expect_state(state: i32, bytes: [u8; 4]) -> Result<(), StreamError> {
    match i32::from_be_bytes(bytes) {
        found if found == state => Ok(()),
        found => Err(StreamError::State(found)),
    }
}

pub(super) fn position(bytes: [u8; 8]) -> Result<PhysicalOffset, StreamError> {
    let offset = i64::from_be_bytes(bytes);
    let position = u64::try_from(offset).ok().filter(|position| *position <= POSITION_MAX);
    position.map(PhysicalOffset).ok_or(StreamError::Offset(offset))
}

/// Reads the reports of a slave.
#[derive(Debug, Default)]
pub struct ReportReader {
    protocol: Protocol,
    partial: ArrayVec<u8, REPORT_BYTES_MAX>,
}

impl ReportReader {
    /// Creates a reader of this form.
    #[must_use]
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, ..Self::default() }
    }

    /// Takes the next bytes; returns the first complete report and the rest of the bytes.
    ///
    /// # Errors
    /// The bytes are not a report.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(PhysicalOffset, &'a [u8])>, StreamError> {
        let (whole, rest) = fill(&mut self.partial, bytes, self.protocol.report_bytes());
        let Some(whole) = whole else { return Ok(None) };
        if let (Protocol::Elected, Some(state)) = (self.protocol, whole.first_chunk()) {
            expect_state(TRANSFER, *state)?;
        }
        let end = whole.last_chunk().map_or(Ok(PhysicalOffset(0)), |offset| position(*offset))?;
        Ok(Some((end, rest)))
    }
}

/// A part of a master's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A header; its bytes of the log follow.
    Header(TransferHeader),
    /// Some bytes of the log.
    Bytes(&'a [u8]),
}

/// Reads the stream of a master.
#[derive(Debug, Default)]
pub struct TransferReader {
    protocol: Protocol,
    header: ArrayVec<u8, HEADER_BYTES_MAX>,
    /// Bytes of the log still expected.
    left: u32,
}

impl TransferReader {
    /// Creates a reader of this form.
    #[must_use]
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, ..Self::default() }
    }

    /// Takes the next bytes; returns the piece at their begin and the rest of the bytes.
    ///
    /// # Errors
    /// The bytes are not a transfer.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Piece<'a>, &'a [u8])>, StreamError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        if self.left > 0 {
            let (piece, rest) = bytes.split_at(bytes.len().min(self.left as usize));
            self.left -= piece.len() as u32;
            return Ok(Some((Piece::Bytes(piece), rest)));
        }
        let (whole, rest) = fill(&mut self.header, bytes, self.protocol.header_bytes());
        let header = match (self.protocol, &whole) {
            (_, None) => return Ok(None),
            (Protocol::Plain, Some(whole)) => {
                whole.first_chunk().map(|bytes| TransferHeader::decode_plain(*bytes))
            }
            (Protocol::Elected, Some(whole)) => {
                whole.first_chunk().map(|bytes| TransferHeader::decode_elected(*bytes))
            }
        };
        let Some(header) = header.transpose()? else { return Ok(None) };
        self.left = header.bytes;
        Ok(Some((Piece::Header(header), rest)))
    }
}

/// Moves bytes into an incomplete message of `size` bytes; returns it once it is complete, and the rest.
fn fill<'a, const SIZE: usize>(
    partial: &mut ArrayVec<u8, SIZE>,
    bytes: &'a [u8],
    size: usize,
) -> (Option<ArrayVec<u8, SIZE>>, &'a [u8]) {
    let (taken, rest) = bytes.split_at(bytes.len().min(size - partial.len()));
    partial.extend(taken.iter().copied());
    ((partial.len() == size).then(|| std::mem::take(partial)), rest)
}

impl fmt::Display for StreamError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offset(offset) => {
                write!(out, "{offset} is not an offset of a log: this is not a replication stream")
            }
            Self::State(state) => write!(out, "{state} is not the expected state of the connection"),
            Self::Size(size) => {
                write!(out, "a transfer of {size} bytes, expected 0 to {TRANSFER_BYTES_MAX}")
            }
        }
    }
}

impl std::error::Error for StreamError {}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Splits `stream` into pieces of these sizes, repeatedly.
    fn in_pieces<'a>(stream: &'a [u8], sizes: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = stream;
        sizes.iter().cycle().map_while(move |size| {
            let (piece, left) = rest.split_at(rest.len().min(*size));
            rest = left;
            (!piece.is_empty()).then_some(piece)
        })
    }

    #[test]
    fn the_mark_of_a_ticket_is_not_a_report() {
        let introduced = introduction(&[7; TICKET_BYTES]);
        let (first, ticket) = introduced.split_at(MARK_BYTES);
        let first = first.try_into().unwrap();
        assert!(announces_ticket(first));
        assert!(read_report(first).is_err(), "a master of an older release closes such a connection");
        assert_eq!(ticket, [7; TICKET_BYTES]);
        assert!(!announces_ticket(report(PhysicalOffset(POSITION_MAX))));
    }

    proptest! {
        #[test]
        fn reports_are_read_however_they_are_cut(
            ends in vec(0..=POSITION_MAX, 0..20), sizes in vec(1_usize..20, 1..5),
        ) {
            let stream: Vec<u8> = ends.iter().flat_map(|end| report(PhysicalOffset(*end))).collect();
            let mut reader = ReportReader::default();
            let mut found = Vec::new();
            for mut bytes in in_pieces(&stream, &sizes) {
                while let Some((end, rest)) = reader.next(bytes).unwrap() {
                    found.push(end.0);
                    bytes = rest;
                }
            }
            prop_assert_eq!(found, ends);
        }

        #[test]
        fn transfers_are_read_however_they_are_cut(
            transfers in vec((0..=POSITION_MAX, vec(any::<u8>(), 0..50)), 0..10), sizes in vec(1_usize..40, 1..5),
        ) {
            let mut stream = Vec::new();
            for (at, bytes) in &transfers {
                let header = TransferHeader { at: PhysicalOffset(*at), bytes: bytes.len() as u32 };
                stream.extend(header.encode());
                stream.extend(bytes);
            }
            let mut reader = TransferReader::default();
            let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
            for mut bytes in in_pieces(&stream, &sizes) {
                while let Some((piece, rest)) = reader.next(bytes).unwrap() {
                    match piece {
                        Piece::Header(header) => found.push((header.at.0, Vec::new())),
                        Piece::Bytes(some) => found.last_mut().unwrap().1.extend(some),
                    }
                    bytes = rest;
                }
            }
            prop_assert_eq!(found, transfers);
        }

        #[test]
        fn any_bytes_are_read_or_refused(stream in vec(any::<u8>(), 0..200)) {
            let (mut bytes, mut reader) = (stream.as_slice(), TransferReader::default());
            while let Ok(Some((_, rest))) = reader.next(bytes) {
                prop_assert!(rest.len() < bytes.len());
                bytes = rest;
            }
            let (mut bytes, mut reader) = (stream.as_slice(), ReportReader::default());
            while let Ok(Some((_, rest))) = reader.next(bytes) {
                prop_assert!(rest.len() < bytes.len());
                bytes = rest;
            }
        }
    }
}
