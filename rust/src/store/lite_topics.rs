//! Lite topics in the store: their queues by parent, and those that nothing was sent to for long.
//!
//! Threads: any. A scan holds no lock for longer than one piece.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::message::lite;
use crate::positions::QueueOffset;

use super::Store;
use super::derived::ConsumeQueue;
use super::error::StoreError;

/// Queues of one step of a scan.
const PIECE: usize = 1_024;

impl Store {
    /// Returns the number of queues, light ones included.
    #[must_use]
    pub fn queue_count(&self) -> usize {
        self.dispatcher.derived().queues.count()
    }

    /// Returns the number of lite topics of each parent.
    #[must_use]
    pub fn lite_topics(&self) -> BTreeMap<String, u64> {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for queue in self.each_lite() {
            let parent = lite::parts_of(&queue.key().topic).map_or("", |(parent, _)| parent);
            match counts.get_mut(parent) {
                Some(count) => *count += 1,
                None => drop(counts.insert(parent.to_owned(), 1)),
            }
        }
        counts
    }

    /// Returns the queues of at most `limit` lite topics whose last message is older than the time, in milliseconds, that
    /// `kept_ms` has for their parent. Parents that it does not name keep theirs. May wait for the disk.
    pub fn stale_lite_topics(
        &self,
        now_ms: i64,
        kept_ms: &BTreeMap<String, i64>,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let mut stale = Vec::new();
        for queue in self.each_lite() {
            let parent = lite::parts_of(&queue.key().topic).map_or("", |(parent, _)| parent);
            let Some(kept_ms) = kept_ms.get(parent) else { continue };
            let is_stale = match self.last_stored_ms(&queue, now_ms)? {
                Some(stored_ms) => now_ms.saturating_sub(stored_ms) > *kept_ms,
                // Its messages left the log.
                None => true,
            };
            if is_stale {
                stale.push(queue.key().topic.to_string());
                if stale.len() >= limit {
                    break;
                }
            }
        }
        Ok(stale)
    }

    /// Returns when the last message of a light queue was stored; `None` if it is not in the log any more. An empty queue is
    /// as old as the first question.
    fn last_stored_ms(&self, queue: &ConsumeQueue, now_ms: i64) -> Result<Option<i64>, StoreError> {
        let known = queue.stored_ms();
        if known > 0 {
            return Ok(Some(known));
        }
        let stored_ms = match queue.max().0.checked_sub(1) {
            Some(last) => self.store_time(queue, QueueOffset(last))?,
            None => Some(now_ms),
        };
        if let Some(stored_ms) = stored_ms {
            queue.note_stored(stored_ms);
        }
        Ok(stored_ms)
    }

    /// Returns the queues of all lite topics, in pieces, by name.
    fn each_lite(&self) -> impl Iterator<Item = Arc<ConsumeQueue>> {
        let queues = &self.dispatcher.derived().queues;
        let mut piece = Vec::new().into_iter();
        let mut last: Option<Arc<str>> = Some("".into());
        std::iter::from_fn(move || {
            piece.next().or_else(|| {
                let found: Vec<Arc<ConsumeQueue>> = queues.lites_after(last.as_deref()?, PIECE);
                last = found.last().map(|queue| Arc::clone(&queue.key().topic));
                piece = found.into_iter();
                piece.next()
            })
        })
    }
}
