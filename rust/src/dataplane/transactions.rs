//! Transactions: which half messages wait for the decision of their producer.
//!
//! A half message lies in the queue of `RMQ_SYS_TRANS_HALF_TOPIC`, where no consumer reads it. Its end is a mark in
//! `RMQ_SYS_TRANS_OP_HALF_TOPIC`, with the offset of the half, and for a commit the message itself in front of it: both in
//! one append. A crash that tears them apart leaves a commit as the newest record, which a start takes for the mark and
//! completes. The original gathers marks for three seconds in
//! memory, writes several as one, with commas, and delivers twice what was committed then. Its releases before 5.1 read
//! one offset alone, as do later ones: that is what is written here.
//!
//! The halves that are open are kept in memory, by offset: one that has ended is in no table, so that a second decision
//! finds nothing to end. After a start they are what lies behind the saved offset of the half queue and has no mark
//! behind the saved offset of the marks.
//!
//! Each is looked at when its time comes (`check_transactions`): first when its producer has had the time that it has,
//! then again and again. It has a time and a count of its own, so that one whose producer is gone holds back no other,
//! and a check stores nothing: the counts are saved beside the log every few seconds (`checks`), and a kill forgets the last.
//! Answers are counted apart from checks, for a half is given up after so many answers: a member of the group that says
//! nothing is no reason.
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

pub(super) use by_topic::End;
use by_topic::{ByTopic, TopicIndex};
pub(crate) use by_topic::{LATENCY_BOUNDS_S, TopicTransactions};
pub(super) use shares::Full;
use shares::{Owner, Shares};

/// Transactions that may be open at once.
const OPEN_MAX: usize = 1 << 20;

/// The longest time that a producer may ask for, before it is asked: one day.
const DECIDE_MS_MAX: i64 = 86_400_000;

/// A half message that was stored.
#[derive(Clone, Copy)]
pub(super) struct NewHalf<'a> {
    pub(super) offset: QueueOffset,
    pub(super) physical: PhysicalOffset,
    pub(super) topic: &'a str,
    /// Of the producer.
    pub(super) group: &'a str,
    /// The address that sent it.
    pub(super) client: IpAddr,
    /// The connection that it came on, while this broker runs.
    pub(super) sender: Option<LinkId>,
    pub(super) stored_ms: i64,
    pub(super) due_ms: i64,
    /// How often its producers were asked before.
    pub(super) checks: u32,
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
    /// That it cannot be read has been told.
    is_reported: bool,
    /// Of the message.
    topic: TopicIndex,
    /// How often its producers have been asked.
    checks: u32,
    /// How many of these checks were answered, by a producer that does not know.
    answers: u32,
    /// When it is looked at: its entry in `State::due`.
    due_ms: i64,
}

/// An open half that is to be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DueHalf {
    pub(super) offset: QueueOffset,
    pub(super) physical: PhysicalOffset,
    pub(super) checks: u32,
    /// How many of these checks were answered.
    pub(super) answers: u32,
    /// The connection that it came on.
    pub(super) sender: Option<LinkId>,
}

/// Open halves, one behind the other, about each of which a producer was asked, and answered, so often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CheckedHalves {
    /// Positions in the log of the first and the last of them.
    pub(crate) first: PhysicalOffset,
    pub(crate) last: PhysicalOffset,
    pub(crate) checks: u32,
    pub(crate) answers: u32,
}

/// What has become of half messages since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct TransactionCounts {
    /// Producers were asked.
    pub(crate) checks: u64,
    /// Given up: nobody has decided.
    pub(crate) discarded: u64,
    /// Their records cannot be read any more.
    pub(crate) lost: u64,
}

#[derive(Debug, Default)]
struct State {
    /// By offset in the half queue.
    open: BTreeMap<u64, OpenHalf>,
    /// When each of them is looked at, and its offset.
    due: BTreeSet<(i64, u64)>,
    counts: TransactionCounts,
    by_topic: ByTopic,
    shares: Shares,
    /// Every half before this offset has been opened.
    opened_until: u64,
    /// Halves beyond it that were: connections store side by side.
    opened_beyond: BTreeSet<u64>,
    /// Every mark before this offset is about halves before the oldest open one.
    marks_until: u64,
    /// Offsets of halves and marks that may be saved once the log is durable up to the position.
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

    /// The topic of one that was open.
    fn remove(&mut self, offset: u64) -> Option<TopicIndex> {
        let half = self.open.remove(&offset)?;
        self.due.remove(&(half.due_ms, offset));
        self.by_topic.close(half.topic);
        self.shares.remove(half.owner);
        Some(half.topic)
    }

    /// An open half, if it is that of this record.
    fn half(&mut self, offset: QueueOffset, physical: PhysicalOffset) -> Option<&mut OpenHalf> {
        self.open.get_mut(&offset.0).filter(|half| half.physical == physical)
    }
}

/// The open transactions of a broker.
pub(super) struct Transactions {
    store: Arc<Store>,
    state: Mutex<State>,
}

impl Transactions {
    pub(super) fn new(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store), state: Mutex::default() }
    }

    /// Transactions without a decision.
    pub(super) fn open_count(&self) -> usize {
        self.state.lock().open.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.open_count() < OPEN_MAX
    }

    /// Whose share leaves no room for another half of this group and address.
    pub(super) fn full(&self, group: &str, client: IpAddr) -> Option<Full> {
        let state = self.state.lock();
        if state.open.len() >= OPEN_MAX { Some(Full::All) } else { state.shares.full(group, client) }
    }

    /// The position of the oldest open half.
    pub(super) fn first(&self) -> Option<PhysicalOffset> {
        self.state.lock().open.values().next().map(|half| half.physical)
    }

    pub(super) fn counts(&self) -> TransactionCounts {
        self.state.lock().counts
    }

    /// Transactions by the topic of their messages; once each.
    pub(super) fn by_topic(&self) -> Vec<(Box<str>, TopicTransactions)> {
        self.state.lock().by_topic.read()
    }

    /// A half message was stored, which is looked at when it is due.
    pub(super) fn open(&self, new: &NewHalf<'_>) {
        let mut state = self.state.lock();
        state.insert(new);
        state.opened_beyond.insert(new.offset.0);
        while state.opened_beyond.first() == Some(&state.opened_until) {
            state.opened_beyond.pop_first();
            state.opened_until += 1;
        }
    }

    /// Takes an open half for its end, so that there is no other; false where it has ended, or is about to.
    pub(super) fn begin_end(&self, offset: QueueOffset, physical: PhysicalOffset) -> bool {
        let mut state = self.state.lock();
        match state.half(offset, physical) {
            Some(half) if !half.is_ending => {
                half.is_ending = true;
                true
            }
            _ => false,
        }
    }

    /// The mark is stored, or is not and the half is open again.
    pub(super) fn finish_end(&self, offset: QueueOffset, ended: Option<End>) {
        let mut state = self.state.lock();
        if let Some(end) = ended {
            let topic = state.remove(offset.0);
            topic.into_iter().for_each(|topic| state.by_topic.end(topic, end));
            state.counts.discarded += u64::from(end == End::Discard);
        } else if let Some(half) = state.open.get_mut(&offset.0) {
            half.is_ending = false;
        }
    }

    /// Makes halves that were stored before this time due now, whatever their producers asked for: their file of the log
    /// is about to expire.
    pub(super) fn hasten(&self, stored_before_ms: i64, now_ms: i64, again_ms: i64) {
        let mut guard = self.state.lock();
        let State { open, due, .. } = &mut *guard;
        // In the order of the log. One that was looked at lately is looked at again when its time has come.
        for (offset, half) in open.iter_mut().take_while(|(_, half)| half.stored_ms < stored_before_ms) {
            if half.due_ms > again_ms {
                due.remove(&(half.due_ms, *offset));
                half.due_ms = now_ms;
                due.insert((now_ms, *offset));
            }
        }
    }

    /// Ends halves whose records are gone from a log that begins there; how many, and the first of them.
    pub(super) fn lose_before(&self, begin: PhysicalOffset) -> Option<(PhysicalOffset, u64)> {
        let mut state = self.state.lock();
        let gone = state.open.iter().take_while(|(_, half)| half.physical < begin);
        let gone: Vec<(u64, PhysicalOffset)> = gone.map(|(offset, half)| (*offset, half.physical)).collect();
        let (_, first) = *gone.first()?;
        gone.iter().for_each(|(offset, _)| _ = state.remove(*offset));
        state.counts.lost += gone.len() as u64;
        Some((first, gone.len() as u64))
    }

    /// At most `limit` of the halves whose time has come, in the order in which it came. They are looked at again when it
    /// is `again_ms`, which lies behind `now_ms`.
    pub(super) fn take_due(&self, now_ms: i64, again_ms: i64, limit: usize) -> Vec<DueHalf> {
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

    /// Looks at these when it is `due_ms`.
    pub(super) fn look_again(&self, halves: &[DueHalf], due_ms: i64) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for DueHalf { offset, .. } in halves {
            let Some(half) = state.open.get_mut(&offset.0) else { continue };
            state.due.remove(&(half.due_ms, offset.0));
            half.due_ms = due_ms;
            state.due.insert((due_ms, offset.0));
        }
    }

    /// Another broker has this half now, whose producer decides about it there: it ends here without a mark.
    pub(crate) fn leave(&self, offset: QueueOffset, physical: PhysicalOffset) {
        let mut state = self.state.lock();
        if state.half(offset, physical).is_some() {
            state.remove(offset.0);
        }
    }

    /// Forgets all of them: this broker does not look after them any more.
    pub(crate) fn forget(&self) {
        *self.state.lock() = State::default();
    }

    /// A producer was asked about this half.
    pub(super) fn count_check(&self, offset: QueueOffset, physical: PhysicalOffset) {
        let mut state = self.state.lock();
        state.counts.checks += 1;
        if let Some(half) = state.half(offset, physical) {
            half.checks += 1;
        }
    }

    /// The topic of an open half.
    pub(super) fn topic(&self, offset: QueueOffset, physical: PhysicalOffset) -> Option<Box<str>> {
        let mut state = self.state.lock();
        let topic = state.half(offset, physical)?.topic;
        state.by_topic.name(topic)
    }

    /// A producer has answered a check of this half, and does not know. Each check has one answer.
    pub(super) fn count_answer(&self, offset: QueueOffset, physical: PhysicalOffset) {
        let mut state = self.state.lock();
        if let Some(half) = state.half(offset, physical).filter(|half| half.answers < half.checks) {
            half.answers += 1;
        }
    }

    /// Looks at this half when it is `now_ms`, as if nobody had been asked about it yet; false where it has ended.
    pub(super) fn begin_again(&self, offset: QueueOffset, physical: PhysicalOffset, now_ms: i64) -> bool {
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

    /// The record of a half cannot be read. One that `is_gone` from the log ends with that; another may be restored.
    /// Whether this is news.
    pub(super) fn lose(&self, half: DueHalf, is_gone: bool) -> bool {
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

/// How long the producer of a half message has before it is asked: what the message says, a day at most, or else
/// `timeout_ms`.
pub(super) fn time_to_decide_ms(half_properties: &[u8], timeout_ms: i64) -> i64 {
    let asked_s: Option<i64> = number(half_properties, name::CHECK_IMMUNITY_S);
    let asked_ms = asked_s.filter(|seconds| *seconds >= 0).map(|seconds| seconds.saturating_mul(1_000));
    asked_ms.map_or(timeout_ms, |asked_ms| asked_ms.min(DECIDE_MS_MAX))
}

/// The producer group of the message.
pub(super) fn group_of(half_properties: &[u8]) -> &str {
    let group = properties::get(half_properties, name::PRODUCER_GROUP);
    group.and_then(|group| std::str::from_utf8(group).ok()).unwrap_or_default()
}

/// The topic of the message.
pub(super) fn topic_of(half_properties: &[u8]) -> &str {
    let topic = properties::get(half_properties, name::REAL_TOPIC);
    topic.and_then(|topic| std::str::from_utf8(topic).ok()).unwrap_or_default()
}

fn number<T: std::str::FromStr>(half_properties: &[u8], name: &[u8]) -> Option<T> {
    std::str::from_utf8(properties::get(half_properties, name)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
