//! Timer statistics: pending messages by topic and time, and messages stored and delivered since the start.
//!
//! Messages are counted as they are read and delivered; those pending at the start are added later (`counting`).

use std::collections::HashMap;

use crate::message::properties::{self, name};
use crate::message::record::RecordView;

/// Upper bounds of the buckets for delays, in seconds from store time to due time, as in Apache's broker. One more
/// bucket holds the rest.
pub(crate) const DELAY_BOUNDS_S: [u64; 6] = [60, 600, 3_600, 43_200, 86_400, 259_200];
/// Number of topics above which those without pending messages are removed.
const TOPICS_MAX: usize = 65_536;

/// Timed messages of a topic.
#[derive(Clone, Copy, Default)]
pub(crate) struct TopicTimers {
    /// Pending messages; a recall counts as -1.
    pub(crate) waiting: i64,
    /// Messages read from the queue, and messages delivered, since the start.
    pub(crate) noted: u64,
    pub(crate) delivered: u64,
    /// Messages read by delay, without recalls.
    pub(crate) delays: [u64; DELAY_BOUNDS_S.len() + 1],
    /// The sum of these delays.
    pub(crate) delay_s: u64,
}

impl TopicTimers {
    fn delay(&mut self, seconds: u64) {
        let at = DELAY_BOUNDS_S.partition_point(|bound| *bound < seconds);
        self.delays.get_mut(at).into_iter().for_each(|count| *count += 1);
        self.delay_s = self.delay_s.saturating_add(seconds);
    }
}

/// The lag of delivery, and the pending messages.
pub(crate) struct TimerStatistics {
    pub(crate) pending: u64,
    /// Unread messages of the queue, and the age of the last one read.
    pub(crate) unread: u64,
    pub(crate) unread_ms: u64,
    /// Overdue messages, and for how long the first has been.
    pub(crate) late: u64,
    pub(crate) late_ms: u64,
    pub(crate) topics: Vec<(String, TopicTimers)>,
}

#[derive(Default)]
pub(super) struct ByTopic {
    pub(super) topics: HashMap<Box<[u8]>, TopicTimers>,
    /// Whether the messages pending at the start are included.
    pub(super) is_whole: bool,
}

impl ByTopic {
    /// Returns statistics for an unread queue, which lack nothing.
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

    /// Counts a message read from the queue, which changes the number of pending ones by `waiting`.
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

    /// Counts the end of a pending message.
    pub(super) fn left(&mut self, record: &RecordView<'_>, waited: i32) {
        self.change(topic_of(record), |topic| topic.waiting -= i64::from(waited));
    }

    pub(super) fn delivered(&mut self, record: &RecordView<'_>) {
        self.change(topic_of(record), |topic| topic.delivered += 1);
    }

    /// Resets the pending counts before the queue is read again.
    pub(super) fn begin_again(&mut self) {
        self.topics.values_mut().for_each(|topic| topic.waiting = 0);
        self.is_whole = true;
    }
}

/// Returns the destination topic of a timed message.
pub(super) fn topic_of<'a>(record: &RecordView<'a>) -> &'a [u8] {
    properties::get(record.properties(), name::REAL_TOPIC).unwrap_or_default()
}
