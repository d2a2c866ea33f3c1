//! Cold requests: what only Python serves, frames that wait for what it makes, answers of clients, and rejections.
//!
//! Threads: the connection's I/O thread; nothing here blocks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::broker::Deadline;
use super::data_plane::DataPlane;
use super::event::Event;
use super::pull::refuse_pull;
use super::rejection::{ErrorReply, Missing, PARKED_MAX, Rejection, missing_reply, overload, took_too_long};
use super::reply;
use super::request::{OwnedFrame, RequestContext, RequestKind, is_send};
use super::session::Session;
use super::upcall::{Cause, ReplyTo, Taken, Upcall};
use crate::remoting::Outbox;
use crate::remoting::codes::{request, response};
use crate::remoting::frame::Frame;

/// Names one frame may wait for in turn: a group, its retry topic, and the dead-letter topic its message lands in.
const PARKINGS_MAX: u8 = 3;
/// Largest answer of a client that is taken: dumps of all its threads have less.
const CLIENT_ANSWER_BYTES_MAX: usize = 4 << 20;

impl DataPlane {
    /// Answers a frame that does not go on, or parks it. `parkings` is how often it was parked before.
    pub(super) fn reject(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        rejection: Rejection,
        parkings: u8,
        out: &mut Outbox,
    ) {
        let error_reply = match rejection {
            Rejection::Refused(error_reply) => error_reply,
            Rejection::Missing(missing, name) if parkings >= PARKINGS_MAX => missing_reply(missing, &name),
            Rejection::Missing(missing, name) => match self.park(session, frame, missing, name, parkings + 1)
            {
                Ok(()) => return,
                Err(error_reply) => error_reply,
            },
        };
        let context = session.context(frame.encoding);
        session.latency.note(context, error_reply.code);
        match (&self.broker, session.header.code) {
            (Some(broker), code) if is_send(code) => broker.refuse_send(out.bytes(), context, &error_reply),
            (_, request::PULL_MESSAGE | request::LITE_PULL_MESSAGE) => {
                refuse_pull(out.bytes(), context, &error_reply)
            }
            _ => reply::write(out.bytes(), context, error_reply.code, Some(&error_reply.remark), &[]),
        }
    }

    fn park(
        &self,
        session: &Session,
        frame: &Frame<'_>,
        missing: Missing,
        name: String,
        parkings: u8,
    ) -> Result<(), ErrorReply> {
        let frame = OwnedFrame::of(frame, parkings, session.latency.began);
        let began = self.parked.park(missing, &name, &session.link, frame).ok_or_else(overload)?;
        if let Some(wait) = began {
            self.counters.upcalls.fetch_add(1, Ordering::Relaxed);
            if let Some(broker) = &self.broker {
                broker.deadlines.add(PARKED_MAX, Deadline::Missing(missing, name.clone(), wait));
            }
            let mut upcall = upcall(session, Cause::Missing(missing, name));
            upcall.ext = owned_ext(session);
            self.upcalls.push_event(upcall);
        }
        Ok(())
    }

    pub(super) fn send_up(&self, session: &mut Session, frame: &Frame<'_>, out: &mut Outbox) {
        let header = &session.header;
        let context = session.context(frame.encoding);
        let reply_to = (!context.is_oneway).then(|| ReplyTo {
            link: Arc::clone(&session.link),
            context,
            heartbeat: (header.code == request::HEART_BEAT)
                .then(|| (frame.body.into(), self.heartbeat_epoch())),
        });
        let mut upcall = upcall(session, Cause::Request);
        upcall.came_at = self.clock.elapsed();
        upcall.ext = owned_ext(session);
        upcall.body = frame.body.to_vec();
        if self.upcalls.submit(upcall, reply_to) {
            self.counters.upcalls.fetch_add(1, Ordering::Relaxed);
        } else {
            self.counters.overloads.fetch_add(1, Ordering::Relaxed);
            let error_reply = overload();
            session.latency.note(context, error_reply.code);
            reply::write(out.bytes(), context, error_reply.code, Some(&error_reply.remark), &[]);
        }
    }

    pub(crate) fn answered_by_python(&self, context: RequestContext, code: i32) {
        self.latencies
            .add(RequestKind::of(context, code), self.clock.elapsed().saturating_sub(context.came_at));
    }

    /// Takes up to `limit` entries for Python, and refuses requests that waited too long to be taken.
    pub fn take(&self, limit: usize) -> Vec<Upcall> {
        let Taken { fresh, late, left } = self.upcalls.take(limit, self.clock.elapsed());
        self.counters.overloads.fetch_add(late.len() as u64, Ordering::Relaxed);
        for (reply_to, waited) in late {
            let ReplyTo { link, context, .. } = reply_to;
            let error_reply = took_too_long(waited, left);
            let mut frame = Vec::new();
            reply::write(&mut frame, context, error_reply.code, Some(&error_reply.remark), &[]);
            self.latencies.add(RequestKind::of(context, error_reply.code), waited);
            if !link.post(Event::Write(frame)) {
                // Its mailbox is full because it does not read.
                link.close();
            }
        }
        fresh
    }

    /// Takes a client's answer to a request of ours; most of those are one-way and get none.
    pub(super) fn answered(&self, session: &Session, frame: &Frame<'_>) {
        let opaque = session.header.opaque;
        let is_expected = self.upcalls.forget_answer(session.link.id().0, opaque);
        if !is_expected || frame.body.len() > CLIENT_ANSWER_BYTES_MAX {
            return;
        }
        let remark = session.header.remark().unwrap_or_default().to_owned();
        let mut upcall = upcall(session, Cause::Answered(remark));
        upcall.token = u64::from(opaque.cast_unsigned());
        upcall.ext = owned_ext(session);
        upcall.body = frame.body.to_vec();
        self.upcalls.push_event(upcall);
    }

    /// Answers a heartbeat that has nothing new for Python; false when it has.
    pub(super) fn repeat_heartbeat(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        out: &mut Outbox,
    ) -> bool {
        let Some(known) = &session.heartbeat else { return false };
        if known.epoch != self.heartbeat_epoch() || *known.body != *frame.body {
            return false;
        }
        self.heartbeats.lock().insert(session.link.id().0, self.clock.elapsed());
        let is_sub_change = if known.is_sub_change { "true" } else { "false" };
        let ext = [("IS_SUPPORT_HEART_BEAT_V2", "true"), ("IS_SUB_CHANGE", is_sub_change)];
        let context = session.context(frame.encoding);
        session.latency.note(context, response::SUCCESS);
        reply::write(out.bytes(), context, response::SUCCESS, None, &ext);
        true
    }
}

fn owned_ext(session: &Session) -> Vec<(String, String)> {
    session.header.ext().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub(super) fn upcall(session: &Session, cause: Cause) -> Upcall {
    let (header, link) = (&session.header, &session.link);
    Upcall {
        cause,
        token: 0,
        connection: link.id().0,
        peer: link.peer(),
        is_vip: link.is_vip(),
        code: header.code,
        version: header.version,
        language: header.language,
        is_oneway: header.is_oneway(),
        ext: Vec::new(),
        body: Vec::new(),
        came_at: Duration::ZERO,
    }
}
