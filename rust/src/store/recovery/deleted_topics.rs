//! Deleted topics, and up to where in the log they are gone.
//!
//! Messages of a deleted topic stay in the log until their file goes, and recovery builds queues from the log: without
//! a note they would be there again after a crash. The note, `rmqpy/deleted`, is ours and durable before the topic's
//! files are touched. It names for each topic the end of the log at that moment; what was stored later belongs to a topic
//! made again under the same name. It says, too, whether the files are gone, so that the next start can finish a deletion.
//! Apache does not know the note.
//!
//! Invariant: a line stays until the log begins at its position or behind it.
//! Threads: recovery, then the thread that deletes a topic.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::disk::{Disk, Open};
use crate::store::error::StoreError;

const BEGUN: &str = "begun";
const DONE: &str = "done";

/// A deletion.
#[derive(Clone, Copy)]
struct Deletion {
    /// The topic's messages before this position of the log are gone.
    end: u64,
    /// Whether its files are, too.
    is_done: bool,
}

type Deletions = HashMap<String, Deletion>;

/// Topics that were deleted while their messages are still in the log.
pub(crate) struct DeletedTopics {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    scratch: PathBuf,
    topics: Mutex<Deletions>,
}

impl DeletedTopics {
    /// Reads the note of the store in `root`, leaving out what lies before `log_begin`. A file that cannot be read as
    /// one is as good as none.
    pub(crate) fn load(disk: &Arc<dyn Disk>, root: &Path, log_begin: u64) -> Result<Self, StoreError> {
        let own = root.join("rmqpy");
        let path = own.join("deleted");
        let text = String::from_utf8(disk.read_front(&path, usize::MAX)?).unwrap_or_default();
        let topics = text.lines().filter_map(deletion_of).filter(|(_, deletion)| deletion.end > log_begin);
        let topics = Mutex::new(topics.collect());
        Ok(Self { disk: Arc::clone(disk), path, scratch: own.join("deleted.new"), topics })
    }

    /// Whether a record at `physical` was in a topic that has been deleted since.
    pub(crate) fn covers(&self, topic: &[u8], physical: u64) -> bool {
        let topics = self.topics.lock();
        let deletion = std::str::from_utf8(topic).ok().and_then(|topic| topics.get(topic));
        deletion.is_some_and(|deletion| physical < deletion.end)
    }

    /// Topics whose files may be there still.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let topics = self.topics.lock();
        topics.iter().filter(|(_, deletion)| !deletion.is_done).map(|(topic, _)| topic.clone()).collect()
    }

    /// Notes, durably, that everything of `topic` before `end` is gone.
    pub(crate) fn begin(&self, topic: &str, end: u64) -> Result<(), StoreError> {
        self.change(|topics| {
            topics.insert(topic.to_owned(), Deletion { end, is_done: false });
        })
    }

    /// Notes that the topic's files are gone.
    pub(crate) fn finish(&self, topic: &str) -> Result<(), StoreError> {
        self.change(|topics| {
            topics.entry(topic.to_owned()).and_modify(|deletion| deletion.is_done = true);
        })
    }

    fn change(&self, change: impl FnOnce(&mut Deletions)) -> Result<(), StoreError> {
        let mut topics = self.topics.lock();
        let mut changed = topics.clone();
        change(&mut changed);
        self.save(&changed)?;
        *topics = changed;
        Ok(())
    }

    fn save(&self, topics: &Deletions) -> Result<(), StoreError> {
        let line = |(topic, deletion): (&String, &Deletion)| {
            format!("{} {} {topic}\n", deletion.end, if deletion.is_done { DONE } else { BEGUN })
        };
        let text: String = topics.iter().map(line).collect();
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

/// Reads `END STATE TOPIC`; a name may hold spaces.
fn deletion_of(line: &str) -> Option<(String, Deletion)> {
    let mut words = line.splitn(3, ' ');
    let end = words.next()?.parse().ok()?;
    let is_done = words.next()? == DONE;
    Some((words.next()?.to_owned(), Deletion { end, is_done }))
}
