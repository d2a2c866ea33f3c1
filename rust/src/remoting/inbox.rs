//! Inbox: the bytes a connection has read and not yet handled.
//!
//! It owns one buffer. Frames are parsed in place, and an incomplete frame moves to the front. The buffer is small
//! while idle and grows with traffic to a size every connection may have while the buffer budget lasts. It grows
//! further only for one large frame, after reserving the whole frame from the shared budget. A frame that waited too
//! long for its reservation, or that was answered from its header, is skipped: its bytes are read and discarded.
//!
//! Invariant: `start <= end <= buffer.len()`; a frame that announces much and sends little costs only what it sent.
//! Threads: the connection's I/O thread.

use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use arrayvec::ArrayVec;
use bytes::Bytes;
use memmap2::MmapMut;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

use super::buffer_budget::BufferBudget;
use super::error::FrameError;
use super::frame::{self, Frame, FrameLimits, PREFIX_BYTES};
use super::large_frames::{LargeFrames, PAGE_BYTES, Reservation};
use super::limits::{
    BURST_FRAMES_MAX, BURST_HEADER_BYTES_MAX, INBOX_BYTES_HOT, INBOX_BYTES_IDLE, INBOX_BYTES_SPENT,
};

/// Growth factor of a buffer that a read has filled.
const GROWTH: usize = 4;
/// Buffers of this size and larger are mapped separately.
const PAGES_BYTES_MIN: usize = 64 << 10;

/// Zeroed memory. A buffer larger than an idle connection's is mapped separately: untouched pages cost nothing, and
/// unmapping returns all of them immediately. The allocator would keep them, expecting more requests of that size.
enum Buffer {
    Usual(Vec<u8>),
    Pages(MmapMut),
}

impl Buffer {
    fn new(size: usize) -> Self {
        let pages = if size >= PAGES_BYTES_MIN { MmapMut::map_anon(size).ok() } else { None };
        pages.map_or_else(|| Self::Usual(vec![0; size]), Self::Pages)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Usual(bytes) => bytes,
            Self::Pages(pages) => pages,
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Usual(bytes) => bytes,
            Self::Pages(pages) => pages,
        }
    }
}

/// The resource that the open frame waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// No frame is open, or its sender is not the cause of the wait.
    Nothing,
    /// Its remaining bytes.
    Rest,
    /// Its remaining bytes, while it holds a reservation that other frames may need.
    LargeRest,
    /// A memory reservation.
    Room,
}

pub(super) struct Inbox {
    buffer: Buffer,
    start: usize,
    end: usize,
    limits: FrameLimits,
    large: LargeFrames,
    budget: BufferBudget,
    waiting: Option<Reservation>,
    reserved: Option<OwnedSemaphorePermit>,
    /// Whether the reservation belongs to the frame at `start`.
    is_claimed: bool,
    /// Size of the frame at `start`, once its length is known.
    open_bytes: usize,
    /// Whether the service wants the frame at `start`: it is kept, however large.
    is_wanted: bool,
    /// Whether the frame will be handed over together with its buffer.
    is_given: bool,
    /// Remaining bytes of a frame that is being discarded.
    skipped_bytes: usize,
    /// Whether the last read filled the buffer: more is probably pending.
    was_full: bool,
    /// Peak bytes in the buffer since `settle`.
    peak: usize,
}

impl Inbox {
    pub(super) fn new(limits: FrameLimits, large: LargeFrames, budget: BufferBudget) -> Self {
        Self {
            buffer: Buffer::new(INBOX_BYTES_IDLE),
            start: 0,
            end: 0,
            limits,
            large,
            budget,
            waiting: None,
            reserved: None,
            is_claimed: false,
            open_bytes: 0,
            is_wanted: false,
            is_given: false,
            skipped_bytes: 0,
            was_full: false,
            peak: 0,
        }
    }

    /// Returns what the open frame waits for.
    pub(super) fn needs(&self) -> Needs {
        if self.waiting.is_some() {
            Needs::Room
        } else if self.start == self.end && self.skipped_bytes == 0 {
            Needs::Nothing
        } else if self.holds_reservation() {
            Needs::LargeRest
        } else {
            Needs::Rest
        }
    }

    /// Returns the memory held, filled or not.
    pub(super) fn held_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the bytes read and not handled yet.
    pub(super) fn unhandled(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Returns the open frame without its body, once its header is complete.
    pub(super) fn head(&self) -> Option<Frame<'_>> {
        frame::head(self.unhandled())
    }

    /// Returns the head of a large frame, and the size of its body, until the frame is kept or skipped.
    pub(super) fn large_head(&self) -> Option<(Frame<'_>, usize)> {
        let is_new = self.open_bytes > INBOX_BYTES_HOT && !self.is_wanted;
        let head = is_new.then(|| self.head())??;
        Some((head, self.open_bytes.saturating_sub(PREFIX_BYTES + head.header.len())))
    }

    /// Keeps the open frame. With `is_given`, its buffer is handed over with it.
    pub(super) fn keep(&mut self, is_given: bool) {
        self.is_wanted = true;
        self.is_given = is_given;
    }

    /// Takes the frame to hand over, once it is complete. If its buffer is much larger than the frame, it arrives by
    /// `frames` like any other, because the surplus would not be counted anywhere.
    pub(super) fn take_given(&mut self) -> Option<Bytes> {
        if !self.is_given || self.end - self.start < self.open_bytes {
            return None;
        }
        self.is_given = false;
        if self.buffer.len() > self.open_bytes.saturating_mul(2) {
            return None;
        }
        let buffer = std::mem::replace(&mut self.buffer, Buffer::new(INBOX_BYTES_IDLE));
        let frame = Bytes::from_owner(buffer).slice(self.start..self.end);
        (self.start, self.end, self.open_bytes) = (0, 0, 0);
        (self.is_claimed, self.is_wanted, self.was_full) = (false, false, false);
        self.reserved = None;
        Some(frame)
    }

    /// Skips the open frame: its remaining bytes are read and discarded.
    pub(super) fn skip(&mut self) {
        self.skipped_bytes = self.open_bytes.saturating_sub(self.end - self.start);
        (self.start, self.end, self.open_bytes) = (0, 0, 0);
        self.is_given = false;
        self.waiting = None;
        self.release();
    }

    /// Returns whether the open frame exceeds an ordinary buffer, or is skipped.
    pub(super) fn is_large(&self) -> bool {
        self.open_bytes > INBOX_BYTES_HOT || self.skipped_bytes > 0
    }

    /// Reads once, at most `bytes_max`; 0 means end of stream.
    ///
    /// Call it when `frames` has no complete frame left and its last result was handled.
    pub(super) fn poll_read<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(cx));
        let mut until = self.buffer.len().min(self.end + bytes_max);
        if self.is_given {
            // The bytes behind the frame are not handed over.
            until = until.min(self.start + self.open_bytes);
        }
        let Some(room) = self.buffer.get_mut(self.end..until) else { return Poll::Ready(Ok(0)) };
        let mut read = ReadBuf::new(room);
        ready!(Pin::new(from).poll_read(cx, &mut read))?;
        let count = read.filled().len();
        self.end += count;
        let skipped = count.min(self.skipped_bytes);
        self.skipped_bytes -= skipped;
        self.start += skipped;
        self.was_full = self.end == self.buffer.len();
        self.peak = self.peak.max(self.end);
        Poll::Ready(Ok(count))
    }

    /// Collects the complete frames at the front, at most a burst. Pass the extent to `handled` afterwards.
    pub(super) fn frames<'a>(&'a self, into: &mut ArrayVec<Frame<'a>, BURST_FRAMES_MAX>) -> Extent {
        let mut extent = Extent { may_have_more: true, ..Extent::default() };
        let mut header_bytes = 0;
        while !into.is_full() && header_bytes < BURST_HEADER_BYTES_MAX {
            let rest = self.buffer.get(self.start + extent.bytes..self.end).unwrap_or_default();
            match frame::split(rest, &self.limits) {
                Ok(Some((frame, size))) => {
                    header_bytes += frame.header.len();
                    into.push(frame);
                    extent.bytes += size;
                }
                Ok(None) => {
                    match open_bytes(rest, &self.limits) {
                        Ok(size) => extent.open_bytes = size,
                        Err(error) => extent.error = Some(error),
                    }
                    extent.may_have_more = false;
                    break;
                }
                Err(error) => {
                    (extent.error, extent.may_have_more) = (Some(error), false);
                    break;
                }
            }
        }
        extent
    }

    pub(super) fn handled(&mut self, extent: Extent) {
        self.start += extent.bytes;
        self.is_claimed &= extent.bytes == 0;
        self.is_wanted &= extent.bytes == 0;
        self.open_bytes = extent.open_bytes;
        debug_assert!(self.start <= self.end, "handled what was not read");
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        // Keep the buffer for the next large frame, unless memory is scarce.
        if self.reserved.is_some() && self.large.is_scarce() {
            self.shrink_to(self.usual_bytes_max());
        }
    }

    /// Releases memory unused since the last call, except the size of an idle buffer. A busy buffer keeps its size:
    /// it would soon grow again, at one page fault per page.
    pub(super) fn settle(&mut self) {
        let used = std::mem::replace(&mut self.peak, self.end - self.start);
        let usual = self.buffer.len().min(INBOX_BYTES_HOT);
        self.shrink_to(if used >= usual / GROWTH { used.max(usual) } else { used });
    }

    /// Releases everything but a small buffer.
    pub(super) fn release(&mut self) {
        self.peak = self.end - self.start;
        self.shrink_to(INBOX_BYTES_SPENT);
    }

    /// Shrinks to `used` bytes, but not below the bytes or the reservation of the open frame.
    fn shrink_to(&mut self, used: usize) {
        let is_held = self.holds_reservation();
        let reserved = if is_held { self.open_bytes } else { 0 };
        let used = used.max(self.end - self.start).next_power_of_two();
        let wanted = used.max(reserved).clamp(INBOX_BYTES_IDLE, self.buffer.len());
        if wanted < self.buffer.len() {
            self.resize(wanted);
        }
        if let Some(pages) = &mut self.reserved {
            let is_needed = is_held || self.buffer.len() > INBOX_BYTES_HOT;
            let needed = if is_needed { self.buffer.len().div_ceil(PAGE_BYTES) } else { 0 };
            drop(pages.split(pages.num_permits().saturating_sub(needed)));
        }
        self.reserved.take_if(|pages| pages.num_permits() == 0);
    }

    /// Returns the largest size without a reservation.
    fn usual_bytes_max(&self) -> usize {
        if self.budget.is_spent() { INBOX_BYTES_SPENT } else { INBOX_BYTES_HOT }
    }

    /// Returns whether the reservation belongs to the open frame, not to an earlier one.
    fn holds_reservation(&self) -> bool {
        let is_large = self.is_claimed || self.open_bytes > INBOX_BYTES_HOT;
        self.reserved.is_some() && self.start < self.end && is_large
    }

    /// Reads and discards until the end of the stream.
    pub(super) fn poll_discard<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut read = ReadBuf::new(&mut self.buffer);
            ready!(Pin::new(&mut *from).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Makes room for the next read: more if the last one filled the buffer, the whole frame if a large one is open.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.was_full && self.buffer.len() < self.usual_bytes_max() {
            self.resize((self.buffer.len() * GROWTH).min(INBOX_BYTES_HOT));
            self.was_full = false;
        } else if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end < self.buffer.len() {
            return Poll::Ready(());
        }
        if self.reserved.as_ref().is_none_or(|pages| pages.num_permits() * PAGE_BYTES < self.open_bytes) {
            // Reserve the whole frame, and hold nothing while waiting: two connections that hold a part each would
            // deadlock.
            self.reserved = None;
            let waiting = self.waiting.get_or_insert_with(|| self.large.reserve(self.open_bytes));
            let granted = ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
            // The semaphore is never closed.
            self.reserved = granted.ok();
            self.is_claimed = true;
        }
        // At least one byte, whatever was announced: an empty read would look like the end of the stream.
        self.resize(self.open_bytes.max(self.end + 1));
        Poll::Ready(())
    }

    fn resize(&mut self, size: usize) {
        let mut buffer = Buffer::new(size);
        let held = self.start..self.end;
        self.end -= self.start;
        self.start = 0;
        if let (Some(to), Some(from)) = (buffer.get_mut(..self.end), self.buffer.get(held)) {
            to.copy_from_slice(from);
        }
        self.buffer = buffer;
    }
}

/// The extent of a burst, and the state of the frame after it.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Extent {
    bytes: usize,
    /// Whether the burst was cut. Otherwise the next frame is incomplete.
    pub(super) may_have_more: bool,
    /// Size of the next frame; 0 while unknown.
    open_bytes: usize,
    /// The reason why the next bytes can never be a frame. The whole frames before them are handled first.
    pub(super) error: Option<FrameError>,
}

/// Returns the size of the incomplete frame at the front of `bytes`; 0 while its length is incomplete.
fn open_bytes(bytes: &[u8], limits: &FrameLimits) -> Result<usize, FrameError> {
    if let Some(size) = frame::size(bytes, limits)? {
        return Ok(size);
    }
    // The first byte alone distinguishes a TLS hello, a PROXY line or a browser from a frame: as the top byte of a
    // length it would be far over the limit. Waiting for three more bytes would keep a half-open connection.
    let least = bytes.first().map_or(0, |top| u64::from(*top) << 24);
    if least > limits.frame_bytes_max as u64 {
        let frame_bytes_max = limits.frame_bytes_max;
        return Err(FrameError::TooLong { frame_bytes: least, frame_bytes_max });
    }
    Ok(0)
}

#[cfg(test)]
mod tests;
