//! One queue of the revive topic: its read position and its pending checkpoints.
//!
//! If the table of pending checkpoints is full, it reads ahead for their acknowledgements alone, so that they can be decided,
//! and returns to the other checkpoints afterwards.
//!
//! Threads: that of the revival.

use std::sync::Arc;

use super::pending::Pending;
use super::records::{ReviveRecord, parse};
use crate::message::record::records;
use crate::positions::QueueOffset;
use crate::store::{ConsumeQueue, Get, GetResult, ReadFilter, Store, StoreError};

/// Records that one step reads.
const RECORDS_PER_STEP_MAX: u32 = 512;
const BYTES_PER_STEP_MAX: usize = 1 << 20;

pub(super) struct ReviveQueue {
    queue: Arc<ConsumeQueue>,
    /// Checkpoints before this offset have been read.
    next: QueueOffset,
    /// Where the table is full: acknowledgements before this offset have been read, too.
    acks_next: Option<QueueOffset>,
    pub(super) pending: Pending,
    /// Whether every acknowledgement of the pending checkpoints was read.
    pub(super) is_whole: bool,
    /// The offset of the last checkpoint that was read, and the saved offset.
    last: Option<u64>,
    saved: Option<u64>,
}

impl ReviveQueue {
    /// Continues behind the checkpoint at `saved`.
    pub(super) fn new(queue: Arc<ConsumeQueue>, saved: Option<u64>) -> Self {
        let next = saved.map_or(queue.min(), |saved| QueueOffset(saved + 1).max(queue.min()));
        let pending = Pending::default();
        Self { queue, next, acks_next: None, pending, is_whole: false, last: saved, saved }
    }

    pub(super) fn id(&self) -> u32 {
        self.queue.key().queue_id
    }

    /// Reads some records.
    pub(super) fn read_on(
        &mut self,
        store: &Store,
        own_name: &str,
        pending_max: usize,
        found: &mut GetResult,
    ) -> Result<(), StoreError> {
        // Room for many more: each return reads the acknowledgements again.
        if self.pending.len() < pending_max / 4 * 3 {
            self.acks_next = None;
        } else if self.pending.len() >= pending_max && self.acks_next.is_none() {
            self.acks_next = Some(self.next);
        }
        let offset = self.acks_next.unwrap_or(self.next);
        self.is_whole = offset >= self.queue.max();
        if self.is_whole {
            return Ok(());
        }
        let get = Get { offset, messages_max: RECORDS_PER_STEP_MAX, bytes_max: BYTES_PER_STEP_MAX };
        let mut filter = |_| true;
        store.get_filtered(&self.queue, &get, &mut ReadFilter::Codes(&mut filter), found)?;
        let mut next = found.next_begin.max(offset);
        let slices = std::mem::take(&mut found.slices);
        for record in slices.iter().flat_map(|slice| records(slice)).flatten() {
            // A malformed record is passed over: it must not stop the queue.
            match parse(record.properties(), record.body(), own_name) {
                Some(ReviveRecord::Acks(key, offsets)) => self.pending.ack(&key, &offsets),
                Some(ReviveRecord::Checkpoint(checkpoint)) if self.acks_next.is_none() => {
                    if self.pending.len() >= pending_max {
                        next = record.queue_offset();
                        break;
                    }
                    self.last = Some(record.queue_offset().0);
                    self.pending.insert(record.queue_offset().0, &checkpoint);
                }
                _ => {}
            }
        }
        found.clear();
        match &mut self.acks_next {
            Some(acks_next) => *acks_next = next,
            None => self.next = next,
        }
        self.is_whole = next >= self.queue.max();
        Ok(())
    }

    /// The last checkpoint before which none is pending, where it is another than the last time.
    pub(super) fn progress(&mut self) -> Option<u64> {
        let done = match self.pending.first() {
            Some(first) => first.checked_sub(1),
            None => self.last,
        };
        let done = done.filter(|done| self.saved.is_none_or(|saved| *done > saved))?;
        self.saved = Some(done);
        Some(done)
    }
}
