//! Transaction statistics by the topic of the messages, for the metrics of Apache's broker.

use hashbrown::HashMap;

/// Upper bounds of the buckets for commits, in seconds since the birth of the message, as in Apache's broker. One more
/// bucket holds the rest.
pub(crate) const LATENCY_BOUNDS_S: [u64; 6] = [5, 60, 600, 3_600, 43_200, 86_400];
/// The maximum number of topics. Further topics are counted together without a name.
const TOPICS_MAX: usize = 10_000;

/// The result of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::dataplane) enum End {
    /// Committed this many seconds after the birth of the message.
    Commit(u64),
    Rollback,
    /// Discarded without a decision.
    Discard,
}

/// The index of a topic in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TopicIndex(u16);

/// The transactions of one topic.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct TopicTransactions {
    /// The number of open transactions.
    pub(crate) open: u64,
    /// Commits since the start; the next fields count since the start, too.
    pub(crate) committed: u64,
    pub(crate) rolled_back: u64,
    /// Commits by the age of the message.
    pub(crate) latencies: [u64; LATENCY_BOUNDS_S.len() + 1],
    /// The sum of all ages.
    pub(crate) latency_s: u64,
}

#[derive(Debug, Default)]
pub(super) struct ByTopic {
    indexes: HashMap<Box<str>, TopicIndex>,
    table: Vec<TopicTransactions>,
}

impl ByTopic {
    pub(super) fn index(&mut self, topic: &str) -> TopicIndex {
        if let Some(index) = self.indexes.get(topic) {
            return *index;
        }
        let topic = if self.table.len() < TOPICS_MAX { topic } else { "" };
        if let Some(index) = self.indexes.get(topic) {
            return *index;
        }
        let index = TopicIndex(self.table.len() as u16);
        self.table.push(TopicTransactions::default());
        self.indexes.insert(topic.into(), index);
        index
    }

    /// Returns the name of a topic; `None` for those that are counted together.
    pub(super) fn name(&self, topic: TopicIndex) -> Option<Box<str>> {
        let found = self.indexes.iter().find(|(_, index)| **index == topic);
        found.map(|(name, _)| name.clone()).filter(|name| !name.is_empty())
    }

    pub(super) fn open(&mut self, topic: TopicIndex) {
        self.change(topic, |counts| counts.open += 1);
    }

    pub(super) fn close(&mut self, topic: TopicIndex) {
        self.change(topic, |counts| counts.open = counts.open.saturating_sub(1));
    }

    pub(super) fn end(&mut self, topic: TopicIndex, end: End) {
        self.change(topic, |counts| match end {
            End::Commit(age_s) => {
                counts.committed += 1;
                let at = LATENCY_BOUNDS_S.partition_point(|bound| *bound < age_s);
                counts.latencies.get_mut(at).into_iter().for_each(|count| *count += 1);
                counts.latency_s = counts.latency_s.saturating_add(age_s);
            }
            End::Rollback => counts.rolled_back += 1,
            End::Discard => {}
        });
    }

    pub(super) fn read(&self) -> Vec<(Box<str>, TopicTransactions)> {
        let counts = |index: TopicIndex| self.table.get(usize::from(index.0)).cloned().unwrap_or_default();
        self.indexes.iter().map(|(topic, index)| (topic.clone(), counts(*index))).collect()
    }

    fn change(&mut self, topic: TopicIndex, change: impl FnOnce(&mut TopicTransactions)) {
        if let Some(counts) = self.table.get_mut(usize::from(topic.0)) {
            change(counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_beyond_the_bound_are_counted_together() {
        let mut all = ByTopic::default();
        for number in 0..2 * TOPICS_MAX {
            let topic = all.index(&format!("topic {number}"));
            all.open(topic);
        }
        let read = all.read();
        assert_eq!(read.len(), TOPICS_MAX + 1);
        assert_eq!(read.iter().map(|(_, counts)| counts.open).sum::<u64>(), 2 * TOPICS_MAX as u64);
        assert!(read.iter().any(|(topic, counts)| topic.is_empty() && counts.open == TOPICS_MAX as u64));
    }

    #[test]
    fn a_commit_is_counted_in_the_bucket_with_the_next_bound() {
        let mut all = ByTopic::default();
        let topic = all.index("orders");
        for age_s in [0, 5, 6, 86_401] {
            all.end(topic, End::Commit(age_s));
        }
        all.end(topic, End::Rollback);
        let (_, counts) = all.read().remove(0);
        assert_eq!(counts.latencies, [2, 1, 0, 0, 0, 0, 1]);
        assert_eq!((counts.committed, counts.rolled_back, counts.latency_s), (4, 1, 86_412));
    }
}
