//! Copying: appends the new messages of an ordinary queue to its copy.
//!
//! Records come from the log, each checked. A message without a key, and a record that is not in the log, are passed.
//!
//! Threads: the follower's, and the thread for cold reads, which copies what a consumer asks for.

use crate::message::properties::{self, name};
use crate::message::record::RecordView;
use crate::store::derived::{ConsumeQueue, Queues, UNIT_BYTES, Unit};
use crate::store::error::StoreError;
use crate::store::log::{CommitLog, is_whole, record_at};

use super::queue::{CompactedQueue, Writing};

/// Units per read of the ordinary queue.
const BLOCK_UNITS: usize = 512;

/// Returns the key of a message: the property as a whole. Blank ones are none.
pub(super) fn key_of<'a>(record: &RecordView<'a>) -> Option<&'a [u8]> {
    let key = properties::get(record.properties(), name::KEYS)?;
    key.iter().any(|byte| !byte.is_ascii_whitespace()).then_some(key)
}

impl CompactedQueue {
    /// Appends messages of `source` until some `bytes_max` bytes are copied. Returns whether everything is copied that
    /// was visible at the beginning.
    pub(super) fn copy(
        &self,
        log: &CommitLog,
        queues: &Queues,
        source: &ConsumeQueue,
        bytes_max: u64,
    ) -> Result<bool, StoreError> {
        let max = source.max().0;
        self.write(|writing| {
            let mut units = [[0; UNIT_BYTES]; BLOCK_UNITS];
            writing.next = writing.next.max(source.min().0.min(max));
            let mut copied = 0;
            while writing.next < max && copied < bytes_max {
                let count = BLOCK_UNITS.min((max - writing.next) as usize);
                let block = units.get_mut(..count).unwrap_or_default();
                let read = queues.read(source, writing.next, block)?;
                if read == 0 {
                    break;
                }
                for unit in units.iter().take(read).map(Unit::decode) {
                    copied += append(log, writing, &unit)?;
                    writing.next += 1;
                    if copied >= bytes_max {
                        break;
                    }
                }
            }
            Ok(writing.next >= max)
        })
    }
}

/// Appends the record of the next unit, if it is in the log and has a key. Returns its size.
fn append(log: &CommitLog, writing: &mut Writing, unit: &Unit) -> Result<u64, StoreError> {
    if !unit.is_plausible() || unit.is_lost() {
        return Ok(0);
    }
    let offset = writing.next;
    let pushed = record_at(log.segments(), unit.physical, |record| -> Result<u64, StoreError> {
        let is_it = record.queue_offset().0 == offset
            && record.total_size() == unit.size as usize
            && is_whole(record, unit.physical);
        if is_it && key_of(record).is_some() && writing.writer.takes(record.total_size()) {
            writing.writer.push(record)?;
        }
        Ok(record.total_size() as u64)
    });
    pushed.unwrap_or(Ok(0))
}
