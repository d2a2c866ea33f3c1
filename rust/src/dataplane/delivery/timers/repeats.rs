//! Repeats: detection of messages that were delivered before the start but not saved as delivered.
//!
//! A kill leaves such messages, and so does Apache's broker, which saves whole seconds. The index has the copy under
//! the message's unique key. Only messages due between the saved progress and the last store time can have a copy.
//! The number of lookups is limited, to bound the time of a start. A message without an index entry or unique key is
//! delivered again.

use crate::message::properties::{self, name};
use crate::message::record::RecordView;
use crate::store::Store;

/// Maximum number of lookups after a start.
const LOOKUPS_MAX: u32 = 65_536;
/// Maximum number of copies with one unique key; a producer's retries make several.
const COPIES_MAX: usize = 16;

/// The range of messages that may have been delivered before the start.
pub(super) struct Repeats {
    /// Copies have store times from `begin_ms` to `end_ms`.
    begin_ms: i64,
    end_ms: i64,
    /// Messages from this position on were stored after the start.
    end: u64,
    left: u32,
}

impl Repeats {
    /// Returns the range for a log that ends now, with progress saved up to `delivered_ms`.
    pub(super) fn since(delivered_ms: i64, store: &Store) -> Self {
        let end_ms = store.last_store_time().unwrap_or(i64::MIN);
        Self { begin_ms: delivered_ms, end_ms, end: store.range().1.0, left: LOOKUPS_MAX }
    }

    /// Returns an empty range, for a start after an orderly stop.
    pub(super) fn none() -> Self {
        Self { begin_ms: 0, end_ms: i64::MIN, end: 0, left: 0 }
    }

    /// Returns whether a copy of this message, due at `at_ms`, was stored before the start.
    pub(super) fn has(&mut self, store: &Store, record: &RecordView<'_>, at_ms: i64) -> bool {
        if self.left == 0 || at_ms > self.end_ms || record.physical_offset().0 >= self.end {
            return false;
        }
        let own = record.properties();
        let text = |name| properties::get(own, name).and_then(|value| std::str::from_utf8(value).ok());
        let (Some(topic), Some(key)) = (text(name::REAL_TOPIC), text(name::UNIQ_KEY)) else { return false };
        self.left -= 1;
        let Ok(found) = store.query(topic, key, COPIES_MAX, self.begin_ms, self.end_ms) else { return false };
        found.records.iter().filter_map(|bytes| RecordView::parse(bytes).ok()).any(|copy| {
            let of_copy = |name| properties::get(copy.properties(), name);
            copy.physical_offset() > record.physical_offset()
                && of_copy(name::TIMER_DEQUEUE_MS).is_some()
                && [name::UNIQ_KEY, name::TIMER_OUT_MS, name::REAL_QUEUE_ID]
                    .into_iter()
                    .all(|name| of_copy(name) == properties::get(own, name))
        })
    }
}
