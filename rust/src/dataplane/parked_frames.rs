//! Parked frames: sends to a topic, and pulls of a group, that Python has to make first; and sends for which the log has
//! no room.
//!
//! There is one upcall for a name, and its frames go in again when Python has published it. Sends that wait for room stay
//! with their connections, in order; here they are counted, and their connections told when there may be room.
//!
//! Invariant: names that are waited for are bounded as the requests in the ring of upcalls are, in all and for each
//! connection, and so are those that a connection has had made within a minute. A connection that is gone wants nothing.
//!
//! Threads: `park` and `forget` from I/O threads, `release` from Python's and from that of the deadlines, `room_was_made`
//! from those of the store; none of them waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::event::{Event, Link, Owed};
use super::rejection::{ErrorReply, Missing};
use super::request::OwnedFrame;
use super::upcall::{UPCALLS_MAX, UPCALLS_PER_CONNECTION_MAX};

/// Frames that may be parked for one name: as many as one Java producer has in flight, several times over.
const PARKED_PER_NAME_MAX: usize = 4_096;
/// Sends of all connections that may wait for room in the log.
const PARKED_SENDS_MAX: usize = 4_096;
/// Bytes of all parked frames.
const PARKED_BYTES_MAX: usize = 64 << 20;
const MINUTE: Duration = Duration::from_secs(60);

/// Names one wait for a name, so that the deadline of an earlier wait does not end a later one.
pub(super) type WaitId = u64;

/// Frames that wait for one name, oldest first, with their connections.
#[derive(Debug)]
struct Waiting {
    wait: WaitId,
    /// The connection whose frame was the first.
    begun_by: u64,
    frames: VecDeque<(Owed, OwnedFrame)>,
}

/// Names that frames of one connection were the first to need.
#[derive(Debug, Default)]
struct Begun {
    /// Those that are waited for.
    open: usize,
    /// Those that were not refused, since `minute`.
    made: u32,
    minute: Duration,
}

/// What a wait may begin with.
#[derive(Debug, Clone, Copy)]
pub(super) struct CreationLimit {
    /// Names of one connection in a minute.
    pub(super) per_minute: u32,
    /// Whether an upcall has room.
    pub(super) has_room: bool,
    pub(super) now: Duration,
}

#[derive(Debug, Default)]
struct Parked {
    by_name: HashMap<(Missing, Box<str>), Waiting>,
    bytes: usize,
    waits: WaitId,
    /// Sends that wait for room.
    sends: usize,
    /// Connections that are to be told of room.
    without_room: HashMap<u64, Arc<Link>>,
    /// By connection, of those that are open.
    begun: HashMap<u64, Begun>,
}

impl Parked {
    /// Counts one more name that `connection` needs; false, and nothing is counted, at a bound.
    fn begin(&mut self, connection: u64, limit: CreationLimit) -> bool {
        let waits = self.by_name.len();
        let begun = self.begun.entry(connection).or_default();
        if limit.now.saturating_sub(begun.minute) >= MINUTE {
            (begun.minute, begun.made) = (limit.now, 0);
        }
        // As in the ring: who has no other name open is let in though ten that flood have filled it.
        let has_slot = begun.open == 0 || (waits < UPCALLS_MAX && begun.open < UPCALLS_PER_CONNECTION_MAX);
        let may_begin = limit.has_room && has_slot && begun.made < limit.per_minute;
        if may_begin {
            begun.open += 1;
            begun.made += 1;
        }
        may_begin
    }
}

/// The parked frames of one server.
#[derive(Debug, Default)]
pub struct ParkedFrames {
    parked: Mutex<Parked>,
}

impl ParkedFrames {
    /// Parks a frame until `release` for `name`. The first one for a name begins a wait, which Python must learn of.
    ///
    /// Nothing is parked at the bounds on parked frames and on names: the caller answers `[OVERLOAD]`.
    pub(super) fn park(
        &self,
        missing: Missing,
        name: &str,
        owed: Owed,
        frame: OwnedFrame,
        limit: CreationLimit,
    ) -> Result<Option<WaitId>, Owed> {
        let mut parked = self.parked.lock();
        if parked.bytes + frame.size() > PARKED_BYTES_MAX {
            return Err(owed);
        }
        let size = frame.size();
        let key = (missing, Box::from(name));
        if let Some(waiting) = parked.by_name.get_mut(&key) {
            if waiting.frames.len() >= PARKED_PER_NAME_MAX {
                return Err(owed);
            }
            waiting.frames.push_back((owed, frame));
            parked.bytes += size;
            return Ok(None);
        }
        let begun_by = owed.link().id().0;
        if !parked.begin(begun_by, limit) {
            return Err(owed);
        }
        parked.bytes += size;
        parked.waits += 1;
        let wait = parked.waits;
        let frames = VecDeque::from([(owed, frame)]);
        parked.by_name.insert(key, Waiting { wait, begun_by, frames });
        Ok(Some(wait))
    }

    /// Whether frames wait for `name` still.
    pub(super) fn is_wanted(&self, missing: Missing, name: &str) -> bool {
        self.parked.lock().by_name.contains_key(&(missing, Box::from(name)))
    }

    /// Drops the frames of a closed connection that wait for names it was the first to need.
    pub(super) fn forget(&self, connection: u64) {
        let mut parked = self.parked.lock();
        let Parked { by_name, bytes, begun, .. } = &mut *parked;
        if begun.remove(&connection).is_some_and(|begun| begun.open > 0) {
            by_name.retain(|_, waiting| {
                if waiting.begun_by == connection {
                    waiting.frames.retain(|(owed, frame)| {
                        let is_open = owed.link().id().0 != connection;
                        *bytes -= if is_open { 0 } else { frame.size() };
                        is_open
                    });
                }
                !waiting.frames.is_empty()
            });
        }
    }

    /// Counts a send of so many bytes that is about to be parked; `false`, and nothing is counted, at the bounds.
    pub(super) fn add_send(&self, bytes: usize) -> bool {
        let mut parked = self.parked.lock();
        let has_room = parked.sends < PARKED_SENDS_MAX && parked.bytes + bytes <= PARKED_BYTES_MAX;
        if has_room {
            parked.sends += 1;
            parked.bytes += bytes;
        }
        has_room
    }

    /// Sends of so many bytes in all are parked no longer.
    pub(super) fn remove_sends(&self, count: usize, bytes: usize) {
        let mut parked = self.parked.lock();
        parked.sends -= count;
        parked.bytes -= bytes;
    }

    /// Has the connection told, once, when the log may have room. It looks for room afterwards, so that none is missed.
    pub(super) fn await_room(&self, link: &Arc<Link>) {
        self.parked.lock().without_room.insert(link.id().0, Arc::clone(link));
    }

    pub(super) fn await_room_no_more(&self, link: &Link) {
        self.parked.lock().without_room.remove(&link.id().0);
    }

    /// Tells all connections that wait for room in the log.
    pub(super) fn room_was_made(&self) {
        let told = {
            let mut parked = self.parked.lock();
            if parked.without_room.is_empty() {
                return;
            }
            std::mem::take(&mut parked.without_room)
        };
        told.values().for_each(|link| link.signal());
    }

    /// Lets the frames parked for `name` go in again, in the order they came, or has each answered by `error_reply`.
    ///
    /// With `wait`, only where that wait has not ended before. A name that Python refused has not been made, and is not
    /// counted as if it were.
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
        let Some(Waiting { begun_by, frames, .. }) = parked.by_name.remove(&key) else { return };
        parked.bytes -= frames.iter().map(|(_, frame)| frame.size()).sum::<usize>();
        if let Some(begun) = parked.begun.get_mut(&begun_by) {
            begun.open -= 1;
            let is_refused = wait.is_none() && error_reply.is_some();
            begun.made = begun.made.saturating_sub(u32::from(is_refused));
        }
        drop(parked);
        let error_reply = error_reply.map(Arc::new);
        for (owed, frame) in frames {
            owed.post(Event::Frame(frame, error_reply.clone()));
        }
    }
}
