//! Single log: the log of a group of one controller, in a separate folder.
//!
//! `log` has a record for each entry. `snapshot` has the state up to an index; it replaces the entries before it when the
//! log has grown to `COMPACTION_BYTES`.
//!
//! Invariant: an entry is reported as committed after it is durable. A torn record at the end of the log was never
//! reported, and is cut off; damage before the end is an error, because entries behind it were reported.
//! Threads: `rmqpy-control` writes.

use std::fs::{File, OpenOptions, create_dir_all, rename};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::log::{Log, Mailbox, Report};
use super::records::{record, record_at, valid_records};
use super::state::{Entry, State};

/// The size of the log from which it is compacted.
const COMPACTION_BYTES: u64 = 1 << 20;
/// The largest entry.
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// The number of a proposal, and its entry.
type Proposed = (u64, Vec<u8>);

/// The log of a group of one controller.
#[derive(Debug)]
pub struct SingleLog {
    mailbox: Arc<Mailbox>,
    entries: Mutex<Option<Sender<Proposed>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl SingleLog {
    /// Opens or creates the log in `folder`, reports its content, and leads.
    ///
    /// # Errors
    /// When the folder cannot be used, another process uses it, or a file is damaged.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let mailbox = Arc::new(Mailbox::new()?);
        let mut files = Files::open(folder)?;
        mailbox.push(Report::Restored(files.snapshot.encode()));
        for entry in files.recover()? {
            mailbox.push(Report::Committed(entry));
        }
        mailbox.push(Report::Leads);
        let (sender, receiver) = channel();
        let reports = Arc::clone(&mailbox);
        let thread = std::thread::Builder::new()
            .name("rmqpy-control".to_owned())
            .spawn(move || write_entries(&mut files, &receiver, &reports))?;
        Ok(Self { mailbox, entries: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) })
    }
}

impl Log for SingleLog {
    fn append(&self, proposal: u64, entry: Vec<u8>) {
        let entries = self.entries.lock();
        if entries.as_ref().is_none_or(|entries| entries.send((proposal, entry)).is_err()) {
            self.mailbox.push(Report::Failed { proposal, reason: "the controller stops".to_owned() });
        }
    }

    fn confirm(&self, round: u64) {
        self.mailbox.push(Report::Confirmed { round, is_leader: true });
    }

    fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    fn stop(&self) {
        self.entries.lock().take();
        if let Some(thread) = self.thread.lock().take() {
            // The panic hook has reported a panic; there is nothing left to stop.
            drop(thread.join());
        }
    }
}

impl Drop for SingleLog {
    fn drop(&mut self) {
        self.stop();
    }
}

fn write_entries(files: &mut Files, entries: &Receiver<Proposed>, mailbox: &Mailbox) {
    while let Ok((proposal, entry)) = entries.recv() {
        if entry.len() > ENTRY_BYTES_MAX {
            let reason = format!("an entry of {} bytes is too large", entry.len());
            mailbox.push(Report::Failed { proposal, reason });
            continue;
        }
        if let Err(error) = files.append(&entry) {
            // After a failed write nothing is known about the end of the file: no retry, no further entry.
            let path = files.folder.display();
            mailbox.push(Report::Broken(format!("cannot write the controller's log in {path}: {error}")));
            return;
        }
        mailbox.push(Report::Committed(entry));
    }
}

#[derive(Debug)]
struct Files {
    folder: PathBuf,
    log: File,
    bytes: u64,
    /// The index of the last entry.
    index: u64,
    /// The state up to the last entry.
    state: State,
    /// The state that was found in the snapshot.
    snapshot: State,
    /// Held as long as the files are in use.
    _lock: File,
}

impl Files {
    fn open(folder: &Path) -> io::Result<Self> {
        create_dir_all(folder)?;
        let lock = File::create(folder.join("lock"))?;
        lock.try_lock().map_err(|_| {
            let text = format!("{} is in use by another controller", folder.display());
            io::Error::new(io::ErrorKind::AddrInUse, text)
        })?;
        let (index, snapshot) = read_snapshot(&folder.join("snapshot"))?;
        let path = folder.join("log");
        let log = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        File::open(folder)?.sync_all()?;
        let state = snapshot.clone();
        Ok(Self { folder: folder.to_owned(), log, bytes: 0, index, state, snapshot, _lock: lock })
    }

    /// Returns the entries behind the snapshot, and cuts off a torn record at the end.
    fn recover(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut content = Vec::new();
        self.log.read_to_end(&mut content)?;
        let (records, end) = valid_records(&content).map_err(|at| self.damaged("log", at))?;
        let mut entries = Vec::new();
        for (index, bytes) in records {
            if index <= self.index {
                continue;
            }
            let entry = Entry::decode(bytes).filter(|_| index == self.index + 1);
            let entry = entry.ok_or_else(|| self.damaged("log", end))?;
            entry.events.iter().for_each(|event| self.state.apply(event));
            self.index = index;
            entries.push(bytes.to_vec());
        }
        self.bytes = end as u64;
        if end < content.len() {
            self.log.set_len(self.bytes)?;
            self.log.sync_all()?;
        }
        self.log.seek(SeekFrom::Start(self.bytes))?;
        Ok(entries)
    }

    fn damaged(&self, name: &str, at: usize) -> io::Error {
        let path = self.folder.join(name);
        let text = format!(
            "{} is damaged at byte {at}: restore it from a backup; or move the folder away, so that brokers register \
             again and the first election chooses the longest log",
            path.display()
        );
        io::Error::new(io::ErrorKind::InvalidData, text)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.bytes >= COMPACTION_BYTES {
            self.compact()?;
        }
        let record = record(self.index + 1, bytes);
        self.log.write_all(&record)?;
        self.log.sync_data()?;
        self.bytes += record.len() as u64;
        self.index += 1;
        if let Some(entry) = Entry::decode(bytes) {
            entry.events.iter().for_each(|event| self.state.apply(event));
        }
        Ok(())
    }

    /// Replaces the entries by a snapshot. After a crash between its steps the log has entries the snapshot has, too.
    fn compact(&mut self) -> io::Result<()> {
        let (path, scratch) = (self.folder.join("snapshot"), self.folder.join("snapshot.new"));
        let mut file = File::create(&scratch)?;
        file.write_all(&record(self.index, &self.state.encode()))?;
        file.sync_all()?;
        rename(&scratch, &path)?;
        File::open(&self.folder)?.sync_all()?;
        self.log.set_len(0)?;
        self.log.sync_all()?;
        self.log.seek(SeekFrom::Start(0))?;
        self.bytes = 0;
        Ok(())
    }
}

fn read_snapshot(path: &Path) -> io::Result<(u64, State)> {
    let content = match std::fs::read(path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, State::default())),
        Err(error) => return Err(error),
    };
    let read = record_at(&content, 0).and_then(|(index, bytes, _)| Some((index, State::decode(bytes)?)));
    read.ok_or_else(|| {
        let text = format!("{} is damaged: restore it from a backup", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::records::HEAD_BYTES;
    use crate::controller::state::{Event, Replica};

    fn entry(number: i64) -> Vec<u8> {
        let replica = Replica { address: format!("h:{number}"), check_code: format!("h:{number};1") };
        let (name, cluster) = ("b".to_owned(), "c".to_owned());
        let events = vec![Event::BrokerIdApplied { name, cluster, id: number % 50 + 1, replica }];
        Entry { proposer: 1, proposal: number as u64, events }.encode()
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("rmqpy-single-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn state_of(folder: &Path) -> io::Result<State> {
        let mut files = Files::open(folder)?;
        files.recover()?;
        Ok(files.state)
    }

    #[test]
    fn a_reopened_log_has_every_entry_also_across_a_compaction() {
        let folder = folder("reopen");
        let mut expected = State::default();
        {
            let mut files = Files::open(&folder).unwrap();
            files.recover().unwrap();
            for number in 0..40 {
                files.append(&entry(number)).unwrap();
                Entry::decode(&entry(number)).unwrap().events.iter().for_each(|event| expected.apply(event));
                if number == 20 {
                    files.compact().unwrap();
                }
            }
        }
        assert_eq!(state_of(&folder).unwrap(), expected);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_torn_last_record_is_cut_and_damage_before_it_is_refused() {
        let folder = folder("torn");
        {
            let mut files = Files::open(&folder).unwrap();
            files.recover().unwrap();
            (0..3).for_each(|number| files.append(&entry(number)).unwrap());
        }
        let whole = std::fs::read(folder.join("log")).unwrap();
        let last = whole.len() - record(3, &entry(2)).len();
        for end in last..whole.len() {
            std::fs::write(folder.join("log"), &whole[..end]).unwrap();
            assert_eq!(state_of(&folder).unwrap().get("b").unwrap().replicas.len(), 2, "cut at {end}");
        }
        let mut damaged = whole.clone();
        damaged[HEAD_BYTES + 3] ^= 1;
        std::fs::write(folder.join("log"), &damaged).unwrap();
        let error = state_of(&folder).unwrap_err().to_string();
        assert!(error.contains("is damaged at byte 0"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_folder_in_use_is_refused() {
        let folder = folder("lock");
        let log = SingleLog::open(&folder).unwrap();
        assert!(SingleLog::open(&folder).unwrap_err().to_string().contains("in use"));
        log.stop();
        drop(log);
        SingleLog::open(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
