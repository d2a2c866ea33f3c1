//! Inbox: what a connection has read and not yet handled.
//!
//! Owns one buffer: frames are parsed where they were read, what is left of the last one moves to the front. It is
//! small while idle, grows with the traffic to a size every connection may have, and beyond that only for one large
//! frame, after the whole of it was reserved on a budget all connections share.
//!
//! Invariant: `start <= end <= buffer.len()`; a frame that announces much and sends little costs what it sent.
//! Threads: the connection's I/O thread.

use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use arrayvec::ArrayVec;
use memmap2::MmapMut;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

use super::error::FrameError;
use super::frame::{self, Frame, FrameLimits};
use super::large_frames::{LargeFrames, PAGE_BYTES, Reservation};
use super::limits::{BURST_FRAMES_MAX, INBOX_BYTES_HOT, INBOX_BYTES_IDLE, READ_BYTES_MAX};

/// Zeroed memory. That of a large frame is pages of its own: those not reached yet cost nothing, and all go back to the
/// system at once. The allocator would keep them, having seen that such sizes come again.
enum Buffer {
    Usual(Vec<u8>),
    Large(MmapMut),
}

impl Buffer {
    fn new(size: usize) -> Self {
        let pages = if size > INBOX_BYTES_HOT { MmapMut::map_anon(size).ok() } else { None };
        pages.map_or_else(|| Self::Usual(vec![0; size]), Self::Large)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Usual(bytes) => bytes,
            Self::Large(pages) => pages,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Usual(bytes) => bytes,
            Self::Large(pages) => pages,
        }
    }
}

pub(super) struct Inbox {
    buffer: Buffer,
    start: usize,
    end: usize,
    limits: FrameLimits,
    large: LargeFrames,
    waiting: Option<Reservation>,
    reserved: Option<OwnedSemaphorePermit>,
    /// Size of the frame that begins at `start`, once its length is known.
    open_bytes: usize,
    /// The last read filled the buffer: there was probably more.
    was_full: bool,
    /// The most that was in the buffer since `settle`.
    peak: usize,
}

impl Inbox {
    pub(super) fn new(limits: FrameLimits, large: LargeFrames) -> Self {
        Self {
            buffer: Buffer::new(INBOX_BYTES_IDLE),
            start: 0,
            end: 0,
            limits,
            large,
            waiting: None,
            reserved: None,
            open_bytes: 0,
            was_full: false,
            peak: 0,
        }
    }

    /// Whether the first bytes of a frame wait for the rest.
    pub(super) fn is_open(&self) -> bool {
        self.start < self.end
    }

    /// Whether the open frame waits for memory, not for its sender.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether `settle` could give something back.
    pub(super) fn is_oversized(&self) -> bool {
        self.buffer.len() > INBOX_BYTES_IDLE
    }

    /// Reads once, as much as there is and fits; 0 is the end of the stream.
    ///
    /// Call it when `frames` has nothing complete left; what it returned was handled.
    pub(super) fn poll_read<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(cx));
        let until = self.buffer.len().min(self.end + READ_BYTES_MAX);
        let Some(room) = self.buffer.get_mut(self.end..until) else { return Poll::Ready(Ok(0)) };
        let mut read = ReadBuf::new(room);
        ready!(Pin::new(from).poll_read(cx, &mut read))?;
        let count = read.filled().len();
        self.end += count;
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
        self.open_bytes = extent.open_bytes;
        debug_assert!(self.start <= self.end, "handled what was not read");
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            // The next large frame finds its buffer here, unless others need the memory more.
            if self.reserved.is_some() && self.large.is_scarce() {
                self.resize(INBOX_BYTES_HOT);
                self.reserved = None;
            }
        }
    }

    /// Gives back what was not used since the last call, all but the size of an idle buffer.
    pub(super) fn settle(&mut self) {
        let held = self.end - self.start;
        let used = std::mem::replace(&mut self.peak, held).max(held);
        let wanted = used.next_power_of_two().clamp(INBOX_BYTES_IDLE, self.buffer.len());
        if wanted < self.buffer.len() {
            self.resize(wanted);
            if wanted <= INBOX_BYTES_HOT {
                self.reserved = None;
            }
        }
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
        if self.was_full && self.buffer.len() < INBOX_BYTES_HOT {
            self.resize((self.buffer.len() * 4).min(INBOX_BYTES_HOT));
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
mod tests {
    use std::task::Waker;

    use super::*;

    const LIMITS: FrameLimits = FrameLimits { frame_bytes_max: 4 << 20, header_bytes_max: 256 << 10 };

    fn inbox(budget_bytes: usize) -> Inbox {
        Inbox::new(LIMITS, LargeFrames::new(budget_bytes, &LIMITS))
    }

    fn frame(bytes: usize) -> Vec<u8> {
        let mut frame = vec![b' '; bytes];
        frame[..4].copy_from_slice(&(bytes as u32 - 4).to_be_bytes());
        frame[4..8].copy_from_slice(&[0; 4]);
        frame
    }

    /// Reads from `bytes` until there is nothing left, or memory must be waited for; the sizes of the frames.
    fn feed(inbox: &mut Inbox, bytes: &mut &[u8]) -> Vec<usize> {
        let mut sizes = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        while !bytes.is_empty() && inbox.poll_read(&mut cx, bytes).is_ready() {
            loop {
                let mut frames = ArrayVec::new();
                let extent = inbox.frames(&mut frames);
                assert_eq!(extent.error, None);
                sizes.extend(frames.iter().map(|frame: &Frame<'_>| frame.body.len() + 8));
                let is_full = frames.is_full();
                drop(frames);
                inbox.handled(extent);
                if !is_full {
                    break;
                }
            }
        }
        sizes
    }

    #[test]
    fn frames_of_all_sizes_come_out_as_they_went_in() {
        let sizes = [8, 9, 4095, 4096, 4097, 300_000, 20, 8, 262_144, 4 << 20, 1 << 20, 8, 8, 8];
        let stream: Vec<u8> = sizes.iter().flat_map(|size| frame(*size)).collect();
        let mut inbox = inbox(0);
        assert_eq!(feed(&mut inbox, &mut stream.as_slice()), sizes);
        assert!(!inbox.is_open());
    }

    #[test]
    fn a_busy_inbox_grows_to_one_size_and_an_idle_one_shrinks_again() {
        let stream: Vec<u8> = (0..100_000).flat_map(|_| frame(100)).collect();
        let mut inbox = inbox(0);
        assert_eq!(feed(&mut inbox, &mut stream.as_slice()).len(), 100_000);
        assert_eq!(inbox.buffer.len(), INBOX_BYTES_HOT);
        inbox.settle();
        assert_eq!(inbox.buffer.len(), INBOX_BYTES_HOT, "it was needed since the last time");
        inbox.settle();
        assert_eq!(inbox.buffer.len(), INBOX_BYTES_IDLE);
        assert!(!inbox.is_oversized());
    }

    #[test]
    fn shrinking_keeps_the_frame_that_is_open() {
        let mut inbox = inbox(0);
        let mut stream: Vec<u8> = (0..10_000).flat_map(|_| frame(100)).collect();
        let last = frame(50_000);
        stream.extend(&last[..20_000]);
        feed(&mut inbox, &mut stream.as_slice());
        inbox.settle();
        inbox.settle();
        assert!(inbox.buffer.len() < INBOX_BYTES_HOT);
        assert_eq!(feed(&mut inbox, &mut &last[20_000..]), [50_000]);
    }

    #[test]
    fn a_large_frame_is_reserved_whole_once_it_outgrows_the_usual_buffer() {
        let mut inbox = inbox(4 << 20);
        let whole = frame(4 << 20);
        feed(&mut inbox, &mut &whole[..INBOX_BYTES_HOT]);
        assert_eq!(inbox.large.pages.available_permits() * PAGE_BYTES, 4 << 20);
        feed(&mut inbox, &mut &whole[INBOX_BYTES_HOT..INBOX_BYTES_HOT + 1]);
        assert_eq!(inbox.large.pages.available_permits(), 0);
    }

    #[test]
    fn large_frames_wait_for_each_other() {
        let whole = frame(3 << 20);
        let mut first = inbox(4 << 20);
        let mut second = Inbox::new(LIMITS, first.large.clone());
        feed(&mut first, &mut &whole[..1 << 20]);
        let mut rest = whole.as_slice();
        assert!(feed(&mut second, &mut rest).is_empty());
        assert!(second.is_waiting());
        assert_eq!(whole.len() - rest.len(), INBOX_BYTES_HOT, "it read no more than any connection may");
        // Memory is scarce, so the first one gives it back as soon as its frame was handled.
        assert_eq!(feed(&mut first, &mut &whole[1 << 20..]), [3 << 20]);
        assert_eq!(feed(&mut second, &mut rest), [3 << 20]);
        assert_eq!(first.large.pages.available_permits() * PAGE_BYTES, 4 << 20);
    }

    #[test]
    fn while_there_is_memory_the_buffer_of_a_large_frame_waits_for_the_next_one() {
        let mut inbox = inbox(64 << 20);
        let whole = frame(3 << 20);
        assert_eq!(feed(&mut inbox, &mut whole.as_slice()), [3 << 20]);
        assert!(inbox.buffer.len() >= 3 << 20);
        assert_eq!(feed(&mut inbox, &mut whole.as_slice()), [3 << 20]);
        inbox.settle();
        inbox.settle();
        assert_eq!(inbox.buffer.len(), INBOX_BYTES_IDLE);
        assert_eq!(inbox.large.pages.available_permits() * PAGE_BYTES, 64 << 20);
    }

    #[test]
    fn one_byte_is_enough_to_refuse_what_can_be_no_frame() {
        for first in [0x16, b'G', b'P', 0x80, 0xFF, 0x01] {
            let mut inbox = inbox(0);
            let mut cx = Context::from_waker(Waker::noop());
            assert!(inbox.poll_read(&mut cx, &mut [first].as_slice()).is_ready());
            let mut frames = ArrayVec::new();
            assert!(
                matches!(inbox.frames(&mut frames).error, Some(FrameError::TooLong { .. })),
                "{first:#x}"
            );
        }
    }
}
