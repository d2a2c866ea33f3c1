//! Lite consumers: the subscriptions to lite topics, and the queues that each consumer has to look at.
//!
//! A consumer is a client as a member of a group, which is bound to one parent topic. A message of a lite topic is an event
//! for one consumer of each subscribed group: the name of the queue, once, in the order of arrival. A pop takes events,
//! and reads their queues; an event says that there may be messages.
//!
//! Invariants: the events of a consumer are some of its subscriptions; a consumer is in the index of each queue that it has
//! subscribed to, and nowhere else; consumers and subscriptions are bounded.
//! Threads: any; one lock, and inside it those of parked pops. A pop parks first and looks for events afterwards.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;

use super::pop_groups::PopGroup;

/// Consumers without a pop for this long get no new events while others of their group do, as in Apache's broker.
const ACTIVE_MS: i64 = 10_000;
/// Consumers that are looked at for one event.
const CANDIDATES_MAX: usize = 16;
/// Consumers at a time.
const CONSUMERS_MAX: usize = 100_000;
/// Lists of lite topics that a report contains.
const REPORTED_MAX: usize = 10_000;

/// The number of a consumer.
type ConsumerId = u64;
/// Group and client.
type ConsumerKey = (Arc<str>, Arc<str>);

/// A member of a group as its requests name it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiteMember<'a> {
    pub(crate) group: &'a str,
    pub(crate) client: &'a str,
    /// The topic that its group is bound to.
    pub(crate) parent: &'a str,
    /// The connection for notices.
    pub(crate) connection: u64,
    /// The queues with events from which on others of the group get the next ones.
    pub(crate) events_max: usize,
    /// Whether a lite topic has one consumer of the group, its last subscriber.
    pub(crate) is_exclusive: bool,
}

/// A subscription that another consumer of the group has taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiteNotice {
    pub(crate) client: Arc<str>,
    pub(crate) connection: u64,
    pub(crate) queue: Arc<str>,
}

/// The refusal of a subscription beyond `subscriptions_max`, or of a consumer beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many subscriptions to lite topics: {count}, the limit is {max}")]
pub(crate) struct TooManyLite {
    pub(crate) count: usize,
    pub(crate) max: usize,
}

/// A consumer for a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiteConsumerReport {
    pub(crate) parent: Arc<str>,
    pub(crate) accessed_ms: i64,
    pub(crate) consumed_ms: i64,
    pub(crate) subscriptions: usize,
    /// Some of its queues.
    pub(crate) queues: Vec<Arc<str>>,
}

/// Counts of the whole table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LiteCounts {
    pub(crate) consumers: usize,
    pub(crate) subscriptions: usize,
    pub(crate) events: usize,
}

#[derive(Debug)]
struct Consumer {
    key: ConsumerKey,
    parent: Arc<str>,
    connection: u64,
    events_max: usize,
    queues: BTreeSet<Arc<str>>,
    events: VecDeque<Arc<str>>,
    /// The queues in `events`.
    pending: HashSet<Arc<str>>,
    /// When its subscriptions were last sent.
    synced_ms: i64,
    /// When it last asked for messages, and last got some.
    accessed_ms: i64,
    consumed_ms: i64,
    parked: Arc<PopGroup>,
}

impl Consumer {
    fn is_active(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.accessed_ms) < ACTIVE_MS || !self.parked.is_idle()
    }

    fn has_room(&self) -> bool {
        self.events.len() < self.events_max
    }

    fn add_event(&mut self, queue: &Arc<str>) {
        if self.pending.insert(Arc::clone(queue)) {
            self.events.push_back(Arc::clone(queue));
        }
    }

    fn forget_queue(&mut self, queue: &str) -> bool {
        if self.pending.remove(queue) {
            self.events.retain(|known| &**known != queue);
        }
        self.queues.remove(queue)
    }
}

/// The consumers of one group by queue.
#[derive(Debug)]
struct OfGroup {
    group: Arc<str>,
    consumers: Vec<ConsumerId>,
}

#[derive(Debug, Default)]
struct State {
    ids: HashMap<ConsumerKey, ConsumerId>,
    consumers: HashMap<ConsumerId, Consumer>,
    by_queue: HashMap<Arc<str>, Vec<OfGroup>>,
    subscriptions: usize,
    next: ConsumerId,
    turn: usize,
}

impl State {
    fn id(&self, group: &str, client: &str) -> Option<ConsumerId> {
        self.ids.get(&(group.into(), client.into())).copied()
    }

    /// Returns the consumer, added if it is new; `None` if there are too many.
    fn consumer(&mut self, member: &LiteMember<'_>, now_ms: i64) -> Option<ConsumerId> {
        let key: ConsumerKey = (member.group.into(), member.client.into());
        let id = match self.ids.get(&key) {
            Some(id) => *id,
            None if self.ids.len() >= CONSUMERS_MAX => return None,
            None => {
                self.next += 1;
                let consumer = Consumer {
                    key: key.clone(),
                    parent: member.parent.into(),
                    connection: member.connection,
                    events_max: member.events_max,
                    queues: BTreeSet::new(),
                    events: VecDeque::new(),
                    pending: HashSet::new(),
                    synced_ms: now_ms,
                    accessed_ms: 0,
                    consumed_ms: 0,
                    parked: Arc::default(),
                };
                self.consumers.insert(self.next, consumer);
                self.ids.insert(key, self.next);
                self.next
            }
        };
        let is_rebound = self.consumers.get(&id).is_some_and(|known| &*known.parent != member.parent);
        if is_rebound {
            // Its group was bound to another topic meanwhile.
            self.remove_all(id);
        }
        let consumer = self.consumers.get_mut(&id)?;
        if is_rebound {
            consumer.parent = member.parent.into();
        }
        Some(id)
    }

    /// Adds a subscription with an event for its queue; returns whether it is new.
    fn add(&mut self, id: ConsumerId, queue: &Arc<str>) -> bool {
        let Some(consumer) = self.consumers.get_mut(&id) else { return false };
        if !consumer.queues.insert(Arc::clone(queue)) {
            return false;
        }
        consumer.add_event(queue);
        let groups = self.by_queue.entry(Arc::clone(queue)).or_default();
        match groups.iter_mut().find(|of| of.group == consumer.key.0) {
            Some(of) => of.consumers.push(id),
            None => groups.push(OfGroup { group: Arc::clone(&consumer.key.0), consumers: vec![id] }),
        }
        self.subscriptions += 1;
        true
    }

    fn remove(&mut self, id: ConsumerId, queue: &str) {
        let is_known = self.consumers.get_mut(&id).is_some_and(|consumer| consumer.forget_queue(queue));
        if is_known {
            self.unindex(id, queue);
            self.subscriptions -= 1;
        }
    }

    fn unindex(&mut self, id: ConsumerId, queue: &str) {
        let Some(groups) = self.by_queue.get_mut(queue) else { return };
        groups.iter_mut().for_each(|of| of.consumers.retain(|known| *known != id));
        groups.retain(|of| !of.consumers.is_empty());
        if groups.is_empty() {
            self.by_queue.remove(queue);
        }
    }

    fn remove_all(&mut self, id: ConsumerId) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let queues = std::mem::take(&mut consumer.queues);
        consumer.events.clear();
        consumer.pending.clear();
        self.subscriptions -= queues.len();
        queues.iter().for_each(|queue| self.unindex(id, queue));
    }

    /// Removes a consumer, whose events go to others of its group; returns the pops to wake.
    fn end(&mut self, id: ConsumerId, now_ms: i64) -> Vec<Arc<PopGroup>> {
        let events = self.consumers.get_mut(&id).map(|consumer| std::mem::take(&mut consumer.events));
        self.remove_all(id);
        let Some(consumer) = self.consumers.remove(&id) else { return Vec::new() };
        self.ids.remove(&consumer.key);
        let events = events.into_iter().flatten();
        events.filter_map(|queue| self.offer(&consumer.key.0, &queue, now_ms, None)).collect()
    }

    fn others(&self, id: ConsumerId, queue: &str) -> Vec<ConsumerId> {
        let Some(group) = self.consumers.get(&id).map(|consumer| &consumer.key.0) else { return Vec::new() };
        let of = self.by_queue.get(queue).and_then(|groups| groups.iter().find(|of| of.group == *group));
        of.into_iter().flat_map(|of| &of.consumers).copied().filter(|known| *known != id).collect()
    }

    /// Adds an event for one consumer of a group, except `but`: preferably a consumer that asks for messages and has room.
    /// Returns its parked pops.
    fn offer(
        &mut self,
        group: &str,
        queue: &str,
        now_ms: i64,
        but: Option<ConsumerId>,
    ) -> Option<Arc<PopGroup>> {
        let (name, groups) = self.by_queue.get_key_value(queue)?;
        let of = groups.iter().find(|of| &*of.group == group)?;
        self.turn = self.turn.wrapping_add(1);
        let begin = self.turn % of.consumers.len();
        let turns = of.consumers.iter().cycle().skip(begin).take(of.consumers.len().min(CANDIDATES_MAX));
        let eligible = turns.copied().filter(|id| but != Some(*id));
        let best = eligible.max_by_key(|id| {
            let consumer = self.consumers.get(id);
            consumer.map_or((false, false, false), |consumer| {
                let is_pending = consumer.pending.contains(queue);
                (consumer.is_active(now_ms), is_pending || consumer.has_room(), !consumer.parked.is_idle())
            })
        })?;
        let name = Arc::clone(name);
        let consumer = self.consumers.get_mut(&best)?;
        consumer.add_event(&name);
        Some(Arc::clone(&consumer.parked))
    }
}

/// All consumers of lite topics.
#[derive(Debug)]
pub(crate) struct LiteConsumers {
    state: Mutex<State>,
    subscriptions_max: usize,
}

impl LiteConsumers {
    pub(in crate::dataplane) fn new(subscriptions_max: usize) -> Self {
        Self { state: Mutex::default(), subscriptions_max }
    }

    /// Adds subscriptions. Returns the consumers that lose them to this one, and its parked pops.
    ///
    /// # Errors
    /// Too many subscriptions or consumers; none was added.
    pub(crate) fn add(
        &self,
        member: &LiteMember<'_>,
        queues: &[Arc<str>],
        now_ms: i64,
    ) -> Result<(Vec<LiteNotice>, Arc<PopGroup>), TooManyLite> {
        let mut state = self.state.lock();
        self.check(&state, queues.len())?;
        let id = self.synced(&mut state, member, now_ms)?;
        let mut notices = Vec::new();
        for queue in queues {
            if member.is_exclusive {
                for other in state.others(id, queue) {
                    if let Some(consumer) = state.consumers.get(&other) {
                        notices.push(LiteNotice {
                            client: Arc::clone(&consumer.key.1),
                            connection: consumer.connection,
                            queue: Arc::clone(queue),
                        });
                    }
                    state.remove(other, queue);
                }
            }
            state.add(id, queue);
        }
        Ok((notices, parked_of(&state, id)))
    }

    /// Makes the subscriptions of a consumer exactly these, except those that another consumer of an exclusive group has:
    /// they are returned as notices for this one.
    ///
    /// # Errors
    /// As `add`.
    pub(crate) fn replace(
        &self,
        member: &LiteMember<'_>,
        queues: &[Arc<str>],
        now_ms: i64,
    ) -> Result<(Vec<LiteNotice>, Arc<PopGroup>), TooManyLite> {
        let mut state = self.state.lock();
        let id = self.synced(&mut state, member, now_ms)?;
        let wanted: HashSet<&str> = queues.iter().map(|queue| &**queue).collect();
        let known = state.consumers.get(&id).map(|consumer| &consumer.queues).into_iter().flatten();
        let gone: Vec<Arc<str>> = known.filter(|queue| !wanted.contains(&***queue)).cloned().collect();
        gone.iter().for_each(|queue| state.remove(id, queue));
        let known = state.consumers.get(&id).map_or(0, |consumer| consumer.queues.len());
        self.check(&state, wanted.len().saturating_sub(known))?;
        let mut notices = Vec::new();
        for queue in queues {
            if member.is_exclusive && !state.others(id, queue).is_empty() {
                let (client, connection) = (member.client.into(), member.connection);
                notices.push(LiteNotice { client, connection, queue: Arc::clone(queue) });
            } else {
                state.add(id, queue);
            }
        }
        Ok((notices, parked_of(&state, id)))
    }

    fn synced(
        &self,
        state: &mut State,
        member: &LiteMember<'_>,
        now_ms: i64,
    ) -> Result<ConsumerId, TooManyLite> {
        let too_many = TooManyLite { count: state.ids.len(), max: CONSUMERS_MAX };
        let id = state.consumer(member, now_ms).ok_or(too_many)?;
        if let Some(consumer) = state.consumers.get_mut(&id) {
            consumer.synced_ms = now_ms;
            consumer.connection = member.connection;
            consumer.events_max = member.events_max;
        }
        Ok(id)
    }

    fn check(&self, state: &State, more: usize) -> Result<(), TooManyLite> {
        let (count, max) = (state.subscriptions.saturating_add(more), self.subscriptions_max);
        if more > 0 && count > max { Err(TooManyLite { count, max }) } else { Ok(()) }
    }

    /// Removes subscriptions.
    pub(crate) fn remove(&self, group: &str, client: &str, queues: &[Arc<str>], now_ms: i64) {
        let mut state = self.state.lock();
        let Some(id) = state.id(group, client) else { return };
        queues.iter().for_each(|queue| state.remove(id, queue));
        if let Some(consumer) = state.consumers.get_mut(&id) {
            consumer.synced_ms = now_ms;
        }
    }

    /// Removes a consumer; returns the pops of others that get its events.
    pub(crate) fn end(&self, group: &str, client: &str, now_ms: i64) -> Vec<Arc<PopGroup>> {
        let mut state = self.state.lock();
        let id = state.id(group, client);
        id.map(|id| state.end(id, now_ms)).unwrap_or_default()
    }

    /// Removes the consumers that have not sent their subscriptions since `before_ms`: their groups, clients, and the
    /// pops of others that get their events.
    pub(crate) fn expire(&self, before_ms: i64, now_ms: i64) -> (Vec<ConsumerKey>, Vec<Arc<PopGroup>>) {
        let mut state = self.state.lock();
        let is_silent = |consumer: &Consumer| consumer.synced_ms < before_ms && consumer.parked.is_idle();
        let silent = state.consumers.iter().filter(|(_, consumer)| is_silent(consumer));
        let silent: Vec<_> = silent.map(|(id, consumer)| (*id, consumer.key.clone())).collect();
        let mut woken = Vec::new();
        for (id, _) in &silent {
            woken.append(&mut state.end(*id, now_ms));
        }
        (silent.into_iter().map(|(_, key)| key).collect(), woken)
    }

    /// Moves the events of consumers that ask for no messages to others of their groups; returns the pops to wake.
    pub(crate) fn spread(&self, now_ms: i64) -> Vec<Arc<PopGroup>> {
        let mut state = self.state.lock();
        let idle =
            state.consumers.iter().filter(|(_, each)| !each.events.is_empty() && !each.is_active(now_ms));
        let idle: Vec<_> =
            idle.map(|(id, each)| (*id, Arc::clone(&each.key.0), each.events.clone())).collect();
        let mut woken = Vec::new();
        for (id, group, events) in idle {
            for queue in events {
                // Without another consumer it keeps the event.
                let Some(parked) = state.offer(&group, &queue, now_ms, Some(id)) else { continue };
                woken.push(parked);
                if let Some(consumer) = state.consumers.get_mut(&id)
                    && consumer.pending.remove(&queue)
                {
                    consumer.events.retain(|known| *known != queue);
                }
            }
        }
        woken
    }

    /// Adds an event for one consumer of each group that has subscribed to a queue; returns the pops to wake.
    pub(in crate::dataplane) fn arrived(&self, queue: &str, now_ms: i64) -> Vec<Arc<PopGroup>> {
        let mut state = self.state.lock();
        let Some(groups) = state.by_queue.get(queue) else { return Vec::new() };
        let groups: Vec<Arc<str>> = groups.iter().map(|of| Arc::clone(&of.group)).collect();
        groups.iter().filter_map(|group| state.offer(group, queue, now_ms, None)).collect()
    }

    /// Adds an event for one consumer of a group; returns the pops to wake.
    pub(in crate::dataplane) fn offer(&self, group: &str, queue: &str, now_ms: i64) -> Option<Arc<PopGroup>> {
        self.state.lock().offer(group, queue, now_ms, None)
    }

    /// Adds events for all queues of a consumer, or of all consumers of a group; returns the pops to wake.
    pub(crate) fn offer_all(&self, group: &str, client: Option<&str>) -> Vec<Arc<PopGroup>> {
        let mut state = self.state.lock();
        let is_meant = |key: &ConsumerKey| &*key.0 == group && client.is_none_or(|client| &*key.1 == client);
        let mut woken = Vec::new();
        for consumer in state.consumers.values_mut().filter(|consumer| is_meant(&consumer.key)) {
            let queues: Vec<Arc<str>> = consumer.queues.iter().cloned().collect();
            queues.iter().for_each(|queue| consumer.add_event(queue));
            woken.push(Arc::clone(&consumer.parked));
        }
        woken
    }

    /// Notes that a consumer asks for messages; returns its parked pops. `None` if there are too many consumers.
    pub(in crate::dataplane) fn access(&self, member: &LiteMember<'_>, now_ms: i64) -> Option<Arc<PopGroup>> {
        let mut state = self.state.lock();
        let id = state.consumer(member, now_ms)?;
        let consumer = state.consumers.get_mut(&id)?;
        consumer.accessed_ms = now_ms;
        Some(Arc::clone(&consumer.parked))
    }

    /// Takes the oldest event of a consumer.
    pub(in crate::dataplane) fn take(&self, group: &str, client: &str) -> Option<Arc<str>> {
        let mut state = self.state.lock();
        let id = state.id(group, client)?;
        let consumer = state.consumers.get_mut(&id)?;
        let queue = consumer.events.pop_front()?;
        consumer.pending.remove(&queue);
        Some(queue)
    }

    /// Puts an event back, before all others, unless the consumer has unsubscribed.
    pub(in crate::dataplane) fn give_back(&self, group: &str, client: &str, queue: &Arc<str>) {
        let mut state = self.state.lock();
        let Some(id) = state.id(group, client) else { return };
        if let Some(consumer) = state.consumers.get_mut(&id)
            && consumer.queues.contains(queue)
            && consumer.pending.insert(Arc::clone(queue))
        {
            consumer.events.push_front(Arc::clone(queue));
        }
    }

    /// Returns whether a consumer has events.
    pub(in crate::dataplane) fn has_events(&self, group: &str, client: &str) -> bool {
        let state = self.state.lock();
        let id = state.id(group, client);
        id.and_then(|id| state.consumers.get(&id)).is_some_and(|consumer| !consumer.events.is_empty())
    }

    /// Notes that a consumer got messages.
    pub(in crate::dataplane) fn consumed(&self, group: &str, client: &str, now_ms: i64) {
        let mut state = self.state.lock();
        let Some(id) = state.id(group, client) else { return };
        if let Some(consumer) = state.consumers.get_mut(&id) {
            consumer.consumed_ms = now_ms;
        }
    }

    /// Removes queues of deleted lite topics.
    pub(crate) fn remove_queues(&self, queues: &[String]) {
        let mut state = self.state.lock();
        for queue in queues {
            let of = state.by_queue.get(queue.as_str()).map(Vec::as_slice).unwrap_or_default();
            let ids: Vec<ConsumerId> = of.iter().flat_map(|of| &of.consumers).copied().collect();
            ids.into_iter().for_each(|id| state.remove(id, queue));
        }
    }

    /// Returns the clients and groups that have subscribed to a queue.
    pub(crate) fn subscribers(&self, queue: &str) -> Vec<(Arc<str>, Arc<str>)> {
        let state = self.state.lock();
        let of = state.by_queue.get(queue).map(Vec::as_slice).unwrap_or_default();
        let ids = of.iter().flat_map(|of| &of.consumers).take(REPORTED_MAX);
        ids.filter_map(|id| state.consumers.get(id))
            .map(|consumer| (Arc::clone(&consumer.key.1), Arc::clone(&consumer.key.0)))
            .collect()
    }

    /// Returns one consumer, with at most `queues_max` of its queues.
    pub(crate) fn report(&self, group: &str, client: &str, queues_max: usize) -> Option<LiteConsumerReport> {
        let state = self.state.lock();
        let consumer = state.consumers.get(&state.id(group, client)?)?;
        Some(LiteConsumerReport {
            parent: Arc::clone(&consumer.parent),
            accessed_ms: consumer.accessed_ms,
            consumed_ms: consumer.consumed_ms,
            subscriptions: consumer.queues.len(),
            queues: consumer.queues.iter().take(queues_max.min(REPORTED_MAX)).cloned().collect(),
        })
    }

    pub(crate) fn counts(&self) -> LiteCounts {
        let state = self.state.lock();
        LiteCounts {
            consumers: state.consumers.len(),
            subscriptions: state.subscriptions,
            events: state.consumers.values().map(|consumer| consumer.events.len()).sum(),
        }
    }

    /// Returns the parked pops of all consumers.
    pub(crate) fn all_parked(&self) -> Vec<Arc<PopGroup>> {
        self.state.lock().consumers.values().map(|consumer| Arc::clone(&consumer.parked)).collect()
    }
}

fn parked_of(state: &State, id: ConsumerId) -> Arc<PopGroup> {
    state.consumers.get(&id).map(|consumer| Arc::clone(&consumer.parked)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
