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
    /// The disk has too little room for a file, so that it was not begun.
    #[error("{path}: {} MiB are free: with a file of {} MiB messages would be refused", free >> 20, needed >> 20)]
    NoSpace { path: PathBuf, needed: u64, free: u64 },
    /// There are no more checkpoints since a sync failed, which may have lost what it was to bring to the disk.
    #[error("not before the store is opened again, since {reason}")]
    InDoubt { reason: String },
    /// A topic that cannot be the name of a directory.
    #[error("{topic:?} cannot be the name of a topic")]
    Topic { topic: String },
    /// A message was still on its way to a topic when that was deleted.
    #[error("topic {topic} was deleted")]
    TopicDeleted { topic: String },
}

impl StoreError {
    /// Wraps an I/O error with the file and the attempt it belongs to.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        // The path is copied where there is an error, and nowhere else.
        move |source| Self::Io { path: path.to_owned(), action, source }
    }

    /// The number of the I/O error, if it is one.
    #[cfg(feature = "python")]
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// What kind of I/O error it is, if it is one.
    pub(super) fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            Self::NoSpace { .. } => Some(io::ErrorKind::StorageFull),
            _ => None,
        }
    }

    /// Whether it is over as soon as there is room on the disk.
    pub(super) fn is_lack_of_space(&self) -> bool {
        matches!(self.kind(), Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}

/// What is missing where a step had no room on the disk. Other errors stay errors.
pub(super) fn unless_full(outcome: Result<(), StoreError>) -> Result<Option<StoreError>, StoreError> {
    match outcome {
        Err(error) if error.is_lack_of_space() => Ok(Some(error)),
        outcome => outcome.map(|()| None),
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
    /// The log is a copy of a master's, which takes the messages.
    #[error("this broker is a slave: its log is a copy of its master's, where messages are sent")]
    Replica,
    /// The store refuses writes until it is opened again; reads go on.
    #[error("the store refuses writes after a failure, until it is opened again")]
    ReadOnly,
}
