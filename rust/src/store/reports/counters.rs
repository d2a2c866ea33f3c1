//! Counters: statistics of a store since it was opened.
//!
//! Threads: any.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of Apache's size buckets; one more bucket holds larger records.
pub(crate) const SIZE_BOUNDS: [u64; 6] = [1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];

pub(in crate::store) type Sizes = [u64; SIZE_BOUNDS.len() + 1];

#[derive(Default)]
pub(in crate::store) struct Counters {
    pub(crate) puts: AtomicU64,
    pub(crate) put_bytes: AtomicU64,
    /// The stored messages by the size of their records.
    sizes: [AtomicU64; SIZE_BOUNDS.len() + 1],
    pub(crate) put_failures: AtomicU64,
    pub(crate) gets: AtomicU64,
    /// Reads that found no message.
    pub(crate) gets_missed: AtomicU64,
    /// Reads of a queue that failed; not included in the others.
    pub(crate) gets_failed: AtomicU64,
    /// Messages returned by successful reads.
    pub(crate) got_messages: AtomicU64,
    /// Pending messages that were discarded.
    pub(crate) undelivered: AtomicU64,
}

impl Counters {
    /// Counts one burst: the number of records to store, and the size of each stored one.
    pub(in crate::store) fn put(&self, asked: usize, stored: impl Iterator<Item = u64>) {
        let (mut count, mut bytes, mut sizes) = (0, 0, Sizes::default());
        for size in stored {
            count += 1;
            bytes += size;
            let at = SIZE_BOUNDS.partition_point(|bound| *bound < size);
            sizes.get_mut(at).into_iter().for_each(|bucket| *bucket += 1);
        }
        self.puts.fetch_add(count, Ordering::Relaxed);
        self.put_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.put_failures.fetch_add(asked as u64 - count, Ordering::Relaxed);
        for (bucket, more) in self.sizes.iter().zip(sizes).filter(|(_, more)| *more > 0) {
            bucket.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(in crate::store) fn sizes(&self) -> Sizes {
        self.sizes.each_ref().map(|bucket| bucket.load(Ordering::Relaxed))
    }
}
