//! Parked sends: sends that wait for space in the log, because its next file does not exist yet or a flush is slow.
//!
//! The frames stay in their session in order, and are handled again when the store signals that there may be space.
//! A frame whose time is up is answered `[PC_SYNCHRONIZED]`. The thread serves other connections meanwhile.
//!
//! *Invariant*: while a frame is parked, no later send of its connection is stored. A connection with parked sends
//! is registered for space before it checks for some, and has a deadline for the oldest.
//! Threads: the I/O thread of the connection.

use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;

use super::data_plane::DataPlane;
use crate::dataplane::requests::broker::{Broker, Deadline};
use crate::dataplane::requests::send::Burst;
use crate::dataplane::requests::session::Session;
use crate::dataplane::state::rejection::{PARKED_SEND_MAX, Rejection, no_room};
use crate::dataplane::state::request::OwnedFrame;
use crate::remoting::frame::Frame;
use crate::remoting::{Close, Outbox};

/// Maximum number of parked sends of a connection, so that one flood leaves space for others.
const PARKED_SENDS_OF_ONE_MAX: usize = 512;

impl Broker {
    /// Parks a frame after those of its connection; returns false at the bounds on parked frames.
    pub(in crate::dataplane) fn park_send(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        came_at: Duration,
    ) -> bool {
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
            // Space that appeared before the registration causes no event.
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
    /// Handles parked sends again, oldest first, until one finds no space. Sends whose time is up are answered.
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
        // Moved out, so that a send handled below finds no parked send before it.
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

    /// Handles a parked send or answers it; returns false if it finds no space.
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
