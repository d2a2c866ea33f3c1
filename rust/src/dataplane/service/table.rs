//! Request table: request codes and their handlers.
//!
//! Hot requests of a broker are served here without Python; other requests are forwarded to it.
//!
//! Threads: each call runs on the connection's I/O thread; nothing here blocks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use bytes::Bytes;

use super::cold_requests::{refuse_unknown, upcall};
use super::data_plane::DataPlane;
use crate::dataplane::requests::admission::too_large;
use crate::dataplane::requests::broker::Broker;
use crate::dataplane::requests::pop::Attempt;
use crate::dataplane::requests::send::{Burst, StagedSend};
use crate::dataplane::requests::session::{DetachedBody, Session};
use crate::dataplane::state::filter;
use crate::dataplane::state::rejection::{ErrorReply, Rejection};
use crate::dataplane::state::request::{OwnedFrame, is_send};
use crate::dataplane::waiting::event::{Event, Link};
use crate::dataplane::waiting::upcall::Cause;
use crate::remoting::codes::request;
use crate::remoting::frame::Frame;
use crate::remoting::{Close, LargeBody, Outbox, Service};
use crate::requests::needs::{HotRequest, hot_request};

impl DataPlane {
    /// Records the latency of the replies since `session.latency.began`.
    pub(in crate::dataplane) fn settle(&self, session: &mut Session) {
        if !session.latency.is_empty() {
            session.latency.settle(&self.latencies, self.clock.elapsed());
        }
    }

    fn serve_large(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        detached: DetachedBody,
        out: &mut Outbox,
    ) -> Result<(), Close> {
        session.detached = Some(detached);
        let served = self.burst(session, std::slice::from_ref(frame), out);
        session.detached = None;
        served
    }

    pub(super) fn serve<'f>(
        &self,
        session: &mut Session,
        frame: &Frame<'f>,
        burst: &mut Burst<'f>,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        if self.guard.is_on() {
            self.guard.admit(session, frame)?;
        }
        let Some(broker) = &self.broker else {
            self.send_up(session, frame, out);
            return Ok(());
        };
        let Some(hot) = hot_request(session.header.code) else {
            if session.header.code != request::HEART_BEAT || !self.repeat_heartbeat(session, frame, out) {
                self.send_up(session, frame, out);
            }
            return Ok(());
        };
        match hot {
            HotRequest::Send => {
                if !session.parked_sends.frames.is_empty() {
                    return Err(Rejection::NoRoom);
                }
                self.counters.sends.fetch_add(1, Ordering::Relaxed);
                match broker.stage(session, frame)? {
                    StagedSend::Message(staged) => burst.push(staged),
                    StagedSend::Batch(messages, unique_key) => {
                        broker.append(session, burst, out);
                        broker.append_batch(session, &messages, unique_key.as_deref(), out)?;
                    }
                }
                Ok(())
            }
            HotRequest::Pull => {
                self.counters.pulls.fetch_add(1, Ordering::Relaxed);
                broker.append(session, burst, out);
                broker.pull(session, frame.encoding, out)
            }
            HotRequest::Pop => {
                self.counters.pulls.fetch_add(1, Ordering::Relaxed);
                broker.append(session, burst, out);
                broker.pop(session, frame, Attempt::Fresh, out)
            }
            HotRequest::PopLite => {
                self.counters.pulls.fetch_add(1, Ordering::Relaxed);
                broker.append(session, burst, out);
                broker.pop_lite(session, frame, Attempt::Fresh, out)
            }
            HotRequest::Peek => {
                broker.append(session, burst, out);
                broker.peek(session, frame, Attempt::Fresh, out)
            }
            HotRequest::Notification => {
                broker.append(session, burst, out);
                broker.notify(session, frame, out)
            }
            HotRequest::PollingInfo => broker.polling_info(session, frame, out),
            HotRequest::Ack => broker.ack(session, frame, out),
            HotRequest::BatchAck => broker.batch_ack(session, frame, out),
            HotRequest::ChangeInvisibleTime => broker.change_invisible_time(session, frame, out),
            HotRequest::SendBack => broker.send_back(session, frame, false, out),
            HotRequest::Recall => {
                if !session.parked_sends.frames.is_empty() {
                    return Err(Rejection::NoRoom);
                }
                burst.push(broker.stage_recall(session, frame)?);
                Ok(())
            }
            HotRequest::EndTransaction => broker.end_transaction(session, frame, false, out),
            HotRequest::QueryOffset => broker.query_offset(session, frame.encoding, out),
            HotRequest::UpdateOffset => broker.update_offset(session, frame.encoding, out),
        }
    }
}

impl DataPlane {
    /// Handles a parked pop or notification.
    fn pop_again(
        &self,
        broker: &Broker,
        session: &mut Session,
        owned: &OwnedFrame,
        out: &mut Outbox,
    ) -> Result<(), Close> {
        let frame = owned.frame();
        session.latency.began = owned.came_at;
        session.header.decode(&frame)?;
        session.principal.is_counted = true;
        let admitted = if self.guard.is_on() { self.guard.admit(session, &frame) } else { Ok(()) };
        let served = admitted.and_then(|()| match hot_request(session.header.code) {
            Some(HotRequest::Notification) => broker.notify(session, &frame, out),
            Some(HotRequest::PopLite) => broker.pop_lite(session, &frame, Attempt::Fresh, out),
            _ => broker.pop(session, &frame, Attempt::Fresh, out),
        });
        if let Err(rejection) = served {
            self.reject(session, &frame, rejection, owned.parkings, out);
        }
        self.settle(session);
        session.clear_arena();
        Ok(())
    }
}

impl Service for DataPlane {
    type Session = Session;
    type Event = Event;

    fn open(&self, link: Arc<Link>) -> Session {
        Session::new(link)
    }

    fn burst(&self, session: &mut Session, frames: &[Frame<'_>], out: &mut Outbox) -> Result<(), Close> {
        self.counters.requests.fetch_add(frames.len() as u64, Ordering::Relaxed);
        session.latency.began = self.clock.elapsed();
        let mut burst: Burst<'_> = ArrayVec::new();
        for frame in frames {
            session.header.decode(frame)?;
            if session.header.is_response() {
                self.answered(session, frame);
                continue;
            }
            if let Err(rejection) = self.serve(session, frame, &mut burst, out) {
                self.reject(session, frame, rejection, 0, out);
            }
        }
        if let Some(broker) = &self.broker {
            broker.append(session, &mut burst, out);
        }
        self.settle(session);
        session.clear_arena();
        if std::mem::take(&mut session.has_sent_up) {
            session.is_held = self.upcalls.holds(&session.link);
        }
        Ok(())
    }

    fn take_cost(&self, session: &mut Session) -> usize {
        filter::frames_of(std::mem::take(&mut session.filter_cost))
    }

    fn event(&self, session: &mut Session, event: Event, out: &mut Outbox) -> Result<(), Close> {
        match event {
            Event::Write(frame) => out.bytes().extend_from_slice(&frame),
            Event::Late(frame) => {
                out.bytes().extend_from_slice(&frame);
                session.principal.is_delayed = false;
            }
            Event::Frame(owned, error_reply) => {
                let frame = owned.frame();
                session.latency.began = owned.came_at;
                session.header.decode(&frame)?;
                session.principal.is_counted = true;
                let mut burst: Burst<'_> = ArrayVec::new();
                let served = match error_reply {
                    None => self.serve(session, &frame, &mut burst, out),
                    Some(error_reply) => Err(ErrorReply::clone(&error_reply).into()),
                };
                match served {
                    Err(rejection) => self.reject(session, &frame, rejection, owned.parkings, out),
                    Ok(()) => self.broker.iter().for_each(|broker| broker.append(session, &mut burst, out)),
                }
                self.settle(session);
                session.clear_arena();
            }
            Event::Found(owned) => {
                let frame = owned.frame();
                session.latency.began = owned.came_at;
                session.header.decode(&frame)?;
                session.principal.is_counted = true;
                let served = self.broker.as_ref().map_or(Ok(()), |broker| {
                    if self.guard.is_on() {
                        self.guard.admit(session, &frame)?;
                    }
                    match hot_request(session.header.code) {
                        Some(HotRequest::EndTransaction) => {
                            broker.end_transaction(session, &frame, true, out)
                        }
                        Some(HotRequest::Pop) => broker.pop(session, &frame, Attempt::Read, out),
                        Some(HotRequest::PopLite) => broker.pop_lite(session, &frame, Attempt::Read, out),
                        Some(HotRequest::Peek) => broker.peek(session, &frame, Attempt::Read, out),
                        _ => broker.send_back(session, &frame, true, out),
                    }
                });
                if let Err(rejection) = served {
                    self.reject(session, &frame, rejection, owned.parkings, out);
                }
                self.settle(session);
                session.clear_arena();
            }
            Event::Wake(token) => {
                if let Some(broker) = &self.broker {
                    match broker.take_parked_pop(session, token) {
                        Some(owned) => self.pop_again(broker, session, &owned, out)?,
                        None => broker.wake(session, token, out),
                    }
                }
            }
            Event::Read(token, found) => {
                if let Some(broker) = &self.broker {
                    broker.answer_read(session, token, *found, out);
                }
            }
            Event::Heartbeat(known, frame) => {
                out.bytes().extend_from_slice(&frame);
                self.heartbeats.lock().insert(session.link.id().0, self.clock.elapsed());
                session.heartbeat = Some(known);
            }
        }
        Ok(())
    }

    fn refuse(&self, session: &mut Session, head: &Frame<'_>, out: &mut Outbox) -> Result<(), Close> {
        session.latency.began = self.clock.elapsed();
        session.header.decode(head)?;
        if !session.header.is_response() {
            let error_reply = self.overloaded(session.header.is_oneway());
            self.reject(session, head, error_reply.into(), 0, out);
            self.settle(session);
        }
        Ok(())
    }

    /// Does not buffer a body that no handler reads: such a request is served from its header, unless a signature
    /// covers the body. A request for Python keeps its receive buffer.
    fn weigh(
        &self,
        session: &mut Session,
        head: &Frame<'_>,
        body_bytes: usize,
        out: &mut Outbox,
    ) -> Result<LargeBody, Close> {
        session.latency.began = self.clock.elapsed();
        session.header.decode(head)?;
        let code = session.header.code;
        if session.header.is_response() {
            return Ok(LargeBody::Given);
        }
        let is_read = |bytes_max| body_bytes <= bytes_max || self.guard.is_on();
        if let Some(broker) = self.broker.as_ref().filter(|_| is_send(code)) {
            let bytes_max = broker.metadata.identity.message_bytes_max;
            if is_read(bytes_max) {
                return Ok(LargeBody::Lent);
            }
            self.counters.sends.fetch_add(1, Ordering::Relaxed);
            self.reject(session, head, too_large(bytes_max).into(), 0, out);
        } else if let Some(bytes_max) = self.body_bytes_max(code) {
            if is_read(bytes_max) {
                return Ok(LargeBody::Given);
            }
            self.serve_large(session, head, DetachedBody::Skipped(body_bytes), out)?;
            return Ok(LargeBody::Declined);
        } else {
            refuse_unknown(session, session.context(head.encoding), out);
        }
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        self.settle(session);
        Ok(LargeBody::Declined)
    }

    fn given(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        memory: Bytes,
        out: &mut Outbox,
    ) -> Result<(), Close> {
        self.serve_large(session, frame, DetachedBody::Owned(memory), out)
    }

    fn kept_bytes(&self, session: &Session) -> usize {
        session.kept_bytes()
    }

    fn shrink(&self, session: &mut Session) {
        session.shrink();
    }

    /// Reacts to a flush or a latched log, to space for parked sends or their timeout, and to upcalls that Python
    /// has taken.
    fn signalled(&self, session: &mut Session, out: &mut Outbox) -> Result<(), Close> {
        session.is_held = session.is_held && self.upcalls.holds(&session.link);
        let Some(broker) = &self.broker else { return Ok(()) };
        broker.release_held(session, out);
        self.resume_sends(broker, session, out)
    }

    fn is_ready(&self, session: &Session) -> bool {
        !session.is_held && !session.principal.is_delayed
    }

    fn held_bytes(&self, session: &Session) -> usize {
        session.held.bytes()
    }

    fn is_settled(&self, session: &Session) -> bool {
        session.held.is_empty()
    }

    fn release(&self, session: &mut Session) -> bool {
        let broker = self.broker.as_ref();
        broker.is_some_and(|broker| broker.forget_parked(session) || broker.forget_parked_pops(session))
    }

    fn close(&self, mut session: Session) {
        while self.release(&mut session) {}
        if let Some(broker) = &self.broker {
            broker.forget_parked_sends(&mut session);
            broker.copy_waiters.lock().remove(&session.link.id().0);
        }
        self.parked.forget(session.link.id().0);
        self.heartbeats.lock().remove(&session.link.id().0);
        if session.is_known_above {
            self.upcalls.push_event(upcall(&session, Cause::Closed));
        }
    }
}
