//! Following: the task of a slave. It connects to its master, appends the records it receives, reports how far they
//! are durable, and reconnects from there when the connection ends. The backoff between attempts grows up to
//! five seconds, as in Apache's broker.
//!
//! Threads: `follow` has its own; `Shared` is read from any.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, split};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::positions::PhysicalOffset;
use crate::replication::alignment::LogState;
use crate::replication::elected::{self, Hello};
use crate::replication::epochs::Epochs;
use crate::replication::slave::{Misplaced, Slave, SlaveRules};
use crate::replication::stream::{
    MARK_BYTES, Piece, Protocol, StreamError, TICKET_TAKEN, Ticket, TransferReader, introduction,
};
use crate::store::{Replica, ReplicaError, Store};
use crate::tls::{ClientTls, Stream};

use super::epoch_file;
use super::handshake::{Agreement, Handshake, Refusal};
use super::notes::Notes;

/// Bytes per read of the stream, after which the slave reports: few at a low rate, where replies wait for each
/// report, and many under load.
const READ_BYTES_MIN: usize = 32 << 10;
const READ_BYTES_MAX: usize = 256 << 10;
/// Full reads after which the larger size is used.
const FULL_READS: usize = 8;
/// Time limit for connecting, including a handshake.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The backoff between attempts: the first pause, which doubles up to the second value.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Checks of a silent connection per heartbeat interval.
const LOOKS: u32 = 4;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: Arc<Store>,
    pub(super) rules: SlaveRules,
    pub(super) tls: Option<Arc<ClientTls>>,
    pub(super) address: Mutex<Option<String>>,
    /// Notified when the address has changed.
    pub(super) moved: Notify,
    pub(super) handshake: Handshake,
    pub(super) asks: bool,
    /// Notified when more of the log is durable.
    pub(super) kept: Arc<Notify>,
    pub(super) started: Instant,
    pub(super) contact: Mutex<Contact>,
    pub(super) notes: Notes,
}

#[derive(Debug, Default)]
pub(super) struct Contact {
    pub(super) is_connected: bool,
    pub(super) heard_at: Option<Duration>,
    pub(super) fault: Option<String>,
    /// Whether the log refuses appends. Only the next successful append clears it, not a new connection.
    pub(super) is_stuck: bool,
    pub(super) is_diverged: bool,
}

/// The reason why a connection ended or failed.
#[derive(Debug)]
enum Ended {
    ByPeer,
    Silence,
    Moved,
    Io(io::Error),
    Stream(StreamError),
    Misplaced(Misplaced),
    Replica(ReplicaError),
    /// The log did not accept the received records.
    NotAppended(ReplicaError),
    Refused(Refusal),
    /// The peer rejects the ticket, so it is not the master that issued it.
    OtherMaster,
    /// The peer has other epochs than the master whose log was compared.
    OtherEpochs,
}

impl Shared {
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn note_received(&self) {
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

    /// Records the reason for the end of a connection.
    fn ended(&self, address: &str, ended: &Ended) {
        let mut contact = self.contact.lock();
        let was_connected = std::mem::take(&mut contact.is_connected);
        contact.is_stuck = matches!(ended, Ended::NotAppended(_));
        if matches!(ended, Ended::Moved) {
            contact.fault = None;
            return;
        }
        let what = if was_connected { "the connection has ended" } else { "no connection" };
        let fault = format!("master {address}: {what}: {ended}");
        contact.fault = Some(match ended {
            // A refusal gives its reason in full.
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

/// Keeps connecting to the current master, and never ends.
pub(super) async fn follow(shared: &Shared, mut replica: Replica) {
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
        // The rest of a partial record will not arrive.
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
    let taken = reached
        .and_then(|(stream, protocol, epochs)| Ok((stream, protocol, take_over(shared, replica, epochs)?)));
    let (stream, protocol, epochs) = match taken {
        Ok(taken) => taken,
        Err(ended) => return ended,
    };
    shared.connected();
    shared.notes.add(false, format!("master {address}: connected, this log ends at {}", replica.end()));
    let first = shared.store.range().0;
    let log = LogState { epochs: epochs.own, first, end: replica.end() };
    let mut core = Slave::connected(shared.rules, &log, epochs.of_master.clone(), shared.now());
    let mut epochs = EpochsOfBoth { own: log.epochs, of_master: epochs.of_master };
    let ended = exchange(shared, replica, &mut core, &mut epochs, protocol, stream).await;
    ended.map_or_else(|ended| ended, |never| match never {})
}

/// Connects to a master after comparing the logs, and returns the stream with its form, and the master's epochs.
async fn reach(shared: &Shared, address: &str) -> Result<(Stream, Protocol, Epochs), Ended> {
    let mut agreed = agree(shared).await?;
    let connecting = timeout(CONNECT_MAX, connect(shared, address)).await;
    let mut stream = connecting.map_err(|_| Ended::Silence)?.map_err(Ended::Io)?;
    if agreed.ticket.is_none() {
        // Another process may have taken the port since the first question.
        agreed = agree(shared).await?;
    }
    if let Some(ticket) = &agreed.ticket {
        let introduced = timeout(CONNECT_MAX, introduce(&mut stream, ticket)).await;
        introduced.map_err(|_| Ended::Silence)??;
    }
    let Some(broker_id) = agreed.elected_as else { return Ok((stream, Protocol::Plain, agreed.epochs)) };
    let meeting = timeout(CONNECT_MAX, shake_hands(&mut stream, broker_id)).await;
    if meeting.map_err(|_| Ended::Silence)??.as_ref() != Some(&agreed.epochs) {
        return Err(Ended::OtherEpochs);
    }
    Ok((stream, Protocol::Elected, agreed.epochs))
}

/// Sends a handshake; returns the epochs of the master.
async fn shake_hands(stream: &mut Stream, broker_id: u64) -> Result<Option<Epochs>, Ended> {
    let hello = Hello { broker_id, is_learner: false };
    stream.write_all(&hello.encode()).await.map_err(Ended::Io)?;
    stream.flush().await.map_err(Ended::Io)?;
    let mut state = [0; elected::STATE_BYTES];
    stream.read_exact(&mut state).await.map_err(Ended::Io)?;
    let mut epochs = vec![0; elected::size_of_epochs(state).map_err(Ended::Stream)?];
    stream.read_exact(&mut epochs).await.map_err(Ended::Io)?;
    elected::read_epochs(&epochs).map_err(Ended::Stream)
}

async fn agree(shared: &Shared) -> Result<Agreement, Ended> {
    match shared.asks {
        true => shared.handshake.ask().await.map_err(Ended::Refused),
        false => Ok(Agreement::default()),
    }
}

/// Sends the ticket, which is valid only for the process that issued it.
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

/// The epochs of both logs.
struct EpochsOfBoth {
    /// The epochs that this log has reached, as in the file.
    own: Epochs,
    of_master: Epochs,
}

impl EpochsOfBoth {
    /// Durably saves the epochs that began up to `end`, the end of the log.
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

/// Returns the epochs for a log that continues with its master's.
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
    protocol: Protocol,
    stream: Stream,
) -> Result<std::convert::Infallible, Ended> {
    let (mut reader, mut writer) = split(stream);
    let mut transfers = TransferReader::new(protocol);
    let mut buffer = vec![0; READ_BYTES_MAX];
    let (mut wanted, mut full_reads) = (READ_BYTES_MIN, 0);
    loop {
        if let Some(end) = core.report(replica.kept(), shared.now()) {
            let report = protocol.report(end);
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
                    shared.note_received();
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

/// Appends received bytes.
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
            Self::ByPeer => write!(out, "closed by the master; its log names the reason, if there was one"),
            Self::Silence => write!(out, "the master sent nothing for too long"),
            Self::Moved => write!(out, "the address of the master has changed"),
            Self::Io(error) => error.fmt(out),
            Self::Stream(error) => error.fmt(out),
            Self::Misplaced(misplaced) => misplaced.fmt(out),
            Self::Replica(error) | Self::NotAppended(error) => error.fmt(out),
            Self::Refused(refusal) => refusal.reason.fmt(out),
            Self::OtherEpochs => write!(out, "its epochs have changed since the logs were compared"),
            Self::OtherMaster => write!(
                out,
                "it rejected the ticket of the master: it is another broker, see haMasterAddress, or the master was \
                 restarted"
            ),
        }
    }
}
