//! Store errors: grouped by the remedy of the caller.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a store cannot be opened or an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another broker has the directory open; stop it first.
    #[error("{path}: locked by another broker, rmqpy or Apache; stop it or choose another store directory")]
    Locked { path: PathBuf },
    #[error("{path}: {action}: {source}")]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    /// A file is invalid, and a guess would risk messages.
    #[error("{path}: {expected}")]
    Layout {
        path: PathBuf,
        /// The expectation, and the value found.
        expected: String,
    },
    #[error("{0}")]
    Option(String),
    /// The store refuses writes since an earlier failure; open it again.
    #[error("the store refuses writes: {reason}")]
    ReadOnly { reason: String },
    /// The disk has too little space for a file, so it was not created.
    #[error("{path}: {} MiB are free, too little for a file of {} MiB", free >> 20, needed >> 20)]
    NoSpace { path: PathBuf, needed: u64, free: u64 },
    /// Checkpoints have ended after a failed sync, which may have lost data.
    #[error("suspended until the store is reopened, because of an earlier error: {reason}")]
    InDoubt { reason: String },
    /// A topic that cannot be the name of a directory.
    #[error("{topic:?} cannot be the name of a topic")]
    Topic { topic: String },
    /// The topic was deleted while a message for it was in flight.
    #[error("topic {topic} was deleted")]
    TopicDeleted { topic: String },
    /// A reader named a light queue that does not exist, and there are too many to create it.
    #[error("light queue {topic} is not created: there are {count} already")]
    LightQueues { topic: String, count: usize },
}

impl StoreError {
    /// Adds the file and the action to an I/O error.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        // The path is copied only after an error.
        move |source| Self::Io { path: path.to_owned(), action, source }
    }

    /// Returns the error number, if it is an I/O error.
    #[cfg(feature = "python")]
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Returns the kind, if it is an I/O error.
    pub(super) fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            Self::NoSpace { .. } => Some(io::ErrorKind::StorageFull),
            _ => None,
        }
    }

    /// Returns whether freeing disk space resolves it.
    pub(super) fn is_lack_of_space(&self) -> bool {
        matches!(self.kind(), Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}

/// Returns a lack of disk space as a value. Other errors stay errors.
pub(super) fn unless_full(outcome: Result<(), StoreError>) -> Result<Option<StoreError>, StoreError> {
    match outcome {
        Err(error) if error.is_lack_of_space() => Ok(Some(error)),
        outcome => outcome.map(|()| None),
    }
}

/// The reason why a message was not stored. No part of it is in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PutError {
    /// The put has not been appended yet.
    #[error("not appended yet")]
    Pending,
    /// The record, or its batch, is larger than a segment of the log: it can never be stored.
    #[error("the record does not fit into a segment of the log")]
    TooLarge,
    /// The message names too many light queues: its properties have no room for the offsets there.
    #[error("the properties have no room for the offsets in light queues")]
    TooManyLights,
    /// The next segment of the log is not ready; try again later.
    #[error("the next segment of the log is not ready")]
    Busy,
    /// The queue was deleted with its topic while the message was in flight.
    #[error("the queue was deleted")]
    QueueGone,
    /// The disk is almost full. Reads continue, and writes resume when there is space.
    #[error("the disk is full")]
    DiskFull,
    /// The log is a copy of a master's; messages go to the master.
    #[error("this broker is a slave: send messages to its master")]
    Replica,
    /// The store refuses writes until it is reopened; reads continue.
    #[error("the store refuses writes after a failure, until it is reopened")]
    ReadOnly,
}
