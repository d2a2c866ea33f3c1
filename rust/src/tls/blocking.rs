//! Blocking stream: a connection whose thread waits for the socket itself, as it is or through TLS.
//!
//! A read takes what one read of the socket brought, decrypted; a write is on its way when `flush` says so. The socket may
//! be one that does not block: what it has not got, and what it does not take, is `WouldBlock`, as without TLS.
//!
//! Invariant: after a read into two records' room or more, nothing that is decrypted is left in the session, so that a
//! socket without bytes means a stream without bytes. Threads: one.

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
    /// As the socket gave it.
    received: Vec<u8>,
}

impl BlockingStream {
    /// Bytes as they are.
    pub fn plain(socket: TcpStream) -> Self {
        Self { socket, session: None }
    }

    /// Through TLS, with the server at `host:port`; returns when hands are shaken. The socket blocks until then.
    ///
    /// # Errors
    /// The text says what is wrong and what to do.
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
                // An alert tells the server, where it still listens.
                let _ = send(&mut session, &mut socket);
                return Err(broken(&error));
            }
        }
        send(&mut session, &mut socket)?;
        Ok(Self { socket, session: Some(Box::new(Session { tls: session, received: Vec::new() })) })
    }

    /// The socket below.
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
        // Left by a read that had less room than a record.
        let (mut filled, mut is_over) = take(&mut self.tls, into)?;
        if filled > 0 || is_over {
            return Ok(filled);
        }
        // A record that has not come whole may end with the next bytes, and takes room of its own.
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

/// Moves what is decrypted into `into`: how much, and whether nothing comes behind it.
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

/// Gives the socket what is encrypted.
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
