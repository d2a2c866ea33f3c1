//! Queue file cache: units that a reader copied ahead from the file of a queue.
//!
//! Owns a range of one queue: a read that continues there finds the next units here and not in the file. A new range
//! replaces the old one, so that a reader holds one, however many queues it reads.
//!
//! *Invariant*: the units held were readable once, and such units never change.
//! Threads: the reader's own.

use std::ops::Range;

use crate::store::error::StoreError;

use super::consume_queue::ConsumeQueue;
use super::queues::Queues;
use super::unit::UNIT_BYTES;

/// Units per copy: those of eight pulls of Java's consumers, in 5 KiB.
const UNITS_MAX: usize = 256;

#[derive(Default, Debug)]
pub(crate) struct QueueFileCache {
    /// Serial of the queue.
    queue: u64,
    /// Offset of the first unit.
    first: u64,
    units: Vec<[u8; UNIT_BYTES]>,
}

impl QueueFileCache {
    /// Returns the memory held, filled or not.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.units.capacity() * UNIT_BYTES
    }

    /// Returns units from the start of `range`, at least one unless there are none, and none beyond its end, which
    /// must not exceed the end of the queue.
    pub(crate) fn units(
        &mut self,
        queues: &Queues,
        queue: &ConsumeQueue,
        range: Range<u64>,
    ) -> Result<&[[u8; UNIT_BYTES]], StoreError> {
        let held = self.first..self.first + self.units.len() as u64;
        let wanted = (range.end - range.start) as usize;
        if self.queue != queue.serial() || !held.contains(&range.start) {
            (self.queue, self.first) = (queue.serial(), range.start);
            self.units.resize(wanted.min(UNITS_MAX), [0; UNIT_BYTES]);
            let read = queues.read(queue, range.start, &mut self.units);
            self.units.truncate(*read.as_ref().unwrap_or(&0));
            read?;
        }
        let skipped = (range.start - self.first) as usize;
        let until = self.units.len().min(skipped + wanted);
        Ok(self.units.get(skipped..until).unwrap_or_default())
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;
    use crate::positions::QueueOffset;
    use crate::store::derived::dispatch::Derived;
    use crate::store::derived::queue::queue_files::QueueFiles;
    use crate::store::derived::queue::unit::Unit;
    use crate::store::disk::simulated::SimDisk;

    fn unit(queue_id: u32, offset: u64) -> Unit {
        Unit { physical: offset * 1000 + u64::from(queue_id), size: 100, tags_code: 7 }
    }

    fn grow(queues: &Queues, queue: &Arc<ConsumeQueue>, until: u64) {
        for offset in queue.max().0..until {
            assert!(queues.restore(queue, QueueOffset(offset), unit(queue.key().queue_id, offset)));
        }
    }

    #[test]
    fn a_reader_of_several_growing_queues_finds_every_unit() {
        let files =
            QueueFiles::new(SimDisk::new().shared(), PathBuf::from("/queues"), 1000 * UNIT_BYTES as u64);
        let queues = Queues::new(files, &[]);
        let both = [0, 1].map(|queue_id| queues.get_or_create("t", queue_id).expect("a valid name"));
        let (mut cache, mut next) = (QueueFileCache::default(), 0_u64);
        for round in 1..200_u64 {
            both.iter().for_each(|queue| grow(&queues, queue, round * 15));
            if round % 20 == 0 {
                queues.write().expect("a working disk");
            }
            // Long runs of one queue, with an occasional read of the other at the same place.
            let (begin, read) = (next, if round % 7 == 0 { &both[..] } else { &both[..1] });
            for queue in read {
                next = begin;
                let until = queue.max().0.min(begin + 32);
                while next < until {
                    let found = cache.units(&queues, queue, next..until).expect("a working disk");
                    assert!(!found.is_empty() && found.len() as u64 <= until - next);
                    for bytes in found {
                        assert_eq!(Unit::decode(bytes), unit(queue.key().queue_id, next));
                        next += 1;
                    }
                }
            }
        }
        assert_eq!(next, 199 * 15, "the reader is at the end");
    }
}
