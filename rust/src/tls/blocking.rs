//! Blocking stream: a plain or TLS connection of a thread without a runtime.
//!
//! A read returns the decrypted bytes of one read of the socket; `flush` sends written bytes. On a non-blocking
//! socket, reads and writes that cannot proceed return `WouldBlock`, as without TLS.
//!
//! Invariant: after a read into space for two records or more, no decrypted bytes are left in the session, so a
//! socket without bytes means a stream without bytes.
//! Threads: one.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use rustls::ClientConnection;

use super::client::ClientTls;
use super::fault::{broken, silent, unanswered};
use super::stream::{RECORD_BYTES_MAX, UNSENT_BYTES_MAX};

/// A client's connection.
#[derive(Debug)]
pub struct BlockingStream {
    socket: TcpStream,
    session: Option<Box<Session>>,
}

#[derive(Debug)]
struct Session {
    tls: ClientConnection,
    /// Encrypted bytes from the socket.
    received: Vec<u8>,
}

impl BlockingStream {
    /// Creates a plain stream.
    pub fn plain(socket: TcpStream) -> Self {
        Self { socket, session: None }
    }

    /// Connects through TLS to the server at `host:port`; returns after the handshake. The socket blocks until then.
    ///
    /// # Errors
    /// The text names the problem and the remedy.
    pub fn through(mut socket: TcpStream, tls: &ClientTls, address: &str) -> io::Result<Self> {
        let mut session = tls.session(address).map_err(io::Error::other)?;
        session.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        while session.is_handshaking() {
            send(&mut session, &mut socket)?;
            match session.read_tls(&mut socket) {
                Ok(0) => return Err(unanswered()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(silent()),
                Err(error) => return Err(error),
            }
            if let Err(error) = session.process_new_packets() {
                // Sends the alert; the server may no longer read it.
                let _ = send(&mut session, &mut socket);
                return Err(broken(&error));
            }
        }
        send(&mut session, &mut socket)?;
        Ok(Self { socket, session: Some(Box::new(Session { tls: session, received: Vec::new() })) })
    }

    /// Returns the underlying socket.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }
}

impl Read for BlockingStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.socket.read(into),
            Some(session) => session.read(&mut self.socket, into),
        }
    }
}

impl Write for BlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.socket.write(bytes) };
        send(&mut session.tls, &mut self.socket)?;
        session.tls.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.session {
            None => Ok(()),
            Some(session) => send(&mut session.tls, &mut self.socket),
        }
    }
}

impl Session {
    fn read(&mut self, socket: &mut TcpStream, into: &mut [u8]) -> io::Result<usize> {
        // Bytes left by a read with less space than a record.
        let (mut filled, mut is_over) = take(&mut self.tls, into)?;
        if filled > 0 || is_over {
            return Ok(filled);
        }
        // A partial record may end with the next bytes, and needs extra space.
        let most = into.len().saturating_sub(RECORD_BYTES_MAX).max(1);
        if self.received.len() < most {
            self.received.resize(most, 0);
        }
        let count = socket.read(self.received.get_mut(..most).unwrap_or_default())?;
        let mut rest = self.received.get(..count).unwrap_or_default();
        if rest.is_empty() {
            return Ok(0);
        }
        while !rest.is_empty() && !is_over {
            self.tls.read_tls(&mut rest)?;
            self.tls.process_new_packets().map_err(|error| broken(&error))?;
            let (taken, ends) = take(&mut self.tls, into.get_mut(filled..).unwrap_or_default())?;
            (filled, is_over) = (filled + taken, ends);
        }
        if filled == 0 && !is_over {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(filled)
    }
}

/// Moves decrypted bytes to `into`; returns their number, and whether the stream ends after them.
fn take(session: &mut ClientConnection, into: &mut [u8]) -> io::Result<(usize, bool)> {
    let mut filled = 0;
    while let Some(room) = into.get_mut(filled..).filter(|room| !room.is_empty()) {
        match session.reader().read(room) {
            Ok(0) => return Ok((filled, true)),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok((filled, false))
}

/// Writes the encrypted bytes to the socket.
fn send(session: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<()> {
    while session.wants_write() {
        match session.write_tls(socket) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
