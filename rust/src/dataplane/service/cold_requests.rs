//! Cold requests: forwarding to Python, frames parked for a topic or group, answers of clients, and rejections.
//!
//! Threads: the connection's I/O thread; nothing here blocks.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::data_plane::DataPlane;
use crate::dataplane::requests::broker::Deadline;
use crate::dataplane::requests::pop::refuse_pop;
use crate::dataplane::requests::pull::refuse_pull;
use crate::dataplane::requests::session::Session;
use crate::dataplane::state::rejection::{
    ErrorReply, Missing, PARKED_MAX, Rejection, missing_reply, no_room, overload, took_too_long,
};
use crate::dataplane::state::reply;
use crate::dataplane::state::request::{OwnedFrame, RequestContext, RequestKind, is_send};
use crate::dataplane::waiting::client_requests::ExpectedAnswer;
use crate::dataplane::waiting::event::Event;
use crate::dataplane::waiting::parked_frames::CreationLimit;
use crate::dataplane::waiting::upcall::{Cause, ReplyTo, Taken, Upcall};
use crate::remoting::Outbox;
use crate::remoting::codes::{request, response};
use crate::remoting::frame::Frame;

/// Names that one frame may wait for in turn: a group, its retry topic, and its dead-letter topic.
const PARKINGS_MAX: u8 = 3;
/// The largest accepted answer of a client, larger than a dump of all its threads.
const CLIENT_ANSWER_BYTES_MAX: usize = 4 << 20;
/// Maximum length of the remark of an answer without a body.
const REMARK_CHARS_MAX: usize = 256;

/// The largest heartbeat that is cached, so that repetitions are not forwarded: one of 200 subscriptions.
const HEARTBEAT_KEPT_BYTES_MAX: usize = 32 << 10;

impl DataPlane {
    /// Answers a rejected frame or parks it. `parkings` is the number of times that it was parked before.
    pub(super) fn reject(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        rejection: Rejection,
        parkings: u8,
        out: &mut Outbox,
    ) {
        let mut delay = None;
        let error_reply = match rejection {
            Rejection::Refused(error_reply) => error_reply,
            Rejection::Late(error_reply, late) => {
                delay = Some(late);
                error_reply
            }
            Rejection::NoRoom => {
                let came_at = session.latency.began;
                let broker = self.broker.as_ref();
                if broker.is_some_and(|broker| broker.park_send(session, frame, came_at)) {
                    return;
                }
                no_room()
            }
            Rejection::Elsewhere => return self.send_up(session, frame, out),
            Rejection::Missing(missing, name) if parkings >= PARKINGS_MAX => missing_reply(missing, &name),
            Rejection::Missing(missing, name) => match self.park(session, frame, missing, name, parkings + 1)
            {
                Ok(()) => return,
                Err(error_reply) => error_reply,
            },
        };
        let context = session.context(frame.encoding);
        session.latency.note(context, error_reply.code);
        let start = out.bytes().len();
        match (&self.broker, session.header.code) {
            (Some(broker), code) if is_send(code) => broker.refuse_send(out.bytes(), context, &error_reply),
            (_, request::POP_MESSAGE) => refuse_pop(out.bytes(), context, &error_reply),
            (_, request::PULL_MESSAGE | request::LITE_PULL_MESSAGE) => {
                refuse_pull(out.bytes(), context, &error_reply)
            }
            _ => reply::write(out.bytes(), context, error_reply.code, Some(&error_reply.remark), &[]),
        }
        if let Some(delay) = delay {
            let frame = out.bytes().split_off(start);
            if let Err(frame) = self.guard.answer_late(session, frame, delay) {
                out.bytes().extend_from_slice(&frame);
            }
        }
    }

    fn park(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        missing: Missing,
        name: String,
        parkings: u8,
    ) -> Result<(), ErrorReply> {
        // Only a broker creates topics and groups.
        let Some(broker) = &self.broker else { return Err(missing_reply(missing, &name)) };
        let frame = OwnedFrame::of(frame, parkings, session.latency.began);
        let limit = CreationLimit {
            per_minute: broker.metadata.identity.creations_per_minute,
            has_room: self.upcalls.has_room(session.link.id().0, frame.size()),
            now: session.latency.began,
        };
        let overloaded = || self.overloaded(session.header.is_oneway());
        let owed = session.link.owe(frame.size()).ok_or_else(overloaded)?;
        let parked = self.parked.park(missing, &name, owed, frame, limit);
        if let Some(wait) = parked.map_err(|owed| {
            owed.settle();
            overloaded()
        })? {
            self.counters.upcalls.fetch_add(1, Ordering::Relaxed);
            broker.deadlines.add(PARKED_MAX, Deadline::Missing(missing, name.clone(), wait));
            let mut upcall = upcall(session, Cause::Missing(missing, name));
            upcall.ext = owned_ext(session);
            self.upcalls.push_name(upcall);
            session.sends_up();
        }
        Ok(())
    }

    /// Counts a request refused because of an overload, and returns the refusal. One-way requests get no reply.
    pub(crate) fn overloaded(&self, is_oneway: bool) -> ErrorReply {
        self.counters.overloads.fetch_add(1, Ordering::Relaxed);
        self.counters.oneway_drops.fetch_add(u64::from(is_oneway), Ordering::Relaxed);
        overload()
    }

    pub(super) fn send_up(&self, session: &mut Session, frame: &Frame<'_>, out: &mut Outbox) {
        let header = &session.header;
        let context = session.context(frame.encoding);
        let Some(body_bytes_max) = self.body_bytes_max(header.code) else {
            return refuse_unknown(session, context, out);
        };
        let reply_to = if context.is_oneway {
            Some(None)
        } else {
            session.link.owe(0).map(|owed| {
                let is_kept =
                    header.code == request::HEART_BEAT && frame.body.len() <= HEARTBEAT_KEPT_BYTES_MAX;
                let heartbeat = is_kept.then(|| (frame.body.into(), self.heartbeat_epoch()));
                Some(ReplyTo { owed, context, heartbeat })
            })
        };
        let is_taken = reply_to.is_some_and(|reply_to| {
            let mut upcall = upcall(session, Cause::Request);
            upcall.came_at = self.clock.elapsed();
            upcall.ext = owned_ext(session);
            upcall.body_bytes = session.body_bytes(frame);
            if upcall.body_bytes <= body_bytes_max {
                upcall.body = session.owned_body(frame);
            }
            self.upcalls.submit(upcall, reply_to)
        });
        if is_taken {
            self.counters.upcalls.fetch_add(1, Ordering::Relaxed);
            session.sends_up();
        } else {
            let error_reply = self.overloaded(context.is_oneway);
            session.latency.note(context, error_reply.code);
            reply::write(out.bytes(), context, error_reply.code, Some(&error_reply.remark), &[]);
        }
    }

    pub(crate) fn answered_by_python(&self, context: RequestContext, code: i32) {
        self.latencies
            .add(RequestKind::of(context, code), self.clock.elapsed().saturating_sub(context.came_at));
    }

    /// Returns the error frame, and its code, that replaces a reply of Python that cannot be sent.
    pub(crate) fn refuse_answer(&self, context: RequestContext, error_reply: ErrorReply) -> (i32, Vec<u8>) {
        if error_reply.code == response::SYSTEM_BUSY {
            self.counters.overloads.fetch_add(1, Ordering::Relaxed);
        }
        let mut frame = Vec::new();
        reply::write(&mut frame, context, error_reply.code, Some(&error_reply.remark), &[]);
        (error_reply.code, frame)
    }

    /// Takes up to `limit` entries for Python, and refuses requests that waited too long. Leaves out names that no
    /// frame waits for any more.
    pub fn take(&self, limit: usize) -> Vec<Upcall> {
        let Taken { mut fresh, late, left, resumed } = self.upcalls.take(limit, self.clock.elapsed());
        resumed.iter().for_each(|link| link.signal());
        fresh.retain(|upcall| match &upcall.cause {
            Cause::Missing(missing, name) => self.parked.is_wanted(*missing, name),
            _ => true,
        });
        self.counters.overloads.fetch_add(late.len() as u64, Ordering::Relaxed);
        for (reply_to, waited) in late {
            let ReplyTo { owed, context, .. } = reply_to;
            let error_reply = took_too_long(waited, left);
            let mut frame = Vec::new();
            reply::write(&mut frame, context, error_reply.code, Some(&error_reply.remark), &[]);
            self.latencies.add(RequestKind::of(context, error_reply.code), waited);
            owed.post(Event::Write(frame));
        }
        fresh
    }

    /// Forwards a client's answer to a request of this broker; most of those are one-way and have none. An answer
    /// that is too large is replaced with an error for the caller.
    pub(super) fn answered(&self, session: &Session, frame: &Frame<'_>) {
        let opaque = session.header.opaque;
        let expected = self.upcalls.client_requests.take(session.link.id().0, opaque);
        let Some(expected) = expected else { return };
        let size = frame.body.len();
        let is_taken = expected == ExpectedAnswer::Whole && size <= CLIENT_ANSWER_BYTES_MAX;
        let remark = if is_taken {
            session.header.remark().unwrap_or_default().to_owned()
        } else if expected == ExpectedAnswer::Code {
            session.header.remark().unwrap_or_default().chars().take(REMARK_CHARS_MAX).collect()
        } else {
            self.counters.refused_answers.fetch_add(1, Ordering::Relaxed);
            format!("the client's answer has {size} bytes; at most {CLIENT_ANSWER_BYTES_MAX} are accepted")
        };
        let mut upcall = upcall(session, Cause::Answered(remark));
        upcall.token = u64::from(opaque.cast_unsigned());
        if is_taken {
            upcall.ext = owned_ext(session);
            upcall.body = session.owned_body(frame);
            upcall.body_bytes = size;
        } else if expected == ExpectedAnswer::Whole {
            upcall.code = response::SYSTEM_ERROR;
        }
        self.upcalls.push_event(upcall);
    }

    /// Answers a heartbeat that repeats the last one; returns false for any other.
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

/// Refuses a request code that neither Rust nor Python serves.
pub(super) fn refuse_unknown(session: &mut Session, context: RequestContext, out: &mut Outbox) {
    let code = response::REQUEST_CODE_NOT_SUPPORTED;
    session.latency.note(context, code);
    let remark = format!(" request type {} not supported", context.code);
    reply::write(out.bytes(), context, code, Some(&remark), &[]);
}

pub(in crate::dataplane) fn upcall(session: &Session, cause: Cause) -> Upcall {
    let (header, link) = (&session.header, &session.link);
    Upcall {
        cause,
        token: 0,
        connection: link.id().0,
        peer: link.peer(),
        local: link.local(),
        is_vip: link.is_vip(),
        code: header.code,
        version: header.version,
        language: header.language,
        is_oneway: header.is_oneway(),
        user: session.principal.user.as_ref().map(|user| user.name.clone()),
        is_guarded: session.principal.is_guarded,
        ext: Vec::new(),
        body: Bytes::new(),
        body_bytes: 0,
        came_at: Duration::ZERO,
    }
}
