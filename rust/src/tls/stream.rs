//! Stream: a connection's bytes, as they are or through TLS.
//!
//! A read of the socket takes as many encrypted bytes as a turn may have decrypted ones, into a buffer that the
//! connections of a thread share; a write of the socket takes all that one turn encrypted. What a connection keeps itself is
//! a record that has not come whole, and what the socket did not take.
//!
//! Invariant: bytes that were received are fed to the session in their order, and only when what it decrypted before was
//! taken. Threads: the I/O thread of the connection.

use std::cell::RefCell;
use std::io::{self, IoSlice, Read as _, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::fault::{broken, too_long, unanswered};
use super::names::common_name;

/// What one read may bring beyond what there is room for: less than two records, so that neither is kept for long.
pub(super) const RECORD_BYTES_MAX: usize = 16_640;
/// Longest hello, with the records around it: those of usual clients have less than one KiB, and two with keys against
/// quantum computers.
const HELLO_BYTES_MAX: usize = 8 << 10;
/// Most that a handshake may take: two chains of certificates of the usual length.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// What a session and its buffer have in a handshake, besides what it has received: measured, with its connection.
const SESSION_BYTES: usize = 12 << 10;
/// Most that is read at once; the buffer is shared by the connections of a thread.
const READ_BYTES_MAX: usize = 256 << 10;
/// Most that is encrypted before the socket takes some of it.
pub(super) const UNSENT_BYTES_MAX: usize = 256 << 10;

thread_local! {
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection.
pub enum Stream {
    /// Bytes as they are.
    Plain(TcpStream),
    /// Bytes through TLS.
    Tls(Box<TlsStream>),
}

/// A connection through TLS, from its first byte on.
pub struct TlsStream {
    socket: TcpStream,
    session: Connection,
    /// Received, and not fed to the session.
    kept: Vec<u8>,
    /// Encrypted since the session had nothing to send.
    unsent: usize,
    /// Received in the handshake, of which the session may keep all.
    greeted: usize,
    /// The peer sends nothing more.
    is_over: bool,
}

impl Stream {
    /// A connection whose bytes this session encrypts.
    pub(super) fn through(socket: TcpStream, mut session: Connection) -> Self {
        session.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        let (kept, unsent, greeted, is_over) = (Vec::new(), 0, 0, false);
        Self::Tls(Box::new(TlsStream { socket, session, kept, unsent, greeted, is_over }))
    }

    /// Shakes hands; at once where there is no TLS.
    ///
    /// # Errors
    /// The text says what is wrong and what to do.
    pub fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => stream.poll_handshake(cx),
        }
    }

    /// Writes what comes first in this list as far as it is taken: by the socket, or by TLS, which then may have something
    /// to send until `poll_flush` says that it has not.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_write_list(&mut self, cx: &mut Context<'_>, list: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => poll_write_to(socket, cx, list),
            Self::Tls(stream) => stream.poll_write_list(cx, list),
        }
    }

    /// Bytes taken that the socket has not.
    pub fn unsent_bytes(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(stream) => stream.unsent,
        }
    }

    /// Memory that is not the session's own.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(stream) => stream.kept.capacity() + stream.unsent,
        }
    }

    /// Memory of the session while it shakes hands.
    pub fn handshake_bytes(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(stream) => SESSION_BYTES + stream.greeted,
        }
    }

    /// Gives back what is not needed now.
    pub fn shrink(&mut self) {
        if let Self::Tls(stream) = self {
            stream.kept.shrink_to_fit();
        }
    }

    /// Who the peer's certificate is for, where it has shown one.
    pub fn peer_name(&self) -> Option<Box<str>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => common_name(stream.session.peer_certificates()?.first()?),
        }
    }

    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.socket,
        }
    }

    /// The socket below, after a session that has failed.
    pub fn into_socket(self) -> TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket,
        }
    }
}

impl TlsStream {
    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(cx))?;
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            // No room for plain text: what comes behind the handshake waits.
            let count = ready!(self.poll_receive(cx, &mut ReadBuf::new(&mut [])))?;
            if count == 0 {
                return Poll::Ready(Err(unanswered()));
            }
            self.greeted += count;
            let has_hello = self.session.protocol_version().is_some();
            let bytes_max = if has_hello { HANDSHAKE_BYTES_MAX } else { HELLO_BYTES_MAX };
            if self.greeted > bytes_max && self.session.is_handshaking() {
                return Poll::Ready(Err(too_long(has_hello, bytes_max)));
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let kept = std::mem::take(&mut self.kept);
        let mut rest = kept.as_slice();
        let fed = self.feed(cx, &mut rest, into);
        self.kept = if rest.is_empty() { cleared(kept) } else { rest.to_vec() };
        fed?;
        while into.filled().len() == before && !self.is_over {
            if ready!(self.poll_receive(cx, into))? == 0 {
                self.is_over = true;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads the socket once and decrypts as much of it as there is room for; how much was read.
    fn poll_receive(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        RECEIVED.with_borrow_mut(|received| {
            let most = (into.remaining() + RECORD_BYTES_MAX).min(READ_BYTES_MAX);
            if received.len() < most {
                received.resize(most, 0);
            }
            let mut read = ReadBuf::new(received.get_mut(..most).unwrap_or_default());
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut read))?;
            let mut bytes: &[u8] = read.filled();
            let count = bytes.len();
            let fed = self.feed(cx, &mut bytes, into);
            self.kept.extend_from_slice(bytes);
            fed.map(|()| count).into()
        })
    }

    /// Feeds the session from the front of `bytes` while what it decrypts has room.
    fn feed(&mut self, cx: &mut Context<'_>, bytes: &mut &[u8], into: &mut ReadBuf<'_>) -> io::Result<()> {
        loop {
            self.take_decrypted(into)?;
            let is_shaking = self.session.is_handshaking();
            if bytes.is_empty() || (into.remaining() == 0 && !is_shaking) {
                return Ok(());
            }
            if self.session.read_tls(bytes)? == 0 {
                // What comes behind a farewell is nothing.
                *bytes = &[];
                self.is_over = true;
            }
            let processed = self.session.process_new_packets();
            if self.session.wants_write() {
                // An answer of the session, or an alert. It does not fail where the socket takes no more.
                let sent = self.poll_send(cx);
                if let (Poll::Ready(Err(error)), Ok(_)) = (sent, &processed) {
                    return Err(error);
                }
            }
            processed.map_err(|error| broken(&error))?;
        }
    }

    /// Moves what is decrypted to where it is read.
    fn take_decrypted(&mut self, into: &mut ReadBuf<'_>) -> io::Result<()> {
        while into.remaining() > 0 {
            match self.session.reader().read(into.initialize_unfilled()) {
                Ok(0) => {
                    self.is_over = true;
                    break;
                }
                Ok(count) => into.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn poll_write_list(&mut self, cx: &mut Context<'_>, list: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let taken = self.session.writer().write_vectored(list)?;
        self.unsent += taken;
        match self.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(taken)),
        }
    }

    /// Gives the socket what is encrypted.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut socket = Sending { socket: &mut self.socket, cx };
            match self.session.write_tls(&mut socket) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.unsent = 0;
        Poll::Ready(Ok(()))
    }
}

/// The same vector, empty.
fn cleared(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.clear();
    bytes
}

fn poll_write_to(
    socket: &mut TcpStream,
    cx: &mut Context<'_>,
    list: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let socket = Pin::new(socket);
    match list {
        // A plain write: the runtime learns from a short one that the socket is full, and asks it no more.
        [all] => socket.poll_write(cx, all),
        _ => socket.poll_write_vectored(cx, list),
    }
}

/// A socket that blocks nobody.
struct Sending<'a, 'b> {
    socket: &'a mut TcpStream,
    cx: &'a mut Context<'b>,
}

impl Write for Sending<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, list: &[IoSlice<'_>]) -> io::Result<usize> {
        match poll_write_to(self.socket, self.cx, list) {
            Poll::Ready(done) => done,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, into),
            Self::Tls(stream) => stream.poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_list(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        list: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_list(cx, list)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // A socket keeps nothing.
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => stream.poll_send(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(stream) => {
                if !stream.is_over {
                    stream.session.send_close_notify();
                }
                ready!(stream.poll_send(cx))?;
                Pin::new(&mut stream.socket).poll_shutdown(cx)
            }
        }
    }
}
