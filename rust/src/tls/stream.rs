//! Stream: a connection, plain, through TLS, or within the process.
//!
//! A read of the socket takes as many encrypted bytes as a turn can decrypt, into a buffer that the connections of a
//! thread share; a write of the socket takes everything that one turn encrypted. A connection keeps only a partial
//! record and bytes that the socket did not take.
//!
//! Invariant: received bytes are fed to the session in order, and only when its decrypted bytes were taken.
//! Threads: the I/O thread of the connection.

use std::cell::RefCell;
use std::io::{self, IoSlice, Read as _, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::Connection;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;

use super::fault::{broken, too_long, unanswered};
use super::names::common_name;

/// Bytes per read beyond the free space: less than two records, so that neither is kept for long.
pub(super) const RECORD_BYTES_MAX: usize = 16_640;
/// Maximum size of a hello, with its records: usual clients send less than one KiB, or two with post-quantum keys.
const HELLO_BYTES_MAX: usize = 8 << 10;
/// Maximum size of a handshake: two certificate chains of usual length.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// Memory of a session and its buffer in a handshake, besides received bytes: measured, with its connection.
const SESSION_BYTES: usize = 12 << 10;
/// Maximum size of a read; the connections of a thread share the buffer.
const READ_BYTES_MAX: usize = 256 << 10;
/// Maximum bytes that are encrypted before the socket takes some.
pub(super) const UNSENT_BYTES_MAX: usize = 256 << 10;

thread_local! {
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection.
pub enum Stream {
    /// A plain connection.
    Plain(TcpStream),
    /// A connection within the process.
    Memory(DuplexStream),
    /// A TLS connection.
    Tls(Box<TlsStream>),
}

/// A TLS connection, from its first byte on.
pub struct TlsStream {
    socket: TcpStream,
    session: Connection,
    /// Received bytes not fed to the session.
    kept: Vec<u8>,
    /// Bytes encrypted since the session last had nothing to send.
    unsent: usize,
    /// Bytes received in the handshake, all of which the session may keep.
    greeted: usize,
    /// The peer has ended the stream.
    is_over: bool,
}

impl Stream {
    /// Creates a connection that this session encrypts.
    pub(super) fn through(socket: TcpStream, mut session: Connection) -> Self {
        session.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        let (kept, unsent, greeted, is_over) = (Vec::new(), 0, 0, false);
        Self::Tls(Box::new(TlsStream { socket, session, kept, unsent, greeted, is_over }))
    }

    /// Performs the handshake; ready immediately without TLS.
    ///
    /// # Errors
    /// The text names the problem and the remedy.
    pub fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) | Self::Memory(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => stream.poll_handshake(cx),
        }
    }

    /// Writes the front of this list, as far as the socket or TLS takes it. TLS may then have something to send until
    /// `poll_flush` is ready.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_write_list(&mut self, cx: &mut Context<'_>, list: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => poll_write_to(socket, cx, list),
            Self::Memory(pipe) => Pin::new(pipe).poll_write_vectored(cx, list),
            Self::Tls(stream) => stream.poll_write_list(cx, list),
        }
    }

    /// Returns the bytes taken but not sent to the socket.
    pub fn unsent_bytes(&self) -> usize {
        match self {
            Self::Plain(_) | Self::Memory(_) => 0,
            Self::Tls(stream) => stream.unsent,
        }
    }

    /// Returns the memory besides the session's own.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Plain(_) | Self::Memory(_) => 0,
            Self::Tls(stream) => stream.kept.capacity() + stream.unsent,
        }
    }

    /// Returns the memory of the session during the handshake.
    pub fn handshake_bytes(&self) -> usize {
        match self {
            Self::Plain(_) | Self::Memory(_) => 0,
            Self::Tls(stream) => SESSION_BYTES + stream.greeted,
        }
    }

    /// Frees unused memory.
    pub fn shrink(&mut self) {
        if let Self::Tls(stream) = self {
            stream.kept.shrink_to_fit();
        }
    }

    /// Returns the common name of the peer's certificate, if it has shown one.
    pub fn peer_name(&self) -> Option<Box<str>> {
        match self {
            Self::Plain(_) | Self::Memory(_) => None,
            Self::Tls(stream) => common_name(stream.session.peer_certificates()?.first()?),
        }
    }

    /// Returns the underlying socket, if there is one.
    pub fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Memory(_) => None,
            Self::Tls(stream) => Some(&stream.socket),
        }
    }

    /// Returns the underlying socket, if there is one, after the session has failed.
    pub fn into_socket(self) -> Option<TcpStream> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Memory(_) => None,
            Self::Tls(stream) => Some(stream.socket),
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
            // No space for plain text: bytes behind the handshake wait.
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

    /// Reads the socket once and decrypts as much of it as fits; returns the bytes read.
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

    /// Feeds the session from the front of `bytes` while there is space for decrypted bytes.
    fn feed(&mut self, cx: &mut Context<'_>, bytes: &mut &[u8], into: &mut ReadBuf<'_>) -> io::Result<()> {
        loop {
            self.take_decrypted(into)?;
            let is_shaking = self.session.is_handshaking();
            if bytes.is_empty() || (into.remaining() == 0 && !is_shaking) {
                return Ok(());
            }
            if self.session.read_tls(bytes)? == 0 {
                // Bytes behind the end of the session are ignored.
                *bytes = &[];
                self.is_over = true;
            }
            let processed = self.session.process_new_packets();
            if self.session.wants_write() {
                // An answer of the session, or an alert. It does not fail when the socket is full.
                let sent = self.poll_send(cx);
                if let (Poll::Ready(Err(error)), Ok(_)) = (sent, &processed) {
                    return Err(error);
                }
            }
            processed.map_err(|error| broken(&error))?;
        }
    }

    /// Moves decrypted bytes to `into`.
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

    /// Writes encrypted bytes to the socket.
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

/// Clears the vector.
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
        // A plain write: after a short one the runtime knows that the socket is full, which saves another call.
        [all] => socket.poll_write(cx, all),
        _ => socket.poll_write_vectored(cx, list),
    }
}

/// A socket that never blocks.
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
            Self::Memory(pipe) => Pin::new(pipe).poll_read(cx, into),
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
            // Neither has a buffer.
            Self::Plain(_) | Self::Memory(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => stream.poll_send(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Memory(pipe) => Pin::new(pipe).poll_shutdown(cx),
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
