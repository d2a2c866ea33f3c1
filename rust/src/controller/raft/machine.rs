//! Machine: the state of broker sets up to the last committed entry, and its snapshots.
//!
//! The state is in memory: a start reads the snapshot, and openraft applies the entries behind it again once they are
//! committed again. `raft-snapshot` has one snapshot in a record, and is replaced as a whole.

use std::fs::{File, rename};
use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::storage::RaftStateMachine;
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder, StorageIOError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::types::{Entry, LogId, Snapshot, SnapshotMeta, StorageError, StoredMembership, Types, json};
use crate::controller::log::{Mailbox, Report};
use crate::controller::records::{record, record_at};
use crate::controller::state::{self, State};

const NAME: &str = "raft-snapshot";

/// A snapshot as the file has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Stored {
    meta: SnapshotMeta,
    /// As `State` encodes it.
    state: Vec<u8>,
}

/// The file of the snapshot. Clones share it.
#[derive(Debug, Clone)]
struct SnapshotFile {
    folder: PathBuf,
    current: Arc<Mutex<Option<Stored>>>,
}

impl SnapshotFile {
    fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join(NAME);
        let current = match std::fs::read(&path) {
            Ok(bytes) => {
                let stored =
                    record_at(&bytes, 0).and_then(|(_, bytes, _)| serde_json::from_slice(bytes).ok());
                Some(stored.ok_or_else(|| {
                    let text = format!(
                        "{} is damaged: restore it from a backup; or move the folder away, and this controller copies \
                         everything from the others",
                        path.display()
                    );
                    io::Error::new(io::ErrorKind::InvalidData, text)
                })?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self { folder: folder.to_owned(), current: Arc::new(Mutex::new(current)) })
    }

    fn write(&self, stored: Stored) -> io::Result<()> {
        let scratch = self.folder.join("raft-snapshot.new");
        let mut file = File::create(&scratch)?;
        file.write_all(&record(1, &json(&stored)))?;
        file.sync_all()?;
        rename(&scratch, self.folder.join(NAME))?;
        File::open(&self.folder)?.sync_all()?;
        *self.current.lock() = Some(stored);
        Ok(())
    }

    fn current(&self) -> Option<Snapshot> {
        let stored = self.current.lock().clone()?;
        Some(Snapshot { meta: stored.meta, snapshot: Box::new(Cursor::new(stored.state)) })
    }
}

/// The state of one controller.
pub(super) struct Machine {
    state: State,
    applied: Option<LogId>,
    membership: StoredMembership,
    file: SnapshotFile,
    mailbox: Arc<Mailbox>,
}

impl Machine {
    /// Reads the snapshot, and reports it.
    pub(super) fn open(folder: &Path, mailbox: Arc<Mailbox>) -> io::Result<Self> {
        let file = SnapshotFile::open(folder)?;
        let mut machine = Self {
            state: State::default(),
            applied: None,
            membership: StoredMembership::default(),
            file,
            mailbox,
        };
        let stored = machine.file.current.lock().clone();
        if let Some(stored) = stored {
            machine.restore(stored)?;
        }
        Ok(machine)
    }

    fn restore(&mut self, stored: Stored) -> io::Result<()> {
        let state = State::decode(&stored.state);
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a snapshot has no valid state");
        self.state = state.ok_or_else(damaged)?;
        self.applied = stored.meta.last_log_id;
        self.membership = stored.meta.last_membership;
        self.mailbox.push(Report::Restored(stored.state));
        Ok(())
    }

    fn apply_entry(&mut self, entry: Entry) {
        match entry.payload {
            EntryPayload::Blank => {}
            EntryPayload::Normal(text) => {
                if let Some(entry) = state::Entry::decode(text.as_bytes()) {
                    entry.events.iter().for_each(|event| self.state.apply(event));
                }
                self.mailbox.push(Report::Committed(text.into_bytes()));
            }
            EntryPayload::Membership(members) => {
                self.membership = StoredMembership::new(Some(entry.log_id), members);
            }
        }
        self.applied = Some(entry.log_id);
    }
}

/// The state at one moment, to be written.
pub(super) struct Builder {
    stored: Stored,
    file: SnapshotFile,
}

impl RaftSnapshotBuilder<Types> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot, StorageError> {
        let written = self.file.write(self.stored.clone());
        written
            .map_err(|error| StorageIOError::write_snapshot(Some(self.stored.meta.signature()), &error))?;
        let state = self.stored.state.clone();
        Ok(Snapshot { meta: self.stored.meta.clone(), snapshot: Box::new(Cursor::new(state)) })
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        Ok(entries.into_iter().map(|entry| self.apply_entry(entry)).collect())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let snapshot_id = self.applied.as_ref().map_or_else(|| "0".to_owned(), ToString::to_string);
        let meta =
            SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone(), snapshot_id };
        Builder { stored: Stored { meta, state: self.state.encode() }, file: self.file.clone() }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let stored = Stored { meta: meta.clone(), state: snapshot.into_inner() };
        let installed = self.file.write(stored.clone()).and_then(|()| self.restore(stored));
        Ok(installed.map_err(|error| StorageIOError::write_snapshot(Some(meta.signature()), &error))?)
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, StorageError> {
        Ok(self.file.current())
    }
}
