//! Figures of the timers: what waits, by topic and by time, and what was noted and delivered since the start.
//!
//! Each message counts as it comes and goes; what waited at the start is counted later (`counting`).

use std::collections::HashMap;

use crate::message::properties::{self, name};
use crate::message::record::RecordView;

/// Upper ends of the buckets for delays, in seconds from the storing of a message to its time, as the original has them;
/// one more holds later ones.
pub(crate) const DELAY_BOUNDS_S: [u64; 6] = [60, 600, 3_600, 43_200, 86_400, 259_200];
/// Topics beyond which those that nothing waits for are forgotten.
const TOPICS_MAX: usize = 65_536;

/// Timed messages of a topic.
#[derive(Clone, Copy, Default)]
pub(crate) struct TopicTimers {
    /// Those that wait; one that takes another back counts against it.
    pub(crate) waiting: i64,
    /// Those read from the queue, and those delivered, since the start.
    pub(crate) noted: u64,
    pub(crate) delivered: u64,
    /// Those read by how long they had to wait, those that take others back excepted.
    pub(crate) delays: [u64; DELAY_BOUNDS_S.len() + 1],
    /// Of all of them together.
    pub(crate) delay_s: u64,
}

impl TopicTimers {
    fn delay(&mut self, seconds: u64) {
        let at = DELAY_BOUNDS_S.partition_point(|bound| *bound < seconds);
        self.delays.get_mut(at).into_iter().for_each(|count| *count += 1);
        self.delay_s = self.delay_s.saturating_add(seconds);
    }
}

/// How far delivery is behind, and what waits.
pub(crate) struct TimerStatistics {
    pub(crate) pending: u64,
    /// Messages of the queue that are not read, and the age of the last one that was.
    pub(crate) unread: u64,
    pub(crate) unread_ms: u64,
    /// Messages that are due, and how long the first of them has been.
    pub(crate) late: u64,
    pub(crate) late_ms: u64,
    pub(crate) topics: Vec<(String, TopicTimers)>,
}

#[derive(Default)]
pub(super) struct ByTopic {
    pub(super) topics: HashMap<Box<[u8]>, TopicTimers>,
    /// What waited at the start is among them.
    pub(super) is_whole: bool,
}

impl ByTopic {
    /// Of which nothing is missing, for nothing has been read yet.
    pub(super) fn whole() -> Self {
        Self { is_whole: true, ..Self::default() }
    }

    pub(super) fn change(&mut self, topic: &[u8], change: impl FnOnce(&mut TopicTimers)) {
        if let Some(found) = self.topics.get_mut(topic) {
            return change(found);
        }
        if self.topics.len() >= TOPICS_MAX {
            self.topics.retain(|_, found| found.waiting > 0);
        }
        let mut found = TopicTimers::default();
        change(&mut found);
        self.topics.insert(topic.into(), found);
    }

    /// A message for this time was read from the queue, and changes the number of those that wait by `waiting`.
    pub(super) fn noted(&mut self, record: &RecordView<'_>, at_ms: i64, waiting: i32) {
        let delay_ms = at_ms.saturating_sub(record.store_timestamp_ms()).max(0).cast_unsigned();
        self.change(topic_of(record), |topic| {
            topic.noted += 1;
            topic.waiting += i64::from(waiting);
            if waiting >= 0 {
                topic.delay(delay_ms / 1_000);
            }
        });
    }

    /// A message that counted so waits no more.
    pub(super) fn left(&mut self, record: &RecordView<'_>, waited: i32) {
        self.change(topic_of(record), |topic| topic.waiting -= i64::from(waited));
    }

    pub(super) fn delivered(&mut self, record: &RecordView<'_>) {
        self.change(topic_of(record), |topic| topic.delivered += 1);
    }

    /// Forgets what waits, to be read from the queue again.
    pub(super) fn begin_again(&mut self) {
        self.topics.values_mut().for_each(|topic| topic.waiting = 0);
        self.is_whole = true;
    }
}

/// The topic that a timed message was sent to.
pub(super) fn topic_of<'a>(record: &RecordView<'a>) -> &'a [u8] {
    properties::get(record.properties(), name::REAL_TOPIC).unwrap_or_default()
}
