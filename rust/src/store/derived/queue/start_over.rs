//! Starting over: continuation of a queue whose next record has an unexpected offset.
//!
//! The topic was created again, or part of the log is gone, or the log begins later than the queue did.
//!
//! Threads: recovery; later the thread that makes records visible, under the dispatch lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::positions::QueueOffset;
use crate::store::error::StoreError;

use super::consume_queue::ConsumeQueue;
use super::queues::{Queues, digest_of};
use super::unit::Unit;

/// Bytes of the smallest record.
const RECORD_BYTES_MIN: u64 = 90;

impl Queues {
    /// Returns the newest unit of a queue, if its record may be in a log that begins at `log_begin`.
    pub(crate) fn newest(&self, queue: &ConsumeQueue, log_begin: u64) -> Result<Option<Unit>, StoreError> {
        let max = queue.max().0;
        if max == queue.min().0 {
            return Ok(None);
        }
        let newest = self.unit(queue, max - 1)?;
        Ok(newest.filter(|unit| *unit != Unit::FILLER && unit.physical >= log_begin))
    }

    /// Fills a queue up to `until` with units of lost messages at `at`; returns false, with nothing done, unless
    /// `bytes` may have held that many records.
    pub(crate) fn fill(&self, queue: &Arc<ConsumeQueue>, until: u64, at: u64, bytes: u64) -> bool {
        let next = queue.max().0;
        let is_explained = until > next && until - next <= bytes / RECORD_BYTES_MIN;
        is_explained && (next..until).all(|offset| self.restore(queue, QueueOffset(offset), Unit::lost(at)))
    }

    /// Continues a queue at `offset`, whose record is at `physical`. Keeps the earlier units if the log in between
    /// has room for the missing records: messages of an earlier topic of that name cannot keep their offsets, newer
    /// ones must.
    pub(crate) fn start_over(
        &self,
        queue: &Arc<ConsumeQueue>,
        offset: QueueOffset,
        physical: u64,
        log_begin: u64,
    ) -> Result<(), StoreError> {
        let before = digest_of(queue);
        let after = self.newest(queue, log_begin)?.map(|newest| newest.end());
        let is_filled = after.is_some_and(|at| self.fill(queue, offset.0, at, physical.saturating_sub(at)));
        if !is_filled {
            self.restart(queue, offset.0)?;
        }
        self.digest.fetch_add(digest_of(queue).wrapping_sub(before), Ordering::AcqRel);
        Ok(())
    }
}
