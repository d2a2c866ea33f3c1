//! Transactions: half messages (below: halves) that await a decision of their producer.
//!
//! A half message is stored in the queue of `RMQ_SYS_TRANS_HALF_TOPIC`, which no consumer reads. A decision appends a
//! mark to `RMQ_SYS_TRANS_OP_HALF_TOPIC` that holds the offset of the half. A commit appends the message first, in
//! the same append. If a crash keeps the message and loses the mark, the message is the newest record; the next
//! start takes it for the mark and completes the commit. Apache's broker collects marks for three seconds in memory and
//! writes several as one, separated by commas, and a crash meanwhile delivers those commits twice. This broker
//! writes one offset in each mark, which all releases of Apache's broker read.
//!
//! Open halves are kept in memory by offset. An ended half is removed, so that a second decision finds nothing to
//! end. After a start, the open halves are those beyond the saved offset of the half queue without a mark beyond the
//! saved offset of the marks.
//!
//! `check_transactions` processes each half when it is due: first after the producer's time to decide, then
//! periodically. Each half has its own time and count, so a lost producer delays no other half. A check writes
//! nothing to the log: `checks` saves the counts every few seconds, and a kill loses the latest. Answers are counted
//! separately, because a half is discarded after a number of answers, and a silent producer must not cause that.
//!
//! Threads: any; one lock, held for an operation on a map.

mod by_topic;
mod checks;
mod progress;
mod shares;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::message::properties::{self, name};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::remoting::LinkId;
use crate::store::Store;

pub(in crate::dataplane) use by_topic::End;
use by_topic::{ByTopic, TopicIndex};
pub(crate) use by_topic::{LATENCY_BOUNDS_S, TopicTransactions};
pub(in crate::dataplane) use shares::Full;
use shares::{Owner, Shares};

/// Maximum number of open transactions.
const OPEN_MAX: usize = 1 << 20;

/// The maximum time to decide that a producer may request: one day.
const DECIDE_MS_MAX: i64 = 86_400_000;

/// A stored half message.
#[derive(Clone, Copy)]
pub(in crate::dataplane) struct NewHalf<'a> {
    pub(in crate::dataplane) offset: QueueOffset,
    pub(in crate::dataplane) physical: PhysicalOffset,
    pub(in crate::dataplane) topic: &'a str,
    /// The producer group.
    pub(in crate::dataplane) group: &'a str,
    /// The address of the sender.
    pub(in crate::dataplane) client: IpAddr,
    /// The connection that sent it, unless an earlier run of this broker received it.
    pub(in crate::dataplane) sender: Option<LinkId>,
    pub(in crate::dataplane) stored_ms: i64,
    pub(in crate::dataplane) due_ms: i64,
    /// The number of earlier checks.
    pub(in crate::dataplane) checks: u32,
}

/// A half message without a decision.
#[derive(Debug)]
struct OpenHalf {
    physical: PhysicalOffset,
    stored_ms: i64,
    owner: Owner,
    sender: Option<LinkId>,
    /// A decision is being stored.
    is_ending: bool,
    /// A read failure has been reported.
    is_reported: bool,
    /// The topic of the message.
    topic: TopicIndex,
    /// The number of checks.
    checks: u32,
    /// The number of checks that the producer answered without a decision.
    answers: u32,
    /// The time of the next check, which is also in `State::due`.
    due_ms: i64,
}

/// An open half that is due for a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::dataplane) struct DueHalf {
    pub(in crate::dataplane) offset: QueueOffset,
    pub(in crate::dataplane) physical: PhysicalOffset,
    pub(in crate::dataplane) checks: u32,
    /// The number of answered checks.
    pub(in crate::dataplane) answers: u32,
    /// The connection that sent it.
    pub(in crate::dataplane) sender: Option<LinkId>,
}

/// Successive open halves with the same numbers of checks and answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CheckedHalves {
    /// The positions of the first and the last half in the log.
    pub(crate) first: PhysicalOffset,
    pub(crate) last: PhysicalOffset,
    pub(crate) checks: u32,
    pub(crate) answers: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct TransactionCounts {
    /// Checks sent to producers.
    pub(crate) checks: u64,
    /// Halves discarded without a decision.
    pub(crate) discarded: u64,
    /// Halves whose records cannot be read any more.
    pub(crate) lost: u64,
}

#[derive(Debug, Default)]
struct State {
    /// By offset in the half queue.
    open: BTreeMap<u64, OpenHalf>,
    /// The time of the next check and the offset of each half.
    due: BTreeSet<(i64, u64)>,
    counts: TransactionCounts,
    by_topic: ByTopic,
    shares: Shares,
    /// The offset before which every half was opened.
    opened_until: u64,
    /// Opened halves beyond that offset. Connections store halves concurrently.
    opened_beyond: BTreeSet<u64>,
    /// The offset before which all marks are of halves before the oldest open half.
    marks_until: u64,
    /// Offsets of halves and marks to save once the log is durable up to the position.
    unsaved: Option<(PhysicalOffset, u64, u64)>,
}

impl State {
    fn insert(&mut self, new: &NewHalf<'_>) {
        let topic = self.by_topic.index(new.topic);
        let half = OpenHalf {
            physical: new.physical,
            stored_ms: new.stored_ms,
            owner: self.shares.add(new.group, new.client),
            sender: new.sender,
            is_ending: false,
            is_reported: false,
            topic,
            checks: new.checks,
            answers: new.checks,
            due_ms: new.due_ms,
        };
        self.due.insert((half.due_ms, new.offset.0));
        self.by_topic.open(topic);
        self.open.insert(new.offset.0, half);
    }

    /// Removes an open half and returns the topic of its message.
    fn remove(&mut self, offset: u64) -> Option<TopicIndex> {
        let half = self.open.remove(&offset)?;
        self.due.remove(&(half.due_ms, offset));
        self.by_topic.close(half.topic);
        self.shares.remove(half.owner);
        Some(half.topic)
    }

    /// Returns the open half at this offset, if its record is at this position.
    fn half(&mut self, offset: QueueOffset, physical: PhysicalOffset) -> Option<&mut OpenHalf> {
        self.open.get_mut(&offset.0).filter(|half| half.physical == physical)
    }
}

pub(in crate::dataplane) struct Transactions {
    store: Arc<Store>,
    state: Mutex<State>,
}

impl Transactions {
    pub(in crate::dataplane) fn new(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store), state: Mutex::default() }
    }

    pub(in crate::dataplane) fn open_count(&self) -> usize {
        self.state.lock().open.len()
    }

    pub(in crate::dataplane) fn has_room(&self) -> bool {
        self.open_count() < OPEN_MAX
    }

    /// Returns the share that is full for another half of this group and address.
    pub(in crate::dataplane) fn full(&self, group: &str, client: IpAddr) -> Option<Full> {
        let state = self.state.lock();
        if state.open.len() >= OPEN_MAX { Some(Full::All) } else { state.shares.full(group, client) }
    }

    pub(in crate::dataplane) fn first(&self) -> Option<PhysicalOffset> {
        self.state.lock().open.values().next().map(|half| half.physical)
    }

    pub(in crate::dataplane) fn counts(&self) -> TransactionCounts {
        self.state.lock().counts
    }

    /// Statistics by the topic of the messages, each topic once.
    pub(in crate::dataplane) fn by_topic(&self) -> Vec<(Box<str>, TopicTransactions)> {
        self.state.lock().by_topic.read()
    }

    /// Adds a stored half message.
    pub(in crate::dataplane) fn open(&self, new: &NewHalf<'_>) {
        let mut state = self.state.lock();
        state.insert(new);
        state.opened_beyond.insert(new.offset.0);
        while state.opened_beyond.first() == Some(&state.opened_until) {
            state.opened_beyond.pop_first();
            state.opened_until += 1;
        }
    }

    /// Reserves an open half for its end. Returns false if it has ended or is reserved already.
    pub(in crate::dataplane) fn begin_end(&self, offset: QueueOffset, physical: PhysicalOffset) -> bool {
        let mut state = self.state.lock();
        match state.half(offset, physical) {
            Some(half) if !half.is_ending => {
                half.is_ending = true;
                true
            }
            _ => false,
        }
    }

    /// Removes a reserved half if its mark was stored, or opens it again.
    pub(in crate::dataplane) fn finish_end(&self, offset: QueueOffset, ended: Option<End>) {
        let mut state = self.state.lock();
        if let Some(end) = ended {
            let topic = state.remove(offset.0);
            topic.into_iter().for_each(|topic| state.by_topic.end(topic, end));
            state.counts.discarded += u64::from(end == End::Discard);
        } else if let Some(half) = state.open.get_mut(&offset.0) {
            half.is_ending = false;
        }
    }

    /// Makes halves stored before this time due now, regardless of their time to decide, because their log file is
    /// about to expire.
    pub(in crate::dataplane) fn hasten(&self, stored_before_ms: i64, now_ms: i64, again_ms: i64) {
        let mut guard = self.state.lock();
        let State { open, due, .. } = &mut *guard;
        // Halves are in log order. Halves checked recently keep their next time.
        for (offset, half) in open.iter_mut().take_while(|(_, half)| half.stored_ms < stored_before_ms) {
            if half.due_ms > again_ms {
                due.remove(&(half.due_ms, *offset));
                half.due_ms = now_ms;
                due.insert((now_ms, *offset));
            }
        }
    }

    /// Removes halves whose records are before the beginning of the log. Returns the first position and the number.
    pub(in crate::dataplane) fn lose_before(&self, begin: PhysicalOffset) -> Option<(PhysicalOffset, u64)> {
        let mut state = self.state.lock();
        let gone = state.open.iter().take_while(|(_, half)| half.physical < begin);
        let gone: Vec<(u64, PhysicalOffset)> = gone.map(|(offset, half)| (*offset, half.physical)).collect();
        let (_, first) = *gone.first()?;
        gone.iter().for_each(|(offset, _)| _ = state.remove(*offset));
        state.counts.lost += gone.len() as u64;
        Some((first, gone.len() as u64))
    }

    /// Takes at most `limit` due halves in order of time, and sets their next time to `again_ms`, which must be
    /// after `now_ms`.
    pub(in crate::dataplane) fn take_due(&self, now_ms: i64, again_ms: i64, limit: usize) -> Vec<DueHalf> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let mut taken = Vec::new();
        while taken.len() < limit {
            let Some(next) = state.due.first().copied().filter(|(due_ms, _)| *due_ms <= now_ms) else {
                break;
            };
            state.due.remove(&next);
            let offset = next.1;
            let Some(half) = state.open.get_mut(&offset) else { continue };
            half.due_ms = again_ms;
            state.due.insert((again_ms, offset));
            if !half.is_ending {
                taken.push(DueHalf {
                    offset: QueueOffset(offset),
                    physical: half.physical,
                    checks: half.checks,
                    answers: half.answers,
                    sender: half.sender,
                });
            }
        }
        taken
    }

    /// Sets the next time of these halves.
    pub(in crate::dataplane) fn set_due(&self, halves: &[DueHalf], due_ms: i64) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for DueHalf { offset, .. } in halves {
            let Some(half) = state.open.get_mut(&offset.0) else { continue };
            state.due.remove(&(half.due_ms, offset.0));
            half.due_ms = due_ms;
            state.due.insert((due_ms, offset.0));
        }
    }

    /// Removes a half without a mark, because another broker now stores it and receives the decision.
    pub(crate) fn leave(&self, offset: QueueOffset, physical: PhysicalOffset) {
        let mut state = self.state.lock();
        if state.half(offset, physical).is_some() {
            state.remove(offset.0);
        }
    }

    /// Removes all halves, because another broker is responsible for them.
    pub(crate) fn forget(&self) {
        *self.state.lock() = State::default();
    }

    /// Counts a check sent to the producer.
    pub(in crate::dataplane) fn count_check(&self, offset: QueueOffset, physical: PhysicalOffset) {
        let mut state = self.state.lock();
        state.counts.checks += 1;
        if let Some(half) = state.half(offset, physical) {
            half.checks += 1;
        }
    }

    /// Returns the topic of the message of an open half.
    pub(in crate::dataplane) fn topic(
        &self,
        offset: QueueOffset,
        physical: PhysicalOffset,
    ) -> Option<Box<str>> {
        let mut state = self.state.lock();
        let topic = state.half(offset, physical)?.topic;
        state.by_topic.name(topic)
    }

    /// Counts an answer without a decision; each check has at most one answer.
    pub(in crate::dataplane) fn count_answer(&self, offset: QueueOffset, physical: PhysicalOffset) {
        let mut state = self.state.lock();
        if let Some(half) = state.half(offset, physical).filter(|half| half.answers < half.checks) {
            half.answers += 1;
        }
    }

    /// Makes this half due at `now_ms` and resets its counts. Returns false if it has ended.
    pub(in crate::dataplane) fn begin_again(
        &self,
        offset: QueueOffset,
        physical: PhysicalOffset,
        now_ms: i64,
    ) -> bool {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(half) = state.open.get_mut(&offset.0).filter(|half| half.physical == physical) else {
            return false;
        };
        (half.checks, half.answers) = (0, 0);
        state.due.remove(&(half.due_ms, offset.0));
        half.due_ms = now_ms;
        state.due.insert((now_ms, offset.0));
        true
    }

    /// Counts a half whose record cannot be read, and removes it if the record `is_gone` from the log; otherwise the
    /// record may be restored. Returns whether this failure is new.
    pub(in crate::dataplane) fn lose(&self, half: DueHalf, is_gone: bool) -> bool {
        let mut state = self.state.lock();
        let Some(open) = state.half(half.offset, half.physical) else { return false };
        let is_news = !std::mem::replace(&mut open.is_reported, true);
        if is_gone {
            state.remove(half.offset.0);
        }
        state.counts.lost += u64::from(is_news);
        is_news
    }
}

/// Returns the producer's time to decide: the one in the message, up to a day, or else `timeout_ms`.
pub(in crate::dataplane) fn time_to_decide_ms(half_properties: &[u8], timeout_ms: i64) -> i64 {
    let asked_s: Option<i64> = number(half_properties, name::CHECK_IMMUNITY_S);
    let asked_ms = asked_s.filter(|seconds| *seconds >= 0).map(|seconds| seconds.saturating_mul(1_000));
    asked_ms.map_or(timeout_ms, |asked_ms| asked_ms.min(DECIDE_MS_MAX))
}

pub(in crate::dataplane) fn group_of(half_properties: &[u8]) -> &str {
    let group = properties::get(half_properties, name::PRODUCER_GROUP);
    group.and_then(|group| std::str::from_utf8(group).ok()).unwrap_or_default()
}

pub(in crate::dataplane) fn topic_of(half_properties: &[u8]) -> &str {
    let topic = properties::get(half_properties, name::REAL_TOPIC);
    topic.and_then(|topic| std::str::from_utf8(topic).ok()).unwrap_or_default()
}

fn number<T: std::str::FromStr>(half_properties: &[u8], name: &[u8]) -> Option<T> {
    std::str::from_utf8(properties::get(half_properties, name)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
