//! Parked sends: what a connection wants stored and the log has no room for, because its next file is not made yet, or a
//! flush takes long.
//!
//! The frames wait with their session, in the order they came, and go in again when the store says that there may be
//! room. A frame whose time is up is answered `[PC_SYNCHRONIZED]`. The thread serves others meanwhile.
//!
//! Invariants: while a frame is parked, no later send of its connection is stored; a connection with parked sends is
//! registered for room before it looks for some, and has a deadline for the oldest.
//! Threads: the I/O thread of the connection.

use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;

use super::broker::{Broker, Deadline};
use super::data_plane::DataPlane;
use super::rejection::{PARKED_SEND_MAX, Rejection, no_room};
use super::request::OwnedFrame;
use super::send::Burst;
use super::session::Session;
use crate::remoting::frame::Frame;
use crate::remoting::{Close, Outbox};

/// Sends of one connection that are parked at most: a flood of one leaves room for the others'.
const PARKED_SENDS_OF_ONE_MAX: usize = 512;

impl Broker {
    /// Parks a frame behind those of its connection that are parked already; `false` at the bounds on parked frames.
    pub(super) fn park_send(&self, session: &mut Session, frame: &Frame<'_>, came_at: Duration) -> bool {
        if session.parked_sends.frames.len() >= PARKED_SENDS_OF_ONE_MAX
            || !self.parked.add_send(frame.header.len() + frame.body.len())
        {
            return false;
        }
        let is_first = session.parked_sends.frames.is_empty();
        let until = self.clock.elapsed() + PARKED_SEND_MAX;
        session.parked_sends.frames.push_back((until, OwnedFrame::of(frame, 0, came_at)));
        if is_first {
            self.set_send_deadline(session);
            // There may be room by now that nobody will tell of.
            session.link.signal();
        }
        true
    }

    fn set_send_deadline(&self, session: &mut Session) {
        let oldest = session.parked_sends.frames.front().map(|(until, _)| *until);
        if let Some(until) = oldest.filter(|_| oldest != session.parked_sends.due) {
            let after = until.saturating_sub(self.clock.elapsed());
            self.deadlines.add(after, Deadline::Send(Arc::clone(&session.link)));
        }
        session.parked_sends.due = oldest;
    }

    /// Drops the parked sends of a closed connection.
    pub(super) fn forget_parked_sends(&self, session: &mut Session) {
        let frames = std::mem::take(&mut session.parked_sends.frames);
        if !frames.is_empty() {
            self.parked.remove_sends(frames.len(), frames.iter().map(|(_, frame)| frame.size()).sum());
            self.parked.await_room_no_more(&session.link);
        }
    }
}

impl DataPlane {
    /// Lets parked sends go in again, oldest first, until one finds no room; those whose time is up are answered.
    pub(super) fn resume_sends(
        &self,
        broker: &Broker,
        session: &mut Session,
        out: &mut Outbox,
    ) -> Result<(), Close> {
        if session.parked_sends.frames.is_empty() {
            return Ok(());
        }
        broker.parked.await_room(&session.link);
        // Out of the session meanwhile: what is served now finds none before it.
        let mut frames = std::mem::take(&mut session.parked_sends.frames);
        let mut result = Ok(());
        while let Some((until, owned)) = frames.pop_front() {
            match self.resume_send(broker, session, &owned, until <= broker.clock.elapsed(), out) {
                Ok(true) => broker.parked.remove_sends(1, owned.size()),
                Ok(false) => {
                    frames.push_front((until, owned));
                    break;
                }
                Err(close) => {
                    frames.push_front((until, owned));
                    result = Err(close);
                    break;
                }
            }
        }
        session.parked_sends.frames = frames;
        broker.set_send_deadline(session);
        if session.parked_sends.frames.is_empty() {
            broker.parked.await_room_no_more(&session.link);
        }
        result
    }

    /// Serves a parked send or answers it; `false` when it finds no room.
    fn resume_send(
        &self,
        broker: &Broker,
        session: &mut Session,
        owned: &OwnedFrame,
        is_late: bool,
        out: &mut Outbox,
    ) -> Result<bool, Close> {
        let frame = owned.frame();
        session.latency.began = owned.came_at;
        session.header.decode(&frame)?;
        let mut burst: Burst<'_> = ArrayVec::new();
        let mut served = self.serve(session, &frame, &mut burst, out);
        if served.is_ok() && broker.store_burst(session, &burst, out) < burst.len() {
            served = Err(Rejection::NoRoom);
        }
        let is_done = match served {
            Ok(()) => true,
            Err(Rejection::NoRoom) if is_late => {
                self.reject(session, &frame, no_room().into(), owned.parkings, out);
                true
            }
            Err(Rejection::NoRoom) => false,
            Err(rejection) => {
                self.reject(session, &frame, rejection, owned.parkings, out);
                true
            }
        };
        self.settle(session);
        session.clear_arena();
        Ok(is_done)
    }
}
