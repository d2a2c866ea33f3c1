//! Decode errors of pulled messages. Each variant names the queue offset, so that the message can be found and
//! skipped.

use thiserror::Error;

use crate::message::{BatchError, CompressionError, RecordError};

#[derive(Debug, Error)]
pub(crate) enum RowError {
    /// The pulled bytes are not records from here on.
    #[error("invalid record at byte {at} of the pulled bytes: {error}")]
    Record { at: usize, error: RecordError },
    /// The record is flagged as a batch, but its body is not one.
    #[error("the batch at offset {queue_offset} cannot be read: {error}")]
    Batch { queue_offset: u64, error: BatchError },
    /// The batch has fewer members.
    #[error("the batch at offset {queue_offset} has no member {index}")]
    Member { queue_offset: u64, index: u32 },
    /// The body cannot be decompressed.
    #[error("the body at offset {queue_offset} cannot be decompressed: {error}")]
    Body { queue_offset: u64, error: CompressionError },
    /// The body was requested as text and is not UTF-8.
    #[error("the body at offset {queue_offset} is not UTF-8")]
    Text { queue_offset: u64 },
    /// The batch is full: Arrow cannot count more in one column.
    #[error("a batch cannot take the message at offset {queue_offset}: {reason}")]
    Full { queue_offset: u64, reason: String },
}
