//! Mapping: the logical queues of a static topic, each a list of segments in queues of brokers.
//!
//! A static topic numbers its queues and offsets over all brokers. Only the newest segment of a logical queue grows,
//! at the broker that leads the queue. The store knows the brokers' own queues alone; requests are translated.
//!
//! Terms: a *local* offset is one of a broker's queue. A segment is *decided* once its first logical offset is known;
//! until then, its messages cannot be read.
//!
//! Immutable; any thread.

use std::sync::Arc;

use hashbrown::HashMap;

/// The logical offset of a segment that is not decided.
const UNDECIDED: i64 = -1;

/// A part of a logical queue, in one queue of one broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The queue of the broker.
    pub queue_id: u32,
    /// Whether that is a queue of this broker.
    pub is_own: bool,
    /// The logical offset of `start`; negative while the segment is not decided.
    pub logical_start: i64,
    /// The first local offset.
    pub start: i64,
    /// The local offset after the last one; not above `start` while the segment has no end.
    pub end: i64,
}

impl Segment {
    pub(in crate::dataplane) fn is_decided(&self) -> bool {
        self.logical_start >= 0
    }

    /// Returns the logical offset of a local one; -1 while the segment is not decided.
    pub(in crate::dataplane) fn logical(&self, local: u64) -> i64 {
        if !self.is_decided() {
            return UNDECIDED;
        }
        let local = i64::try_from(local).unwrap_or(i64::MAX);
        self.logical_start.saturating_add(local.saturating_sub(self.start).max(0))
    }

    /// Returns the local offset of a logical one.
    pub(in crate::dataplane) fn local(&self, logical: i64) -> i64 {
        self.start.saturating_add(logical.saturating_sub(self.logical_start).max(0))
    }

    /// Returns the number that consumers add to the queue offsets of records.
    pub(in crate::dataplane) fn delta(&self) -> i64 {
        self.logical_start.saturating_sub(self.start)
    }

    /// Returns the highest logical end that the mapping itself guarantees.
    fn known_end(&self) -> i64 {
        self.logical_start.saturating_add(self.end.saturating_sub(self.start).max(0))
    }
}

/// The segments of a logical queue, oldest first.
#[derive(Debug)]
pub struct LogicalQueue {
    segments: Box<[Segment]>,
}

impl LogicalQueue {
    /// Returns whether this broker has the newest segment.
    pub(in crate::dataplane) fn is_led(&self) -> bool {
        self.segments.last().is_some_and(|newest| newest.is_own)
    }

    /// Returns the segments, oldest first.
    pub(in crate::dataplane) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the segment of a logical offset: the newest decided one with its start at or below it, or the oldest
    /// decided one.
    pub(in crate::dataplane) fn at(&self, offset: i64) -> Option<usize> {
        let begins_below = |segment: &Segment| segment.is_decided() && segment.logical_start <= offset;
        self.segments.iter().rposition(begins_below).or_else(|| self.earliest())
    }

    /// Returns the oldest decided segment.
    pub(in crate::dataplane) fn earliest(&self) -> Option<usize> {
        self.segments.iter().position(Segment::is_decided)
    }

    /// Returns the decided segment after this one.
    pub(in crate::dataplane) fn after(&self, index: usize) -> Option<usize> {
        let later = self.segments.iter().enumerate().skip(index + 1);
        later.filter(|(_, segment)| segment.is_decided()).map(|(index, _)| index).next()
    }

    /// Returns the highest logical end that the mapping itself guarantees.
    pub(in crate::dataplane) fn known_end(&self) -> i64 {
        self.segments.last().map_or(UNDECIDED, Segment::known_end)
    }
}

/// The logical queues of a topic that this broker has segments of.
#[derive(Debug, Default)]
pub struct Mapping {
    queues: HashMap<u32, Arc<LogicalQueue>>,
    /// The queues that this broker leads, ascending.
    led: Box<[u32]>,
}

impl Mapping {
    /// Creates a mapping from the segments of each queue, oldest first.
    #[must_use]
    pub fn new(queues: Vec<(u32, Vec<Segment>)>) -> Self {
        let queues: HashMap<u32, Arc<LogicalQueue>> = queues
            .into_iter()
            .map(|(queue_id, segments)| (queue_id, Arc::new(LogicalQueue { segments: segments.into() })))
            .collect();
        let mut led: Box<[u32]> =
            queues.iter().filter(|(_, queue)| queue.is_led()).map(|(queue_id, _)| *queue_id).collect();
        led.sort_unstable();
        Self { queues, led }
    }

    /// Returns the queue of this number, if this broker leads it.
    pub(in crate::dataplane) fn led(&self, queue_id: u32) -> Option<&Arc<LogicalQueue>> {
        self.queues.get(&queue_id).filter(|queue| queue.is_led())
    }

    /// Returns the numbers of the queues that this broker leads, ascending.
    pub(in crate::dataplane) fn led_ids(&self) -> &[u32] {
        &self.led
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(logical_start: i64, is_own: bool) -> Segment {
        Segment { queue_id: 0, is_own, logical_start, start: 0, end: -1 }
    }

    fn queue(starts: &[(i64, bool)]) -> LogicalQueue {
        let segments = starts.iter().map(|(start, is_own)| segment(*start, *is_own)).collect();
        LogicalQueue { segments }
    }

    #[test]
    fn offsets_are_translated_in_both_directions() {
        let later = segment(10_000, true);
        assert_eq!((later.logical(0), later.logical(7), later.delta()), (10_000, 10_007, 10_000));
        assert_eq!((later.local(10_007), later.local(9_999)), (7, 0));
        let shifted = Segment { start: 5, ..later };
        assert_eq!((shifted.logical(3), shifted.logical(6), shifted.local(10_001)), (10_000, 10_001, 6));
        assert_eq!(segment(-1, true).logical(9), UNDECIDED);
        assert_eq!(later.logical(u64::MAX), i64::MAX);
    }

    #[test]
    fn an_offset_belongs_to_the_newest_decided_segment_below_it() {
        let queue = queue(&[(0, false), (10_000, true), (-1, true)]);
        assert_eq!(
            [0, 9_999, 10_000, i64::MAX, -1].map(|at| queue.at(at)),
            [Some(0), Some(0), Some(1), Some(1), Some(0)]
        );
        assert_eq!((queue.earliest(), queue.after(0), queue.after(1)), (Some(0), Some(1), None));
        assert_eq!(queue.known_end(), UNDECIDED);
    }

    #[test]
    fn only_the_broker_of_the_newest_segment_leads_a_queue() {
        let segments = |owns: &[bool]| owns.iter().map(|own| segment(0, *own)).collect::<Vec<_>>();
        let mapping = Mapping::new(vec![
            (3, segments(&[false, true])),
            (1, segments(&[true, false])),
            (0, segments(&[true])),
            (9, Vec::new()),
        ]);
        assert_eq!(mapping.led_ids(), [0, 3]);
        assert!(mapping.led(3).is_some() && mapping.led(1).is_none() && mapping.led(9).is_none());
    }
}
