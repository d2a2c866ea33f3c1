//! Parked frames: sends to a topic, and pulls of a group, that Python has to make first.
//!
//! There is one upcall for a name, and its frames go in again when Python has published it.
//!
//! Threads: `park` from I/O threads, `release` from Python's and from that of the deadlines; none of them waits.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::event::{Event, Link};
use super::rejection::{ErrorReply, Missing};
use super::request::OwnedFrame;

/// Frames that may be parked for one name: as many as one Java producer has in flight, several times over.
const PARKED_PER_NAME_MAX: usize = 4_096;
const PARKED_BYTES_MAX: usize = 64 << 20;

/// Names one wait for a name, so that the deadline of an earlier wait does not end a later one.
pub(super) type WaitId = u64;

/// Frames that wait for one name, oldest first, with their connections.
#[derive(Debug, Default)]
struct Waiting {
    wait: WaitId,
    frames: VecDeque<(Arc<Link>, OwnedFrame)>,
}

#[derive(Debug, Default)]
struct Parked {
    by_name: HashMap<(Missing, Box<str>), Waiting>,
    bytes: usize,
    waits: WaitId,
}

/// The parked frames of one server.
#[derive(Debug, Default)]
pub struct ParkedFrames {
    parked: Mutex<Parked>,
}

impl ParkedFrames {
    /// Parks a frame until `release` for `name`. The first one for a name begins a wait, which Python must learn of.
    ///
    /// `None`, and nothing is parked, at the bounds on parked frames: the caller answers `[OVERLOAD]`.
    pub(super) fn park(
        &self,
        missing: Missing,
        name: &str,
        link: &Arc<Link>,
        frame: OwnedFrame,
    ) -> Option<Option<WaitId>> {
        let mut parked = self.parked.lock();
        let Parked { by_name, bytes, waits } = &mut *parked;
        if *bytes + frame.size() > PARKED_BYTES_MAX {
            return None;
        }
        let waiting = by_name.entry((missing, name.into())).or_default();
        if waiting.frames.len() >= PARKED_PER_NAME_MAX {
            return None;
        }
        *bytes += frame.size();
        let is_first = waiting.frames.is_empty();
        waiting.frames.push_back((Arc::clone(link), frame));
        if is_first {
            *waits += 1;
            waiting.wait = *waits;
        }
        Some(is_first.then_some(waiting.wait))
    }

    /// Lets the frames parked for `name` go in again, in the order they came, or has each answered by `error_reply`.
    ///
    /// With `wait`, only where that wait has not ended before.
    pub(crate) fn release(
        &self,
        missing: Missing,
        name: &str,
        wait: Option<WaitId>,
        error_reply: Option<ErrorReply>,
    ) {
        let mut parked = self.parked.lock();
        let key = (missing, Box::from(name));
        let is_meant = |waiting: &Waiting| wait.is_none_or(|wait| wait == waiting.wait);
        if !parked.by_name.get(&key).is_some_and(is_meant) {
            return;
        }
        let Some(Waiting { frames, .. }) = parked.by_name.remove(&key) else { return };
        parked.bytes -= frames.iter().map(|(_, frame)| frame.size()).sum::<usize>();
        drop(parked);
        let error_reply = error_reply.map(Arc::new);
        for (link, frame) in frames {
            if !link.post(Event::Frame(frame, error_reply.clone())) {
                // Its mailbox is full: a client that would wait for this reply for ever is better off knowing.
                link.close();
            }
        }
    }
}
