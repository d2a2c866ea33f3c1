//! Deleted topics: the end of each deleted topic in the log.
//!
//! Messages of a deleted topic stay in the log until their file is deleted. Recovery rebuilds queues from the log
//! and would restore the topic after a crash, so a note, `rmqpy/deleted`, is durable before the topic's files are
//! touched. For each topic it has the end of the log at the deletion, because later messages belong to a new topic
//! of that name, and whether the files are gone, so that the next start can finish a deletion. It also has what the
//! deleted queues added to the last manifest's digest: otherwise all queues would look changed after a crash, and
//! recovery would read the whole log. Apache's broker does not know the note.
//!
//! *Invariant*: a line stays until the log begins at its position or later.
//! Threads: recovery, then those that delete topics, one at a time; `covers` from any.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::disk::{Disk, Open};
use crate::store::error::StoreError;

const BEGUN: &str = "begun";
const DONE: &str = "done";
const DIGEST: &str = "digest";

/// A deletion.
#[derive(Clone, Copy)]
struct Deletion {
    /// The topic's messages before this position of the log are deleted.
    end: u64,
    /// Whether its files are deleted, too.
    is_done: bool,
}

/// The fields of a manifest that a deletion changes: its record, and its digest of the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DigestBase {
    pub(crate) record: i64,
    pub(crate) queues: u64,
}

#[derive(Clone, Default)]
struct Note {
    topics: HashMap<String, Deletion>,
    /// What the deleted queues added to the digest of this manifest.
    removed: Option<(DigestBase, u64)>,
}

/// Topics that were deleted while their messages are still in the log.
pub(crate) struct DeletedTopics {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    scratch: PathBuf,
    note: Mutex<Note>,
    /// Held while the file is written.
    saving: Mutex<()>,
}

impl DeletedTopics {
    /// Reads the note of the store in `root`, without the lines before `log_begin`. An unreadable file counts as
    /// missing.
    pub(crate) fn load(disk: &Arc<dyn Disk>, root: &Path, log_begin: u64) -> Result<Self, StoreError> {
        let own = root.join("rmqpy");
        let path = own.join("deleted");
        let text = String::from_utf8(disk.read_front(&path, usize::MAX)?).unwrap_or_default();
        let topics = text.lines().filter_map(deletion_of).filter(|(_, deletion)| deletion.end > log_begin);
        let note = Note { topics: topics.collect(), removed: text.lines().find_map(removed_of) };
        Ok(Self {
            disk: Arc::clone(disk),
            path,
            scratch: own.join("deleted.new"),
            note: Mutex::new(note),
            saving: Mutex::default(),
        })
    }

    /// Returns whether a record at `physical` was in a topic that has been deleted since.
    pub(crate) fn covers(&self, topic: &[u8], physical: u64) -> bool {
        let note = self.note.lock();
        let deletion = std::str::from_utf8(topic).ok().and_then(|topic| note.topics.get(topic));
        deletion.is_some_and(|deletion| physical < deletion.end)
    }

    /// Returns the topics whose files may still exist.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let note = self.note.lock();
        note.topics.iter().filter(|(_, deletion)| !deletion.is_done).map(|(topic, _)| topic.clone()).collect()
    }

    /// Returns the digest of a manifest without the queues that have been deleted since it was written.
    pub(crate) fn digest_now(&self, base: DigestBase) -> u64 {
        let removed = self.note.lock().removed.filter(|(of, _)| *of == base);
        base.queues.wrapping_sub(removed.map_or(0, |(_, digest)| digest))
    }

    /// Marks everything of `topic` before `end` as deleted, only in memory until it is saved. `removed` is what its
    /// queues added to the digest of the last manifest.
    pub(crate) fn begin(&self, topic: &str, end: u64, removed: Option<(DigestBase, u64)>) {
        let mut note = self.note.lock();
        note.topics.insert(topic.to_owned(), Deletion { end, is_done: false });
        if let Some((base, digest)) = removed {
            let before = note.removed.filter(|(of, _)| *of == base).map_or(0, |(_, digest)| digest);
            note.removed = Some((base, before.wrapping_add(digest)));
        }
    }

    /// Durably marks the topics' files as deleted.
    pub(crate) fn finish(&self, topics: &[&str]) -> Result<(), StoreError> {
        let mut note = self.note.lock();
        for topic in topics {
            if let Some(deletion) = note.topics.get_mut(*topic) {
                deletion.is_done = true;
            }
        }
        drop(note);
        self.save()
    }

    /// Durably writes the note.
    pub(crate) fn save(&self) -> Result<(), StoreError> {
        let _saving = self.saving.lock();
        // Every delayed message takes this lock, so it is not held during the write.
        let Note { topics, removed } = self.note.lock().clone();
        let line = |(topic, deletion): (&String, &Deletion)| {
            format!("{} {} {topic}\n", deletion.end, if deletion.is_done { DONE } else { BEGUN })
        };
        let mut text: String = topics.iter().map(line).collect();
        if let Some((DigestBase { record, queues }, digest)) = removed {
            text += &format!("{DIGEST} {record} {queues} {digest}\n");
        }
        let scratch = &self.scratch;
        self.disk.remove_file(scratch)?;
        let file = self.disk.open(scratch, Open::Create).map_err(StoreError::io(scratch, "create"))?;
        file.write_at(text.as_bytes(), 0)
            .and_then(|()| file.sync())
            .map_err(StoreError::io(scratch, "write"))?;
        self.disk.rename(scratch, &self.path).map_err(StoreError::io(&self.path, "rename into place"))?;
        let dir = self.path.parent().unwrap_or(Path::new("."));
        self.disk.sync_entries(dir)
    }
}

/// Parses `END STATE TOPIC`; a name may contain spaces.
fn deletion_of(line: &str) -> Option<(String, Deletion)> {
    let mut words = line.splitn(3, ' ');
    let end = words.next()?.parse().ok()?;
    let is_done = words.next()? == DONE;
    Some((words.next()?.to_owned(), Deletion { end, is_done }))
}

/// Parses `digest RECORD QUEUES REMOVED`.
fn removed_of(line: &str) -> Option<(DigestBase, u64)> {
    let mut words = line.strip_prefix(DIGEST)?.split_whitespace();
    let base = DigestBase { record: words.next()?.parse().ok()?, queues: words.next()?.parse().ok()? };
    Some((base, words.next()?.parse().ok()?))
}
