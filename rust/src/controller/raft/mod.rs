//! Raft log: the log of a group of several controllers, replicated by openraft.
//!
//! # Theory of operation
//!
//! One thread, `rmqpy-control`, runs openraft and writes its files. It does no network I/O: a call to another controller is
//! a report to the owner, which sends it and hands in the reply; a call from another controller arrives in the same way. So
//! authentication, TLS and connections are the owner's, and tests connect controllers without sockets.
//!
//! From the bottom up: `types` are openraft's types and the calls between controllers, `journal` is the file of votes and
//! entries, `machine` the state and its snapshots, `calls` the way out. `leadership` reports when this controller leads;
//! this file is the thread and its surface.
//!
//! Invariant: entries are reported as committed in the order of the log, and *leads* only after every entry of earlier
//! leaders.
//! Threads: any; openraft on its own.

mod calls;
mod journal;
mod leadership;
mod machine;
#[cfg(test)]
mod tests;
mod types;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use openraft::error::{ClientWriteError, RaftError};
use openraft::{Config, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use self::calls::Calls;
use self::journal::Journal;
use self::leadership::Leadership;
use self::machine::Machine;
use self::types::{Call, ELECTION_MS, HEARTBEAT_MS, Raft, Reply};
pub use self::types::{ControllerId, Group};
use super::log::{Log, Mailbox, Report};

/// Entries between two snapshots.
const SNAPSHOT_ENTRIES: u64 = 1_000;
/// Entries that stay behind a snapshot, for controllers that lag.
const KEPT_ENTRIES: u64 = 200;
/// The largest part of a snapshot in one call.
const PART_BYTES_MAX: u64 = 256 << 10;
/// The most calls of other controllers that are served at a time; beyond it they are refused, and repeated.
const CALLS_MAX: usize = 64;

/// The log of a group of several controllers.
pub struct RaftLog {
    mailbox: Arc<Mailbox>,
    calls: Arc<Calls>,
    leadership: Arc<Leadership>,
    commands: Mutex<Option<UnboundedSender<Command>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Command {
    Append { proposal: u64, entry: Vec<u8> },
    Confirm { round: u64 },
    Serve { token: u64, body: Vec<u8> },
}

impl RaftLog {
    /// Opens or creates the log in `folder`, and joins the group.
    ///
    /// # Errors
    /// When the folder cannot be used, another process uses it, it has the log of a single controller, or a file is damaged.
    pub fn open(folder: &Path, group: Group) -> io::Result<Self> {
        let mailbox = Arc::new(Mailbox::new()?);
        let journal = Journal::open(folder)?;
        let machine = Machine::open(folder, Arc::clone(&mailbox))?;
        let calls = Arc::new(Calls::new(Arc::clone(&mailbox)));
        let leadership = Arc::new(Leadership::new(Arc::clone(&mailbox)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (sender, receiver) = unbounded_channel();
        let parts = Parts {
            group,
            journal,
            machine,
            calls: Arc::clone(&calls),
            leadership: Arc::clone(&leadership),
            mailbox: Arc::clone(&mailbox),
        };
        let thread = std::thread::Builder::new()
            .name("rmqpy-control".to_owned())
            .spawn(move || runtime.block_on(parts.run(receiver)))?;
        let (commands, thread) = (Mutex::new(Some(sender)), Mutex::new(Some(thread)));
        Ok(Self { mailbox, calls, leadership, commands, thread })
    }

    /// The controller that leads, as far as this one knows.
    #[must_use]
    pub fn leader(&self) -> Option<ControllerId> {
        self.leadership.leader()
    }

    /// Serves a call of another controller. `Replied` with this token follows.
    pub fn serve(&self, token: u64, body: Vec<u8>) {
        if !self.send(Command::Serve { token, body }) {
            self.mailbox.push(Report::Replied { token, body: Reply::refused("the controller stops") });
        }
    }

    /// Takes the reply to a call; without one the call has failed.
    pub fn replied(&self, call: u64, body: Option<&[u8]>) {
        self.calls.replied(call, body);
    }

    fn send(&self, command: Command) -> bool {
        self.commands.lock().as_ref().is_some_and(|commands| commands.send(command).is_ok())
    }
}

impl Log for RaftLog {
    fn append(&self, proposal: u64, entry: Vec<u8>) {
        if !self.send(Command::Append { proposal, entry }) {
            self.mailbox.push(Report::Failed { proposal, reason: "the controller stops".to_owned() });
        }
    }

    fn confirm(&self, round: u64) {
        if !self.send(Command::Confirm { round }) {
            self.mailbox.push(Report::Confirmed { round, is_leader: false });
        }
    }

    fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    fn stop(&self) {
        self.commands.lock().take();
        self.calls.close();
        if let Some(thread) = self.thread.lock().take() {
            // The panic hook has reported a panic; there is nothing left to stop.
            drop(thread.join());
        }
    }
}

impl Drop for RaftLog {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the thread needs.
struct Parts {
    group: Group,
    journal: Journal,
    machine: Machine,
    calls: Arc<Calls>,
    leadership: Arc<Leadership>,
    mailbox: Arc<Mailbox>,
}

impl Parts {
    async fn run(self, mut commands: UnboundedReceiver<Command>) {
        let Self { group, journal, machine, calls, leadership, mailbox } = self;
        let raft = match start(&group, journal, machine, &calls).await {
            Ok(raft) => raft,
            Err(reason) => {
                mailbox.push(Report::Broken(reason));
                return;
            }
        };
        let watch = tokio::spawn(leadership::watch(raft.clone(), Arc::clone(&leadership), group));
        let serving = Arc::new(AtomicUsize::new(0));
        while let Some(command) = commands.recv().await {
            match command {
                Command::Append { proposal, entry } => {
                    let (raft, leadership) = (raft.clone(), Arc::clone(&leadership));
                    tokio::spawn(async move { append(&raft, proposal, entry, &leadership).await });
                }
                Command::Confirm { round } => {
                    let (raft, leadership) = (raft.clone(), Arc::clone(&leadership));
                    tokio::spawn(async move { leadership.confirm(&raft, round).await });
                }
                Command::Serve { token, body } => {
                    let (raft, mailbox) = (raft.clone(), Arc::clone(&mailbox));
                    if serving.fetch_add(1, Ordering::Relaxed) >= CALLS_MAX {
                        serving.fetch_sub(1, Ordering::Relaxed);
                        mailbox
                            .push(Report::Replied { token, body: Reply::refused("the controller is busy") });
                        continue;
                    }
                    let serving = Arc::clone(&serving);
                    tokio::spawn(async move {
                        let body = serve(&raft, &body).await;
                        serving.fetch_sub(1, Ordering::Relaxed);
                        mailbox.push(Report::Replied { token, body });
                    });
                }
            }
        }
        watch.abort();
        // Only a panic of openraft is an error here, and the panic hook has reported it.
        drop(raft.shutdown().await);
    }
}

async fn start(
    group: &Group,
    journal: Journal,
    machine: Machine,
    calls: &Arc<Calls>,
) -> Result<Raft, String> {
    let config = Config {
        cluster_name: "controllers".to_owned(),
        heartbeat_interval: HEARTBEAT_MS,
        election_timeout_min: ELECTION_MS,
        election_timeout_max: ELECTION_MS * 2,
        install_snapshot_timeout: HEARTBEAT_MS * 10,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_ENTRIES),
        max_in_snapshot_log_to_keep: KEPT_ENTRIES,
        snapshot_max_chunk_size: PART_BYTES_MAX,
        ..Config::default()
    };
    let config = config.validate().map_err(|error| error.to_string())?;
    let is_new = journal.is_empty();
    let raft = Raft::new(group.own, Arc::new(config), Arc::clone(calls), journal, machine).await;
    let raft = raft.map_err(|error| error.to_string())?;
    if is_new {
        // Every new controller of the group does this with the same members. Once another one's call has arrived, it is done.
        if let Err(RaftError::Fatal(error)) = raft.initialize(group.members.clone()).await {
            return Err(error.to_string());
        }
    }
    Ok(raft)
}

/// Proposes an entry. What the group agrees on is reported by the machine.
async fn append(raft: &Raft, proposal: u64, entry: Vec<u8>, leadership: &Leadership) {
    let Ok(entry) = String::from_utf8(entry) else {
        leadership.refused(proposal, "an entry is not text");
        return;
    };
    match raft.client_write(entry).await {
        // A new leader decides whether the entry is committed.
        Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => leadership.lost(),
        Err(error) => leadership.refused(proposal, &error.to_string()),
        Ok(_) => {}
    }
}

async fn serve(raft: &Raft, body: &[u8]) -> Vec<u8> {
    match Call::decode(body) {
        Some(Call::Append(call)) => Reply::Append(raft.append_entries(call).await).encode(),
        Some(Call::Vote(call)) => Reply::Vote(raft.vote(call).await).encode(),
        Some(Call::Install(call)) => Reply::Install(raft.install_snapshot(call).await).encode(),
        None => Reply::refused("the call cannot be decoded"),
    }
}
