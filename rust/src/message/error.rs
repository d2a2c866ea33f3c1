//! Message errors: invalid bytes of a message. Positions are relative to the given bytes; the caller adds file and
//! position.

use thiserror::Error;

/// Bytes that are not a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "fields named for what they hold")]
pub enum RecordError {
    /// Neither a record nor a filler begins here.
    #[error("unknown magic {0:#010x}")]
    Magic(u32),
    /// The size field is below that of an empty record, or negative.
    #[error("impossible record size {0}")]
    Size(i32),
    /// The record extends beyond the available bytes.
    #[error("record of {record_bytes} bytes, only {bytes} available")]
    Truncated { record_bytes: usize, bytes: usize },
    /// The lengths inside do not add up to the size.
    #[error("record lengths do not add up at byte {at}")]
    Length { at: usize },
    /// The host's port exceeds 16 bits.
    #[error("impossible port at byte {at}")]
    Port { at: usize },
    /// Topic or properties contain characters that no broker writes.
    #[error("{field} of the record is not valid text")]
    Syntax {
        /// `topic` or `properties`.
        field: &'static str,
    },
    /// A field exceeds its length field, or any client's limit.
    #[error("{field} of {bytes} bytes is over the limit of {bytes_max}")]
    TooLarge { field: &'static str, bytes: usize, bytes_max: usize },
}

/// A list of light queues that no record can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DispatchError {
    /// The list is empty, or a name is not that of a light queue.
    #[error("INNER_MULTI_DISPATCH must be names like %LMQ%name, at most 255 bytes each, separated by commas")]
    Name,
    /// A queue cannot hold a record twice.
    #[error("INNER_MULTI_DISPATCH must name each queue once")]
    Repeated,
}

/// A batch body that is not a sequence of whole inner messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "fields named for what they hold")]
pub enum BatchError {
    /// The lengths of an inner message exceed it, or the body.
    #[error("lengths of the inner message at byte {at} do not add up")]
    Length { at: usize },
    /// More inner messages than [`super::batch::BATCH_COUNT_MAX`].
    #[error("too many messages in one batch")]
    TooMany,
}

/// Text that is not an offset message id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("not an offset message id: 32 or 56 hex digits of address, port and offset")]
pub struct IdError;

/// A body that cannot be decompressed.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "fields named for what they hold")]
pub enum CompressionError {
    /// The flag bits are not a known compression type.
    #[error("unknown compression type in system flag {0:#x}")]
    UnknownType(i32),
    /// The decompressed body exceeds the limit.
    #[error("decompressed body is over the limit of {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
    /// The bytes do not match the compression type.
    #[error("body is not valid compressed data: {0}")]
    Corrupt(#[from] std::io::Error),
}
