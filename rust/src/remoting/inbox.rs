//! Inbox: what a connection has read and not yet handled.
//!
//! Owns one buffer: frames are parsed where they were read, what is left of the last one moves to the front. It is
//! small while idle, grows with the traffic to a size every connection may have while buffers are within their budget,
//! and beyond that only for one large frame, after the whole of it was reserved on a budget all connections share. A
//! frame that waited too long for that, or whose header says enough, is skipped: its bytes are read and forgotten.
//!
//! Invariant: `start <= end <= buffer.len()`; a frame that announces much and sends little costs what it sent.
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
use super::limits::{BURST_FRAMES_MAX, INBOX_BYTES_HOT, INBOX_BYTES_IDLE, INBOX_BYTES_SPENT};

/// By how much a buffer grows that a read has filled.
const GROWTH: usize = 4;
/// Buffers of this size and larger are pages of their own.
const PAGES_BYTES_MIN: usize = 64 << 10;

/// Zeroed memory. More than an idle connection has is pages of its own: those not reached yet cost nothing, and all go
/// back to the system at once. The allocator would keep them, having seen that such sizes come again.
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

/// What it takes for the open frame of a connection to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// No frame is open, or it is not its sender who keeps it.
    Nothing,
    /// The rest of it.
    Rest,
    /// The same, of one for which memory is reserved that others may need.
    LargeRest,
    /// Memory.
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
    /// The frame that begins at `start` is the one for which it was reserved.
    is_claimed: bool,
    /// Size of the frame that begins at `start`, once its length is known.
    open_bytes: usize,
    /// The frame that begins at `start` has been looked at: it is kept, however large.
    is_wanted: bool,
    /// It will be given away, with its memory.
    is_given: bool,
    /// What is still to come of a frame that will not be kept.
    skipped_bytes: usize,
    /// The last read filled the buffer: there was probably more.
    was_full: bool,
    /// The most that was in the buffer since `settle`.
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

    /// What it takes for the open frame to go on.
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

    /// Memory, filled or not.
    pub(super) fn held_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// What was read and not handled yet.
    pub(super) fn unhandled(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// The open frame without its body, if its header has come.
    pub(super) fn head(&self) -> Option<Frame<'_>> {
        frame::head(self.unhandled())
    }

    /// The same of a large frame, and the size of its body, until it was kept or skipped.
    pub(super) fn large_head(&self) -> Option<(Frame<'_>, usize)> {
        let is_new = self.open_bytes > INBOX_BYTES_HOT && !self.is_wanted;
        let head = is_new.then(|| self.head())??;
        Some((head, self.open_bytes.saturating_sub(PREFIX_BYTES + head.header.len())))
    }

    /// Lets the open frame have the memory that it takes; for good, where it `is_given` away.
    pub(super) fn keep(&mut self, is_given: bool) {
        self.is_wanted = true;
        self.is_given = is_given;
    }

    /// The frame that is given away, once all of it has come. Where its memory is much more than it takes, it comes from
    /// `frames` as any other does: nobody would count the rest.
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

    /// Forgets the open frame: what is still to come of it will be read and not kept.
    pub(super) fn skip(&mut self) {
        self.skipped_bytes = self.open_bytes.saturating_sub(self.end - self.start);
        (self.start, self.end, self.open_bytes) = (0, 0, 0);
        self.is_given = false;
        self.waiting = None;
        self.release();
    }

    /// Whether the open frame is one that no usual buffer holds, or is skipped.
    pub(super) fn is_large(&self) -> bool {
        self.open_bytes > INBOX_BYTES_HOT || self.skipped_bytes > 0
    }

    /// Reads once, as much as there is and fits, `bytes_max` at most; 0 is the end of the stream.
    ///
    /// Call it when `frames` has nothing complete left; what it returned was handled.
    pub(super) fn poll_read<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(cx));
        let mut until = self.buffer.len().min(self.end + bytes_max);
        if self.is_given {
            // What comes behind it is not given away.
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

    /// The complete frames at the front, at most a burst. With fewer than a burst, more bytes are needed for the
    /// next one. `handled` says how far they went.
    pub(super) fn frames<'a>(&'a self, into: &mut ArrayVec<Frame<'a>, BURST_FRAMES_MAX>) -> Extent {
        let mut extent = Extent::default();
        while !into.is_full() {
            let rest = self.buffer.get(self.start + extent.bytes..self.end).unwrap_or_default();
            match frame::split(rest, &self.limits) {
                Ok(Some((frame, size))) => {
                    into.push(frame);
                    extent.bytes += size;
                }
                Ok(None) => {
                    match open_bytes(rest, &self.limits) {
                        Ok(size) => extent.open_bytes = size,
                        Err(error) => extent.error = Some(error),
                    }
                    break;
                }
                Err(error) => {
                    extent.error = Some(error);
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
        // The next large frame finds its buffer here, unless others need the memory more.
        if self.reserved.is_some() && self.large.is_scarce() {
            self.shrink_to(self.usual_bytes_max());
        }
    }

    /// Gives back what was not used since the last call, all but the size of an idle buffer. One that is busy keeps its
    /// size: it would soon grow to it again, and take a page fault on each page.
    pub(super) fn settle(&mut self) {
        let used = std::mem::replace(&mut self.peak, self.end - self.start);
        let usual = self.buffer.len().min(INBOX_BYTES_HOT);
        self.shrink_to(if used >= usual / GROWTH { used.max(usual) } else { used });
    }

    /// Gives back what is not needed now, but for a small buffer.
    pub(super) fn release(&mut self) {
        self.peak = self.end - self.start;
        self.shrink_to(INBOX_BYTES_SPENT);
    }

    /// Shrinks to `used` bytes, but not below what the open frame holds, and has reserved.
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

    /// The size to which any buffer may grow.
    fn usual_bytes_max(&self) -> usize {
        if self.budget.is_spent() { INBOX_BYTES_SPENT } else { INBOX_BYTES_HOT }
    }

    /// Whether the memory reserved is for the frame that is open, not left from one before.
    fn holds_reservation(&self) -> bool {
        let is_large = self.is_claimed || self.open_bytes > INBOX_BYTES_HOT;
        self.reserved.is_some() && self.start < self.end && is_large
    }

    /// Reads and forgets, until the end of the stream.
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

    /// Makes room for the next read: more where the last one filled the buffer, a lot where a large frame is open.
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
            // The whole frame at once, and nothing kept while waiting: two that hold a part would wait for ever.
            self.reserved = None;
            let waiting = self.waiting.get_or_insert_with(|| self.large.reserve(self.open_bytes));
            let granted = ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
            // The budget is never closed; were it, there would be nothing to wait for.
            self.reserved = granted.ok();
            self.is_claimed = true;
        }
        // At least one byte, whatever was announced: a read into nothing would look like the end of the stream.
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

/// How far a burst of frames went, and what is known of the frame after it.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Extent {
    bytes: usize,
    /// Its size; 0 while unknown.
    open_bytes: usize,
    /// Why it will never be one. Those before it are whole and were sent first, so they are handled first.
    pub(super) error: Option<FrameError>,
}

/// Size of the incomplete frame at the front of `bytes`; 0 when even its length is incomplete.
fn open_bytes(bytes: &[u8], limits: &FrameLimits) -> Result<usize, FrameError> {
    if let Some(size) = frame::size(bytes, limits)? {
        return Ok(size);
    }
    // The first byte alone tells a TLS hello, a PROXY line or a browser from a frame: as the top of a length, it
    // would be far too long. Waiting for three more would leave half a connection open.
    let least = bytes.first().map_or(0, |top| u64::from(*top) << 24);
    if least > limits.frame_bytes_max as u64 {
        let frame_bytes_max = limits.frame_bytes_max;
        return Err(FrameError::TooLong { frame_bytes: least, frame_bytes_max });
    }
    Ok(0)
}

#[cfg(test)]
mod tests;
