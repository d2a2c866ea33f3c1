//! Request table: from the code of a frame to its handler.
//!
//! Hot requests of a broker end here and Python never sees them; everything else goes up.
//!
//! Threads: each call runs on the connection's I/O thread; nothing here blocks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;

use super::cold_requests::upcall;
use super::data_plane::DataPlane;
use super::event::{Event, Link};
use super::rejection::{ErrorReply, Rejection};
use super::request::is_send;
use super::send::{Burst, StagedSend};
use super::session::Session;
use super::upcall::Cause;
use crate::remoting::codes::request;
use crate::remoting::frame::Frame;
use crate::remoting::{Close, Outbox, Service};

impl DataPlane {
    /// Counts what was answered since `session.latency.began`.
    fn settle(&self, session: &mut Session) {
        if !session.latency.is_empty() {
            session.latency.settle(&self.latencies, self.clock.elapsed());
        }
    }

    fn serve<'f>(
        &self,
        session: &mut Session,
        frame: &Frame<'f>,
        burst: &mut Burst<'f>,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let Some(broker) = &self.broker else {
            self.send_up(session, frame, out);
            return Ok(());
        };
        let code = session.header.code;
        if is_send(code) {
            self.counters.sends.fetch_add(1, Ordering::Relaxed);
            match broker.stage(session, frame)? {
                StagedSend::Message(staged) => burst.push(staged),
                StagedSend::Batch(messages, unique_key) => {
                    broker.append(session, burst, out);
                    broker.append_batch(session, &messages, unique_key.as_deref(), out);
                }
            }
            return Ok(());
        }
        match code {
            request::PULL_MESSAGE | request::LITE_PULL_MESSAGE => {
                self.counters.pulls.fetch_add(1, Ordering::Relaxed);
                broker.append(session, burst, out);
                broker.pull(session, frame.encoding, out)
            }
            request::CONSUMER_SEND_MSG_BACK => broker.send_back(session, frame, false, out),
            request::QUERY_CONSUMER_OFFSET => broker.query_offset(session, frame.encoding, out),
            request::UPDATE_CONSUMER_OFFSET => broker.update_offset(session, frame.encoding, out),
            request::HEART_BEAT if self.repeat_heartbeat(session, frame, out) => Ok(()),
            _ => {
                self.send_up(session, frame, out);
                Ok(())
            }
        }
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
        session.arena.clear();
        Ok(())
    }

    fn event(&self, session: &mut Session, event: Event, out: &mut Outbox) -> Result<(), Close> {
        match event {
            Event::Write(frame) => out.bytes().extend_from_slice(&frame),
            Event::Frame(owned, error_reply) => {
                let frame = owned.frame();
                session.latency.began = owned.came_at;
                session.header.decode(&frame)?;
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
                session.arena.clear();
            }
            Event::Returned(owned) => {
                let frame = owned.frame();
                session.latency.began = owned.came_at;
                session.header.decode(&frame)?;
                let broker = self.broker.as_ref();
                let returned = broker.map_or(Ok(()), |broker| broker.send_back(session, &frame, true, out));
                if let Err(rejection) = returned {
                    self.reject(session, &frame, rejection, owned.parkings, out);
                }
                self.settle(session);
                session.arena.clear();
            }
            Event::Wake(token) => self.broker.iter().for_each(|broker| broker.wake(session, token, out)),
            Event::Read(token, found) => {
                if let Some(broker) = &self.broker {
                    broker.answer_read(session, token, *found, out);
                }
            }
            Event::Durable => self.broker.iter().for_each(|broker| broker.release_held(session, out)),
            Event::Heartbeat(known) => {
                self.heartbeats.lock().insert(session.link.id().0, self.clock.elapsed());
                session.heartbeat = Some(known);
            }
        }
        Ok(())
    }

    fn is_settled(&self, session: &Session) -> bool {
        session.held.is_empty()
    }

    fn close(&self, mut session: Session) {
        if let Some(broker) = &self.broker {
            broker.forget_parked(&mut session);
        }
        self.heartbeats.lock().remove(&session.link.id().0);
        self.upcalls.push_event(upcall(&session, Cause::Closed));
    }
}
