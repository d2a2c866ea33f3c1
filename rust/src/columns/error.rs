//! Why a message cannot be read. Each variant names the place, so that the message can be found and skipped.

use thiserror::Error;

use crate::message::{BatchError, CompressionError, RecordError};

/// A message that cannot be read.
#[derive(Debug, Error)]
pub enum RowError {
    /// The pulled bytes are not records from here on.
    #[error("no record at byte {at} of the pulled bytes: {error}")]
    Record {
        /// Where in the pulled bytes.
        at: usize,
        /// What is wrong.
        error: RecordError,
    },
    /// The record says it is a batch, and its body is none.
    #[error("the batch at offset {queue_offset} cannot be read: {error}")]
    Batch {
        /// Its position in the queue.
        queue_offset: u64,
        /// What is wrong.
        error: BatchError,
    },
    /// The batch has fewer members.
    #[error("the batch at offset {queue_offset} has no member {index}")]
    Member {
        /// Its position in the queue.
        queue_offset: u64,
        /// What was looked for.
        index: u32,
    },
    /// The body cannot be decompressed.
    #[error("the body at offset {queue_offset} cannot be decompressed: {error}")]
    Body {
        /// Its position in the queue.
        queue_offset: u64,
        /// What is wrong.
        error: CompressionError,
    },
    /// The body was asked for as text and is none.
    #[error("the body at offset {queue_offset} is not UTF-8")]
    Text {
        /// Its position in the queue.
        queue_offset: u64,
    },
    /// More rows than Arrow can count in one column.
    #[error("a batch cannot take the message at offset {queue_offset}: {reason}")]
    Full {
        /// Its position in the queue.
        queue_offset: u64,
        /// What is wrong.
        reason: String,
    },
}

impl RowError {
    /// Position in the queue of the message that cannot be read, where it is known.
    pub fn queue_offset(&self) -> Option<u64> {
        match self {
            Self::Record { .. } => None,
            Self::Batch { queue_offset, .. }
            | Self::Member { queue_offset, .. }
            | Self::Body { queue_offset, .. }
            | Self::Text { queue_offset }
            | Self::Full { queue_offset, .. } => Some(*queue_offset),
        }
    }
}
