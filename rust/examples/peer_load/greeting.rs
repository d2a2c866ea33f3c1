//! Greeting on a connection before the load begins: one request, one answer, and the wait for it.

use std::io::{Read, Write};

use rmqpy::load::{LoadError, Protocol};
use rmqpy::tls::BlockingStream;

const READ_BYTES: usize = 64 << 10;

/// A connection that blocks, and what has been read of it.
pub struct Greeting<'a> {
    stream: &'a mut BlockingStream,
    buffer: Vec<u8>,
    address: &'a str,
}

impl<'a> Greeting<'a> {
    /// Begins; `address` is for what errors say.
    pub fn new(stream: &'a mut BlockingStream, address: &'a str) -> Self {
        Self { stream, buffer: Vec::new(), address }
    }

    /// Writes all of it.
    pub fn say(&mut self, bytes: &[u8]) -> Result<(), LoadError> {
        self.stream.write_all(bytes).map_err(|error| self.failed(&error.to_string()))
    }

    /// The next frame of protocol `P`.
    pub fn hear<P: Protocol>(&mut self) -> Result<Vec<u8>, LoadError> {
        loop {
            let size = P::size(&self.buffer).map_err(|reason| self.failed(&reason))?;
            if let Some(size) = size.filter(|size| *size <= self.buffer.len()) {
                return Ok(self.buffer.drain(..size).collect());
            }
            let mut piece = [0; READ_BYTES];
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(self.failed("the broker closed it")),
                Ok(bytes) => self.buffer.extend_from_slice(piece.get(..bytes).unwrap_or_default()),
                Err(error) => return Err(self.failed(&error.to_string())),
            }
        }
    }

    /// Why there will be no load.
    pub fn failed(&self, reason: &str) -> LoadError {
        LoadError::Connect { address: self.address.to_owned(), reason: reason.to_owned() }
    }
}
