//! Promises: the conditions for the reply to a stored message: the disk, copies of the log, or both.
//!
//! The connection holds a pending reply and is woken when the disk or enough slaves have the message, or when its
//! time is up. In the last case the reply reports late slaves and a stored message.
//!
//! Threads: the connection's; `confirmed` runs on the replication thread.

use std::sync::Arc;

use super::broker::{Broker, Deadline};
use super::session::Session;
use crate::dataplane::state::rejection::ErrorReply;
use crate::dataplane::state::reply;
use crate::dataplane::state::request::{RequestContext, RequestKind};
use crate::dataplane::state::role::CopyRules;
use crate::dataplane::waiting::held_replies::Wait;
use crate::positions::PhysicalOffset;
use crate::remoting::Outbox;
use crate::remoting::codes::response;

impl Broker {
    fn copy_rules(&self) -> CopyRules {
        self.metadata.identity.copies
    }

    /// Returns the condition for the reply to a message that was just stored.
    pub(super) fn wait_of_reply(&self) -> Wait {
        let is_sync = self.store.is_sync();
        let rules = self.copy_rules();
        if rules.is_controlled {
            // Also a reply that waits for the disk alone is late once the lease has ended.
            let waits = rules.copies > 1 && self.store.copies_in_sync() > 1;
            let until = (waits || is_sync).then(|| self.clock.elapsed() + rules.timeout);
            return Wait { code: response::SUCCESS, is_held: until.is_some(), until };
        }
        if rules.copies <= 1 {
            return Wait { code: response::SUCCESS, is_held: is_sync, until: None };
        }
        if self.store.copies_in_sync() <= 1 {
            // No slave is in sync, so waiting would only time out.
            return Wait { code: response::SLAVE_NOT_AVAILABLE, is_held: is_sync, until: None };
        }
        let until = Some(self.clock.elapsed() + rules.timeout);
        Wait { code: response::SUCCESS, is_held: true, until }
    }

    /// Refuses a message if too few replicas are in sync, or the lease from the controller has ended.
    pub(super) fn check_copies(&self) -> Result<(), ErrorReply> {
        let rules = self.copy_rules();
        if rules.is_controlled && !self.has_lease() {
            let remark = "[REJECTREQUEST] this master has had no sign of the controllers for too long, so another broker may lead";
            return Err(ErrorReply::new(response::SERVICE_NOT_AVAILABLE, remark));
        }
        let in_sync = self.store.copies_in_sync();
        let counts = rules.copies > 1 || rules.is_controlled;
        let Some(needed) = self.copies_needed(in_sync).filter(|_| counts) else { return Ok(()) };
        let remark = format!(
            "[IN_SYNC_REPLICAS_NOT_ENOUGH] {in_sync} replicas are in sync, and minInSyncReplicas is {needed}"
        );
        Err(ErrorReply::new(response::SYSTEM_ERROR, remark))
    }

    /// Returns the number of replicas that a promise needs, if those in sync are fewer.
    fn copies_needed(&self, in_sync: usize) -> Option<usize> {
        let needed = self.metadata.copies_min();
        (in_sync < needed).then_some(needed)
    }

    fn has_lease(&self) -> bool {
        self.metadata.has_lease(|| self.clock.elapsed())
    }

    /// Returns the position up to which replies that wait for copies may be sent.
    fn acknowledged_to(&self) -> PhysicalOffset {
        if !self.copy_rules().is_controlled {
            return self.store.confirmed();
        }
        // Read once: the set may shrink at any moment, and has perhaps since the message was taken. A new one would be
        // refused.
        let in_sync = self.store.copies_in_sync();
        if !self.has_lease() || self.copies_needed(in_sync).is_some() {
            return PhysicalOffset(0);
        }
        let is_alone = self.copy_rules().copies <= 1 || in_sync <= 1;
        if is_alone { PhysicalOffset(u64::MAX) } else { self.store.confirmed() }
    }

    /// Replies, without fields, to a request whose record ends at `end`: now, or when the promise is kept.
    pub(super) fn answer_stored(
        &self,
        session: &mut Session,
        context: RequestContext,
        end: PhysicalOffset,
        out: &mut Outbox,
    ) {
        self.answer_stored_with(session, context, end, &[], out);
    }

    /// Replies the same way with fields.
    pub(super) fn answer_stored_with(
        &self,
        session: &mut Session,
        context: RequestContext,
        end: PhysicalOffset,
        ext: &[(&'static str, &str)],
        out: &mut Outbox,
    ) {
        let wait = self.wait_of_reply();
        if wait.is_held && !context.is_oneway {
            session.held.hold(end, context, wait, |out| {
                reply::write(out, context, wait.code, None, ext);
            });
            self.wait_for_promises(session, end, out);
        } else {
            session.latency.note(context, wait.code);
            reply::write(out.bytes(), context, wait.code, None, ext);
        }
    }

    /// Registers the connection for the events that replies up to `end` wait for, and sends the replies that are
    /// ready.
    pub(super) fn wait_for_promises(&self, session: &mut Session, end: PhysicalOffset, out: &mut Outbox) {
        if self.store.is_sync() {
            self.flush_waiters.lock().push((end, Arc::clone(&session.link)));
            self.store.release_after(end);
        }
        // The flush or the slaves may have passed before the registration; then no event follows.
        self.release_held(session, out);
    }

    /// Sends replies whose conditions are met or whose wait for slaves timed out, and refuses those that the disk
    /// will never have.
    pub(in crate::dataplane) fn release_held(&self, session: &mut Session, out: &mut Outbox) {
        if session.held.is_empty() {
            return;
        }
        self.release_ready(session, out);
        if self.store.is_latched() {
            let error_reply = ErrorReply::new(
                response::SERVICE_NOT_AVAILABLE,
                "the log could not be flushed; it is read-only now",
            );
            let now = self.clock.elapsed();
            let Session { held, latency, .. } = session;
            for context in held.revoke() {
                let took = now.saturating_sub(context.came_at);
                latency.waited(&self.latencies, RequestKind::of(context, error_reply.code), took);
                self.refuse_send(out.bytes(), context, &error_reply);
            }
        }
        if let Some((end, until)) = session.held.first_wait() {
            self.copy_waiters.lock().insert(session.link.id().0, (end, Arc::clone(&session.link)));
            let now = self.clock.elapsed();
            if session.held.due.is_none_or(|due| due <= now) {
                session.held.due = Some(until);
                self.deadlines.add(until.saturating_sub(now), Deadline::Send(Arc::clone(&session.link)));
            }
            // Slaves may have confirmed before the registration.
            if self.acknowledged_to() >= end {
                self.release_ready(session, out);
            }
        }
    }

    fn release_ready(&self, session: &mut Session, out: &mut Outbox) {
        let now = self.clock.elapsed();
        let on_disk = if self.store.is_sync() { self.store.durable() } else { PhysicalOffset(u64::MAX) };
        let acknowledged = self.acknowledged_to();
        let Session { held, latency, .. } = session;
        held.release(on_disk, acknowledged, now, out.bytes(), |context, code| {
            let took = now.saturating_sub(context.came_at);
            latency.waited(&self.latencies, RequestKind::of(context, code), took);
        });
    }

    /// Wakes the connections whose replies wait for a position that enough copies have reached.
    pub(in crate::dataplane) fn confirmed(&self, position: PhysicalOffset) {
        let mut waiters = self.copy_waiters.lock();
        for (_, (_, link)) in waiters.extract_if(|_, (end, _)| *end <= position) {
            link.signal();
        }
    }
}
