//! Transfers: the stream of the log to a slave, and the slave's reports.
//!
//! Bytes are sent from their place in the log. A slow slave does not block others.
//!
//! A slave that has caught up and that replies wait for is served on the I/O thread of senders: new log data is sent
//! without waking another thread, and a report releases replies on the thread that reads it. A slave so far behind
//! that its bytes may have to be read from disk returns to the listener's thread. TLS connections stay there.

use std::convert::Infallible;
use std::io::IoSlice;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::positions::PhysicalOffset;
use crate::replication::elected;
use crate::replication::epochs::EpochStart;
use crate::replication::master::{ConnectionId, Master, Standing};
use crate::replication::stream::{HEADER_BYTES_MAX, Protocol, ReportReader, TransferHeader};
use crate::tls::Stream;

use super::ended::Ended;
use super::slaves::Slaves;

/// Size of the buffer for reports.
const READ_BYTES: usize = 1 << 10;
/// Coalescing time when no reply waits for slaves.
const LINGER: Duration = Duration::from_millis(1);
/// Checks of a silent connection within the allowed silence.
const LOOKS: u32 = 8;
const LOOK_MAX: Duration = Duration::from_millis(500);
/// The lag up to which a slave is served on the thread of senders: the bytes are in memory and sent in a few
/// milliseconds.
const NEAR_BYTES_MAX: u64 = 8 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    Own,
    Senders,
}

/// The connection of one slave.
pub(super) struct Transfers {
    pub(super) slaves: Arc<Slaves>,
    pub(super) id: ConnectionId,
    pub(super) address: IpAddr,
    pub(super) wakeup: Arc<Notify>,
    standing: Standing,
    protocol: Protocol,
    reports: ReportReader,
}

impl Transfers {
    pub(super) fn new(
        slaves: Arc<Slaves>,
        id: ConnectionId,
        address: IpAddr,
        wakeup: Arc<Notify>,
        standing: Standing,
        protocol: Protocol,
    ) -> Self {
        Self { slaves, id, address, wakeup, standing, protocol, reports: ReportReader::new(protocol) }
    }

    /// Serves the slave until its connection ends; returns the reason.
    pub(super) async fn serve(self, stream: Stream) -> Ended {
        self.serve_in_turn(stream).await.map_or_else(|ended| ended, |never| match never {})
    }

    /// Serves the slave alternately on both threads.
    async fn serve_in_turn(mut self, mut stream: Stream) -> Result<Infallible, Ended> {
        stream.socket().map_or(Ok(()), |socket| socket.set_nodelay(true)).map_err(Ended::Io)?;
        loop {
            let near = self.serve_on(Thread::Own, stream).await?;
            (self, stream) = self.serve_beside_senders(near).await?;
        }
    }

    /// Serves the slave on the thread of senders until it falls behind.
    async fn serve_beside_senders(mut self, stream: Stream) -> Result<(Self, Stream), Ended> {
        // Only plain connections migrate.
        let Some(senders) = self.slaves.senders.clone() else { return Err(Ended::Stopped) };
        let socket = leave(stream)?;
        let serving = async move {
            let far = self.serve_on(Thread::Senders, enter(socket)?).await?;
            Ok((self, leave(far)?))
        };
        // Dropping the set aborts the task, so it ends with the listener.
        let mut tasks = JoinSet::new();
        tasks.spawn_on(serving, &senders);
        let served = tasks.join_next().await.and_then(Result::ok).unwrap_or(Err(Ended::Stopped));
        served.and_then(|(transfers, socket)| Ok((transfers, enter(socket)?)))
    }

    /// Serves the slave on this thread until it should migrate or its connection ends.
    async fn serve_on(&mut self, thread: Thread, stream: Stream) -> Result<Stream, Ended> {
        let Self { slaves, id, address, wakeup, standing, protocol, reports } = self;
        // No reply waits for an observer.
        let can_move = slaves.senders.is_some()
            && slaves.options.copies > 1
            && *standing == Standing::Slave
            && matches!(stream, Stream::Plain(_));
        let (mut reader, mut writer) = split(stream);
        tokio::select! {
            ended = read_reports(slaves, &mut reader, *id, *address, wakeup, reports) => return Err(ended),
            left = write_log(slaves, &mut writer, *id, *protocol, wakeup, can_move.then_some(thread)) => left?,
            () = silence(slaves, *id) => return Err(Ended::Silence),
        }
        Ok(reader.unsplit(writer))
    }
}

/// Detaches a connection from its thread.
fn leave(stream: Stream) -> Result<std::net::TcpStream, Ended> {
    match stream {
        Stream::Plain(socket) => socket.into_std().map_err(Ended::Io),
        // TLS connections do not migrate.
        Stream::Memory(_) | Stream::Tls(_) => Err(Ended::Stopped),
    }
}

/// Attaches a connection to this thread.
fn enter(socket: std::net::TcpStream) -> Result<Stream, Ended> {
    TcpStream::from_std(socket).map(Stream::Plain).map_err(Ended::Io)
}

async fn read_reports(
    slaves: &Slaves,
    socket: &mut ReadHalf<Stream>,
    id: ConnectionId,
    address: IpAddr,
    wakeup: &Notify,
    reports: &mut ReportReader,
) -> Ended {
    let mut buffer = [0; READ_BYTES];
    loop {
        // The only await at which a migration can cancel this task, so every read byte is counted.
        let mut bytes = match socket.read(&mut buffer).await {
            Ok(0) => return Ended::ByPeer,
            Ok(count) => buffer.get(..count).unwrap_or_default(),
            Err(error) => return Ended::Io(error),
        };
        slaves.grown();
        loop {
            match reports.next(bytes) {
                Ok(Some((end, rest))) => {
                    bytes = rest;
                    let reported = slaves.core.lock().reported(id, end, slaves.now());
                    if let Err(distrust) = reported {
                        slaves.fits(address, Some(distrust.to_string()));
                        return Ended::Distrust(distrust);
                    }
                }
                Ok(None) => break,
                Err(error) => return Ended::Stream(error),
            }
        }
        slaves.confirm();
        wakeup.notify_one();
    }
}

/// Sends the log to the slave until it should migrate. `thread` is the current one, or `None` if it may not migrate.
async fn write_log(
    slaves: &Slaves,
    socket: &mut WriteHalf<Stream>,
    id: ConnectionId,
    protocol: Protocol,
    wakeup: &Notify,
    thread: Option<Thread>,
) -> Result<(), Ended> {
    let waits_for_more = slaves.options.copies <= 1;
    loop {
        slaves.grown();
        let (next, lacks) = {
            let mut core = slaves.core.lock();
            let lacks = core.state(id).and_then(|state| state.lag_bytes);
            if thread == Some(Thread::Senders) && lacks.is_some_and(|bytes| bytes > NEAR_BYTES_MAX) {
                return Ok(());
            }
            let next = core.next(id, slaves.now());
            (next.map(|header| (header, encoded(protocol, &core, header))), lacks)
        };
        match next {
            Some((header, head)) => {
                write_transfer(slaves, socket, header, &head).await?;
            }
            None if thread == Some(Thread::Own) && lacks == Some(0) => return Ok(()),
            None => {
                tokio::select! {
                    () = wakeup.notified() => {}
                    () = sleep(slaves.options.heartbeat_interval) => {}
                }
                if waits_for_more {
                    sleep(LINGER).await;
                }
            }
        }
    }
}

/// Returns the bytes of a header.
fn encoded(protocol: Protocol, core: &Master, header: TransferHeader) -> ArrayVec<u8, HEADER_BYTES_MAX> {
    match protocol {
        Protocol::Plain => header.encode().into_iter().collect(),
        Protocol::Elected => {
            let before_all = EpochStart { epoch: 0, start: PhysicalOffset(0) };
            let epoch = core.epochs().at(header.at).unwrap_or(before_all);
            elected::transfer(header, epoch, core.confirmed())
        }
    }
}

async fn write_transfer(
    slaves: &Slaves,
    socket: &mut WriteHalf<Stream>,
    header: TransferHeader,
    mut head: &[u8],
) -> Result<(), Ended> {
    let (mut at, mut left) = (header.at, header.bytes as usize);
    loop {
        // One slice, unless a part of the write ring ends.
        let bytes = if left > 0 {
            slaves.store.log_bytes(at, left).ok_or(Ended::Gone(at))?
        } else {
            bytes::Bytes::new()
        };
        let mut body = &bytes[..];
        while !(head.is_empty() && body.is_empty()) {
            let slices = [IoSlice::new(head), IoSlice::new(body)];
            let written = socket.write_vectored(&slices).await.map_err(Ended::Io)?;
            if written == 0 {
                return Err(Ended::ByPeer);
            }
            let of_head = written.min(head.len());
            head = head.get(of_head..).unwrap_or_default();
            body = body.get(written - of_head..).unwrap_or_default();
        }
        at.0 += bytes.len() as u64;
        left -= bytes.len();
        if left == 0 {
            return socket.flush().await.map_err(Ended::Io);
        }
    }
}

/// Returns when the slave has been silent for too long. Earlier, it stops counting as in sync if it is too far
/// behind.
async fn silence(slaves: &Slaves, id: ConnectionId) {
    loop {
        sleep((slaves.options.silence_max / LOOKS).min(LOOK_MAX)).await;
        slaves.grown();
        slaves.confirm();
        let now = slaves.now();
        if slaves.core.lock().silent(now).any(|silent| silent == id) {
            return;
        }
    }
}
