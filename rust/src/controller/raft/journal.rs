//! Journal: votes and entries of a controller in a group, in one file of records, `raft`.
//!
//! Each record is a step: a vote, entries, the removal of entries at the end or the beginning. The content is also in
//! memory, it is small. When entries at the beginning are removed and the file has grown to `COMPACTION_BYTES`, it is
//! replaced.
//!
//! Invariant: a step is on the disk before openraft learns that it is done. After a failed write the log is not used
//! any more. The torn record of a step that was cut short is cut off at the next start; damage before the end is an error.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{File, OpenOptions, create_dir_all, rename};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader, StorageIOError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::types::{Entry, LogId, StorageError, Types, Vote, json};
use crate::controller::records::{record, valid_records};

/// The size of the file from which it is replaced.
const COMPACTION_BYTES: u64 = 1 << 20;
const NAME: &str = "raft";

/// A change of the log.
#[derive(Debug, Serialize, Deserialize)]
enum Step {
    Vote(Vote),
    Append(Vec<Entry>),
    /// Entries from this one on are removed.
    Truncate(LogId),
    /// Entries up to this one are removed.
    Purge(LogId),
}

/// Votes and entries. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Journal {
    shared: Arc<Mutex<Files>>,
}

#[derive(Debug)]
struct Files {
    folder: PathBuf,
    file: File,
    bytes: u64,
    /// The number of the last record.
    number: u64,
    content: Content,
    /// Held as long as the file is in use.
    _lock: File,
}

#[derive(Debug, Default)]
struct Content {
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, Entry>,
}

impl Journal {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        create_dir_all(folder)?;
        let lock = File::create(folder.join("lock"))?;
        lock.try_lock().map_err(|_| {
            let text = format!("{} is in use by another controller", folder.display());
            io::Error::new(io::ErrorKind::AddrInUse, text)
        })?;
        if folder.join("log").exists() {
            let text = format!(
                "{} has the log of a single controller: move the folder away; brokers register again, and the first \
                 election chooses the longest log",
                folder.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let path = folder.join(NAME);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        File::open(folder)?.sync_all()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let damaged = |at: usize| {
            let text = format!(
                "{} is damaged at byte {at}: restore it from a backup; or move the folder away, and this controller copies \
                 everything from the others",
                path.display()
            );
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let (records, end) = valid_records(&bytes).map_err(damaged)?;
        let (mut content, mut number) = (Content::default(), 0);
        for (index, step) in records {
            let step = serde_json::from_slice(step).map_err(|_| damaged(end))?;
            content.apply(step);
            number = index;
        }
        if end < bytes.len() {
            file.set_len(end as u64)?;
            file.sync_all()?;
        }
        file.seek(SeekFrom::Start(end as u64))?;
        let folder = folder.to_owned();
        let files = Files { folder, file, bytes: end as u64, number, content, _lock: lock };
        Ok(Self { shared: Arc::new(Mutex::new(files)) })
    }

    /// Whether it has no vote and no entry: this controller was never part of a group.
    pub(super) fn is_empty(&self) -> bool {
        let files = self.shared.lock();
        files.content.vote.is_none() && files.content.last().is_none()
    }
}

impl Content {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Vote(vote) => self.vote = Some(vote),
            Step::Append(entries) => {
                self.entries.extend(entries.into_iter().map(|each| (each.log_id.index, each)))
            }
            Step::Truncate(from) => drop(self.entries.split_off(&from.index)),
            Step::Purge(upto) => {
                self.entries = self.entries.split_off(&(upto.index + 1));
                self.purged = Some(upto);
            }
        }
    }

    fn last(&self) -> Option<LogId> {
        self.entries.values().next_back().map(|entry| entry.log_id).or(self.purged)
    }
}

impl Files {
    fn write(&mut self, step: Step) -> io::Result<()> {
        let record = record(self.number + 1, &json(&step));
        self.file.write_all(&record)?;
        self.file.sync_data()?;
        self.number += 1;
        self.bytes += record.len() as u64;
        self.content.apply(step);
        Ok(())
    }

    /// Replaces the file by one with the present content.
    fn compact(&mut self) -> io::Result<()> {
        let (path, scratch) = (self.folder.join(NAME), self.folder.join("raft.new"));
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&scratch)?;
        let entries: Vec<Entry> = self.content.entries.values().cloned().collect();
        let steps = [
            self.content.vote.map(Step::Vote),
            self.content.purged.map(Step::Purge),
            (!entries.is_empty()).then_some(Step::Append(entries)),
        ];
        let mut bytes = Vec::new();
        for step in steps.into_iter().flatten() {
            self.number += 1;
            bytes.extend_from_slice(&record(self.number, &json(&step)));
        }
        file.write_all(&bytes)?;
        file.sync_all()?;
        rename(&scratch, &path)?;
        File::open(&self.folder)?.sync_all()?;
        (self.file, self.bytes) = (file, bytes.len() as u64);
        Ok(())
    }
}

impl RaftLogReader<Types> for Journal {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, StorageError> {
        Ok(self.shared.lock().content.entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }
}

impl RaftLogStorage<Types> for Journal {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let files = self.shared.lock();
        let last_purged_log_id = files.content.purged;
        Ok(LogState { last_purged_log_id, last_log_id: files.content.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let written = self.shared.lock().write(Step::Vote(*vote));
        Ok(written.map_err(|error| StorageIOError::write_vote(&error))?)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.shared.lock().content.vote)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let written = self.shared.lock().write(Step::Append(entries.into_iter().collect()));
        match written {
            Ok(()) => callback.log_io_completed(Ok(())),
            Err(error) => {
                let text = error.to_string();
                callback.log_io_completed(Err(io::Error::new(error.kind(), text)));
                return Err(StorageIOError::write_logs(&error).into());
            }
        }
        Ok(())
    }

    async fn truncate(&mut self, from: LogId) -> Result<(), StorageError> {
        let written = self.shared.lock().write(Step::Truncate(from));
        Ok(written.map_err(|error| StorageIOError::write_logs(&error))?)
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), StorageError> {
        let mut files = self.shared.lock();
        let mut written = files.write(Step::Purge(upto));
        if written.is_ok() && files.bytes >= COMPACTION_BYTES {
            written = files.compact();
        }
        Ok(written.map_err(|error| StorageIOError::write_logs(&error))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::raft::ControllerId;
    use openraft::{CommittedLeaderId, EntryPayload};

    fn n(name: &str) -> ControllerId {
        ControllerId::from(name).unwrap()
    }

    fn entry(index: u64) -> Entry {
        let log_id = LogId::new(CommittedLeaderId::new(1, n("n0")), index);
        Entry { log_id, payload: EntryPayload::Normal(format!("entry {index}")) }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("rmqpy-journal-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn indices(folder: &Path) -> io::Result<Vec<u64>> {
        let journal = Journal::open(folder)?;
        let files = journal.shared.lock();
        Ok(files.content.entries.keys().copied().collect())
    }

    #[test]
    fn a_reopened_journal_has_every_step_also_after_it_was_replaced() {
        let folder = folder("reopen");
        {
            let journal = Journal::open(&folder).unwrap();
            assert!(journal.is_empty());
            let mut files = journal.shared.lock();
            files.write(Step::Vote(Vote::new(3, n("n1")))).unwrap();
            files.write(Step::Append((1..=9).map(entry).collect())).unwrap();
            files.write(Step::Truncate(entry(8).log_id)).unwrap();
            files.write(Step::Purge(entry(2).log_id)).unwrap();
            files.compact().unwrap();
            files.write(Step::Append(vec![entry(8)])).unwrap();
        }
        assert_eq!(indices(&folder).unwrap(), [3, 4, 5, 6, 7, 8]);
        let journal = Journal::open(&folder).unwrap();
        assert_eq!(journal.shared.lock().content.vote, Some(Vote::new(3, n("n1"))));
        assert_eq!(journal.shared.lock().content.purged, Some(entry(2).log_id));
        drop(journal);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_torn_step_is_cut_and_damage_before_the_end_is_refused() {
        let folder = folder("torn");
        let ends: Vec<u64> = {
            let journal = Journal::open(&folder).unwrap();
            let mut files = journal.shared.lock();
            (1..=3)
                .map(|index| {
                    files.write(Step::Append(vec![entry(index)])).unwrap();
                    files.bytes
                })
                .collect()
        };
        let whole = std::fs::read(folder.join(NAME)).unwrap();
        for end in ends[1] as usize..whole.len() {
            std::fs::write(folder.join(NAME), &whole[..end]).unwrap();
            assert_eq!(indices(&folder).unwrap(), [1, 2], "cut at {end}");
        }
        let mut damaged = whole.clone();
        damaged[20] ^= 1;
        std::fs::write(folder.join(NAME), &damaged).unwrap();
        let error = Journal::open(&folder).unwrap_err().to_string();
        assert!(error.contains("is damaged at byte 0"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_folder_of_a_single_controller_is_refused() {
        let folder = folder("single");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("log"), b"").unwrap();
        let error = Journal::open(&folder).unwrap_err().to_string();
        assert!(error.contains("single controller"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
