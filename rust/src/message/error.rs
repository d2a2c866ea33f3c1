//! Errors of the bytes of a message. Positions are relative to the bytes that were given; the caller adds file and
//! place.

use thiserror::Error;

/// Bytes that are no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "fields named for what they hold")]
pub enum RecordError {
    /// Neither a record nor a filler begins here.
    #[error("unknown magic {0:#010x}")]
    Magic(u32),
    /// The size field is below that of an empty record, or negative.
    #[error("impossible record size {0}")]
    Size(i32),
    /// The record goes on behind the bytes at hand.
    #[error("record of {record_bytes} bytes, only {bytes} at hand")]
    Truncated { record_bytes: usize, bytes: usize },
    /// The lengths inside do not add up to the size.
    #[error("record lengths do not add up at byte {at}")]
    Length { at: usize },
    /// The host's port is no 16-bit number.
    #[error("impossible port at byte {at}")]
    Port { at: usize },
    /// Topic or properties hold what no writer puts there.
    #[error("{field} of the record is not text a broker writes")]
    Syntax {
        /// `topic` or `properties`.
        field: &'static str,
    },
    /// A field is larger than its length field, or than any client may send.
    #[error("{field} of {bytes} bytes is over the limit of {bytes_max}")]
    TooLarge { field: &'static str, bytes: usize, bytes_max: usize },
}

/// A batch body that is not a sequence of whole inner messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "fields named for what they hold")]
pub enum BatchError {
    /// The lengths of an inner message leave it, or the body.
    #[error("lengths of the inner message at byte {at} do not add up")]
    Length { at: usize },
    /// More inner messages than [`super::batch::BATCH_COUNT_MAX`].
    #[error("more messages in one batch than a broker takes")]
    TooMany,
}

/// Text that is no offset message id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("not an offset message id: 32 or 56 hex digits of address, port and offset")]
pub struct IdError;

/// A body that cannot be decompressed.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "fields named for what they hold")]
pub enum CompressionError {
    /// The flag bits name no compression we know.
    #[error("unknown compression type in system flag {0:#x}")]
    UnknownType(i32),
    /// More comes out than the limit allows.
    #[error("decompressed body is over the limit of {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
    /// The bytes are not what the flag bits say.
    #[error("body is not valid compressed data: {0}")]
    Corrupt(#[from] std::io::Error),
}
