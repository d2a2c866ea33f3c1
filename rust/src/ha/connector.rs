//! Connector: a slave stays with its master, or tries again and again.
//!
//! It appends what comes, says how far that is kept, and begins anew from there when the connection ends. Between attempts
//! it waits, longer each time, up to the original's five seconds.
//!
//! Threads: its own; the rest from any.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::positions::PhysicalOffset;
use crate::replication::alignment::{Alignment, Divergence, LogState, align};
use crate::replication::epochs::Epochs;
use crate::replication::slave::{Misplaced, Slave, SlaveRules};
use crate::replication::stream::{
    MARK_BYTES, Piece, StreamError, TICKET_TAKEN, Ticket, TransferReader, introduction, report,
};
use crate::store::{Replica, ReplicaError, Store, StoreError};
use crate::tls::{ClientTls, Stream};

use super::epoch_file;
use super::handshake::{Agreement, Handshake, Refusal};
use super::notes::{Note, Notes};
use super::runtime::HaThread;

/// Bytes of the log that are read in one go, and then reported: few where a master sends a little now and then, whose replies
/// wait for each report, and many where there is always more.
const READ_BYTES_MIN: usize = 32 << 10;
const READ_BYTES_MAX: usize = 256 << 10;
/// After so many reads of that much there is always more.
const FULL_READS: usize = 8;
/// How long a master may take to accept a connection, a handshake included.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The end of what both logs should have that is compared before the stream begins.
const COMPARED_BYTES: u64 = 1 << 20;
/// Pauses between attempts: the first one, doubled up to the last.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often a silent connection is looked at, in parts of the pause between signs of life.
const LOOKS: u32 = 4;

/// What a slave goes by.
#[derive(Debug, Clone, Copy)]
pub struct ConnectorOptions {
    /// `haHousekeepingInterval`.
    pub silence_max: Duration,
    /// `haSendHeartbeatInterval`.
    pub heartbeat_interval: Duration,
    /// Whether somebody answers what a connection has to know of the master's log before it follows; see
    /// [`Connector::wanted`].
    pub asks: bool,
}

/// What a slave would do with its log, if the master has the digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposal {
    /// Give up what comes after this first; `None`: follow.
    pub cut: Option<PhysicalOffset>,
    /// The end of what both should have: from where to where.
    pub range: (PhysicalOffset, PhysicalOffset),
    /// Its CRC-32 here.
    pub digest: u32,
}

/// What a slave knows of itself and its master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterStatus {
    /// Where the master is; `None` while nobody has said.
    pub address: Option<String>,
    /// Whether there is a connection.
    pub is_connected: bool,
    /// Where the slave's log ends.
    pub end: PhysicalOffset,
    /// Time since the master said something; `None` before the first connection.
    pub silent_for: Option<Duration>,
    /// Why there is no connection, or the last one ended.
    pub fault: Option<String>,
    /// The two logs do not fit together: an operator has to decide.
    pub is_diverged: bool,
}

/// A slave's side of replication.
#[derive(Debug)]
pub struct Connector {
    shared: Arc<Shared>,
    thread: HaThread,
}

#[derive(Debug)]
struct Shared {
    store: Arc<Store>,
    rules: SlaveRules,
    tls: Option<Arc<ClientTls>>,
    address: Mutex<Option<String>>,
    /// The address is another one.
    moved: Notify,
    handshake: Handshake,
    asks: bool,
    /// More of the log is kept.
    kept: Arc<Notify>,
    started: Instant,
    contact: Mutex<Contact>,
    notes: Notes,
}

#[derive(Debug, Default)]
struct Contact {
    is_connected: bool,
    heard_at: Option<Duration>,
    fault: Option<String>,
    /// The fault is that this log takes no more: a new connection does not mend that, the next append does.
    is_stuck: bool,
    is_diverged: bool,
}

/// Why a connection has ended, or there was none.
#[derive(Debug)]
enum Ended {
    ByPeer,
    Silence,
    Moved,
    Io(io::Error),
    Stream(StreamError),
    Misplaced(Misplaced),
    Replica(ReplicaError),
    /// The log did not take what came.
    NotAppended(ReplicaError),
    Refused(Refusal),
    /// It does not know the ticket of the master that was asked.
    OtherMaster,
}

impl Connector {
    /// Follows the master that [`set_master`](Self::set_master) names, through `tls` where it is given.
    ///
    /// # Errors
    /// The store takes no master's log, or the system has no thread left.
    pub fn start(
        store: Arc<Store>,
        options: ConnectorOptions,
        tls: Option<Arc<ClientTls>>,
    ) -> Result<Self, ReplicaError> {
        let replica = store.replica()?;
        let ConnectorOptions { silence_max, heartbeat_interval, asks } = options;
        let shared = Arc::new(Shared {
            store: Arc::clone(&store),
            rules: SlaveRules { silence_max, heartbeat_interval },
            tls,
            address: Mutex::default(),
            moved: Notify::new(),
            handshake: Handshake::default(),
            asks,
            kept: Arc::new(Notify::new()),
            started: Instant::now(),
            contact: Mutex::default(),
            notes: Notes::default(),
        });
        let kept = Arc::clone(&shared.kept);
        store.growth().watch(Some(Arc::new(move || kept.notify_one())));
        let following = Arc::clone(&shared);
        let thread = HaThread::start(move || async move { follow(&following, replica).await })
            .map_err(|error| StoreError::io(store.root(), "start a thread")(error))?;
        Ok(Self { shared, thread })
    }

    /// Says where the master is, as `host:port`; `None`: there is none. A connection to another one ends.
    pub fn set_master(&self, address: Option<String>) {
        let mut current = self.shared.address.lock();
        if *current != address {
            *current = address;
            self.shared.moved.notify_one();
        }
    }

    /// The question about the master's log that waits for an answer.
    #[must_use]
    pub fn wanted(&self) -> Option<u64> {
        self.shared.handshake.wanted()
    }

    /// What this slave would do beside a master with this log.
    ///
    /// # Errors
    /// The file of epochs cannot be read.
    pub fn propose(&self, master: &LogState) -> Result<Result<Proposal, Divergence>, StoreError> {
        let store = &self.shared.store;
        let (first, end) = store.range();
        let log = LogState { epochs: epoch_file::load(store)?.epochs, first, end };
        let cut = match align(&log, master, PhysicalOffset(0)) {
            Ok(Alignment::Follow) => None,
            Ok(Alignment::Truncate(at)) => Some(at),
            Err(divergence) => return Ok(Err(divergence)),
        };
        // What follows is on its way to the disk, and is compared the next time.
        let end = cut.unwrap_or(end).min(store.copied_to());
        let begin =
            PhysicalOffset(end.0.saturating_sub(COMPARED_BYTES)).max(first).max(master.first).min(end);
        let digest = store.digest(begin, end);
        let range = digest.map_or((end, end), |_| (begin, end));
        Ok(Ok(Proposal { cut, range, digest: digest.unwrap_or_default() }))
    }

    /// Answers a question: the slave may follow as agreed, or not.
    pub fn answer(&self, question: u64, answer: Result<Agreement, Refusal>) {
        self.shared.handshake.answer(question, answer);
    }

    /// What is known now.
    #[must_use]
    pub fn status(&self) -> MasterStatus {
        let (shared, contact) = (&self.shared, self.shared.contact.lock());
        MasterStatus {
            address: shared.address.lock().clone(),
            is_connected: contact.is_connected,
            end: shared.store.range().1,
            silent_for: contact.heard_at.map(|at| shared.now().saturating_sub(at)),
            fault: contact.fault.clone(),
            is_diverged: contact.is_diverged,
        }
    }

    /// What happened since the last call that an operator should read about.
    #[must_use]
    pub fn take_notes(&self) -> Vec<Note> {
        self.shared.notes.take()
    }

    /// Ends the connection.
    pub fn stop(&self) {
        self.shared.store.growth().watch(None);
        self.thread.stop();
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn heard(&self) {
        self.contact.lock().heard_at = Some(self.now());
    }

    fn connected(&self) {
        let mut contact = self.contact.lock();
        (contact.is_connected, contact.is_diverged) = (true, false);
        if !contact.is_stuck {
            contact.fault = None;
        }
    }

    fn appended(&self) {
        let mut contact = self.contact.lock();
        if std::mem::take(&mut contact.is_stuck) {
            contact.fault = None;
        }
    }

    /// Keeps for the operator why there is no connection.
    fn ended(&self, address: &str, ended: &Ended) {
        let mut contact = self.contact.lock();
        let was_connected = std::mem::take(&mut contact.is_connected);
        contact.is_stuck = matches!(ended, Ended::NotAppended(_));
        if matches!(ended, Ended::Moved) {
            contact.fault = None;
            return;
        }
        let what = if was_connected { "the connection to it has ended" } else { "no connection" };
        let fault = format!("master {address}: {what}: {ended}");
        contact.fault = Some(match ended {
            // It says all of it.
            Ended::Refused(_) => ended.to_string(),
            _ => fault.clone(),
        });
        if let Ended::Refused(Refusal { is_diverged, .. }) = ended {
            contact.is_diverged = *is_diverged;
        }
        contact.is_diverged |= matches!(ended, Ended::Misplaced(_));
        self.notes.add(true, fault);
    }
}

async fn follow(shared: &Shared, mut replica: Replica) {
    let mut pause = PAUSE_MIN;
    loop {
        let address = shared.address.lock().clone();
        let Some(address) = address else {
            shared.moved.notified().await;
            continue;
        };
        let before = replica.end();
        let ended = tokio::select! {
            ended = stay_with(shared, &address, &mut replica) => ended,
            () = shared.moved.notified() => Ended::Moved,
        };
        shared.ended(&address, &ended);
        // Bytes of a record that had not come whole are no longer waited for.
        replica.reconnect();
        if matches!(ended, Ended::Moved) || replica.end() > before {
            pause = PAUSE_MIN;
        }
        if !matches!(ended, Ended::Moved) {
            tokio::select! {
                () = sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
                () = shared.moved.notified() => pause = PAUSE_MIN,
            }
        }
    }
}

async fn stay_with(shared: &Shared, address: &str, replica: &mut Replica) -> Ended {
    let reached = reach(shared, address).await;
    let taken = reached.and_then(|(stream, epochs)| Ok((stream, take_over(shared, replica, epochs)?)));
    let (stream, epochs) = match taken {
        Ok(taken) => taken,
        Err(ended) => return ended,
    };
    shared.connected();
    shared.notes.add(false, format!("master {address}: connected, this log ends at {}", replica.end()));
    let first = shared.store.range().0;
    let log = LogState { epochs: epochs.own, first, end: replica.end() };
    let mut core = Slave::connected(shared.rules, &log, epochs.of_master.clone(), shared.now());
    let mut epochs = EpochsOfBoth { own: log.epochs, of_master: epochs.of_master };
    let (mut reader, mut writer) = split(stream);
    let ended = exchange(shared, replica, &mut core, &mut epochs, &mut reader, &mut writer).await;
    ended.map_or_else(|ended| ended, |never| match never {})
}

/// A connection to a master that this log was compared with, and the epochs of that.
async fn reach(shared: &Shared, address: &str) -> Result<(Stream, Epochs), Ended> {
    let mut agreed = agree(shared).await?;
    let connecting = timeout(CONNECT_MAX, connect(shared, address)).await;
    let mut stream = connecting.map_err(|_| Ended::Silence)?.map_err(Ended::Io)?;
    if agreed.ticket.is_none() {
        // Between the two another process may have come.
        agreed = agree(shared).await?;
    }
    if let Some(ticket) = &agreed.ticket {
        let introduced = timeout(CONNECT_MAX, introduce(&mut stream, ticket)).await;
        introduced.map_err(|_| Ended::Silence)??;
    }
    Ok((stream, agreed.epochs))
}

async fn agree(shared: &Shared) -> Result<Agreement, Ended> {
    match shared.asks {
        true => shared.handshake.ask().await.map_err(Ended::Refused),
        false => Ok(Agreement::default()),
    }
}

/// Shows the ticket; the process that gave it takes it.
async fn introduce(stream: &mut Stream, ticket: &Ticket) -> Result<(), Ended> {
    stream.write_all(&introduction(ticket)).await.map_err(Ended::Io)?;
    stream.flush().await.map_err(Ended::Io)?;
    let mut answer = [0; MARK_BYTES];
    match stream.read_exact(&mut answer).await {
        Ok(_) if answer == TICKET_TAKEN => Ok(()),
        Ok(_) => Err(Ended::OtherMaster),
        Err(error) => match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Err(Ended::OtherMaster),
            _ => Err(Ended::Io(error)),
        },
    }
}

/// The epochs of a connection.
struct EpochsOfBoth {
    /// Those that this log has reached, as the file has them.
    own: Epochs,
    of_master: Epochs,
}

impl EpochsOfBoth {
    /// The log reaches `end` now: keeps the epochs that began by then, durably.
    fn reached(&mut self, shared: &Shared, end: PhysicalOffset) -> Result<(), Ended> {
        let mut reached = self.own.clone();
        reached.take_over(&self.of_master, end);
        if reached != self.own {
            epoch_file::save(&shared.store, &reached).map_err(ReplicaError::Store).map_err(Ended::Replica)?;
            self.own = reached;
        }
        Ok(())
    }
}

/// The epochs of a log that goes on with its master's.
fn take_over(shared: &Shared, replica: &Replica, of_master: Epochs) -> Result<EpochsOfBoth, Ended> {
    let known = epoch_file::load(&shared.store).map_err(ReplicaError::Store).map_err(Ended::Replica)?;
    let mut epochs = EpochsOfBoth { own: known.epochs, of_master };
    if !epochs.of_master.entries().is_empty() {
        epochs.reached(shared, replica.end())?;
    }
    Ok(epochs)
}

async fn connect(shared: &Shared, address: &str) -> io::Result<Stream> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let Some(tls) = &shared.tls else { return Ok(Stream::Plain(socket)) };
    let mut stream = tls.begin(socket, address)?;
    poll_fn(|cx| stream.poll_handshake(cx)).await?;
    Ok(stream)
}

async fn exchange(
    shared: &Shared,
    replica: &mut Replica,
    core: &mut Slave,
    epochs: &mut EpochsOfBoth,
    reader: &mut ReadHalf<Stream>,
    writer: &mut WriteHalf<Stream>,
) -> Result<std::convert::Infallible, Ended> {
    let mut transfers = TransferReader::default();
    let mut buffer = vec![0; READ_BYTES_MAX];
    let (mut wanted, mut full_reads) = (READ_BYTES_MIN, 0);
    loop {
        if let Some(end) = core.report(replica.kept(), shared.now()) {
            let report = report(end);
            let saying = async {
                writer.write_all(&report).await?;
                writer.flush().await
            };
            let said = timeout(shared.rules.silence_max, saying).await;
            said.map_err(|_| Ended::Silence)?.map_err(Ended::Io)?;
        }
        tokio::select! {
            read = reader.read(buffer.get_mut(..wanted).unwrap_or_default()) => match read {
                Ok(0) => return Err(Ended::ByPeer),
                Ok(count) => {
                    full_reads = if count >= READ_BYTES_MIN { full_reads + 1 } else { 0 };
                    wanted = if full_reads < FULL_READS { READ_BYTES_MIN } else { READ_BYTES_MAX };
                    shared.heard();
                    let bytes = buffer.get(..count).unwrap_or_default();
                    take(shared, replica, core, epochs, &mut transfers, bytes)?;
                }
                Err(error) => return Err(Ended::Io(error)),
            },
            () = shared.kept.notified() => {}
            () = sleep(shared.rules.heartbeat_interval / LOOKS) => {
                if core.is_deserted(shared.now()) {
                    return Err(Ended::Silence);
                }
            }
        }
    }
}

/// Appends what has come.
fn take(
    shared: &Shared,
    replica: &mut Replica,
    core: &mut Slave,
    epochs: &mut EpochsOfBoth,
    transfers: &mut TransferReader,
    mut bytes: &[u8],
) -> Result<(), Ended> {
    while let Some((piece, rest)) = transfers.next(bytes).map_err(Ended::Stream)? {
        bytes = rest;
        match piece {
            Piece::Header(header) => {
                let before = core.header(header, shared.now()).map_err(Ended::Misplaced)?;
                if let Some(at) = before.log_begins {
                    replica.begin_at(at).map_err(Ended::Replica)?;
                }
                if before.epoch_begins.is_some() {
                    epochs.reached(shared, core.end())?;
                }
            }
            Piece::Bytes(some) => {
                replica.append(core.end(), some).map_err(Ended::NotAppended)?;
                shared.appended();
                if core.appended(some.len(), shared.now()).is_some() {
                    epochs.reached(shared, core.end())?;
                }
            }
        }
    }
    Ok(())
}

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByPeer => write!(out, "the master closed it; where it had a reason, its log says so"),
            Self::Silence => write!(out, "the master said nothing for too long"),
            Self::Moved => write!(out, "the master is elsewhere"),
            Self::Io(error) => error.fmt(out),
            Self::Stream(error) => error.fmt(out),
            Self::Misplaced(misplaced) => misplaced.fmt(out),
            Self::Replica(error) | Self::NotAppended(error) => error.fmt(out),
            Self::Refused(refusal) => refusal.reason.fmt(out),
            Self::OtherMaster => write!(
                out,
                "it does not take the ticket that the master gave: it is another broker, see haMasterAddress, or the \
                 master has started again"
            ),
        }
    }
}
