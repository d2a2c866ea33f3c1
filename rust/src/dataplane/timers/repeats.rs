//! Repeats: messages that were delivered before the start and not noted as delivered, by a broker that was killed or by the
//! original, which notes slots of a second.
//!
//! The index has the copy under the message's unique key. Only what fell due between the progress in the file and the end
//! of the log can have one; so many are looked up at most, for a start has to come to an end. Where there is no index, or no
//! unique key, the message is delivered again.

use crate::message::properties::{self, name};
use crate::message::record::RecordView;
use crate::store::Store;

/// Messages that are looked up after a start at most.
const LOOKUPS_MAX: u32 = 65_536;
/// Copies of messages with one unique key: producers that try again make a few.
const COPIES_MAX: usize = 16;

/// What may have been delivered before the start.
pub(super) struct Repeats {
    /// Copies were stored from the first of these times to the last.
    begin_ms: i64,
    end_ms: i64,
    /// Messages at or behind it are none.
    end: u64,
    left: u32,
}

impl Repeats {
    /// Of a log that ends now, in which messages due by `delivered_ms` are noted as delivered.
    pub(super) fn since(delivered_ms: i64, store: &Store) -> Self {
        let end_ms = store.last_store_time().unwrap_or(i64::MIN);
        Self { begin_ms: delivered_ms, end_ms, end: store.range().1.0, left: LOOKUPS_MAX }
    }

    /// None, after an orderly stop.
    pub(super) fn none() -> Self {
        Self { begin_ms: 0, end_ms: i64::MIN, end: 0, left: 0 }
    }

    /// Whether a copy of this message, which is due then, was stored before the start.
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
