//! Messages that cannot be read. Each variant names the place, so that the message can be found and skipped.
//! A queue offset is the position in the queue.

use thiserror::Error;

use crate::message::{BatchError, CompressionError, RecordError};

#[derive(Debug, Error)]
pub(crate) enum RowError {
    /// The pulled bytes are not records from here on.
    #[error("no record at byte {at} of the pulled bytes: {error}")]
    Record { at: usize, error: RecordError },
    /// The record says it is a batch, and its body is none.
    #[error("the batch at offset {queue_offset} cannot be read: {error}")]
    Batch { queue_offset: u64, error: BatchError },
    /// The batch has fewer members.
    #[error("the batch at offset {queue_offset} has no member {index}")]
    Member { queue_offset: u64, index: u32 },
    /// The body cannot be decompressed.
    #[error("the body at offset {queue_offset} cannot be decompressed: {error}")]
    Body { queue_offset: u64, error: CompressionError },
    /// The body was asked for as text and is none.
    #[error("the body at offset {queue_offset} is not UTF-8")]
    Text { queue_offset: u64 },
    /// More rows than Arrow can count in one column.
    #[error("a batch cannot take the message at offset {queue_offset}: {reason}")]
    Full { queue_offset: u64, reason: String },
}
