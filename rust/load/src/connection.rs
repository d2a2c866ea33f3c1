//! Load connection: keeps requests in flight in numbered slots, writes them, and reads the responses.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs};

use super::plan::{LoadError, Plan, Target};
use super::protocol::{Answer, Protocol};

/// Bytes of one read; the buffer grows for a larger frame.
pub(super) const READ_BYTES: usize = 256 << 10;

/// A request in flight, or a free slot.
#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    begin_ns: u64,
    is_busy: bool,
}

pub(super) struct Connection<P: Protocol> {
    pub(super) stream: P::Stream,
    pub(super) address: String,
    protocol: P,
    slots: Vec<Slot>,
    free: Vec<u32>,
    out: Vec<u8>,
    written: usize,
    /// Whether the socket is full.
    is_full: bool,
    /// The front of an incomplete frame.
    partial: Vec<u8>,
}

impl<P: Protocol> Connection<P> {
    /// Opens the `number`th connection of the plan; blocks.
    pub(super) fn open(
        plan: &Plan,
        options: &P::Options,
        target: &Target,
        number: usize,
    ) -> Result<Self, LoadError> {
        let address = &target.address;
        let refused = |reason: String| LoadError::Connect { address: address.clone(), reason };
        let resolved = address
            .to_socket_addrs()
            .map_err(|error| refused(error.to_string()))?
            .next()
            .ok_or_else(|| refused("the name has no address".to_owned()))?;
        let connected = TcpStream::connect_timeout(&resolved, plan.timeout).and_then(|socket| {
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(plan.timeout))?;
            P::stream(options, socket, address)
        });
        let mut stream = connected.map_err(|error| refused(error.to_string()))?;
        Ok(Self {
            protocol: P::open(plan, options, target, number, &mut stream)?,
            stream,
            address: address.clone(),
            slots: vec![Slot::default(); plan.window],
            free: (0..plan.window as u32).rev().collect(),
            out: Vec::new(),
            written: 0,
            is_full: false,
            partial: Vec::new(),
        })
    }

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Returns the start times of the requests in flight.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().filter(|slot| slot.is_busy).map(|slot| slot.begin_ns)
    }

    pub(super) fn ask(&mut self, begin_ns: u64) {
        let Some(index) = self.free.pop() else { return };
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        *slot = Slot { begin_ns, is_busy: true };
        self.protocol.ask(index as usize, &mut self.out);
    }

    pub(super) fn read(&mut self, frame: &[u8]) -> Result<Option<Answer>, LoadError> {
        self.protocol.read(frame, &mut self.out).map_err(|reason| self.lost(&reason))
    }

    pub(super) fn remark(&mut self, frame: &[u8]) -> String {
        self.protocol.remark(frame)
    }

    /// Frees the slot of an answered request and returns when it began; `None` if the slot was free.
    pub(super) fn settle(&mut self, slot: usize) -> Option<u64> {
        let place = self.slots.get_mut(slot).filter(|place| place.is_busy)?;
        place.is_busy = false;
        self.free.push(slot as u32);
        Some(place.begin_ns)
    }

    /// Writes pending bytes. Returns whether the socket is full if that changed.
    pub(super) fn flush(&mut self) -> Result<Option<bool>, LoadError> {
        let is_full = !self.write()?;
        Ok((std::mem::replace(&mut self.is_full, is_full) != is_full).then_some(is_full))
    }

    /// Writes pending bytes; returns whether none are left.
    fn write(&mut self) -> Result<bool, LoadError> {
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(self.lost(&error.to_string())),
            }
        }
        self.out.clear();
        self.written = 0;
        match self.stream.flush() {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// Reads once into `buffer`, after the kept bytes; returns the bytes in it, 0 if nothing arrived.
    pub(super) fn receive(&mut self, buffer: &mut Vec<u8>) -> Result<usize, LoadError> {
        let kept = self.partial.len();
        let frame = P::size(&self.partial).map_err(|reason| self.lost(&reason))?.unwrap_or_default();
        buffer.resize(buffer.len().max(READ_BYTES + kept).max(frame), 0);
        let (front, room) = buffer.split_at_mut(kept);
        match self.stream.read(room) {
            Ok(0) => Err(self.lost("closed by the broker")),
            Ok(bytes) => {
                front.copy_from_slice(&self.partial);
                self.partial.clear();
                Ok(kept + bytes)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Ok(0)
            }
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// Keeps the front of a frame until the rest arrives.
    pub(super) fn keep(&mut self, partial: &[u8]) {
        self.partial.extend_from_slice(partial);
    }

    /// Returns the error for an unusable connection.
    pub(super) fn lost(&self, reason: &str) -> LoadError {
        LoadError::Lost { address: self.address.clone(), reason: reason.to_owned() }
    }
}
