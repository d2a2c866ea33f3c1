//! Pops and notifications that found nothing and wait for a message.
//!
//! Threads: the I/O thread of the connection.

use std::sync::Arc;
use std::time::Duration;

use super::handle::TopicMark;
use super::pending::PendingPop;
use super::reading::PopQueue;
use super::request::Pop;
use crate::dataplane::requests::broker::{Broker, Deadline};
use crate::dataplane::requests::pull::FORGOTTEN_MAX;
use crate::dataplane::requests::session::Session;
use crate::dataplane::state::orders::Place;
use crate::dataplane::state::rejection::Rejection;
use crate::dataplane::state::request::OwnedFrame;
use crate::dataplane::waiting::pop_groups::{Consumer, PopGroup, Purpose};
use crate::positions::QueueOffset;
use crate::remoting::frame::Frame;

/// Maximum number of waiting requests of one connection.
const PARKED_PER_CONNECTION_MAX: usize = 8_192;

/// The result of parking a request.
pub(super) enum Parked {
    /// It waits, or will be served again now, for messages came meanwhile.
    Waits,
    /// Too many wait already.
    Full,
}

/// A queue that was read up to an offset.
pub(super) struct Seen {
    pub(super) from: PopQueue,
    pub(super) end: QueueOffset,
}

impl Broker {
    /// Parks a request that found nothing.
    pub(super) fn park_pop(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        pop: &Pop<'_>,
        group: &Arc<PopGroup>,
        purpose: Purpose,
        seen: &[Seen],
    ) -> Result<Parked, Rejection> {
        let has_room = session.parked_pops.len() < PARKED_PER_CONNECTION_MAX;
        let Some(owed) = has_room.then(|| session.link.owe(0)).flatten() else {
            return Ok(Parked::Full);
        };
        let token = session.next_token;
        session.next_token += 1;
        let frame = OwnedFrame::of(frame, 0, session.latency.began);
        let (queue_id, filter) = (pop.fields.queue_id, Arc::clone(&pop.filter));
        let bytes = frame.size() + filter.bytes();
        let consumer = Consumer { owed, token, queue_id, filter, bytes };
        let key = match self.pops.park(group, purpose, pop.end_ms(), consumer) {
            Ok(key) => key,
            Err(consumer) => {
                consumer.owed.settle();
                return Ok(Parked::Full);
            }
        };
        let after = Duration::from_millis(pop.left_ms().unsigned_abs());
        let deadline = self.deadlines.add(after, Deadline::Pop(Arc::clone(group), purpose, key));
        let group = Arc::clone(group);
        session.parked_pops.insert(token, PendingPop { frame, group, purpose, key, deadline });
        self.await_messages(session, pop, token, seen);
        Ok(Parked::Waits)
    }

    /// Has messages of these queues wake a parked request. A message that became visible before the registration woke no
    /// request, so this one is woken immediately. So is one whose read stopped within a queue: other connections have their
    /// turn before it continues.
    fn await_messages(&self, session: &Session, pop: &Pop<'_>, token: u64, seen: &[Seen]) {
        let Some(pending) = session.parked_pops.get(&token) else { return };
        let mut has_more = false;
        for Seen { from, end } in seen {
            self.polls.register(&from.queue, &pending.group, from.mark == TopicMark::Normal);
            if pop.fields.is_ordered {
                self.release_in_time(&pending.group, pop.place(from.id()));
            }
            has_more |= from.queue.max() > *end;
        }
        if has_more {
            self.pops.wake(&pending.group, pending.purpose, pending.key);
        }
    }

    /// Has the end of a block wake a request that waits for the queue. There is one deadline for each queue.
    pub(super) fn release_in_time(&self, group: &Arc<PopGroup>, at: Place<'_>) {
        let now_ms = self.clock.wall_ms() as i64;
        let free_ms = self.offsets.orders.free_ms(at, now_ms);
        let mut releases = group.releases.lock();
        let known = releases.get(&at.queue_id).copied();
        if known.map(|(at_ms, _)| at_ms) == free_ms {
            return;
        }
        if let Some((_, key)) = known {
            self.deadlines.cancel(key);
            releases.remove(&at.queue_id);
        }
        if let Some(free_ms) = free_ms {
            let after = Duration::from_millis(free_ms.saturating_sub(now_ms).unsigned_abs());
            let key = self.deadlines.add(after, Deadline::Free(Arc::clone(group), at.queue_id));
            releases.insert(at.queue_id, (free_ms, key));
        }
    }

    /// Takes a parked request that something has woken.
    pub(in crate::dataplane) fn take_parked_pop(
        &self,
        session: &mut Session,
        token: u64,
    ) -> Option<OwnedFrame> {
        let pending = session.parked_pops.remove(&token)?;
        self.deadlines.cancel(pending.deadline);
        Some(pending.frame)
    }

    /// Takes some requests of a closed connection out of the tables; false when none is left.
    pub(in crate::dataplane) fn forget_parked_pops(&self, session: &mut Session) -> bool {
        for (_, pending) in session.parked_pops.extract_if(|_, _| true).take(FORGOTTEN_MAX) {
            self.deadlines.cancel(pending.deadline);
            self.pops.forget(&pending.group, pending.purpose, pending.key);
        }
        !session.parked_pops.is_empty()
    }
}
