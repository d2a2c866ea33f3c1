//! Outbox: the bytes a connection still has to write.
//!
//! It owns replies as one run of bytes, with shared slices (of the log, for example) inserted in order. Slices are
//! not copied: the kernel gathers them in one vectored write.
//!
//! Invariant: bytes leave in the order they were added; `pending_bytes` counts the bytes added and not yet written.
//! The steady state allocates nothing: both containers keep their capacity, and the write that ends a burst usually
//! empties them.
//! Threads: the connection's I/O thread.

use std::collections::VecDeque;
use std::io::IoSlice;

use arrayvec::ArrayVec;
use bytes::Bytes;

/// Slices up to this size are copied: cheaper than a gather entry, and they pin no segment.
const COPY_BYTES_MAX: usize = 512;
/// Gather entries of one write. The kernel takes 1,024; a burst of pulls needs two each.
pub(super) const GATHER_MAX: usize = 64;
/// Written bytes at the front of `text` that justify moving the rest.
const COMPACT_BYTES_MIN: usize = 64 << 10;

/// Replies and requests pending for one peer.
#[derive(Debug, Default)]
pub struct Outbox {
    text: Vec<u8>,
    /// Bytes of `text` already written.
    text_written: usize,
    /// Slices, each with its position in `text`.
    chunks: VecDeque<SharedChunk>,
    chunk_bytes: usize,
}

#[derive(Debug)]
struct SharedChunk {
    at: usize,
    slice: Bytes,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Returns the buffer to append a frame to. Its content belongs to earlier frames and must not change.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Appends a slice without copying it, unless it is tiny. Inlined, since a call takes 20 instructions a message.
    #[inline(always)]
    pub fn push_shared(&mut self, slice: Bytes) {
        if slice.len() <= COPY_BYTES_MAX {
            self.text.extend_from_slice(&slice);
        } else {
            self.chunk_bytes += slice.len();
            self.chunks.push_back(SharedChunk { at: self.text.len(), slice });
        }
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.text.len().saturating_sub(self.text_written) + self.chunk_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending_bytes() == 0
    }

    /// Returns the bytes of memory owned; slices belong to their owners.
    pub(super) fn held_bytes(&self) -> usize {
        self.text.capacity()
    }

    /// Appends pending bytes to `list`, in order, while it has room.
    pub(super) fn gather<'a>(&'a self, list: &mut ArrayVec<IoSlice<'a>, GATHER_MAX>) {
        let mut from = self.text_written;
        let mut put = |bytes: &'a [u8]| bytes.is_empty() || list.try_push(IoSlice::new(bytes)).is_ok();
        for chunk in &self.chunks {
            if !put(self.text.get(from..chunk.at).unwrap_or_default()) || !put(&chunk.slice) {
                return;
            }
            from = chunk.at;
        }
        put(self.text.get(from..).unwrap_or_default());
    }

    /// Removes the first `count` pending bytes after they were written.
    pub(super) fn advance(&mut self, mut count: usize) {
        debug_assert!(count <= self.pending_bytes(), "wrote more than was pending");
        while let Some(front) = self.chunks.front_mut() {
            let before = front.at.saturating_sub(self.text_written).min(count);
            self.text_written += before;
            count -= before;
            if front.at > self.text_written {
                break;
            }
            let part = front.slice.len().min(count);
            bytes::Buf::advance(&mut front.slice, part);
            self.chunk_bytes -= part;
            count -= part;
            if !front.slice.is_empty() {
                break;
            }
            self.chunks.pop_front();
        }
        self.text_written += count;
        self.tidy();
    }

    /// Releases the memory of an idle connection.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() {
            *self = Self::new();
        }
    }

    fn tidy(&mut self) {
        if self.chunks.is_empty() && self.text_written == self.text.len() {
            self.text.clear();
            self.text_written = 0;
        } else if self.text_written >= COMPACT_BYTES_MIN && self.text_written * 2 >= self.text.len() {
            self.text.drain(..self.text_written);
            for chunk in &mut self.chunks {
                chunk.at -= self.text_written;
            }
            self.text_written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained_in_steps(outbox: &mut Outbox, step: usize) -> Vec<u8> {
        let mut written = Vec::new();
        while !outbox.is_empty() {
            let mut list = ArrayVec::new();
            outbox.gather(&mut list);
            assert!(!list.is_empty(), "pending bytes can be gathered");
            let before = written.len();
            written.extend(list.iter().flat_map(|slice| slice.iter()).take(step));
            drop(list);
            outbox.advance(written.len() - before);
        }
        written
    }

    #[test]
    fn bytes_and_slices_leave_in_order_whatever_the_socket_takes() {
        for step in [1, 7, 512, 513, 4096, 1 << 20] {
            let mut outbox = Outbox::new();
            let mut expected = Vec::new();
            for round in 0..200_usize {
                let text = vec![round as u8; round % 40];
                outbox.bytes().extend_from_slice(&text);
                expected.extend_from_slice(&text);
                // Sizes on both sides of the copy limit, and empty slices.
                let slice = vec![!(round as u8); (round * 37) % 1500];
                outbox.push_shared(Bytes::from(slice.clone()));
                expected.extend_from_slice(&slice);
            }
            assert_eq!(outbox.pending_bytes(), expected.len());
            assert_eq!(drained_in_steps(&mut outbox, step), expected, "step {step}");
        }
    }

    #[test]
    fn written_bytes_are_released_while_a_reader_is_slow() {
        let mut outbox = Outbox::new();
        for _ in 0..10_000 {
            outbox.bytes().extend_from_slice(&[7; 1000]);
            let pending = outbox.pending_bytes();
            // The reader always stays a little behind.
            outbox.advance(pending.saturating_sub(100));
        }
        assert!(outbox.held_bytes() < 1 << 20, "holds {} bytes", outbox.held_bytes());
    }

    #[test]
    fn an_idle_outbox_releases_its_memory() {
        let mut outbox = Outbox::new();
        outbox.bytes().resize(1 << 20, 0);
        outbox.shrink();
        assert!(outbox.held_bytes() >= 1 << 20, "pending bytes stay");
        outbox.advance(1 << 20);
        outbox.shrink();
        assert_eq!(outbox.held_bytes(), 0);
    }
}
