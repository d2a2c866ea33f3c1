//! One connection of a load: requests under way in numbered slots, bytes out, answers in.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::plan::LoadError;
use super::requests::{Numbers, OPAQUE_BASE, Template};
use crate::remoting::frame::{self, FrameLimits};

/// Bytes of one read; a larger frame makes the buffer grow for its sake.
pub const READ_BYTES: usize = 256 << 10;

/// A request under way, or a place for one. A pull's place remembers how far it has read.
#[derive(Clone, Copy, Debug)]
struct Slot {
    begin_ns: u64,
    is_busy: bool,
    queue: usize,
    offset: u64,
}

/// What to ask of one queue.
#[derive(Debug)]
pub struct Queue {
    /// The request.
    pub template: Template,
    /// Where its readers start, and start again.
    pub begin: u64,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub stream: TcpStream,
    /// Whom it leads to.
    pub address: String,
    queues: Vec<Queue>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    id: Cell<u32>,
    /// Next queue of a connection that sends.
    turn: usize,
    out: Vec<u8>,
    written: usize,
    /// The socket takes no more for now.
    is_full: bool,
    /// The front of a frame whose rest has not come yet.
    partial: Vec<u8>,
}

impl Connection {
    /// Connects. The `index`th connection begins with another queue than its neighbours.
    pub fn open(
        address: &str,
        queues: Vec<Queue>,
        window: usize,
        index: usize,
        timeout: Duration,
    ) -> Result<Self, LoadError> {
        let refused = |reason: String| LoadError::Connect { address: address.to_owned(), reason };
        let resolved = address
            .to_socket_addrs()
            .map_err(|error| refused(error.to_string()))?
            .next()
            .ok_or_else(|| refused("it has no address".to_owned()))?;
        let stream = TcpStream::connect_timeout(&resolved, timeout)
            .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            .map_err(|error| refused(error.to_string()))?;
        let slot = |slot: usize| {
            let queue = (index * window + slot) % queues.len();
            let offset = queues.get(queue).map_or(0, |queue| queue.begin);
            Slot { begin_ns: 0, is_busy: false, queue, offset }
        };
        Ok(Self {
            stream,
            address: address.to_owned(),
            slots: (0..window).map(slot).collect(),
            free: (0..window as u32).rev().collect(),
            id: Cell::new(0),
            turn: index,
            queues,
            out: Vec::new(),
            written: 0,
            is_full: false,
            partial: Vec::new(),
        })
    }

    /// Whether one more request may be under way.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Requests under way, by the time they began.
    pub fn under_way(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().filter(|slot| slot.is_busy).map(|slot| slot.begin_ns)
    }

    /// Makes one more send, to the next queue.
    pub fn send(&mut self, begin_ns: u64) {
        let next = self.turn % self.queues.len();
        self.turn = next + 1;
        self.ask(begin_ns, Some(next));
    }

    /// Makes one more pull, from where its reader is.
    pub fn pull(&mut self, begin_ns: u64) {
        self.ask(begin_ns, None);
    }

    fn ask(&mut self, begin_ns: u64, queue: Option<usize>) {
        let Some(index) = self.free.pop() else { return };
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        slot.begin_ns = begin_ns;
        slot.is_busy = true;
        if let Some(queue) = self.queues.get(queue.unwrap_or(slot.queue)) {
            let numbers = Numbers { opaque: OPAQUE_BASE + index, offset: slot.offset, id: &self.id };
            queue.template.put(&mut self.out, numbers);
        }
    }

    /// The request `opaque` has its answer: when it began, and its slot. `None` when there is no such request.
    pub fn settle(&mut self, opaque: i32) -> Option<(u64, usize)> {
        let index = u32::try_from(opaque).ok()?.checked_sub(OPAQUE_BASE)?;
        let slot = self.slots.get_mut(index as usize).filter(|slot| slot.is_busy)?;
        slot.is_busy = false;
        self.free.push(index);
        Some((slot.begin_ns, index as usize))
    }

    /// The reader of this slot has got `count` messages more.
    pub fn advance(&mut self, slot: usize, count: u64) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.offset += count;
        }
    }

    /// The reader of this slot starts again.
    pub fn rewind(&mut self, slot: usize) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.offset = self.queues.get(slot.queue).map_or(0, |queue| queue.begin);
        }
    }

    /// Writes what there is. Tells when that has changed whether the socket is full: `Some(true)` when it now is.
    pub fn flush(&mut self) -> Result<Option<bool>, LoadError> {
        let is_full = !self.write()?;
        Ok((std::mem::replace(&mut self.is_full, is_full) != is_full).then_some(is_full))
    }

    /// Writes what there is; whether all of it is gone.
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
        Ok(true)
    }

    /// Reads once into `buffer`, behind what was kept; the bytes there now, 0 when nothing came.
    pub fn receive(&mut self, buffer: &mut Vec<u8>) -> Result<usize, LoadError> {
        let kept = self.partial.len();
        let frame = frame::size(&self.partial, &FrameLimits::default())
            .map_err(|error| self.lost(&error.to_string()))?
            .unwrap_or_default();
        buffer.resize(buffer.len().max(READ_BYTES + kept).max(frame), 0);
        let (front, room) = buffer.split_at_mut(kept);
        match self.stream.read(room) {
            Ok(0) => Err(self.lost("the broker closed it")),
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

    /// Keeps the front of a frame until the rest comes.
    pub fn keep(&mut self, partial: &[u8]) {
        self.partial.extend_from_slice(partial);
    }

    /// Why this connection is of no more use.
    pub fn lost(&self, reason: &str) -> LoadError {
        LoadError::Lost { address: self.address.clone(), reason: reason.to_owned() }
    }
}
