//! Inbox tests: frames of all sizes, and the memory that is kept.

use std::task::Waker;

use super::super::limits::READ_BYTES_MAX;
use super::*;

const LIMITS: FrameLimits = FrameLimits { frame_bytes_max: 4 << 20, header_bytes_max: 256 << 10 };

fn inbox(budget_bytes: usize) -> Inbox {
    let budget = BufferBudget::new(usize::MAX);
    Inbox::new(LIMITS, LargeFrames::new(budget_bytes, &LIMITS), budget)
}

fn frame(bytes: usize) -> Vec<u8> {
    let mut frame = vec![b' '; bytes];
    frame[..4].copy_from_slice(&(bytes as u32 - 4).to_be_bytes());
    frame[4..8].copy_from_slice(&[0; 4]);
    frame
}

/// Reads from `bytes` until it is empty or memory must be awaited; returns the sizes of the frames.
fn feed(inbox: &mut Inbox, bytes: &mut &[u8]) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    while !bytes.is_empty() && inbox.poll_read(&mut cx, bytes, READ_BYTES_MAX).is_ready() {
        loop {
            let mut frames = ArrayVec::new();
            let extent = inbox.frames(&mut frames);
            assert_eq!(extent.error, None);
            sizes.extend(frames.iter().map(|frame: &Frame<'_>| frame.body.len() + 8));
            drop(frames);
            inbox.handled(extent);
            if !extent.may_have_more {
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
    assert_eq!(inbox.needs(), Needs::Nothing);
}

#[test]
fn long_headers_make_short_bursts() {
    let mut long = frame(2_000);
    long[4..8].copy_from_slice(&1_992_u32.to_be_bytes());
    let bursts = |stream: &[u8]| {
        let mut inbox = inbox(0);
        inbox.resize(INBOX_BYTES_HOT);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(inbox.poll_read(&mut cx, &mut &*stream, READ_BYTES_MAX).is_ready());
        let mut counts = Vec::new();
        loop {
            let mut frames = ArrayVec::new();
            let extent = inbox.frames(&mut frames);
            counts.push(frames.len());
            drop(frames);
            inbox.handled(extent);
            if !extent.may_have_more {
                break counts;
            }
        }
    };
    assert_eq!(bursts(&long.repeat(40)), [17, 17, 6]);
    assert_eq!(bursts(&frame(2_000).repeat(100)), [64, 36], "bodies do not count");
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
}

#[test]
fn an_inbox_with_a_quarter_in_use_keeps_its_memory() {
    let mut inbox = inbox(0);
    feed(&mut inbox, &mut (0..100_000).flat_map(|_| frame(100)).collect::<Vec<u8>>().as_slice());
    inbox.settle();
    let memory = inbox.buffer.as_ptr();
    for used in [90_000, 65_536, 250_000] {
        assert_eq!(feed(&mut inbox, &mut frame(used).as_slice()), [used]);
        inbox.settle();
        assert_eq!((inbox.buffer.len(), inbox.buffer.as_ptr()), (INBOX_BYTES_HOT, memory));
    }
    feed(&mut inbox, &mut frame(10_000).as_slice());
    inbox.settle();
    assert_eq!(inbox.buffer.len(), 16_384);
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
    let mut second = Inbox::new(LIMITS, first.large.clone(), first.budget.clone());
    feed(&mut first, &mut &whole[..1 << 20]);
    let mut rest = whole.as_slice();
    assert!(feed(&mut second, &mut rest).is_empty());
    assert_eq!(second.needs(), Needs::Room);
    assert_eq!(whole.len() - rest.len(), INBOX_BYTES_HOT, "it read no more than any connection may");
    // Memory is scarce, so the first inbox releases it as soon as its frame is handled.
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
fn a_smaller_frame_behind_a_large_one_keeps_no_more_than_its_own_memory() {
    let mut inbox = inbox(64 << 20);
    assert_eq!(feed(&mut inbox, &mut frame(4 << 20).as_slice()), [4 << 20]);
    let next = frame(1 << 20);
    assert_eq!(feed(&mut inbox, &mut &next[..600_000]), [0_usize; 0]);
    let reserved = |inbox: &Inbox| (64 << 20) - inbox.large.pages.available_permits() * PAGE_BYTES;
    assert_eq!(reserved(&inbox), 4 << 20, "kept for the next large frame");
    inbox.settle();
    inbox.settle();
    assert_eq!((reserved(&inbox), inbox.needs()), (1 << 20, Needs::LargeRest));
    assert_eq!(feed(&mut inbox, &mut &next[600_000..]), [1 << 20]);
    inbox.release();
    assert_eq!((reserved(&inbox), inbox.held_bytes()), (0, INBOX_BYTES_SPENT));
}

#[test]
fn the_reservation_of_a_large_frame_is_not_held_by_a_small_one_behind_it() {
    let mut inbox = inbox(64 << 20);
    assert_eq!(feed(&mut inbox, &mut frame(4 << 20).as_slice()), [4 << 20]);
    feed(&mut inbox, &mut &frame(1000)[..500]);
    assert_eq!(inbox.needs(), Needs::Rest);
    inbox.settle();
    inbox.settle();
    assert_eq!(inbox.large.pages.available_permits() * PAGE_BYTES, 64 << 20);
}

#[test]
fn a_frame_handed_over_takes_its_buffer_and_nothing_of_the_next_frame() {
    let mut inbox = inbox(4 << 20);
    let mut stream = frame(3 << 20);
    stream.extend(frame(1000));
    let mut cx = Context::from_waker(Waker::noop());
    let mut rest = stream.as_slice();
    while inbox.large_head().is_none() {
        assert!(inbox.poll_read(&mut cx, &mut rest, READ_BYTES_MAX).is_ready());
        let extent = inbox.frames(&mut ArrayVec::new());
        inbox.handled(extent);
    }
    assert_eq!(inbox.large_head().map(|(_, bytes)| bytes), Some((3 << 20) - PREFIX_BYTES));
    inbox.keep(true);
    let given = loop {
        if let Some(given) = inbox.take_given() {
            break given;
        }
        assert!(inbox.poll_read(&mut cx, &mut rest, READ_BYTES_MAX).is_ready());
    };
    assert!(given == frame(3 << 20));
    assert_eq!(inbox.large.pages.available_permits() * PAGE_BYTES, 4 << 20);
    assert_eq!((inbox.needs(), inbox.held_bytes()), (Needs::Nothing, INBOX_BYTES_IDLE));
    assert_eq!(feed(&mut inbox, &mut rest), [1000]);
}

#[test]
fn a_frame_in_an_oversized_buffer_is_not_handed_over() {
    let mut inbox = inbox(64 << 20);
    assert_eq!(feed(&mut inbox, &mut frame(4 << 20).as_slice()), [4 << 20]);
    assert_eq!(inbox.held_bytes(), 4 << 20);
    let (small, mut cx) = (frame(1 << 20), Context::from_waker(Waker::noop()));
    let mut rest = small.as_slice();
    feed(&mut inbox, &mut &rest[..READ_BYTES_MAX]);
    rest = &rest[READ_BYTES_MAX..];
    inbox.keep(true);
    while !rest.is_empty() {
        assert_eq!(inbox.take_given(), None);
        assert!(inbox.poll_read(&mut cx, &mut rest, READ_BYTES_MAX).is_ready());
    }
    assert_eq!(inbox.take_given(), None);
    let mut frames = ArrayVec::new();
    inbox.frames(&mut frames);
    assert_eq!(frames.len(), 1);
}

#[test]
fn a_frame_that_is_skipped_leaves_no_trace_in_the_stream() {
    let mut first = inbox(4 << 20);
    feed(&mut first, &mut &frame(4 << 20)[..1 << 20]);
    for later in [0, 8, 100_000] {
        let mut inbox = Inbox::new(LIMITS, first.large.clone(), first.budget.clone());
        let mut stream = frame(3 << 20);
        stream[7] = 2;
        stream.extend((0..4).flat_map(|_| frame(1000)));
        let mut rest = stream.as_slice();
        assert_eq!(feed(&mut inbox, &mut rest), [0_usize; 0]);
        assert_eq!(inbox.head().map(|head| head.header), Some(b"  ".as_slice()));
        inbox.skip();
        assert_eq!((inbox.needs(), inbox.held_bytes()), (Needs::Rest, INBOX_BYTES_SPENT));
        // Wherever the rest is split.
        let (some, last) = rest.split_at(later);
        let mut sizes = feed(&mut inbox, &mut &*some);
        sizes.extend(feed(&mut inbox, &mut &*last));
        assert_eq!((sizes, inbox.needs()), (vec![1000; 4], Needs::Nothing));
    }
}

#[test]
fn while_the_budget_is_spent_a_frame_that_outgrows_a_small_buffer_needs_a_reservation() {
    let mut inbox = inbox(4 << 20);
    inbox.budget = BufferBudget::new(0);
    let mut others = inbox.budget.share();
    others.set(1);
    let whole = frame(100_000);
    feed(&mut inbox, &mut &whole[..50_000]);
    assert_eq!((inbox.needs(), inbox.held_bytes()), (Needs::LargeRest, 100_000));
    inbox.settle();
    inbox.settle();
    assert_eq!(inbox.needs(), Needs::LargeRest, "it is reserved until the frame is there");
    assert_eq!(feed(&mut inbox, &mut &whole[50_000..]), [100_000]);
    inbox.settle();
    inbox.settle();
    assert_eq!(inbox.large.pages.available_permits() * PAGE_BYTES, 4 << 20);
    drop(others);
    feed(&mut inbox, &mut &whole[..50_000]);
    assert_eq!(inbox.needs(), Needs::Rest);
}

#[test]
fn one_byte_is_enough_to_refuse_an_impossible_frame() {
    for first in [0x16, b'G', b'P', 0x80, 0xFF, 0x01] {
        let mut inbox = inbox(0);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(inbox.poll_read(&mut cx, &mut [first].as_slice(), READ_BYTES_MAX).is_ready());
        let mut frames = ArrayVec::new();
        assert!(matches!(inbox.frames(&mut frames).error, Some(FrameError::TooLong { .. })), "{first:#x}");
    }
}
