//! Errors of the store, by what the caller can do about them.

use std::io;
use std::path::{Path, PathBuf};

/// Why a store does not open or cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another broker has the directory open; stop it first.
    #[error("{path}: locked by another broker, rmqpy or Apache; stop it or choose another store directory")]
    Locked { path: PathBuf },
    #[error("{path}: {action}: {source}")]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    /// A file is not what it has to be, and guessing would risk messages.
    #[error("{path}: {expected}")]
    Layout {
        path: PathBuf,
        /// What was expected, and what was found.
        expected: String,
    },
    #[error("{0}")]
    Option(String),
    /// The store has refused writes since an earlier failure; open it again.
    #[error("the store refuses writes: {reason}")]
    ReadOnly { reason: String },
    /// A topic that cannot be the name of a directory.
    #[error("{topic:?} cannot be the name of a topic")]
    Topic { topic: String },
}

impl StoreError {
    /// Wraps an I/O error with the file and the attempt it belongs to.
    pub(super) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }
}

/// Why a message was not stored. Nothing of it is in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PutError {
    /// The put has not been appended yet.
    #[error("not appended yet")]
    Pending,
    /// The record, or the batch it belongs to, is larger than a segment of the log: it can never be stored.
    #[error("the record does not fit into a segment of the log")]
    TooLarge,
    /// The next segment of the log is not ready; try again later.
    #[error("the next segment of the log is not ready")]
    Busy,
    /// The queue was deleted with its topic while the message was on its way.
    #[error("the queue was deleted")]
    QueueGone,
    /// There is hardly space left on the disk; reads go on, and writes again when there is room.
    #[error("the disk is full")]
    DiskFull,
    /// The store refuses writes until it is opened again; reads go on.
    #[error("the store refuses writes after a failure, until it is opened again")]
    ReadOnly,
}
