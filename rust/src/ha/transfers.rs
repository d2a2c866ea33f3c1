//! Transfers: one slave's connection at its master, bytes of the log out, reports in.
//!
//! The bytes go from where the log lies to the socket. A slave that takes none of them keeps none but itself waiting.

use std::fmt;
use std::io;
use std::io::IoSlice;
use std::mem;
use std::net::IpAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::positions::PhysicalOffset;
use crate::replication::master::{ConnectionId, Distrust};
use crate::replication::stream::{ReportReader, StreamError, TransferHeader};
use crate::tls::Stream;

use super::slaves::Slaves;

/// Bytes of reports that are read in one go.
const READ_BYTES: usize = 1 << 10;
/// Where no reply waits for slaves: what comes within this time is sent together.
const LINGER: Duration = Duration::from_millis(1);
/// How often a connection is looked at on which nothing comes, in parts of the silence that is too much, and at least.
const LOOKS: u32 = 8;
const LOOK_MAX: Duration = Duration::from_millis(500);

/// Why a connection has ended.
#[derive(Debug)]
pub(super) enum Ended {
    ByPeer,
    Silence,
    Io(io::Error),
    Stream(StreamError),
    Distrust(Distrust),
    /// What it needs next is not in the log any more.
    Gone(PhysicalOffset),
}

/// Serves a slave until its connection ends; why it has.
pub(super) async fn serve(
    slaves: &Slaves,
    stream: Stream,
    id: ConnectionId,
    address: IpAddr,
    wakeup: &Notify,
) -> Ended {
    if let Err(error) = stream.socket().set_nodelay(true) {
        return Ended::Io(error);
    }
    let (reader, writer) = split(stream);
    tokio::select! {
        ended = read_reports(slaves, reader, id, address, wakeup) => ended,
        ended = write_log(slaves, writer, id, wakeup) => ended,
        () = silence(slaves, id) => Ended::Silence,
    }
}

async fn read_reports(
    slaves: &Slaves,
    mut socket: ReadHalf<Stream>,
    id: ConnectionId,
    address: IpAddr,
    wakeup: &Notify,
) -> Ended {
    let mut fits = false;
    let mut reports = ReportReader::default();
    let mut buffer = [0; READ_BYTES];
    loop {
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
                    if !mem::replace(&mut fits, true) {
                        slaves.fits(address, None);
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

async fn write_log(
    slaves: &Slaves,
    mut socket: WriteHalf<Stream>,
    id: ConnectionId,
    wakeup: &Notify,
) -> Ended {
    let waits_for_more = slaves.options.copies <= 1;
    loop {
        slaves.grown();
        let next = slaves.core.lock().next(id, slaves.now());
        match next {
            Some(header) => {
                if let Err(ended) = write_transfer(slaves, &mut socket, header).await {
                    return ended;
                }
            }
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

async fn write_transfer(
    slaves: &Slaves,
    socket: &mut WriteHalf<Stream>,
    header: TransferHeader,
) -> Result<(), Ended> {
    let head = header.encode();
    let (mut head, mut at, mut left) = (&head[..], header.at, header.bytes as usize);
    loop {
        // In one piece, but for where a spool's part ends.
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

/// Ends when the slave has been silent for too long; sooner than that it is too far behind to be in sync.
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

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByPeer => write!(out, "the slave closed it"),
            Self::Silence => write!(out, "the slave said nothing for too long"),
            Self::Io(error) => error.fmt(out),
            Self::Stream(error) => error.fmt(out),
            Self::Distrust(distrust) => distrust.fmt(out),
            Self::Gone(at) => {
                write!(out, "position {at} of the log cannot be read any more; the slave has to begin anew")
            }
        }
    }
}
