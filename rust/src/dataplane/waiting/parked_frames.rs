//! Parked frames: sends to a topic and pulls of a group that Python must create first, and sends without space in
//! the log.
//!
//! Each name causes one upcall, and its frames are handled again when Python has published it. Sends without space
//! stay in their sessions in order; here they are counted, and their connections are notified when there may be
//! space.
//!
//! *Invariant*: awaited names are bounded like requests in the ring of upcalls, in all and for each connection, and
//! so are the names that a connection creates in a minute. A closed connection awaits nothing.
//!
//! Threads: `park` and `forget` on I/O threads, `release` on Python's and the deadline thread, `room_was_made` on
//! those of the store; none blocks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::event::{Event, Link, Owed};
use super::upcall::{UPCALLS_MAX, UPCALLS_PER_CONNECTION_MAX};
use crate::dataplane::state::rejection::{ErrorReply, Missing};
use crate::dataplane::state::request::OwnedFrame;

/// Maximum number of frames parked for a name, several times what a Java producer has in flight.
const PARKED_PER_NAME_MAX: usize = 4_096;
/// Maximum number of sends of all connections that are parked without space.
const PARKED_SENDS_MAX: usize = 4_096;
/// The total size of all parked frames.
const PARKED_BYTES_MAX: usize = 64 << 20;
const MINUTE: Duration = Duration::from_secs(60);

/// The id of a wait for a name, so that the deadline of an earlier wait does not end a later one.
pub(in crate::dataplane) type WaitId = u64;

/// Frames parked for a name, oldest first, with their connections.
#[derive(Debug)]
struct Waiting {
    wait: WaitId,
    /// The connection of the first frame.
    begun_by: u64,
    frames: VecDeque<(Owed, OwnedFrame)>,
}

/// Names that frames of one connection needed first.
#[derive(Debug, Default)]
struct Begun {
    /// Names that frames are parked for.
    open: usize,
    /// Names created since `minute`.
    made: u32,
    minute: Duration,
}

/// Limits for the names that a connection may await.
#[derive(Debug, Clone, Copy)]
pub(in crate::dataplane) struct CreationLimit {
    /// Names that a connection may create in a minute.
    pub(in crate::dataplane) per_minute: u32,
    /// Whether the ring of upcalls has a slot.
    pub(in crate::dataplane) has_room: bool,
    pub(in crate::dataplane) now: Duration,
}

#[derive(Debug, Default)]
struct Parked {
    by_name: HashMap<(Missing, Box<str>), Waiting>,
    bytes: usize,
    waits: WaitId,
    /// Sends parked without space.
    sends: usize,
    /// Connections to notify when there may be space.
    without_room: HashMap<u64, Arc<Link>>,
    /// Names by connection.
    begun: HashMap<u64, Begun>,
}

impl Parked {
    /// Counts a name that `connection` needs; returns false at a bound, without counting it.
    fn begin(&mut self, connection: u64, limit: CreationLimit) -> bool {
        let waits = self.by_name.len();
        let begun = self.begun.entry(connection).or_default();
        if limit.now.saturating_sub(begun.minute) >= MINUTE {
            (begun.minute, begun.made) = (limit.now, 0);
        }
        // As in the ring, a connection without other awaited names is admitted even if others have filled the table.
        let has_slot = begun.open == 0 || (waits < UPCALLS_MAX && begun.open < UPCALLS_PER_CONNECTION_MAX);
        let may_begin = limit.has_room && has_slot && begun.made < limit.per_minute;
        if may_begin {
            begun.open += 1;
            begun.made += 1;
        }
        may_begin
    }
}

/// The parked frames of a server.
#[derive(Debug, Default)]
pub struct ParkedFrames {
    parked: Mutex<Parked>,
}

impl ParkedFrames {
    /// Parks a frame until `release` of `name`. The first frame for a name starts a wait, which Python must be
    /// notified of.
    ///
    /// Returns the id of a new wait. Gives `owed` back at the bounds; the caller answers `[OVERLOAD]`.
    pub(in crate::dataplane) fn park(
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

    /// Returns whether frames are parked for `name`.
    pub(in crate::dataplane) fn is_wanted(&self, missing: Missing, name: &str) -> bool {
        self.parked.lock().by_name.contains_key(&(missing, Box::from(name)))
    }

    /// Drops the frames of a closed connection for the names that it needed first.
    pub(in crate::dataplane) fn forget(&self, connection: u64) {
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

    /// Counts a send before it is parked; returns false at the bounds, without counting it.
    pub(in crate::dataplane) fn add_send(&self, bytes: usize) -> bool {
        let mut parked = self.parked.lock();
        let has_room = parked.sends < PARKED_SENDS_MAX && parked.bytes + bytes <= PARKED_BYTES_MAX;
        if has_room {
            parked.sends += 1;
            parked.bytes += bytes;
        }
        has_room
    }

    /// Uncounts sends that were resumed or dropped.
    pub(in crate::dataplane) fn remove_sends(&self, count: usize, bytes: usize) {
        let mut parked = self.parked.lock();
        parked.sends -= count;
        parked.bytes -= bytes;
    }

    /// Registers the connection for one notification when there may be space. The caller checks for space
    /// afterwards.
    pub(in crate::dataplane) fn await_room(&self, link: &Arc<Link>) {
        self.parked.lock().without_room.insert(link.id().0, Arc::clone(link));
    }

    pub(in crate::dataplane) fn await_room_no_more(&self, link: &Link) {
        self.parked.lock().without_room.remove(&link.id().0);
    }

    /// Notifies all registered connections that the log may have space.
    pub(in crate::dataplane) fn room_was_made(&self) {
        let waiting = {
            let mut parked = self.parked.lock();
            if parked.without_room.is_empty() {
                return;
            }
            std::mem::take(&mut parked.without_room)
        };
        waiting.values().for_each(|link| link.signal());
    }

    /// Handles the frames parked for `name` again, in order, or has each answered with `error_reply`.
    ///
    /// With `wait`, does nothing if that wait has ended. A name that Python refused does not count as created.
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
